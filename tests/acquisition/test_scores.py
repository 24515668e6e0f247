r"""Acquisition functions with analytic gradients against BoTorch's own."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
from botorch.optim import optimize_acqf
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import LinearMean, ZeroMean
from hypothesis import given, settings
from hypothesis import strategies as st

from botorch_bkb import DTCGP
from botorch_bkb.acquisition.closed import ClosedMarginals
from botorch_bkb.acquisition.moments import Marginals
from botorch_bkb.acquisition.scores import LogImprovement, UpperBound

KERNELS = {
    "rbf": lambda: RBFKernel(ard_num_dims=2),
    "1/2": lambda: MaternKernel(nu=0.5),
    "3/2": lambda: ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)),
    "5/2": lambda: ScaleKernel(ScaleKernel(MaternKernel())),
    "one dimension": lambda: ScaleKernel(RBFKernel(active_dims=(1,))),
}


def model(kernel=None, n: int = 40, m: int = 15, noise: float = 0.05, seed: int = 0, **more):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Y = torch.sin(5 * X).sum(-1, keepdim=True)
    if kernel is not None:
        kernel = kernel.double()
    Yvar = torch.full_like(Y, noise)
    indices = torch.arange(0, n, max(1, n // m))
    options = {"covar_module": kernel, "outcome_transform": None, "dictionary": indices, **more}
    return DTCGP(X, Y, Yvar, **options).eval()


def value_and_gradient(function, X):
    X = X.clone().requires_grad_()
    value = function(X)
    return value.detach(), torch.autograd.grad(value.sum(), X)[0]


def agree(ours, theirs, X, rtol=1e-8) -> None:
    for a, b in zip(value_and_gradient(ours, X), value_and_gradient(theirs, X), strict=True):
        assert torch.allclose(a, b, rtol=rtol, atol=rtol)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(list(KERNELS)),
    seed=st.integers(0, 1000),
    pending=st.integers(0, 3),
    unit=st.sampled_from([1.0, 0.3, 20.0]),
    noise=st.sampled_from([1e-6, 0.05, 10.0]),
)
def test_values_and_gradients_are_those_of_botorch(kind, seed, pending, unit, noise):
    belief = model(KERNELS[kind](), noise=noise, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    X = torch.rand(5, 1, 2, generator=generator, dtype=torch.float64)
    if pending:
        new = torch.rand(pending, 2, generator=generator, dtype=torch.float64)
        mean = torch.cos(new).sum(-1, keepdim=True)
        belief = belief.condition_on_observations(new, mean, noise=torch.full_like(mean, noise))
    marginals = Marginals(belief, unit)
    assert marginals.closed is not None

    def in_units(function):
        return lambda x: function(x) / unit

    ucb = UpperConfidenceBound(belief, beta=4.0)
    agree(UpperBound(marginals, 2.0), in_units(ucb), X, rtol=1e-7)
    ei = LogExpectedImprovement(belief, best_f=X.new_tensor(1.5))
    shift = torch.tensor(unit, dtype=torch.float64).log()
    agree(LogImprovement(marginals, 1.5 / unit), lambda x: ei(x) - shift, X, rtol=1e-5)


@pytest.mark.parametrize("best", [-1e6, -40.0, -3.0, 0.0, 1.0, 3.0, 40.0, 1e3, 1e6])
def test_improvements_are_finite_at_any_distance(best):
    belief = model(RBFKernel())
    X = torch.rand(4, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    value, gradient = value_and_gradient(LogImprovement(Marginals(belief, 1.0), best), X)
    expected, _ = value_and_gradient(LogExpectedImprovement(belief, X.new_tensor(best)), X)
    assert torch.allclose(value, expected, rtol=1e-6)
    assert torch.isfinite(gradient).all()


def test_singular_dictionaries_keep_their_variances():
    X = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(-1)
    kernel = RBFKernel().double()
    kernel.lengthscale = 2.0
    Yvar = torch.full_like(X, 1e-4)
    belief = DTCGP(X, X.sin(), Yvar, covar_module=kernel, outcome_transform=None).eval()
    x = torch.linspace(-1, 2, 7, dtype=torch.float64).reshape(-1, 1, 1)
    expected = UpperConfidenceBound(belief, beta=1.0)(x).detach()
    found = UpperBound(Marginals(belief, 1.0), 1.0)(x).detach()
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"covar_module": LinearKernel().double()}, {"mean_module": LinearMean(2).double()}],
    ids=["linear kernel", "linear mean"],
)
def test_other_models_take_botorchs_way(options):
    belief = model(**options)
    marginals = Marginals(belief, 2.0)
    assert marginals.closed is None and ClosedMarginals.of(belief) is None
    X = torch.rand(4, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ucb = UpperConfidenceBound(belief, beta=4.0)
    agree(UpperBound(marginals, 2.0), lambda x: ucb(x) / 2.0, X)


def test_a_zero_mean_is_covered():
    belief = model(RBFKernel(), mean_module=ZeroMean())
    X = torch.rand(4, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    agree(UpperBound(Marginals(belief, 1.0), 2.0), UpperConfidenceBound(belief, beta=4.0), X)


def test_the_search_finds_the_same_candidate():
    belief = model(RBFKernel(ard_num_dims=2))
    cube = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    starts = torch.rand(4, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = [
        optimize_acqf(f, cube, q=1, num_restarts=4, batch_initial_conditions=starts)[0]
        for f in (UpperBound(Marginals(belief, 1.0), 2.0), UpperConfidenceBound(belief, beta=4.0))
    ]
    assert torch.allclose(*found, atol=1e-4)
