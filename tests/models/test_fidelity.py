r"""``MultiFidelityDTCGP`` beside BoTorch's ``SingleTaskMultiFidelityGP``."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition import PosteriorMean
from botorch.acquisition.fixed_feature import FixedFeatureAcquisitionFunction
from botorch.exceptions.errors import UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskMultiFidelityGP
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import MultiFidelityDTCGP, RidgeLeverageSampling
from tests.models.support import assert_same_posterior, likelihood_of, noise_for
from tests.problems import regression

DATA = {"data_fidelities": [3]}
PRODUCT = {**DATA, "linear_truncated": False}


@pytest.fixture(
    params=[
        (DATA, {}),
        ({"iteration_fidelity": 2}, {}),
        ({**DATA, "iteration_fidelity": 2, "nu": 1.5}, {}),
        (PRODUCT, {}),
        ({**PRODUCT, "iteration_fidelity": 2}, {}),
        ({**PRODUCT, "covar_module": MaternKernel(active_dims=[0, 1, 2])}, {}),
        (DATA, {"m": 2}),
        (PRODUCT, {"batch": (2,)}),
        ({**DATA, "fixed_noise": True}, {}),
    ],
    ids=[
        "truncated",
        "iterations",
        "two-fidelities",
        "product",
        "product-two-fidelities",
        "own-kernel",
        "two-outputs",
        "batched",
        "fixed-noise",
    ],
)
def pair(request):
    options, shape = request.param
    X, Y = regression(25, 4, **shape)
    options = {**options}
    if options.pop("fixed_noise", False):
        options["train_Yvar"] = torch.full_like(Y, 0.05)
    return tuple(cls(X, Y, **options) for cls in (SingleTaskMultiFidelityGP, MultiFidelityDTCGP))


def queries(model, q=5):
    return torch.rand(*model.batch_shape, q, 4, dtype=torch.float64)


def test_a_full_dictionary_has_the_posterior_of_botorch(pair):
    T = queries(pair[0])
    for noisy in (False, True):
        posteriors = (m.posterior(T, observation_noise=noisy) for m in pair)
        assert_same_posterior(*posteriors, tolerance=1e-8)


def test_a_full_dictionary_has_the_likelihood_of_botorch(pair):
    torch.testing.assert_close(*map(likelihood_of, pair), atol=1e-8, rtol=1e-8)


def test_conditioning_agrees_with_botorch(pair):
    exact, _ = pair
    T, X = queries(exact), queries(exact, 3)
    Y = torch.rand(*exact.batch_shape, 3, exact.num_outputs, dtype=torch.float64)
    exact.posterior(T)
    conditioned = (m.condition_on_observations(X, Y, **noise_for(m, Y)) for m in pair)
    assert_same_posterior(*(m.posterior(T) for m in conditioned), tolerance=1e-7)


def test_outputs_are_subset_as_in_botorch():
    X, Y = regression(20, 4, 2)
    models = [cls(X, Y, **DATA) for cls in (SingleTaskMultiFidelityGP, MultiFidelityDTCGP)]
    T = queries(models[0])
    posteriors = (m.subset_output([1]).posterior(T) for m in models)
    assert_same_posterior(*posteriors, tolerance=1e-8)


def test_a_sparse_fit_extrapolates_to_the_full_fidelity():
    X, _ = regression(600, 3)
    X[:, 2] *= 0.8  # the function itself is never evaluated
    truth = torch.sin(5 * X[:, :2]).sum(-1, keepdim=True)
    Y = truth + 0.3 * (1 - X[:, 2:]) + 0.1 * torch.randn_like(truth)
    model = MultiFidelityDTCGP(
        X,
        Y,
        data_fidelities=[2],
        linear_truncated=False,
        dictionary=RidgeLeverageSampling(2.0, max_size=100),
    )
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model),
        optimizer_kwargs={"options": {"maxiter": 20}},
    )
    assert len(model.dictionary_indices) <= 100
    full = FixedFeatureAcquisitionFunction(PosteriorMean(model), d=3, columns=[2], values=[1.0])
    error = full(X[:200, None, :2]) - truth[:200, 0]
    assert error.square().mean() < 0.2**2


def test_inputs_are_constructed_from_a_dataset():
    X, Y = regression(12, 4)
    names = {"feature_names": list("abcd"), "outcome_names": ["y"]}
    inputs = MultiFidelityDTCGP.construct_inputs(
        SupervisedDataset(X, Y, **names), fidelity_features=[3], dictionary=torch.arange(5)
    )
    assert MultiFidelityDTCGP(**inputs).dictionary_indices.tolist() == [0, 1, 2, 3, 4]


def test_no_fidelity_is_refused():
    X, Y = regression(12, 4)
    with pytest.raises(UnsupportedError, match="MultiFidelityDTCGP requires at least one fidelity"):
        MultiFidelityDTCGP(X, Y)
