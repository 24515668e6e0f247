r"""Conversions there and back, and constraints in either unit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.units import RewardUnits, UnitCube


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@st.composite
def cubes(draw):
    r"""One to four dimensions, sides from tiny to huge, anywhere; and points of the unit cube."""
    d = draw(st.integers(1, 4))
    scale = draw(st.sampled_from([1e-9, 1.0, 1e9]))
    lower = tensor(draw(st.lists(st.floats(-10, 10), min_size=d, max_size=d)))
    sides = tensor(draw(st.lists(st.floats(0.1, 10), min_size=d, max_size=d)))
    n = draw(st.integers(1, 5))
    unit = draw(st.lists(st.floats(0, 1), min_size=n * d, max_size=n * d))
    return UnitCube(scale * torch.stack([lower, lower + sides])), tensor(unit).reshape(n, d)


class TestCubes:
    @given(cubes())
    def test_from_the_cube_and_back(self, case):
        cube, U = case
        torch.testing.assert_close(cube.to_unit(cube.from_unit(U)), U, atol=1e-12, rtol=0)

    @given(cubes())
    def test_to_the_cube_and_back(self, case):
        cube, U = case
        X = cube.bounds[0] + U * (cube.bounds[1] - cube.bounds[0])
        size = float(cube.bounds.abs().max())
        torch.testing.assert_close(cube.from_unit(cube.to_unit(X)), X, atol=1e-14 * size, rtol=0)

    @given(cubes())
    def test_corners_are_corners(self, case):
        cube, _ = case
        corners = tensor([[0.0], [1.0]]).expand_as(cube.bounds)
        assert torch.equal(cube.to_unit(cube.bounds), corners)
        lower, upper = cube.from_unit(corners)
        assert torch.equal(lower, cube.bounds[0])
        size = float(cube.bounds.abs().max())
        torch.testing.assert_close(upper, cube.bounds[1], atol=1e-15 * size, rtol=0)

    @given(cubes(), st.floats(-1, 2))
    def test_no_point_leaves_the_box(self, case, shift):
        cube, U = case
        X = cube.from_unit(U + shift)
        assert (cube.bounds[0] <= X).all() and (cube.bounds[1] >= X).all()

    @given(cubes())
    def test_single_values_are_mapped_as_whole_points(self, case):
        cube, U = case
        X = cube.from_unit(U)
        for i in range(X.shape[-1]):
            expected = cube.to_unit(X)[:, i].tolist()
            assert cube.values_to_unit(i, X[:, i]) == expected
            assert [cube.value_to_unit(i, value) for value in X[:, i].tolist()] == expected

    @given(cubes(), st.randoms(use_true_random=False), st.floats(-10, 10))
    def test_a_constraint_has_the_same_slack_in_both_units(self, case, random, bound):
        cube, U = case
        d = U.shape[-1]
        indices = torch.tensor(random.sample(range(d), random.randint(1, d)))
        coefficients = tensor([random.uniform(-3, 3) for _ in indices])
        X = cube.from_unit(U)
        expected = X[:, indices] @ coefficients - bound
        same, moved, moved_bound = cube.constraint_to_unit(indices, coefficients, bound)
        assert torch.equal(same, indices)
        slack = U[:, indices] @ moved - moved_bound
        size = float(cube.bounds.abs().max()) + abs(bound)
        torch.testing.assert_close(slack, expected, atol=1e-13 * size, rtol=0)

    def test_a_constraint_by_hand(self):
        cube = UnitCube(tensor([[1.0, -5.0, 0.0], [3.0, 10.0, 100.0]]))
        # 2 x0 - x2 >= 7 is 4 u0 - 100 u2 >= 5.
        _, coefficients, bound = cube.constraint_to_unit(torch.tensor([0, 2]), tensor([2, -1]), 7)
        assert coefficients.tolist() == [4.0, -100.0] and bound == 5.0

    def test_the_smallest_box_around_points(self):
        cube = UnitCube.around(tensor([[0.0, 7.0, 5.0], [1.0, 7.0, -1.0], [0.5, 7.0, 2.0]]))
        assert cube.bounds.tolist() == [[0.0, 7.0, -1.0], [1.0, 8.0, 5.0]]

    @given(cubes())
    def test_points_fill_the_cube_around_them(self, case):
        _, X = case
        U = UnitCube.around(X).to_unit(X)
        constant = X.amin(0) == X.amax(0)
        assert torch.equal(U.amin(0), torch.zeros(X.shape[-1]).double())
        assert torch.equal(U.amax(0), (~constant).double())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dtypes_are_those_of_the_box(self, dtype):
        cube = UnitCube(torch.tensor([[0.0], [2.0]], dtype=dtype))
        assert cube.from_unit(tensor([[0.5]])).dtype == dtype
        moved = cube.constraint_to_unit(torch.tensor([0]), tensor([1.0]), 0.0)[1]
        assert moved.dtype == dtype

    def test_gradients_pass(self):
        cube, U = UnitCube(tensor([[0.0], [4.0]])), tensor([[0.5]]).requires_grad_(True)
        cube.to_unit(cube.from_unit(U)).sum().backward()
        assert U.grad.tolist() == [[1.0]]


rewards = st.floats(-1e6, 1e6)
units = st.builds(RewardUnits, st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))


class TestRewards:
    @given(units, rewards)
    def test_to_the_model_and_back(self, units, reward):
        size = abs(units.offset) + abs(reward)
        there = units.to_rewards(units.to_model(reward))
        assert there == pytest.approx(reward, abs=1e-14 * size, rel=0)

    @given(units, st.floats(-100, 100))
    def test_to_rewards_and_back(self, units, value):
        size = abs(value) + abs(units.offset) / units.scale
        back = units.to_model(units.to_rewards(value))
        assert back == pytest.approx(value, abs=1e-14 * size, rel=0)

    @given(units, st.lists(rewards, min_size=1, max_size=5))
    def test_tensors_are_mapped_as_their_numbers(self, units, values):
        for name in ("to_model", "to_rewards", "variance_to_rewards"):
            convert = getattr(units, name)
            assert convert(tensor(values)).tolist() == [convert(value) for value in values]

    @given(units, st.floats(1e-6, 1e6))
    def test_variances_are_squares_of_deviations(self, units, deviation):
        in_model = units.deviation_to_model(deviation)
        assert units.variance_to_model(deviation**2) == pytest.approx(in_model**2)
        assert units.variance_to_rewards(in_model**2) == pytest.approx(deviation**2)

    @given(units, rewards, st.floats(1e-3, 1e3))
    def test_deviations_are_differences_of_rewards(self, units, reward, deviation):
        apart = units.to_model(reward + deviation) - units.to_model(reward)
        size = (abs(reward) + abs(units.offset) + deviation) / units.scale
        expected = units.deviation_to_model(deviation)
        assert apart == pytest.approx(expected, abs=1e-14 * size, rel=0)

    def test_standardising_by_hand(self):
        units = RewardUnits(offset=10.0, scale=2.0)
        assert (units.to_model(14.0), units.to_rewards(2.0)) == (2.0, 14.0)
        assert (units.variance_to_model(8.0), units.variance_to_rewards(2.0)) == (2.0, 8.0)
        assert units.deviation_to_model(8.0) == 4.0

    def test_by_default_nothing_changes(self):
        units = RewardUnits()
        for value in (0.0, -3.7, 1e12, math.pi):
            assert units.to_model(value) == units.to_rewards(value) == value
            assert units.variance_to_model(value) == units.deviation_to_model(value) == value
