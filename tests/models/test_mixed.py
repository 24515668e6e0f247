r"""``MixedDTCGP`` beside BoTorch's ``MixedSingleTaskGP``."""

from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP, MixedDTCGP, RidgeLeverageSampling
from tests.models.support import assert_same_posterior, dense_moments, likelihood_of, noise_for


def mixed(n, batch=(), outputs=1):
    numbers = torch.rand(*batch, n, 2, dtype=torch.float64)
    categories = torch.randint(3, (*batch, n, 1)).double()
    X = torch.cat([numbers[..., :1], categories, numbers[..., 1:]], -1)
    Y = torch.stack([torch.sin((3 + k) * X).sum(-1) for k in range(outputs)], -1)
    return X, Y + 0.1 * torch.randn_like(Y)


def matern(batch_shape, ard_num_dims, active_dims):
    return MaternKernel(batch_shape=batch_shape, ard_num_dims=ard_num_dims, active_dims=active_dims)


@pytest.fixture(
    params=[
        ({}, {}),
        ({"cont_kernel_factory": matern}, {}),
        ({"cat_dims": [0, 1, 2]}, {}),
        ({"fixed_noise": True}, {}),
        ({}, {"outputs": 2}),
        ({}, {"batch": (2,)}),
    ],
    ids=["plain", "matern", "categories", "fixed-noise", "two-outputs", "batched"],
)
def pair(request):
    options, shape = ({**part} for part in request.param)
    X, Y = mixed(25, **shape)
    if options.pop("fixed_noise", False):
        options["train_Yvar"] = torch.full_like(Y, 0.05)
    options.setdefault("cat_dims", [1])
    return tuple(cls(X, Y, **options) for cls in (MixedSingleTaskGP, MixedDTCGP))


def test_a_full_dictionary_has_the_posterior_of_botorch(pair):
    exact, _ = pair
    T, _ = mixed(6, tuple(exact.batch_shape))
    for noisy in (False, True):
        posteriors = (m.posterior(T, observation_noise=noisy) for m in pair)
        assert_same_posterior(*posteriors, tolerance=1e-8)


def test_a_full_dictionary_has_the_likelihood_of_botorch(pair):
    torch.testing.assert_close(*map(likelihood_of, pair), atol=1e-8, rtol=1e-8)


def test_conditioning_agrees_with_botorch(pair):
    exact, _ = pair
    T, _ = mixed(4, tuple(exact.batch_shape))
    X, Y = mixed(3, tuple(exact.batch_shape), exact.num_outputs)
    exact.posterior(T)
    conditioned = (m.condition_on_observations(X, Y, **noise_for(m, Y)) for m in pair)
    assert_same_posterior(*(m.posterior(T) for m in conditioned), tolerance=1e-7)


def test_states_are_exchanged_with_botorch(pair):
    exact, sparse = pair
    with torch.no_grad():
        for parameter in exact.parameters():
            parameter.add_(0.1)
    sparse.load_state_dict(exact.state_dict())
    T, _ = mixed(4, tuple(exact.batch_shape))
    assert_same_posterior(exact.posterior(T), sparse.posterior(T), tolerance=1e-8)


def test_a_small_dictionary_has_the_dense_dtc_posterior():
    X, Y = mixed(80)
    model = MixedDTCGP(X, Y, [1], dictionary=torch.arange(20), outcome_transform=None)
    T, _ = mixed(7)
    mean, covariance = dense_moments(model, T)
    posterior = model.posterior(T)
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(
        posterior.distribution.covariance_matrix, covariance, atol=1e-8, rtol=1e-8
    )


def test_a_sparse_fit_learns_the_categories():
    X, Y = mixed(600)
    model = MixedDTCGP(X, Y, [1], dictionary=RidgeLeverageSampling(2.0, max_size=120))
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model),
        optimizer_kwargs={"options": {"maxiter": 15}},
    )
    T, _ = mixed(100)
    truth = torch.sin(3 * T).sum(-1, keepdim=True)
    assert len(model.dictionary_indices) <= 120
    assert (model.posterior(T).mean - truth).square().mean() < 0.1**2


def test_inputs_are_constructed_from_a_dataset():
    X, Y = mixed(12)
    names = {"feature_names": ["a", "b", "c"], "outcome_names": ["y"]}
    inputs = MixedDTCGP.construct_inputs(
        SupervisedDataset(X, Y, **names), categorical_features=[1], trace_term=True
    )
    model = MixedDTCGP(**inputs)
    assert isinstance(model, DTCGP) and isinstance(model, MixedSingleTaskGP)
    torch.testing.assert_close(model.posterior(X).mean, MixedDTCGP(X, Y, [1]).posterior(X).mean)


def test_no_categories_are_refused():
    X, Y = mixed(5)
    with pytest.raises(InputDataError, match=r"cat_dims must name at least one.*use DTCGP"):
        MixedDTCGP(X, Y, [])
