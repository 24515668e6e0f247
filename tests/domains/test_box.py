from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.domains import Box, Suggestion, Tree
from tests.domains.support import BOUNDS, FAST

D3 = torch.tensor([[0.0, -5.0, 0.0], [1.0, 10.0, 100.0]], dtype=torch.float64)


class Peak(AnalyticAcquisitionFunction):
    r"""Highest, with a value of zero, at a point of the unit cube."""

    def __init__(self, at, width=1.0):
        torch.nn.Module.__init__(self)
        self.at, self.width = torch.as_tensor(at, dtype=torch.float64), width

    def forward(self, X):
        return -((X.squeeze(-2) - self.at) / self.width).square().sum(-1)


class TwoPeaks(Peak):
    r"""A broad peak of height one, and a narrow one of height two at (0.9, 0.9)."""

    def forward(self, X):
        narrow = (X.squeeze(-2) - 0.9).square().sum(-1) / 1e-5
        return super().forward(X).exp() + 2 * (-narrow).exp()


@pytest.mark.parametrize("domain", [Box, Tree])
@pytest.mark.parametrize(
    ("bounds", "error", "match"),
    [
        ([(0.0, 1.0)], BotorchTensorDimensionError, r"append \.T"),
        (None, BotorchTensorDimensionError, "got None"),
        (torch.rand(3, 2), BotorchTensorDimensionError, r"\(3, 2\).*bounds\.T"),
        (torch.rand(2), BotorchTensorDimensionError, "2 x d"),
        (torch.rand(2, 2, 2), BotorchTensorDimensionError, "2 x d"),
        (torch.rand(2, 0), InputDataError, "at least one column"),
        (torch.tensor([[0], [1]]), InputDataError, r"int64.*\.double\(\)"),
        (torch.tensor([[0.0], [math.nan]]), InputDataError, r"finite, got nan at \(1, 0\)"),
        (torch.tensor([[-math.inf], [0.0]]), InputDataError, "logarithmic"),
        (torch.tensor([[0.0, 2.0], [1.0, 1.0]]), InputDataError, "2.0 and 1.0 in column 1"),
        (torch.tensor([[0.0, 1.0], [1.0, 1.0]]), InputDataError, "below upper"),
    ],
)
def test_bad_bounds(domain, bounds, error, match):
    with pytest.raises(error, match=match):
        domain(bounds)


@pytest.mark.parametrize("domain", [Box, Tree])
def test_later_changes_of_the_users_tensor_change_nothing(domain):
    mine = BOUNDS.clone()
    box = domain(mine)
    mine += 1
    assert torch.equal(box.bounds, BOUNDS) and torch.equal(box.extent, BOUNDS)
    assert box.index.X.tolist() == [[0.5, 2.5]]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_initial": 0}, "num_initial"),
        ({"num_initial": 2.0}, "num_initial"),
        ({"num_initial": True}, "num_initial"),
        ({"discrete_dims": [1]}, "must map coordinates"),
        ({"discrete_dims": {2: [0.5]}}, r"0\.\.1"),
        ({"discrete_dims": {-1: [0.5]}}, r"0\.\.1"),
        ({"discrete_dims": {0: 0.5}}, "list of values"),
        ({"discrete_dims": {0: [0.5, math.nan]}}, "within the bounds"),
        ({"discrete_dims": {1: [-5.1]}}, r"\[-5.0, 10.0\] in coordinate 1"),
        ({"acquisition_options": {"q": 2}}, "got q"),
        ({"acquisition_options": {"num_restarts": 0}}, "num_restarts"),
        ({"acquisition_options": {"raw_samples": 2}}, "raw_samples must be at least"),
        ({"acquisition_options": {"fixed_features": {0: 2.0}}}, "fixed_features"),
    ],
)
def test_bad_options(options, match):
    with pytest.raises(InputDataError, match=match):
        Box(BOUNDS, **options)


