r"""The marginal likelihood and its derivatives against autograd through the dense formula."""

from __future__ import annotations

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import Warp
from botorch.optim.closures import get_loss_closure_with_grads
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import LinearMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, HalfCauchyPrior, LogNormalPrior
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal

from botorch_bkb import DTCGP, AllPoints, QuadratureFeatures
from botorch_bkb.models.reading import read_model

KERNELS = {
    "rbf": lambda d: RBFKernel(ard_num_dims=d, lengthscale_prior=LogNormalPrior(0.5, 1.0)),
    "1/2": lambda d: MaternKernel(nu=0.5),
    "3/2": lambda d: ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=d)),
    "5/2": lambda d: ScaleKernel(
        MaternKernel(ard_num_dims=d, lengthscale_prior=GammaPrior(3.0, 6.0)),
        outputscale_prior=GammaPrior(2.0, 0.15),
    ),
    "linear": lambda d: ScaleKernel(LinearKernel(ard_num_dims=d), HalfCauchyPrior(1.0)),
    "some dimensions": lambda d: ScaleKernel(RBFKernel(active_dims=(d - 1,))),
    "periodic": lambda d: ScaleKernel(PeriodicKernel()),
    "sum": lambda d: RBFKernel() + ScaleKernel(LinearKernel()),
}


def data(n: int, d: int, seed: int, batch=(), outputs: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(*batch, n, d, generator=generator, dtype=torch.float64)
    noise = torch.randn(*batch, n, outputs, generator=generator, dtype=torch.float64)
    return X, torch.sin(3 * X).sum(-1, keepdim=True) + 0.3 * noise


def dense_loss(mll, indices: Tensor | None, trace_term: bool) -> Tensor:
    r"""Compute the negative log posterior per observation by dense algebra and autograd."""
    model, likelihood = mll.model, mll.likelihood
    X, y = model.transform_inputs(model.train_inputs[0]), model.train_targets
    mean, noise = model.mean_module(X), likelihood._shaped_noise_covar(y.shape, X).to_dense()
    kernel = model.covar_module(X).to_dense()
    Q = kernel
    if indices is not None:
        S = X[..., indices, :]
        K_SS = model.covar_module(S).to_dense()
        scale = K_SS.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].detach()
        eye = torch.eye(len(indices), dtype=torch.float64)
        K_XS = model.covar_module(X, S).to_dense()
        Q = K_XS @ torch.linalg.solve(K_SS + 1e-12 * scale * eye, K_XS.mT)
    value = MultivariateNormal(mean, Q + noise).log_prob(y)
    if trace_term:
        unseen = (kernel - Q).diagonal(dim1=-2, dim2=-1)
        value = value - 0.5 * (unseen / noise.diagonal(dim1=-2, dim2=-1)).sum(-1)
    for _, module, prior, closure, _ in model.named_priors():
        term = prior.log_prob(closure(module))
        value = value + term.reshape(*term.shape[: value.dim()], -1).sum(-1)
    return -value / y.shape[-1]


