from __future__ import annotations

import pytest
import torch

from botorch_bkb.domains import TrustRegion
from botorch_bkb.state.regions import Region

CPU = torch.device("cpu")


def lengths(outcomes, length, successes_allowed, failures_allowed, largest):
    r"""The lengths of a region after each result, by the rules of TuRBO."""
    found, good, bad = [], 0, 0
    for success in outcomes:
        good, bad = (good + 1, 0) if success else (0, bad + 1)
        if good == successes_allowed:
            length, good = min(2 * length, largest), 0
        elif bad == failures_allowed:
            length, bad = length / 2, 0
        found.append(length)
    return found


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.9])
@pytest.mark.parametrize(("good", "bad"), [(1, 1), (3, 4), (2, 7)])
def test_lengths_are_those_of_the_transcription(rate, good, bad):
    rule = TrustRegion(success_tolerance=good, failure_tolerance=bad)
    outcomes = (torch.rand(80, generator=torch.Generator().manual_seed(0)) < rate).tolist()
    region, found = Region.first(rule, CPU), []
    for success in outcomes:
        region = region.counted(1, success, rule, 3)
        found.append(region.length)
    assert found == lengths(outcomes, rule.length, good, bad, rule.max_length)


def test_a_batch_halves_the_length_once():
    rule = TrustRegion(failure_tolerance=4)
    region = Region.first(rule, CPU).counted(50, False, rule, 2)
    assert (region.length, region.failures) == (rule.length / 2, 0)


def test_failures_of_parts_of_a_batch_add_up():
    rule = TrustRegion(failure_tolerance=4)
    region = Region.first(rule, CPU).counted(3, False, rule, 2)
    assert (region.length, region.failures) == (rule.length, 3)
    assert region.counted(1, False, rule, 2).length == rule.length / 2


def test_a_region_begun_anew_has_no_points():
    rule = TrustRegion()
    region = Region.first(rule, CPU).with_rows(torch.tensor([2, 5])).with_centre(5)
    anew = region.counted(1, False, rule, 2).begun_anew(rule, next_id=17)
    assert (anew.length, anew.centre, anew.failures) == (rule.length, -1, 0)
    assert (anew.restarts, anew.first_id, len(anew.rows)) == (1, 17, 0)
    assert region.rows.tolist() == [2, 5]


def test_rows_are_renumbered_with_the_table():
    region = Region.first(TrustRegion(), CPU)
    assert region.renumbered(lambda rows: rows + 1).centre == -1
    region = region.with_rows(torch.tensor([5, 2])).with_centre(2)
    moved = region.renumbered(lambda rows: rows + 10)
    assert moved.rows.tolist() == [15, 12]
    assert moved.centre == 12
