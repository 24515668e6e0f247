r"""Marginals in closed form against the posterior of the model."""

from __future__ import annotations

import pytest
import torch

from botorch_bkb.acquisition.closed import ClosedMarginals
from botorch_bkb.acquisition.moments import ClosedModel
from botorch_bkb.acquisition.scores import LogImprovement, UpperBound, by_autograd
from botorch_bkb.arms import ArmTable
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


@pytest.mark.parametrize("kind", list(KERNELS))
def test_points_hallucinated_together_are_those_one_after_the_other(kind):
    together = one_by_one = ClosedMarginals.of(model(KERNELS[kind]()))
    new, X = points(4)[[0, 1, 1, 2, 3]], points(20, 6)
    for x in new.split(1):
        one_by_one = one_by_one.hallucinated(x, 0.05)
    for ours, theirs in zip(
        together.hallucinated(new, 0.05).evaluate(X)[:2], one_by_one.evaluate(X)[:2], strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("kind", [kind for kind in KERNELS if kind != "one dimension"])
@pytest.mark.parametrize("changes", [0, 3], ids=["built", "changed"])
def test_marginals_of_a_table_are_its_moments(kind, changes):
    kernel, X, y = KERNELS[kind]().double(), points(60), points(60, 1)[:, 0]
    table = ArmTable(X, kernel, 0.05, torch.arange(8))
    table.observe(torch.arange(30), y[:30])
    for change in range(changes):
        table.slide(torch.arange(change, 20 - change))
    closed = ClosedMarginals.of_table(kernel, table.X, table.kernel_form())
    mean, var = table.moments()
    for found in (closed.evaluate(X)[:2], closed.moments(X)):
        torch.testing.assert_close(found[0], mean, atol=1e-8, rtol=1e-8)
        torch.testing.assert_close(found[1], var, atol=1e-8, rtol=1e-8)


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