def compare(model, indices: Tensor | None, trace_term: bool, rtol: float = 1e-8) -> None:
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    parameters = {k: p for k, p in mll.named_parameters() if p.requires_grad}
    value, found = get_loss_closure_with_grads(mll, parameters)()
    found = [None if g is None else g.clone() for g in found]
    expected = dense_loss(mll, indices, trace_term).sum()
    gradients = torch.autograd.grad(expected, list(parameters.values()), allow_unused=True)
    assert torch.allclose(value, expected, rtol=rtol)
    for ours, theirs in zip(found, gradients, strict=True):
        if theirs is None:
            assert ours is None or not ours.any()
        else:
            assert ours is not None and torch.allclose(ours, theirs, rtol=rtol, atol=rtol)


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(list(KERNELS)),
    n=st.integers(2, 25),
    d=st.integers(1, 3),
    m=st.integers(0, 8),
    noise=st.sampled_from(["learned", "fixed", "softplus"]),
    trace_term=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_loss_and_gradient_are_those_of_the_dense_formula(kind, n, d, m, noise, trace_term, seed):
    X, Y = data(n, d, seed)
    options: dict = {"covar_module": KERNELS[kind](d).double()}
    if noise == "fixed":
        options["train_Yvar"] = 0.05 + 0.1 * torch.rand(n, 1, dtype=torch.float64)
    elif noise == "softplus":
        options["likelihood"] = GaussianLikelihood(GammaPrior(1.1, 0.5), GreaterThan(1e-3)).double()
    indices = torch.arange(0, n, max(1, n // m)) if 0 < m < n else None
    if indices is not None and len(indices) == n:
        indices = None
    dictionary = AllPoints() if indices is None else indices
    trace_term = trace_term and indices is not None
    model = DTCGP(X, Y, dictionary=dictionary, trace_term=trace_term, **options)
    compare(model, indices, trace_term)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("kind", ["default", "3/2", "sum"])
@pytest.mark.parametrize("trace_term", [False, True])
def test_batches_and_outputs(kind, batch, outputs, trace_term):
    X, Y = data(12, 2, 0, batch, outputs)
    kernel = None if kind == "default" else KERNELS[kind](2).double()
    indices = torch.tensor([0, 3, 4, 8])
    compare(
        DTCGP(X, Y, covar_module=kernel, dictionary=indices, trace_term=trace_term),
        indices,
        trace_term,
    )


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"mean_module": ZeroMean()},
        {"mean_module": LinearMean(2).double()},
        {"input_transform": Normalize(2)},
        {"input_transform": Warp(2, indices=[0, 1])},
    ],
    ids=["zero mean", "linear mean", "normalised", "warped"],
)
def test_other_means_and_transforms(options, exact):
    X, Y = data(15, 2, 1)
    indices = None if exact else torch.tensor([1, 5, 6, 11])
    model = DTCGP(X, Y, dictionary=AllPoints() if exact else indices, **options)
    compare(model, indices, False, rtol=1e-7)


def test_many_blocks_of_rows_give_the_same_as_one(monkeypatch):
    from botorch_bkb.models import evidence

    X, Y = data(2000, 2, 0)
    results = []
    for block, kept in [(2**30, 2**28), (2**12, 2**28), (2**12, 0)]:
        monkeypatch.setattr(evidence, "BLOCK", block)
        monkeypatch.setattr(evidence, "LEAST_ROWS", 1)
        monkeypatch.setattr(evidence, "KEPT", kept)
        monkeypatch.setattr(evidence, "KEPT_KERNEL", kept)
        model = DTCGP(X, Y, dictionary=torch.arange(0, 2000, 100))
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        results.append(get_loss_closure_with_grads(mll, dict(mll.named_parameters()))())
    for value, gradients in results[1:]:
        assert torch.allclose(value, results[0][0], rtol=1e-12)
        for g, expected in zip(gradients, results[0][1], strict=True):
            assert torch.allclose(g, expected, rtol=1e-9)


def test_features_have_the_gradient_of_the_dense_formula():
    X, Y = data(20, 1, 2)
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = 0.5
    model = DTCGP(X, Y, covar_module=kernel, dictionary=QuadratureFeatures(8))
    compare(model, None, False)


@pytest.mark.parametrize("indices", [None, torch.arange(0, 30, 4)], ids=["exact", "sparse"])
def test_float32_data_have_the_loss_of_the_same_numbers_in_float64(indices):
    X, Y = data(30, 2, 3)
    found = []
    for dtype in (torch.float32, torch.float64):
        x, y = (t.float().to(dtype) for t in (X, Y))
        dictionary = AllPoints() if indices is None else indices
        kernel = KERNELS["3/2"](2).to(dtype)
        model = DTCGP(x, y, covar_module=kernel, dictionary=dictionary, outcome_transform=None)
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        value, gradients = get_loss_closure_with_grads(mll, dict(mll.named_parameters()))()
        found.append([value, *gradients])
    for single, double in zip(*found, strict=True):
        assert torch.allclose(single.double(), double, rtol=1e-4, atol=1e-5)


