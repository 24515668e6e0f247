from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError

from botorch_bkb import BKB
from botorch_bkb.domains import Arms, Suggestion

#: Rows 0 and 3 are equal, and so are rows 1 and 4, which differ in the sign of a zero.
X = torch.tensor([[0.0, 1.0], [0.0, 2.0], [5.0, 5.0], [0.0, 1.0], [-0.0, 2.0]]).double()
NONE = X[:0]


@pytest.mark.parametrize(
    ("arms", "error", "match"),
    [
        ([[0.0], [1.0]], BotorchTensorDimensionError, "A x d tensor"),
        (None, BotorchTensorDimensionError, "NoneType"),
        (torch.rand(5), BotorchTensorDimensionError, r"\(5,\)"),
        (torch.rand(2, 5, 1), BotorchTensorDimensionError, r"\(2, 5, 1\)"),
        (torch.rand(0, 3), BotorchTensorDimensionError, "at least one row"),
        (torch.rand(3, 0), BotorchTensorDimensionError, "one column"),
        (torch.arange(3).unsqueeze(-1), InputDataError, "floating point"),
        (torch.tensor([[True]]), InputDataError, "floating point"),
        (torch.tensor([[0.0], [math.nan]]), InputDataError, r"got nan at \(1, 0\)"),
        (torch.tensor([[-math.inf]]), InputDataError, "finite"),
    ],
)
def test_bad_arms(arms, error, match):
    with pytest.raises(error, match=match):
        Arms(arms)


def test_later_changes_of_the_users_tensor_change_nothing():
    mine = X.clone().requires_grad_(True)
    domain = Arms(mine)
    with torch.no_grad():
        mine += 1
    assert torch.equal(domain.arms, X) and not domain.arms.requires_grad
    assert torch.equal(domain.index.X, X) and torch.equal(domain.extent, X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dimensions_dtype_and_device_are_those_of_the_tensor(dtype, device):
    domain = Arms(X.to(device, dtype))
    assert domain.dim == 2 and domain.dtype == dtype and domain.device.type == device.type
    assert domain.first_equal(torch.arange(5, device=device)).device.type == device.type


def test_of_equal_arms_the_first_stands_for_all():
    domain = Arms(X)
    assert domain.index.first.tolist() == [0, 1, 2, 0, 1]
    assert domain.first_equal(torch.tensor([4, 3, 2])).tolist() == [1, 0, 2]
    assert domain.indices(torch.tensor([4, 3])).tolist() == [4, 3]


def test_equal_arms_are_suggested_and_believed_as_one():
    optimizer = BKB(X, seed=0)
    optimizer.tell([3, 4, 0], [1.0, 2.0, 3.0])
    assert optimizer.history.rows.tolist() == [0, 1]
    assert optimizer.history.counts.tolist() == [2.0, 1.0]
    for _ in range(5):
        suggestion = optimizer.ask()
        assert set(suggestion.indices.tolist()) <= {0, 1, 2}
        optimizer.tell(suggestion, torch.zeros(len(suggestion)))


class TestReading:
    domain = Arms(X)

    def test_rows_are_read_as_the_first_equal_ones(self):
        for points in ([3, 2, 4], torch.tensor([3, 2, 4]), torch.tensor([3, 2, 4]).int()):
            read = self.domain.read(points, NONE, {})
            assert read.rows.tolist() == [0, 2, 1]
            assert read.added.shape == (0, 2) and read.ids == (None,) * 3

    def test_inputs_are_found_among_the_arms_and_added_otherwise(self):
        points = torch.cat([X[3:], torch.tensor([[7.0, 7.0], [8.0, 8.0], [7.0, 7.0]]).double()])
        read = self.domain.read(points, NONE, {})
        assert read.rows.tolist() == [0, 1, 5, 6, 5]
        assert read.added.tolist() == [[7.0, 7.0], [8.0, 8.0]]

    def test_inputs_added_earlier_keep_their_rows(self):
        earlier = torch.tensor([[7.0, 7.0], [8.0, 8.0]]).double()
        points = torch.tensor([[8.0, 8.0], [9.0, 9.0], [5.0, 5.0]]).double()
        read = self.domain.read(points, earlier, {})
        assert read.rows.tolist() == [6, 7, 2]
        assert read.added.tolist() == [[9.0, 9.0]]

    def test_a_suggestion_is_read_by_its_ids(self):
        pending = {3: 2, 4: 0, 7: 1}
        suggestion = Suggestion(X[[0, 2]], torch.tensor([0, 2]), (4, 3))
        read = self.domain.read(suggestion, NONE, pending)
        assert read.rows.tolist() == [0, 2] and read.ids == (4, 3)

    def test_rows_and_inputs_answer_pending_points_in_the_order_asked(self):
        pending = {3: 0, 4: 2, 7: 0}
        assert self.domain.read([3, 0, 0, 1], NONE, pending).ids == (3, 7, None, None)
        assert self.domain.read(X[[2, 3]], NONE, pending).ids == (4, 3)

    @pytest.mark.parametrize("points", [[5], [-1], [[0.0]], [0.0, 1.0], [True], [[0, 1]]])
    def test_what_is_no_point_is_refused(self, points):
        with pytest.raises((InputDataError, BotorchTensorDimensionError)):
            self.domain.read(points, NONE, {})


def test_candidates_are_all_arms_and_nothing_else():
    domain = Arms(X)
    rows = torch.arange(9)[domain.candidates(torch.tensor([1, 6]))]
    assert rows.tolist() == [0, 1, 2, 3, 4]
    optimizer = BKB(X, seed=0)
    optimizer.tell(torch.tensor([[3.0, 3.0]]).double(), [1e3])
    assert optimizer.best().index in range(5)


def test_checksums_tell_arms_apart():
    same = {Arms(X).checksum, Arms(X.clone(), keep_coordinates=False).checksum}
    assert len(same) == 1
    others = (X[:4], X.flip(0), X.flip(1), X + 1e-9)
    assert len(same | {Arms(t).checksum for t in others}) == 5


def test_defaults():
    domain = Arms(X)
    assert domain.keep_coordinates
    assert domain.default_oversampling == 8.0
    with pytest.raises(TypeError):
        Arms(X, False)  # options are named
