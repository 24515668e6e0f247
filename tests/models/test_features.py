r"""DTCGP with features in place of a dictionary."""

from __future__ import annotations

import io
import pickle
from copy import deepcopy

import pytest
import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.exceptions.errors import UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP, CompressedGP, QuadratureFeatures, RandomFeatures, select_baseline
from botorch_bkb.features import FeatureKernel
from tests import naive
from tests.models.support import assert_same_posterior
from tests.problems import regression

RULES = [QuadratureFeatures(14), RandomFeatures(80)]


def build(rule, n=60, **kwargs):
    torch.manual_seed(0)
    X, Y = regression(n)
    kwargs.setdefault("outcome_transform", None)
    return DTCGP(X, Y, dictionary=rule, **kwargs)


def dense(model, T):
    r"""Mean and covariance at ``T`` of the linear model on the features, without transforms."""
    model.eval()
    X, kernel = model.train_inputs[0], model.covar_module
    with torch.no_grad():
        y = model.train_targets - model.mean_module(X)
        noise = torch.full_like(y, model.likelihood.noise.item())
        mean, cov = naive.feature_regression(kernel.features(X), kernel.features(T), y, noise)
        return mean + model.mean_module(T), cov


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_posterior_is_that_of_the_linear_model(rule):
    model, T = build(rule), torch.rand(9, 2, dtype=torch.float64)
    mean, cov = dense(model, T)
    with torch.no_grad():
        posterior = model.posterior(T)
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-9, rtol=0)
    covariance = posterior.distribution.covariance_matrix
    torch.testing.assert_close(covariance, cov, atol=1e-9, rtol=0)
    torch.testing.assert_close(posterior.variance.squeeze(-1), cov.diagonal(), atol=1e-9, rtol=0)
    for ours, theirs in zip(model.marginals(T), (mean, cov.diagonal()), strict=True):
        torch.testing.assert_close(ours.detach(), theirs, atol=1e-9, rtol=0)
    assert len(model.dictionary_indices) == 0
    scores = model.leverage_scores(T).squeeze(-1) * model.likelihood.noise.item()
    torch.testing.assert_close(scores, cov.diagonal(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_it_is_the_exact_gp_with_the_kernel_of_the_features(rule):
    sparse = build(rule)
    X, Y = sparse.train_inputs[0], sparse.train_targets.unsqueeze(-1)
    exact = SingleTaskGP(X, Y, covar_module=deepcopy(sparse.covar_module), outcome_transform=None)
    T = torch.rand(3, 4, 2, dtype=torch.float64)
    values = []
    for model in (exact, sparse):
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        value = mll(model(*model.train_inputs), model.train_targets)
        grads = torch.autograd.grad(value, list(model.parameters()))
        values.append((value, *grads))
        model.eval()
    for a, b in zip(*values, strict=True):
        torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)
    assert_same_posterior(exact.posterior(T), sparse.posterior(T))
    for _ in range(2):
        X, Y = torch.rand(3, 2, dtype=torch.float64), torch.rand(3, 1, dtype=torch.float64)
        exact, sparse = (m.condition_on_observations(X, Y) for m in (exact, sparse))
        assert_same_posterior(exact.posterior(T), sparse.posterior(T))
    assert len(sparse.dictionary_indices) == 0 and sparse.num_data == 66
    sparse.train().eval()  # the belief is built again from all data
    assert_same_posterior(exact.posterior(T), sparse.posterior(T))


def test_the_trace_term_is_zero():
    values = []
    for trace_term in (False, True):
        model = build(RULES[0], trace_term=trace_term)
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        values.append(mll(model(*model.train_inputs), model.train_targets).item())
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_many_nodes_make_the_exact_gp():
    torch.manual_seed(0)
    X, Y = regression(80)
    models = [
        cls(X, Y, covar_module=ScaleKernel(RBFKernel(ard_num_dims=2)), **more)
        for cls, more in ((SingleTaskGP, {}), (DTCGP, {"dictionary": QuadratureFeatures(24)}))
    ]
    T = torch.rand(5, 2, dtype=torch.float64)
    assert_same_posterior(*(model.posterior(T) for model in models))
    for model in models:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    assert isinstance(models[1].covar_module, FeatureKernel)
    torch.testing.assert_close(
        models[1].covar_module.base_kernel.base_kernel.lengthscale,
        models[0].covar_module.base_kernel.lengthscale,
        rtol=1e-2,
        atol=0,
    )
    assert_same_posterior(*(model.posterior(T) for model in models), tolerance=1e-3)


@pytest.mark.parametrize("fixed_noise", [False, True])
def test_two_outputs_transforms_and_observed_noise(fixed_noise):
    torch.manual_seed(0)
    X, Y = regression(70, m=2)
    options = {"train_Yvar": torch.full_like(Y, 0.05)} if fixed_noise else {}
    transformed = {"input_transform": Normalize(2)}
    model = DTCGP(3 * X, Y, dictionary=QuadratureFeatures(20), **transformed, **options)
    exact = SingleTaskGP(3 * X, Y, input_transform=Normalize(2), **options)
    T = 3 * torch.rand(4, 2, dtype=torch.float64)
    assert_same_posterior(exact.posterior(T), model.posterior(T))
    noise = {"noise": torch.full_like(Y[:2], 0.05)} if fixed_noise else {}
    exact, model = (m.condition_on_observations(T[:2], Y[:2], **noise) for m in (exact, model))
    assert_same_posterior(exact.posterior(T), model.posterior(T))
    assert model.subset_output([1]).posterior(T).mean.shape == (4, 1)


def test_large_joint_posteriors_are_lazy_and_the_same():
    model = build(RULES[1])
    T = torch.rand(1100, 2, dtype=torch.float64)
    _, cov = dense(model, T)
    with torch.no_grad():
        posterior = model.posterior(T)
        found = posterior.distribution.covariance_matrix
    torch.testing.assert_close(found, cov, atol=1e-9, rtol=0)
    conditioned = model.condition_on_observations(T[:3], torch.ones(3, 1).double())
    with torch.no_grad():
        lazy = conditioned.posterior(T).distribution.covariance_matrix[:50, :50]
        small = conditioned.posterior(T[:50]).distribution.covariance_matrix
    torch.testing.assert_close(lazy, small, atol=1e-9, rtol=0)


@pytest.mark.parametrize("conditioned", [False, True])
def test_sample_paths_have_the_posterior_moments(conditioned):
    model = build(RULES[0], n=15)
    T = torch.rand(6, 2, dtype=torch.float64)
    if conditioned:
        model = model.condition_on_observations(T[:2], torch.tensor([[2.0], [-2.0]]).double())
    torch.manual_seed(0)
    paths = draw_matheron_paths(model, torch.Size([20_000]))
    with torch.no_grad():
        values, posterior = paths(T), model.posterior(T)
    covariance = posterior.distribution.covariance_matrix
    # Five standard deviations of a mean, and of a covariance, of 20,000 normal samples.
    sd = covariance.diagonal().sqrt()
    error = (values.mean(0) - posterior.mean.squeeze(-1)).abs()
    assert (error < 5 * sd / 20_000**0.5).all()
    size = torch.outer(sd, sd) * (2 / 20_000) ** 0.5
    assert ((values.mT.cov() - covariance).abs() < 5 * size).all()
    prior = draw_kernel_feature_paths(model, torch.Size([3]))
    assert prior(T).shape == (3, 6)


def test_paths_are_smooth_functions_in_the_units_of_the_outcomes():
    torch.manual_seed(0)
    X, Y = regression(200, noise=0.01)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    model = DTCGP(
        5 * X, 100 + 10 * Y, covar_module=kernel, dictionary=RandomFeatures(300),
        input_transform=Normalize(2),
    )  # fmt: skip
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    path = draw_matheron_paths(model, torch.Size([2]))
    assert (path(5 * X) - (100 + 10 * Y).squeeze(-1)).abs().mean() < 3


def test_state_pickle_copies_and_dtypes():
    model = build(RULES[1], covar_module=MaternKernel(nu=2.5, ard_num_dims=2))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    T = torch.rand(4, 2, dtype=torch.float64)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    assert len(file.getvalue()) < 6000  # without frequencies
    file.seek(0)
    other = build(RULES[1], covar_module=MaternKernel(nu=2.5, ard_num_dims=2))
    other.load_state_dict(torch.load(file, weights_only=True))
    for same in (other, deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(same.eval().posterior(T).mean, model.posterior(T).mean)
    mean = model.posterior(T).mean
    single = model.float().posterior(T.float())
    assert single.mean.dtype == torch.float32
    torch.testing.assert_close(single.mean.double(), mean, atol=1e-3, rtol=0)


def test_it_serves_acquisition_functions():
    model = build(RULES[0])
    (X,) = model.train_inputs
    assert len(select_baseline(model, 20)) == 20
    function = qLogNoisyExpectedImprovement(model, X_baseline=X)
    T = torch.rand(3, 2, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(function(T).sum(), T)
    assert gradient.isfinite().all() and gradient.abs().max() > 0
    assert model.resparsify() is model


@pytest.mark.parametrize("n", [1, 2])
def test_few_and_equal_observations(n):
    X = torch.full((n, 2), 0.3, dtype=torch.float64)
    model = DTCGP(X, X[:, :1], dictionary=RandomFeatures(6), outcome_transform=None)
    posterior, (mean, cov) = model.posterior(X), dense(model, X)
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(posterior.variance.squeeze(-1), cov.diagonal(), atol=1e-9, rtol=0)


def test_errors():
    X, Y = regression(10)
    with pytest.raises(UnsupportedError, match="RandomFeatures needs an RBFKernel"):
        DTCGP(X, Y, covar_module=LinearKernel(), dictionary=RandomFeatures(6))
    model = DTCGP(X, Y, dictionary=RandomFeatures(6))
    with pytest.raises(UnsupportedError, match="has no dictionary"):
        model.with_dictionary(torch.arange(3))
    with pytest.raises(UnsupportedError, match="needs no points"):
        CompressedGP(X, Y, covar_module=model.covar_module)
