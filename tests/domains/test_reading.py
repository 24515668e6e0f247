from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.domains import Suggestion
from botorch_bkb.domains.reading import LARGEST, read_points, read_rewards, read_variances
from botorch_bkb.rows import RowIndex

CPU = torch.device("cpu")
ARMS = RowIndex(torch.tensor([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]).double())
ADDED = torch.tensor([[5.0, 5.0], [6.0, 6.0]]).double()
WRONG = (InputDataError, BotorchTensorDimensionError)


class TestPoints:
    @pytest.mark.parametrize(
        "points",
        [2, [2], range(2, 3), np.array([2]), torch.tensor(2), torch.tensor([2], dtype=torch.uint8),
         [[0.0, 1.0]], [[-0.0, 1.0]], np.array([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]])],
    )  # fmt: skip
    def test_the_same_point_in_many_forms(self, points):
        read = read_points(points, ARMS, ADDED, {})
        assert read.rows.tolist() == [0] and read.rows.dtype == torch.long
        assert len(read.added) == 0 and read.ids == (None,)

    @pytest.mark.parametrize("points", [[], torch.empty(0), torch.empty(0, 2), np.empty((0, 2))])
    def test_no_points(self, points):
        read = read_points(points, ARMS, ADDED, {3: 0})
        assert read.rows.shape == (0,) and read.rows.dtype == torch.long
        assert read.added.shape == (0, 2) and read.ids == ()

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
    def test_equal_inputs_get_one_row_and_different_ones_get_two(self, points):
        X = torch.tensor(points, dtype=torch.float64)
        read = read_points(X, ARMS, ADDED, {})
        known = torch.cat([ARMS.X, ADDED, read.added])
        assert torch.equal(known[read.rows], X)
        assert len(read.added.unique(dim=0)) == len(read.added)
        equal = (X.unsqueeze(0) == X.unsqueeze(1)).all(-1)
        assert torch.equal(read.rows.unsqueeze(0) == read.rows.unsqueeze(1), equal)

    def test_results_answer_the_points_asked_first(self):
        pending = {4: 0, 2: 0, 9: 1, 11: 4}
        points = [0, 2, 0, 1]
        assert read_points(points, ARMS, ADDED, pending).ids == (4, 2, None, 9)
        assert read_points(ADDED, ARMS, ADDED, pending).ids == (None, 11)

    @pytest.mark.parametrize(
        ("points", "match"),
        [
            (None, "NoneType"),
            ("ab", "str"),
            ([None], "Points must be"),
            ({0: 1}, "dict"),
            ([[0.0, 1.0], [1.0]], "Points must be"),
            ([2**70], "Points must be"),
            ([-1], r"0\.\.2, .* got -1\.\.-1"),
            ([0, 3], r"got 0\.\.3"),
            ([True], "bool"),
            (torch.tensor([1 + 1j]), "complex"),
            ([[0, 1]], "int64"),
            ([0.0, 1.0], "a first dimension of one"),
            ([[0.0]], "q x 2"),
            ([[[0.0, 1.0]]], "q x 2"),
            ([[math.nan, 1.0]], "finite"),
            ([[0.0, 1.0], [1.0, -math.inf]], r"\(1, 1\)"),
        ],
    )
    def test_hostile_points(self, points, match):
        with pytest.raises(WRONG, match=match):
            read_points(points, ARMS, ADDED, {})


#: Rows of the pending points, by id.
PENDING = {3: 1, 4: 4, 8: 1}


class TestSuggestions:
    def suggestion(self, *ids, X=None):
        rows = torch.tensor([PENDING.get(id_, 0) for id_ in ids], dtype=torch.long)
        X = torch.cat([ARMS.X, ADDED])[rows] if X is None else X
        return Suggestion(X, None, ids)

    @pytest.mark.parametrize("ids", [(3,), (4, 8), (8, 4, 3), ()])
    def test_each_point_is_known_by_its_id(self, ids):
        read = read_points(self.suggestion(*ids), ARMS, ADDED, PENDING)
        assert read.rows.tolist() == [PENDING[id_] for id_ in ids]
        assert read.ids == ids and len(read.added) == 0

    @pytest.mark.parametrize("ids", [(5,), (3, 5), (3, 3)])
    def test_points_that_are_not_pending_or_told_twice(self, ids):
        with pytest.raises(InputDataError, match="not pending"):
            read_points(self.suggestion(*ids), ARMS, ADDED, PENDING)

    @pytest.mark.parametrize(
        "X", [[[0.0, 1.0]], [[2.0, 3.0 + 1e-15]], [[2.0]], [[2.0, 3.0], [2.0, 3.0]]]
    )
    def test_points_of_another_optimizer(self, X):
        suggestion = self.suggestion(3, X=torch.tensor(X, dtype=torch.float64))
        with pytest.raises(InputDataError, match="not those asked"):
            read_points(suggestion, ARMS, ADDED, PENDING)

    def test_points_that_were_to_be_skipped_are_read_by_their_inputs(self):
        X = torch.tensor([[9.0, 9.0], [2.0, 3.0], [5.0, 5.0]]).double()
        suggestion = self.suggestion(-1, 3, -1, X=X)
        read = read_points(suggestion, ARMS, ADDED, PENDING)
        assert read.rows.tolist() == [5, 1, 3] and read.ids == (None, 3, None)
        assert read.added.tolist() == [[9.0, 9.0]]


