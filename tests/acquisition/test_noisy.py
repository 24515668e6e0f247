r"""Noisy expected improvement against a dense program that conditions on each draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import PeriodicKernel
from torch.distributions import Normal

from botorch_bkb import BKB
from botorch_bkb.acquisition import NoisyEI
from botorch_bkb.acquisition.closed import ClosedMarginals
from botorch_bkb.acquisition.noisy import LEFT, LogNoisyImprovement, normal_samples
from botorch_bkb.acquisition.scores import by_autograd
from tests.acquisition.test_scores import KERNELS, model

SQUARE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def points(n: int, seed: int = 5) -> torch.Tensor:
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense(belief, X, x, num_samples: int, seed: int) -> torch.Tensor:
    r"""Noisy expected improvement at ``q`` points, one draw at a time."""
    with torch.no_grad():
        joint = belief(torch.cat([X, x]))
        mean, cov = joint.mean, joint.covariance_matrix
        left = LEFT * belief.covar_module(X, diag=True).mean()
    n = len(X)
    own = cov[:n, :n] + left * torch.eye(n, dtype=torch.float64)
    draws = normal_samples(n, num_samples, seed).mT @ torch.linalg.cholesky(own).mT
    best = sorted({int((mean[:n] + values).argmax()) for values in draws})
    gain = torch.linalg.solve(own[best][:, best], cov[best][:, n:]).mT
    sd = (cov[n:, n:] - gain @ cov[best][:, n:]).diagonal().sqrt()
    each, normal = [], Normal(0.0, 1.0)
    for values in draws:
        drawn = mean[n:] + gain @ values[best]
        u = (drawn - (mean[:n] + values).max()) / sd
        each.append(sd * (normal.log_prob(u).exp() + u * normal.cdf(u)))
    return torch.stack(each).mean(0)


@pytest.mark.parametrize("kind", list(KERNELS))
def test_values_are_averages_over_draws(kind):
    belief = model(KERNELS[kind](), noise=0.3)
    X, x = points(6), points(9, 6)
    improvement = LogNoisyImprovement.given(ClosedMarginals.of(belief), X, 64, seed=3)
    expected = dense(belief, X, x, 64, seed=3)
    torch.testing.assert_close(improvement(x.unsqueeze(-2)).exp(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", list(KERNELS))
def test_gradients_are_those_of_finite_differences(kind):
    belief = model(KERNELS[kind](), noise=0.3)
    improvement = LogNoisyImprovement.given(ClosedMarginals.of(belief), points(6), 16, seed=3)
    x, step = points(5, 6), 1e-6
    value, gradient = improvement.value_and_gradient(x)
    torch.testing.assert_close(by_autograd(improvement, x), (value, gradient))
    for i, e in enumerate(step * torch.eye(2, dtype=torch.float64)):
        ahead, behind = (improvement.value_and_gradient(x + s * e)[0] for s in (1, -1))
        slope = (ahead - behind) / (2 * step)
        torch.testing.assert_close(gradient[:, i], slope, rtol=1e-4, atol=1e-4)


def test_equal_points_do_no_harm():
    closed = ClosedMarginals.of(model(KERNELS["rbf"]()))
    improvement = LogNoisyImprovement.given(closed, points(6).repeat(4, 1), 64, seed=0)
    assert all(t.isfinite().all() for t in improvement.value_and_gradient(points(5, 6)))


@dataclass(frozen=True)
class Recorded(NoisyEI):
    r"""Noisy expected improvement whose functions are kept."""

    functions: ClassVar[list] = []

    def function(self, context):
        self.functions.append(super().function(context))
        return self.functions[-1]


def over_square(**more):
    optimizer = BKB(bounds=SQUARE, num_initial=6, seed=0, **more)
    suggestion = optimizer.ask()
    optimizer.tell(suggestion, -10 * (suggestion.X - 0.3).square().sum(-1))
    return optimizer


def test_picks_have_the_highest_improvement():
    pick, grid = over_square(acquisition=Recorded(16)).ask().X, points(4_000)
    improvement = Recorded.functions[-1]
    assert improvement(pick.unsqueeze(-2)) > improvement(grid.unsqueeze(-2)).max() - 1e-3
    assert torch.equal(over_square(acquisition=NoisyEI(16)).ask().X, pick)


def test_other_kernels_use_botorch():
    optimizer = over_square(acquisition="nei", covar_module=PeriodicKernel(), noise_var=0.01)
    assert optimizer.ask().X.isfinite().all()


def test_arms_and_numbers_of_draws_are_refused():
    with pytest.raises(InputDataError, match='box, got arms: use "mpi"'):
        BKB(points(5), acquisition="nei")
    with pytest.raises(InputDataError, match="num_samples"):
        NoisyEI(0)


def test_normal_samples_are_normal_and_depend_on_the_seed():
    draws = torch.cat([normal_samples(40, 64, seed) for seed in range(50)], -1)
    assert draws.shape == (40, 3200) and draws.isfinite().all()
    assert draws.mean(-1).abs().max() < 0.1 and (draws.std(-1) - 1).abs().max() < 0.1
    assert torch.equal(normal_samples(3, 8, 1), normal_samples(3, 8, 1))
    assert not torch.equal(normal_samples(3, 8, 1), normal_samples(3, 8, 2))
