r"""Where searches begin, and how they climb."""

from __future__ import annotations

import pytest
import torch

from botorch_bkb.domains.climbing import candidates, climb, starting_points

CUBE = torch.tensor([[0.0, 0.0, 0.5], [1.0, 1.0, 0.5]], dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Bowl:
    r"""A concave function with a maximum of zero."""

    def __init__(self, peak):
        self.peak = torch.tensor(peak, dtype=torch.float64)

    def value_and_gradient(self, X):
        off = X - self.peak
        return -off.square().sum(-1), -2 * off


def test_candidates_fill_the_cube_and_surround_the_incumbents():
    incumbents = torch.tensor([[0.2, 0.9, 0.5]], dtype=torch.float64)
    X = candidates(256, CUBE, incumbents, 64, generator())
    assert X.shape == (320, 3) and (CUBE[0] <= X).all() and (CUBE[1] >= X).all()
    cells = (4 * X[:256, :2]).floor().long()
    assert len((4 * cells[:, 0] + cells[:, 1]).unique()) == 16  # no cell of 4 x 4 is empty
    near = (X[256:] - incumbents).abs().amax(-1)
    assert near.median() < 0.1 and (near > 0).all()
    assert torch.equal(X, candidates(256, CUBE, incumbents, 64, generator()))
    assert not torch.equal(X, candidates(256, CUBE, incumbents, 64, generator(1)))


def test_few_of_many_coordinates_move():
    cube = torch.stack([torch.zeros(100), torch.ones(100)]).double()
    X = candidates(1, cube, cube.mean(0, keepdim=True), 50, generator())[1:]
    moved = (X != 0.5).sum(-1)
    assert (moved >= 1).all() and 10 < moved.double().mean() < 30


@pytest.mark.parametrize("n", [1, 3, 10, 20])
def test_starting_points_have_the_best_and_are_distinct(n):
    X = torch.rand(10, 3, generator=generator(), dtype=torch.float64)
    values = X.sum(-1)
    values[4] = float("nan")
    starts = starting_points(X, values, n, generator())
    assert len(starts) == len(starts.unique(dim=0)) == min(n, 10)
    assert torch.equal(starts[0], X[values.nan_to_num(-1.0).argmax()])


def test_equal_values_are_no_reason_to_fail():
    X = torch.rand(10, 3, generator=generator(), dtype=torch.float64)
    assert len(starting_points(X, torch.zeros(10).double(), 4, generator())) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_climbing_finds_the_maximum_within_the_cube(dtype):
    starts = torch.tensor([[0.1, 0.2, 0.5], [0.9, 0.9, 0.5]], dtype=dtype)
    X, values = climb(Bowl([0.3, 1.7, 0.8]), starts, CUBE.to(dtype), {})
    expected = torch.tensor([[0.3, 1.0, 0.5]] * 2, dtype=dtype)
    torch.testing.assert_close(X, expected, atol=1e-4, rtol=0)
    assert X.dtype == dtype and values.tolist() == pytest.approx([-0.58, -0.58], abs=1e-4)
