r"""Widths in standard deviations, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from botorch_bkb.confidence import Fixed, widths
from tests.confidence.support import progress

NAMED = [widths.information, widths.bkb, widths.bbkb, widths.exact, widths.compressed]


def test_a_fixed_width_depends_on_nothing():
    assert Fixed(1.5)(progress()) == Fixed(1.5)(progress(num_observations=10**6)) == 1.5


def test_information():
    # xi sqrt(3 + log e) + sqrt(lambda) F = 0.5 * 2 + 0.5 * 4 = 3, over sqrt(lambda) = 0.5.
    assert widths.information(progress()) == pytest.approx(6.0)
    # With C~ = 5 it is 0.5 * sqrt(15 + 1) + 2 = 4.
    assert widths.information(progress(batch_threshold=5.0)) == pytest.approx(8.0)


def test_bkb():
    # 3 * 2 * log 7 + 1 = 12.675461, its root 3.560261; times 2 xi = 1; plus 2.414214 * 0.5 * 4.
    assert widths.bkb(progress()) == pytest.approx((3.560261 + 4.828427) / 0.5, abs=1e-5)


def test_bkb_before_the_first_observation_is_as_after_it():
    first = {"effective_dimension": 0.0}
    got = widths.bkb(progress(num_observations=0, **first))
    assert got == widths.bkb(progress(num_observations=1, **first)) < math.inf


def test_bbkb_grows_with_the_batch_threshold():
    # sqrt(6 + 1) = 2.645751; times 2 xi = 1; plus 2.414214 * 0.5 * 4; all over 0.5.
    one = (2.645751 + 4.828427) / 0.5
    assert widths.bbkb(progress()) == pytest.approx(one, abs=1e-5)
    assert widths.bbkb(progress(batch_threshold=3.0)) == pytest.approx(3 * one, abs=1e-4)


def test_the_exact_width_grows_with_the_root_of_the_batch_threshold():
    # xi sqrt(5 + 2) + 0.5 * 4 = 0.5 * 2.645751 + 2 = 3.322876, over 0.5.
    assert widths.exact(progress()) == pytest.approx(3.322876 / 0.5, abs=1e-5)
    assert widths.exact(progress(batch_threshold=9.0)) == pytest.approx(
        3 * 3.322876 / 0.5, abs=1e-4
    )


def test_compressed_over_arms_and_over_a_box():
    # Step 10: 2 log(1000 * 100 * 9.869604 / 6 * e) = 2 * (12.010625 + 1).
    assert widths.compressed(progress()) == pytest.approx(math.sqrt(2 * 13.010625), abs=1e-5)
    # 2 log(2 pi^2 100 / 3 e) = 2 * 7.489165; the grid has 100 * 2 * 0.5 * sqrt(log(8 e)) =
    # 100 * 1.754834 points, and 4 log of that is 4 * 5.167544.
    got = widths.compressed(progress(num_arms=None))
    assert got == pytest.approx(math.sqrt(2 * 7.489165 + 4 * 5.167544), abs=1e-5)


def test_skipped_steps_count_for_the_compressed_width_only():
    for rule in NAMED:
        changes = rule(progress(num_steps=50)) != rule(progress(num_steps=9))
        assert changes == (rule is widths.compressed)


@pytest.mark.parametrize("rule", NAMED)
def test_widths_are_the_same_in_all_units_of_the_rewards(rule):
    scaled = progress(noise_var=25.0, noise_bound=5.0)
    assert rule(scaled) == pytest.approx(rule(progress()))
