from __future__ import annotations

import math

import torch

from botorch_bkb.state.observations import Results
from botorch_bkb.state.stage import Stage

CPU = torch.device("cpu")


def bounds(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_arms_below_the_best_lower_bound_are_gone():
    stage = Stage.first(4, CPU).with_asked([0, 1])
    after = stage.completed(bounds(0, 1, 2, -9), bounds(1.9, 2, 3, math.inf))
    assert after.alive.tolist() == [False, True, True, True]  # a tie stays
    assert after.index == 1 and after.asked == () and len(after.rows) == 0
    # Bounds of earlier batches still count, and those of arms that are gone do not.
    last = after.completed(bounds(50, 0, 0, 2.5), bounds(60, 9, 2.4, 9))
    assert last.alive.tolist() == [False, False, False, True]
    assert last.lower.tolist() == [50, 1, 2, 2.5] and last.upper.tolist() == [1.9, 2, 2.4, 9]


def test_one_arm_is_left_where_bounds_contradict_each_other():
    first = Stage.first(3, CPU).completed(bounds(0, 0.5, 0.2), bounds(1, 1, 1))
    assert first.completed(bounds(-9, -9, -9), bounds(-8, -8, -8)).alive.tolist() == [
        False, True, False
    ]  # fmt: skip


def test_only_results_that_were_asked_for_count():
    results = Results(torch.tensor([2, 0, 2]), (7, None, 9), bounds(1, 2, 3), bounds(1, 1, 0.5))
    stage = Stage.first(3, CPU).with_asked([2, 2]).with_results(results)
    assert stage.rows.tolist() == [2, 2] and stage.rewards.tolist() == [1, 3]
    assert stage.weights.tolist() == [1, 0.5] and stage.asked == (2, 2)