class TestDesign:
    @pytest.mark.parametrize(
        ("d", "given", "expected"),
        [(1, None, 4), (6, None, 14), (200, None, 30), (200, 400, 400), (6, 3, 3)],
    )
    def test_size(self, d, given, expected):
        bounds = torch.tensor([[0.0], [1.0]]).expand(2, d)
        assert Box(bounds, num_initial=given).size_of_design(fits=False) == expected

    @pytest.mark.parametrize("discrete", [None, {1: [-5.0, 0.1, 7.0]}])
    def test_a_design_depends_on_its_seed_and_on_nothing_else(self, discrete):
        box, again = (Box(BOUNDS, discrete_dims=discrete) for _ in range(2))
        design = box.design(0, 16, 3)
        torch.rand(5)  # the global generator has nothing to do with it
        state = torch.get_rng_state()
        assert torch.equal(design, again.design(0, 16, 3))
        assert torch.equal(torch.get_rng_state(), state)
        assert not torch.equal(design, box.design(0, 16, 4))
        parts = [again.design(0, 5, 3), again.design(5, 1, 3), again.design(6, 10, 3)]
        assert torch.equal(design, torch.cat(parts))

    def test_a_design_fills_the_box(self):
        X = Box(BOUNDS).design(0, 64, 0)
        assert X.shape == (64, 2) and X.dtype == torch.float64
        assert (BOUNDS[0] <= X).all() and (BOUNDS[1] >= X).all()
        quarters = (BOUNDS.mean(0) < X).long() @ torch.tensor([1, 2])
        assert quarters.bincount().tolist() == [16] * 4  # a Sobol sequence is even

    def test_discrete_coordinates_of_a_design(self):
        values = [-5.0, 0.1, 7.0]
        X = Box(BOUNDS, discrete_dims={1: values}).design(0, 64, 0)
        assert X[:, 1].unique().tolist() == values


class TestUnits:
    @given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=9))
    def test_points_are_taken_to_the_nearest_that_are_allowed(self, rows):
        values = torch.tensor([1.0, 10.0, 11.0, 100.0]).double()
        box = Box(D3, discrete_dims={2: values.tolist()})
        U = torch.tensor(rows, dtype=torch.float64)
        X, free = box.from_unit(U), box.cube.from_unit(U)
        assert torch.equal(X[:, :2], free[:, :2])
        assert torch.isin(X[:, 2], values).all()  # exact to the last bit
        nearest = (free[:, 2:] - values).abs().amin(-1)
        torch.testing.assert_close((X[:, 2] - free[:, 2]).abs(), nearest)
        assert (D3[0] <= X).all() and (D3[1] >= X).all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_no_point_leaves_the_box(self, dtype):
        bounds = torch.tensor([[0.1, -1 / 3], [0.7, 1e6 / 7]], dtype=dtype)
        beyond = torch.tensor([[-1e-5, -1.0], [1 + 1e-5, 2.0]], dtype=dtype)
        assert torch.equal(Box(bounds).from_unit(beyond), bounds)
        X = Box(bounds).from_unit(torch.rand(100, 2, dtype=dtype).round(decimals=1))
        assert (bounds[0] <= X).all() and (bounds[1] >= X).all()

    def test_fixed_features_have_their_value(self):
        box = Box(BOUNDS, acquisition_options={"fixed_features": {1: 7.3}})
        assert box.from_unit(torch.rand(5, 2).double())[:, 1].tolist() == [7.3] * 5
        assert (box.design(0, 8, 0)[:, 1] == 7.3).all()


class TestMaximising:
    NO_STARTS = torch.empty(0, 2, dtype=torch.float64)

    @pytest.mark.parametrize("at", [(0.3, 0.8), (0.0, 1.0), (1.4, 0.2)])
    def test_a_known_maximum_is_found(self, at):
        box, expected = Box(BOUNDS), torch.tensor([at]).double().clamp(0, 1)
        X = box.maximise(Peak(at), self.NO_STARTS, 0)
        assert X.shape == (1, 2) and not X.requires_grad
        torch.testing.assert_close(X, expected, atol=1e-5, rtol=0)
        assert (X >= 0).all() and (X <= 1).all()

    def test_a_search_depends_on_its_seed_and_on_nothing_else(self):
        box, state = Box(BOUNDS, acquisition_options=FAST), torch.get_rng_state()
        X = box.maximise(TwoPeaks((0.2, 0.2)), self.NO_STARTS, 5)
        assert torch.equal(X, box.maximise(TwoPeaks((0.2, 0.2)), self.NO_STARTS, 5))
        assert torch.equal(torch.get_rng_state(), state)

    def test_a_start_near_a_narrow_maximum_finds_it(self):
        box, starts = Box(BOUNDS), torch.tensor([[0.899, 0.901]]).double()
        blind = box.maximise(TwoPeaks((0.2, 0.2)), self.NO_STARTS, 0)
        torch.testing.assert_close(blind, torch.tensor([[0.2, 0.2]]).double(), atol=1e-3, rtol=0)
        found = box.maximise(TwoPeaks((0.2, 0.2)), starts, 0)
        torch.testing.assert_close(found, torch.tensor([[0.9, 0.9]]).double(), atol=1e-3, rtol=0)

    @pytest.mark.parametrize("num_values", [4, 60], ids=["enumerated", "evolved"])
    def test_the_best_value_of_a_discrete_coordinate_is_found(self, num_values):
        values = torch.linspace(0, 100, num_values + 1, dtype=torch.float64)[1:]
        box = Box(D3, discrete_dims={2: values.tolist()})
        acquisition = Peak((0.3, 0.8, 0.437))
        X = box.maximise(acquisition, torch.empty(0, 3).double(), 0)
        (x,) = box.from_unit(X)
        assert x[2] == values[(values - 43.7).abs().argmin()]
        torch.testing.assert_close(X[0, :2], acquisition.at[:2], atol=1e-3, rtol=0)

    def test_fixed_features_stay(self):
        box = Box(BOUNDS, acquisition_options={"fixed_features": {1: 7.0}})
        X = box.maximise(Peak((0.3, 0.1)), self.NO_STARTS, 0)
        torch.testing.assert_close(X, torch.tensor([[0.3, 0.8]]).double(), atol=1e-5, rtol=0)

    def test_one_dimension_and_single_precision(self):
        box = Box(torch.tensor([[-1.0], [1.0]]))
        X = box.maximise(Peak([0.25]), torch.empty(0, 1), 0)
        assert X.dtype == torch.float32 and abs(float(X) - 0.25) < 1e-3


