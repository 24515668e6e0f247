from __future__ import annotations

import pytest
import torch
from botorch.acquisition import AcquisitionFunction

from botorch_bkb.domains.evolution import STEPS, climb_steps, evolve

GRID = 21


class Peak(AcquisitionFunction):
    r"""Highest at one point of the unit cube; counts the points at which it is evaluated."""

    def __init__(self, *at):
        torch.nn.Module.__init__(self)
        self.at, self.evaluated = torch.tensor(at, dtype=torch.float64), 0

    def forward(self, X):
        assert X.shape[-2:] == (1, len(self.at))
        self.evaluated += len(X)
        return -(X.squeeze(-2) - self.at).abs().sum(-1)


class Hills(Peak):
    r"""A broad hill at 0.2 in each coordinate, and a higher one at 0.8."""

    def forward(self, X):
        low, high = ((X.squeeze(-2) - at).square().sum(-1) for at in (0.2, 0.8))
        return (-low / 0.1).exp() + 1.5 * (-high / 0.01).exp()


def on_grid(X):
    r"""The nearest points of a grid over the unit cube."""
    return (X.clamp(0, 1) * (GRID - 1)).round() / (GRID - 1)


def is_on_grid(X):
    return torch.equal(X, on_grid(X)) and bool((X >= 0).all() and (X <= 1).all())


def steps(x):
    r"""Neighbours of a point on the grid."""
    d = x.shape[-1]
    moves = torch.cat([torch.eye(d), -torch.eye(d)]).to(x) / (GRID - 1)
    return on_grid(x + moves)


def population(n, d, seed=0):
    return on_grid(torch.rand(n, d, generator=torch.Generator().manual_seed(seed)).double())


class TestEvolving:
    @pytest.mark.parametrize("at", [(0.35,), (0.35, 0.8), (0.0, 1.0, 0.5, 0.05)])
    def test_a_known_maximum_is_all_but_reached(self, at):
        acquisition, X = Peak(*at), population(64, len(at))
        start = float(acquisition(X.unsqueeze(-2)).max())
        best = evolve(acquisition, X, 12, on_grid)
        assert best.shape == (1, len(at)) and best.dtype == torch.float64 and is_on_grid(best)
        reached = float(acquisition(best.unsqueeze(-2)))
        assert reached >= start and reached > -0.05 * len(at) - 1e-9

    def test_the_higher_of_two_hills_is_found(self):
        X = population(64, 2)
        best = evolve(Hills(0.0, 0.0), X, 12, on_grid)
        assert (best - 0.8).abs().max() < 0.06

    def test_the_result_is_never_worse_than_the_best_of_the_start(self):
        acquisition, X = Peak(1.0, 1.0, 1.0), population(9, 3)
        best = X[acquisition(X.unsqueeze(-2)).argmax()].unsqueeze(0)
        assert torch.equal(evolve(acquisition, X, 4, torch.zeros_like), best)  # bad children only

    def test_equal_members_do_not_stand_still(self):
        X = torch.full((6, 2), 0.05, dtype=torch.float64)
        best = evolve(Peak(0.8, 0.8), X, 6, on_grid)
        assert float(best.sum()) > 0.1

    def test_a_single_member(self):
        best = evolve(Peak(0.8), torch.zeros(1, 1, dtype=torch.float64), 12, on_grid)
        assert best.shape == (1, 1) and 0 < float(best) <= 1

    def test_the_same_seed_gives_the_same_point_and_arguments_stay(self):
        X = population(32, 2)
        before, found = X.clone(), []
        for _ in range(2):
            torch.manual_seed(3)
            found.append(evolve(Hills(0.0, 0.0), X, 8, on_grid))
        assert torch.equal(*found) and torch.equal(X, before)

    def test_points_without_gradients_and_in_single_precision(self):
        best = evolve(Peak(0.5, 0.5).float(), population(16, 2).float(), 4, on_grid)
        assert best.dtype == torch.float32 and not best.requires_grad


class TestClimbing:
    @pytest.mark.parametrize("at", [(0.35,), (0.35, 0.8), (0.0, 1.0, 0.5)])
    def test_a_known_maximum_is_reached_by_steps(self, at):
        target = torch.tensor([at]).double()
        start = on_grid(target + 0.15)
        assert torch.equal(climb_steps(Peak(*at), start, steps), on_grid(target))

    def test_a_maximum_stays_where_it_is(self):
        acquisition, top = Peak(0.35, 0.8), torch.tensor([[0.35, 0.8]]).double()
        assert torch.equal(climb_steps(acquisition, top, steps), top)
        assert acquisition.evaluated == 5  # itself and its neighbours, once

    def test_the_nearest_hill_is_climbed_and_not_the_highest(self):
        start = torch.full((1, 2), 0.3, dtype=torch.float64)
        X = climb_steps(Hills(0.0, 0.0), start, steps)
        torch.testing.assert_close(X, torch.full_like(X, 0.2))

    def test_neighbours_that_are_no_better_are_not_taken(self):
        class Flat(Peak):
            def forward(self, X):
                return torch.zeros(len(X), dtype=X.dtype)

        start = torch.tensor([[0.5, 0.5]]).double()
        assert torch.equal(climb_steps(Flat(0.0, 0.0), start, steps), start)

    def test_there_is_an_end_of_steps(self):
        def right(x):
            return x + 1.0

        class Up(Peak):
            def forward(self, X):
                return X.sum((-2, -1))

        end = climb_steps(Up(0.0), torch.zeros(1, 1, dtype=torch.float64), right)
        assert float(end) == STEPS

    def test_no_neighbours(self):
        start = torch.tensor([[0.5, 0.5]]).double()
        assert torch.equal(climb_steps(Peak(0.0, 0.0), start, lambda x: x[:0]), start)
