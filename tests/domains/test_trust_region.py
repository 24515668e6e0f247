from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.domains import Box, TrustRegion
from botorch_bkb.domains.trust_region import corners
from tests.domains.support import BOUNDS
from tests.domains.test_box import Peak

CENTRE = torch.tensor([0.5, 0.4, 0.6], dtype=torch.float64)


@pytest.mark.parametrize("scales", [[1.0, 1.0, 1.0], [0.1, 0.2, 0.15], [30.0, 40.0, 50.0]])
def test_a_region_has_the_volume_of_its_length_and_sides_like_lengthscales(scales):
    scales = torch.tensor(scales, dtype=torch.float64)
    low, high = corners(CENTRE, 0.2, scales)
    sides = high - low
    torch.testing.assert_close(sides.prod(), torch.tensor(0.2**3, dtype=torch.float64))
    torch.testing.assert_close(sides / sides[0], scales / scales[0])
    torch.testing.assert_close((low + high) / 2, CENTRE)


def test_a_region_stays_in_the_cube_and_has_its_centre():
    centre = torch.tensor([0.0, 1.0, 0.99], dtype=torch.float64)
    low, high = corners(centre, 0.5, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(low, torch.tensor([0.0, 0.75, 0.74], dtype=torch.float64))
    torch.testing.assert_close(high, torch.tensor([0.25, 1.0, 1.0], dtype=torch.float64))


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_regions": 0},
        {"num_regions": None},
        {"success_tolerance": 0},
        {"failure_tolerance": 1.5},
        {"num_initial": -1},
        {"length": 2.0},
        {"min_length": 0.0},
        {"max_length": float("inf")},
        {"length": "0.4"},
    ],
)
def test_wrong_rules_are_refused(wrong):
    with pytest.raises(InputDataError):
        TrustRegion(**wrong)


def test_tolerances_follow_the_dimension():
    assert TrustRegion().failures_allowed(2) == 4
    assert TrustRegion().failures_allowed(9) == 9
    assert TrustRegion(failure_tolerance=3).failures_allowed(9) == 3


@pytest.mark.parametrize(
    "restricted",
    [
        {"discrete_dims": {0: [0.0, 1.0]}},
        {
            "acquisition_options": {
                "inequality_constraints": [(torch.tensor([0]), torch.tensor([1.0]), 0.5)]
            }
        },
        {"acquisition_options": {"nonlinear_inequality_constraints": [(torch.sum, True)]}},
    ],
)
def test_restricted_boxes_have_no_trust_region(restricted):
    with pytest.raises(InputDataError, match="leave trust_region out"):
        Box(BOUNDS, trust_region=TrustRegion(), **restricted)


def test_what_is_no_trust_region_is_refused():
    with pytest.raises(InputDataError, match=r"such as TrustRegion\(\)"):
        Box(BOUNDS, trust_region=True)


@pytest.mark.parametrize("at", [(0.4, 0.7), (0.9, 0.1)])
def test_a_search_stays_within_the_corners(at):
    within = torch.tensor([[0.3, 0.6], [0.5, 0.8]], dtype=torch.float64)
    x = Box(BOUNDS).maximise(Peak(at), torch.rand(2, 2, dtype=torch.float64), 0, within)
    expected = torch.tensor([at], dtype=torch.float64).clamp(*within)
    torch.testing.assert_close(x, expected, atol=1e-3, rtol=0)


def test_fixed_coordinates_stay_fixed_within_a_region():
    box = Box(BOUNDS, trust_region=TrustRegion()).with_fixed({1: -5.0})
    within = torch.tensor([[0.3, 0.6], [0.5, 0.8]], dtype=torch.float64)
    x = box.maximise(Peak((0.4, 0.7)), torch.rand(2, 2, dtype=torch.float64), 0, within)
    torch.testing.assert_close(
        x, torch.tensor([[0.4, 0.0]], dtype=torch.float64), atol=1e-3, rtol=0
    )