@pytest.mark.parametrize("domain", [Box(BOUNDS), Tree(BOUNDS)], ids=["box", "tree"])
class TestReading:
    def test_points_become_rows_behind_the_centre(self, domain):
        points = [[0.2, 0.2], [0.5, 2.5], [0.2, 0.2], [0.0, 10.0]]
        read = domain.read(points, BOUNDS[:0], {})
        assert read.rows.tolist() == [1, 0, 1, 2]  # the second is the centre
        assert read.added.tolist() == [[0.2, 0.2], [0.0, 10.0]]
        assert read.added.dtype == torch.float64 and read.ids == (None,) * 4

    def test_points_known_already_keep_their_rows_and_answer_what_is_pending(self, domain):
        added = torch.tensor([[0.2, 0.2], [0.3, 0.3]]).double()
        read = domain.read(added.flip(0), added, {5: 2, 6: 1})
        assert read.rows.tolist() == [2, 1] and read.ids == (5, 6) and len(read.added) == 0

    def test_a_suggestion_is_read_by_its_ids(self, domain):
        added = torch.tensor([[0.2, 0.2], [0.3, 0.3]]).double()
        read = domain.read(Suggestion(added, None, (8, 5)), added, {5: 2, 8: 1})
        assert read.rows.tolist() == [1, 2] and read.ids == (8, 5)

    @pytest.mark.parametrize("corner", [0, 1])
    @pytest.mark.parametrize("column", [0, 1])
    def test_the_boundary_belongs_to_the_box_and_what_is_beyond_does_not(
        self, domain, corner, column
    ):
        point = BOUNDS[corner].clone()
        assert domain.read(point.unsqueeze(0), BOUNDS[:0], {}).rows.tolist() == [1]
        outside = math.inf if corner else -math.inf
        point[column] = math.nextafter(float(point[column]), outside)
        points = torch.stack([BOUNDS.mean(0), point])
        with pytest.raises(InputDataError, match=f"within the bounds.*row 1, column {column}"):
            domain.read(points, BOUNDS[:0], {})

    @pytest.mark.parametrize(
        "points",
        [[[0.5]], [0.5, 1.0], [[[0.5, 1.0]]], [3], [[math.nan, 0.0]], "no", None, [[None, 1.0]],
         [[10**400, 0]]],
    )  # fmt: skip
    def test_what_is_no_point_is_refused(self, domain, points):
        with pytest.raises((InputDataError, BotorchTensorDimensionError)):
            domain.read(points, BOUNDS[:0], {})


@pytest.mark.parametrize("domain", [Box(BOUNDS), Tree(BOUNDS)], ids=["box", "tree"])
def test_rows_have_no_numbers_and_what_was_observed_is_recommended(domain):
    rows = torch.tensor([4, 2])
    assert domain.indices(rows) is None and domain.first_equal(rows).tolist() == [4, 2]
    assert torch.arange(9)[domain.candidates(rows)].tolist() == [4, 2]
    assert torch.arange(9)[domain.candidates(rows[:0])].tolist() == [0]  # the centre


@pytest.mark.parametrize("domain", [Box, Tree])
def test_defaults(domain):
    box = domain(BOUNDS)
    assert box.default_oversampling == 2.0
    assert box.default_max_batch_size == (200 if domain is Box else 10_000)
    assert box.keep_coordinates and box.dim == 2 and box.dtype == torch.float64
    assert box.checksum == domain(BOUNDS.clone()).checksum != domain(BOUNDS + 1e-9).checksum
