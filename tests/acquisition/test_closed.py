r"""Marginals in closed form against the posterior of the model."""

from __future__ import annotations

import pytest
import torch

from botorch_bkb.acquisition.closed import ClosedMarginals
from botorch_bkb.acquisition.moments import ClosedModel
from botorch_bkb.acquisition.scores import LogImprovement, UpperBound, by_autograd
from botorch_bkb.units import UnitCube
from tests.acquisition.test_scores import KERNELS, model


def points(n: int, seed: int = 5) -> torch.Tensor:
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("noise", [1e-7, 0.05])
@pytest.mark.parametrize("kind", list(KERNELS))
def test_hallucinations_are_the_exact_conditional(kind, noise):
    belief, new, X = model(KERNELS[kind](), noise=noise), points(3), points(20, 6)
    closed = ClosedMarginals.of(belief)
    for x in new.split(1):
        closed = closed.hallucinated(x, noise)
    mean = belief.posterior(new).mean.detach()
    expected = belief.condition_on_observations(new, mean, noise=torch.full_like(mean, noise))
    at = closed.evaluate(X)
    with torch.no_grad():
        mean, var = expected.marginals(X)
    torch.testing.assert_close(at.mean, mean, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(at.var, var.clamp_min(1e-12), atol=1e-6, rtol=1e-5)


def test_units_and_cubes_change_the_scale_only():
    cube = UnitCube(torch.tensor([[-1.0, 2.0], [3.0, 2.5]]).double())
    belief = model(KERNELS["one dimension"]())
    closed, X = ClosedMarginals.of(belief), points(7)
    scaled = closed.in_units(4.0).in_cube(cube)
    at, plain = scaled.evaluate(X), closed.evaluate(cube.from_unit(X))
    torch.testing.assert_close(4 * at.mean, plain.mean)
    torch.testing.assert_close(16 * at.var, plain.var)
    halved = closed.in_units(4.0).hallucinated(X[:1], 0.05 / 16).evaluate(X).var
    torch.testing.assert_close(16 * halved, closed.hallucinated(X[:1], 0.05).evaluate(X).var)


@pytest.mark.parametrize("kind", list(KERNELS))
def test_gradients_without_autograd_are_those_of_autograd(kind):
    closed = ClosedMarginals.of(model(KERNELS[kind]())).in_cube(
        UnitCube(torch.tensor([[0.0, -1.0], [2.0, 1.0]]).double())
    )
    X = points(6)
    for function in (
        UpperBound(ClosedModel(closed), 2.0),
        LogImprovement(ClosedModel(closed), 1.0),
    ):
        for ours, theirs in zip(
            function.value_and_gradient(X), by_autograd(function, X), strict=True
        ):
            torch.testing.assert_close(ours, theirs)


def test_the_posterior_has_the_gradients_of_the_marginals():
    closed, X = ClosedMarginals.of(model()), points(4).requires_grad_()
    posterior = ClosedModel(closed).posterior(X.unsqueeze(-2))
    value = (posterior.mean + 2.0 * posterior.variance.sqrt()).sum()
    (gradient,) = torch.autograd.grad(value, X)
    _, expected = UpperBound(ClosedModel(closed), 2.0).value_and_gradient(X.detach())
    torch.testing.assert_close(gradient, expected)