def test_float32_models_fit():
    X, Y = data(60, 2, 0)
    model = DTCGP(X.float(), Y.float())
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    exact = DTCGP(X, Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(exact.likelihood, exact))
    ours, theirs = model.covar_module.lengthscale, exact.covar_module.lengthscale
    assert torch.allclose(ours.double(), theirs, rtol=1e-2)


class TestFits:
    def loss(self, model) -> float:
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        with torch.no_grad():
            return float(-mll(model(*model.train_inputs), model.train_targets))

    @pytest.mark.parametrize("kind", ["default", "5/2", "linear"])
    def test_reach_the_likelihood_of_botorchs_optimizer(self, kind):
        X, Y = data(40, 2, 0)

        def make():
            kernel = None if kind == "default" else KERNELS[kind](2).double()
            return DTCGP(X, Y, covar_module=kernel)

        ours, theirs = make(), make()
        fit_gpytorch_mll(ExactMarginalLogLikelihood(ours.likelihood, ours))
        fit_gpytorch_mll(
            ExactMarginalLogLikelihood(theirs.likelihood, theirs), optimizer=fit_gpytorch_mll_scipy
        )
        assert self.loss(ours) <= self.loss(theirs) + 1e-6

    def test_leave_frozen_hyperparameters_alone(self):
        X, Y = data(30, 2, 0)
        model = DTCGP(X, Y)
        model.likelihood.noise = 0.2
        model.likelihood.requires_grad_(False)
        before = model.likelihood.noise.item(), model.covar_module.lengthscale.clone()
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        assert model.likelihood.noise.item() == before[0]
        assert not torch.allclose(model.covar_module.lengthscale, before[1])
        assert read_model(ExactMarginalLogLikelihood(model.likelihood, model)) is not None

    @pytest.mark.parametrize("transform", [False, True])
    def test_respect_intervals(self, transform):
        X, Y = data(30, 1, 0)
        more = {} if transform else {"transform": None, "inv_transform": None}
        limits = Interval(0.05, 0.1, initial_value=0.07, **more)
        kernel = ScaleKernel(RBFKernel(lengthscale_constraint=limits)).double()
        model = DTCGP(X, Y, covar_module=kernel)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        length, raw = kernel.base_kernel.lengthscale.item(), kernel.base_kernel.raw_lengthscale
        assert length == pytest.approx(0.05, rel=1e-4)  # the data have noise: the shortest allowed
        assert torch.isfinite(raw).all()

    def test_pass_options_and_callbacks_on(self):
        X, Y = data(30, 2, 0)
        model, seen = DTCGP(X, Y), []

        def callback(parameters, result):
            seen.append((result.step, parameters["model.covar_module.raw_lengthscale"].clone()))

        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        options = {"options": {"maxiter": 3}, "callback": callback}
        fit_gpytorch_mll(mll, optimizer_kwargs=options)
        assert [step for step, _ in seen] == [1, 2, 3]
        assert torch.allclose(seen[-1][1], model.covar_module.raw_lengthscale)

    def test_predict_like_single_task_gp(self):
        X, Y = data(50, 2, 0)
        models = [DTCGP(X, Y), SingleTaskGP(X, Y)]
        for model in models:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        x = data(20, 2, 9)[0]
        ours, theirs = (m.posterior(x) for m in models)
        assert torch.allclose(ours.mean, theirs.mean, atol=1e-3)
        assert torch.allclose(ours.variance, theirs.variance, rtol=2e-2)

    def test_new_data_change_the_loss(self):
        X, Y = data(30, 2, 0)
        model = DTCGP(X, Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        closure = get_loss_closure_with_grads(mll, dict(mll.named_parameters()))
        before = closure()[0].item()
        model.set_train_data(targets=model.train_targets.flip(0))
        assert closure()[0].item() != before
