r"""Widths in standard deviations, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from botorch.exceptions.errors import InputDataError

from botorch_bkb.confidence import Fixed, widths
from tests.confidence.support import progress

NAMED = [
    widths.information, widths.bkb, widths.bbkb, widths.exact, widths.compressed, widths.anytime,
    widths.anytime_exact,
]  # fmt: skip


def test_a_fixed_width_depends_on_nothing():
    assert Fixed(1.5)(progress()) == Fixed(1.5)(progress(num_observations=10**6)) == 1.5


def test_information():
    # xi sqrt(3 + log e) + sqrt(lambda) F = 0.5 * 2 + 0.5 * 4 = 3, over sqrt(lambda) = 0.5.
    assert widths.information(progress()) == pytest.approx(6.0)
    # With C~ = 5 it is 0.5 * sqrt(15 + 1) + 2 = 4.
    assert widths.information(progress(batch_threshold=5.0)) == pytest.approx(8.0)


def test_bkb():
    # 3 * 2 * (1 + log(1 + 7 / 0.25)) + 1 = 27.203775, its root 5.215724; times 2 xi = 1; plus
    # 2.414214 * 0.5 * 4.
    assert widths.bkb(progress()) == pytest.approx((5.215724 + 4.828427) / 0.5, abs=1e-5)


def test_bkb_before_the_first_observation_has_no_gain():
    got = widths.bkb(progress(num_observations=0, effective_dimension=0.0))
    assert got == pytest.approx((1 + 4.828427) / 0.5, abs=1e-5)


def test_anytime():
    # L = 5.25 + 2 (1 + log 2) = 8.636294, xi^2 L = 2.159074, lambda F^2 = 4, rho = 1/2, h = 2.
    first = math.sqrt(2.159074) + math.sqrt(8)
    second = math.sqrt(2.159074 + 4 * 1.5 + 2 * math.sqrt(2) * math.sqrt(2.159074 + 1))
    assert second < first
    assert widths.anytime(progress()) == pytest.approx(second / 0.5, abs=1e-5)
    assert widths.anytime(progress(misfit=100.0)) == pytest.approx(first / 0.5, abs=1e-5)


def test_anytime_of_the_exact_posterior():
    # xi^2 (5 + 2) + lambda F^2 = 0.25 * 7 + 4 = 5.75.
    assert widths.anytime_exact(progress()) == pytest.approx(math.sqrt(5.75) / 0.5)


@pytest.mark.parametrize(
    "rule", [widths.anytime, widths.anytime_exact, widths.exact, widths.compressed]
)
def test_bounds_are_wider_by_the_root_of_the_batch_threshold(rule):
    assert rule(progress(batch_threshold=9.0)) == pytest.approx(3 * rule(progress()))


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
    got = widths.compressed(progress(num_arms=None, slope=0.5, log_tail=0.0))
    assert got == pytest.approx(math.sqrt(2 * 7.489165 + 4 * 5.167544), abs=1e-5)


def test_compressed_over_a_box_needs_bounds_on_derivatives():
    with pytest.raises(InputDataError, match=r"Theorem 3\.2 ii needs bounds on the derivatives"):
        widths.compressed(progress(num_arms=None))


def test_skipped_steps_count_for_the_compressed_width_only():
    for rule in NAMED:
        changes = rule(progress(num_steps=50)) != rule(progress(num_steps=9))
        assert changes == (rule is widths.compressed)


@pytest.mark.parametrize("rule", NAMED)
def test_widths_are_the_same_in_all_units_of_the_rewards(rule):
    scaled = progress(noise_var=25.0, noise_bound=5.0, kernel_bound=100.0, misfit=100.0)
    assert rule(scaled) == pytest.approx(rule(progress()))
