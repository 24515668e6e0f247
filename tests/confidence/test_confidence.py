from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.confidence import Confidence, Fixed, widths
from botorch_bkb.confidence.confidence import checked_width
from botorch_bkb.units import RewardUnits
from tests.confidence.support import progress


def resolved(confidence: Confidence, is_given=True, theory=widths.anytime, paper=widths.bbkb):
    return confidence.rule(is_given=is_given, theory=theory, paper=paper)


def growing(p):
    return math.sqrt(p.num_observations)


@pytest.mark.parametrize(
    ("confidence", "is_given", "expected"),
    [
        (Confidence(), True, Fixed(2.0)),
        (Confidence(), False, Fixed(2.0)),
        (Confidence(norm_bound=2.0), True, widths.information),
        (Confidence(norm_bound="double"), True, widths.information),
        (Confidence(norm_bound=2.0), False, Fixed(2.0)),
        (Confidence("heuristic"), True, Fixed(2.0)),
        (Confidence("heuristic", norm_bound=2.0), True, Fixed(2.0)),
        (Confidence("information"), False, widths.information),
        (Confidence("theory"), False, widths.anytime),
        (Confidence("paper"), False, widths.bbkb),
        (Confidence(3), True, Fixed(3.0)),
        (Confidence(0.0), False, Fixed(0.0)),
        (Confidence(growing), True, growing),
        (Confidence(Fixed(1.2)), True, Fixed(1.2)),
    ],
)
def test_what_a_width_means(confidence, is_given, expected):
    assert resolved(confidence, is_given) == expected


def test_a_theorem_must_cover_the_other_parts():
    with pytest.raises(InputDataError, match="no theorem covers this dictionary"):
        resolved(Confidence("theory"), theory=None)
    with pytest.raises(InputDataError, match="no theorem covers this dictionary"):
        resolved(Confidence("paper"), paper=None)
    assert resolved(Confidence("paper"), theory=None) is widths.bbkb
    assert resolved(Confidence("information"), theory=None, paper=None) is widths.information


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *[("width", value) for value in (-1.0, math.nan, math.inf, "theorem", [2.0])],
        *[("delta", value) for value in (0.0, 1.0, -0.1, math.nan)],
        *[("norm_bound", value) for value in (-1.0, math.nan, math.inf, "triple")],
        *[("noise_bound", value) for value in (0.0, -1.0, math.inf)],
        *[("accuracy", value) for value in (0.0, 1.0, -0.1, math.nan)],
    ],
)
def test_impossible_arguments_are_refused(argument, value):
    with pytest.raises(InputDataError, match=argument):
        Confidence(**{argument: value})


IDLE = {"delta": 0.2, "norm_bound": 3.0, "noise_bound": 0.5}
NOBODY = {"uses_norm": False, "uses_delta": False, "uses_accuracy": False}


@pytest.mark.parametrize(("name", "value"), IDLE.items())
def test_arguments_without_effect_on_a_constant_width_are_refused(name, value):
    confidence = Confidence("heuristic", **{name: value})
    with pytest.raises(InputDataError, match=f"{name} has no effect"):
        confidence.check_effects(Fixed(2.0), **NOBODY)


def test_arguments_that_other_parts_use_are_not_refused():
    used = dict.fromkeys(NOBODY, True)
    Confidence(2.0, norm_bound=3.0, delta=0.2).check_effects(Fixed(2.0), **used)
    with pytest.raises(InputDataError, match="delta has no effect"):
        Confidence(2.0, delta=0.2).check_effects(Fixed(2.0), **{**used, "uses_delta": False})
    with pytest.raises(InputDataError, match="norm_bound has no effect"):
        Confidence(2.0, norm_bound=3.0).check_effects(Fixed(2.0), **{**used, "uses_norm": False})


def test_the_accuracy_belongs_to_the_papers_theorems():
    with pytest.raises(InputDataError, match="accuracy has no effect"):
        Confidence("theory", accuracy=0.3).check_effects(widths.anytime, **NOBODY)
    Confidence("paper", accuracy=0.3).check_effects(widths.bkb, **NOBODY)
    Confidence(2.0, accuracy=0.3).check_effects(Fixed(2.0), **{**NOBODY, "uses_accuracy": True})


@pytest.mark.parametrize("rule", [widths.information, widths.anytime_exact, growing])
def test_widths_that_change_may_use_every_argument(rule):
    Confidence(rule, **IDLE).check_effects(rule, **NOBODY)


@pytest.mark.parametrize("name", ["norm_bound", "noise_bound"])
def test_bounds_beside_the_width_for_draws_from_the_prior_are_refused(name):
    confidence = Confidence("paper", **{name: IDLE[name]})
    with pytest.raises(InputDataError, match=f"{name} has no effect on the width of Theorem 3.2"):
        confidence.check_effects(widths.compressed, **NOBODY)
    Confidence("paper", delta=IDLE["delta"]).check_effects(widths.compressed, **NOBODY)
    with pytest.raises(InputDataError, match="a width that depends on the norm"):
        Confidence("paper", norm_bound="double").check_effects(widths.compressed, **NOBODY)


def test_no_norm_is_doubled_where_the_width_is_constant():
    confidence = Confidence(2.0, norm_bound="double")
    with pytest.raises(InputDataError, match="a width that depends on the norm"):
        confidence.check_effects(Fixed(2.0), **dict.fromkeys(NOBODY, True))


@pytest.mark.parametrize(
    ("norm", "start", "doubles"), [(None, 1.0, False), ("double", 1.0, True), (3, 3.0, False)]
)
def test_the_norm_at_the_start(norm, start, doubles):
    confidence = Confidence(norm_bound=norm)
    assert confidence.initial_norm == start and confidence.doubles_norm == doubles


def test_the_noise_bound_is_in_units_of_the_rewards():
    assert Confidence().noise_in_model(0.04, RewardUnits(1.0, 10.0)) == pytest.approx(0.2)
    assert Confidence(noise_bound=3.0).noise_in_model(
        0.04, RewardUnits(1.0, 10.0)
    ) == pytest.approx(0.3)


@pytest.mark.parametrize("width", [-1e-9, math.nan, math.inf])
def test_impossible_widths_are_refused(width):
    with pytest.raises(InputDataError, match="finite and not negative"):
        checked_width(lambda p: width, progress())


def test_possible_widths_are_numbers():
    assert checked_width(lambda p: torch.tensor(2.5), progress()) == 2.5
    assert checked_width(Fixed(0.0), progress()) == 0.0
    assert checked_width(growing, progress(num_observations=9)) == 3.0