class TestRewards:
    @pytest.mark.parametrize(
        "values",
        [[1.5, 2.0], (1.5, 2), [[1.5], [2.0]], np.array([1.5, 2.0]), torch.tensor([1.5, 2.0]),
         torch.tensor([[1.5], [2.0]]).double(), torch.tensor([1.5, 2.0], requires_grad=True),
         [Decimal("1.5"), np.float32(2.0)]],
    )  # fmt: skip
    def test_the_same_rewards_in_many_forms(self, values):
        with torch.no_grad():
            rewards = read_rewards("Y", values, 2, CPU)
        assert rewards.tolist() == [1.5, 2.0] and rewards.dtype == torch.float64
        assert not rewards.requires_grad

    @pytest.mark.parametrize("value", [3, 3.0, [3.0], [[3.0]], torch.tensor(3)])
    def test_one_reward_may_be_a_number(self, value):
        assert read_rewards("Y", value, 1, CPU).tolist() == [3.0]

    def test_no_rewards(self):
        for values in ([], torch.empty(0, 1)):
            assert read_rewards("Y", values, 0, CPU).shape == (0,)

    def test_doubles_keep_all_their_digits(self):
        assert read_rewards("Y", [0.1, 1e12 + 1e-3], 2, CPU).tolist() == [0.1, 1e12 + 1e-3]

    @given(st.floats())
    def test_any_number_is_returned_as_it_is_or_refused(self, value):
        if math.isfinite(value) and abs(value) <= LARGEST:
            assert read_rewards("Y", [value], 1, CPU).tolist() == [value]
        else:
            with pytest.raises(InputDataError, match="Y must be"):
                read_rewards("Y", [value], 1, CPU)

    @pytest.mark.parametrize(
        "values",
        [None, "a", "1.0", ["1.0", "2.0"], [None, 1.0], {"a": 1, "b": 2}, {1.0, 2.0}, [1j, 1.0],
         np.array(["x", "y"]), np.array([None, None]), [[1.0], [2.0, 3.0]], [10**400, 1], object()],
    )  # fmt: skip
    def test_what_is_no_number_is_refused(self, values):
        with pytest.raises(InputDataError, match="Y must be 2 numbers"):
            read_rewards("Y", values, 2, CPU)

    @pytest.mark.parametrize(
        ("values", "q"),
        [([1.0], 2), ([1.0, 2.0, 3.0], 2), ([[1.0, 2.0]], 2), (1.0, 2), (1.0, 0), ([], 1),
         ([[1.0, 2.0]], 1), ([[[1.0]]], 1)],
    )  # fmt: skip
    def test_other_shapes_are_refused(self, values, q):
        with pytest.raises(BotorchTensorDimensionError, match=f"each of the {q} points"):
            read_rewards("Y", values, q, CPU)

    def test_the_first_bad_value_is_named(self):
        with pytest.raises(InputDataError, match=r"Z must be finite, got inf at \(1,\) and 2 such"):
            read_rewards("Z", [1.0, math.inf, math.nan], 3, CPU)


class TestVariances:
    @pytest.mark.parametrize("value", [5e-324, 1e-6, 1.0, 1e150])
    def test_positive_ones_are_returned(self, value):
        assert read_variances([value], 1, CPU).tolist() == [value]
        assert read_variances([[value], [1.0]], 2, CPU).tolist() == [value, 1.0]

    @pytest.mark.parametrize(
        ("value", "match"),
        [
            (0.0, "Yvar must be positive"),
            (-0.0, "Yvar must be positive"),
            (-1e-300, "Yvar must not be negative"),
            (math.inf, "Yvar must be finite"),
            (1e151, "Yvar must be below"),
            ("1", "Yvar must be 2 numbers"),
        ],
    )
    def test_hostile_ones(self, value, match):
        with pytest.raises(InputDataError, match=match):
            read_variances([1.0, value], 2, CPU)

    @pytest.mark.parametrize(
        "values",
        [
            [1.0, None],
            [1.0, math.nan],
            [[1.0], [None]],
            torch.tensor([[1.0], [math.nan]]),
            np.array([1.0, np.nan]),
        ],
    )
    def test_some_may_be_unknown(self, values):
        variances = read_variances(values, 2, CPU)
        assert variances[0] == 1.0 and variances[1].isnan()

    def test_all_may_be_unknown(self):
        assert read_variances(None, 3, CPU).isnan().tolist() == [True] * 3

    def test_one_for_all_is_refused(self):
        with pytest.raises(BotorchTensorDimensionError, match="Yvar must have one number for each"):
            read_variances(0.1, 2, CPU)
