from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.batches import ExactBatch, SumRule, UpperBound
from tests.arms.support import NOISE, conditioned, dense_joint, make

LONG = SumRule(1e6)


class Script:
    r"""A criterion that picks given rows and remembers what it was shown."""

    def __init__(self, rows):
        self.rows, self.shown = list(rows), []

    def __call__(self, mean, var):
        self.shown.append((mean.clone(), var.clone()))
        values = torch.zeros_like(mean)
        values[self.rows[len(self.shown) - 1]] = 1
        return values


@given(st.integers(0, 1000), st.lists(st.integers(0, 24), min_size=1, max_size=12))
def test_variances_equal_dense_conditioning(seed, rows):
    torch.manual_seed(seed)
    table = make(n=25, m=6)  # most rows are not in the dictionary
    mean, cov = dense_joint(table)
    script = Script(rows)
    batch = ExactBatch(table, LONG, script)
    assert [batch.pick() for _ in rows] == rows
    for done, (shown_mean, shown_var) in enumerate(script.shown):
        torch.testing.assert_close(shown_mean, mean, atol=1e-8, rtol=0)
        torch.testing.assert_close(shown_var, conditioned(cov, rows[:done]), atol=1e-8, rtol=0)


@pytest.mark.parametrize("earlier", ["stragglers", "given_up"])
def test_earlier_picks_count_as_picked(earlier):
    table, rows = make(n=25, m=6), [7, 20, 7]
    script = Script([3])
    ExactBatch(table, LONG, script, **{earlier: rows}).pick()
    expected = conditioned(dense_joint(table)[1], rows)
    torch.testing.assert_close(script.shown[0][1], expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("width", [0.0, 0.5, 3.0])
def test_picks_have_the_highest_bound_of_everything_picked_before(width):
    table = make(n=40, m=6)
    mean, cov = dense_joint(table)
    batch, picks = ExactBatch(table, LONG, UpperBound(width)), []
    for _ in range(15):
        bounds = mean + width * conditioned(cov, picks).clamp_min(0).sqrt()
        picks.append(int(bounds.argmax()))
        batch.pick()
    assert batch.picks == picks


def test_rows_behind_the_arms_are_conditioned_on_and_never_picked():
    table = make(n=25, m=6)
    script = Script([0])
    ExactBatch(table, LONG, script, num_arms=10, stragglers=(20,)).pick()
    mean, var = script.shown[0]
    assert len(mean) == len(var) == 10
    expected = conditioned(dense_joint(table)[1], [20])[:10]
    torch.testing.assert_close(var, expected, atol=1e-8, rtol=0)


def test_what_a_pick_teaches_is_judged_by_all_picks_before_it():
    table = make(n=25, m=6)
    cov, rows = dense_joint(table)[1], [12, 13, 12, 3]
    now = [float(conditioned(cov, rows[:i])[row]) / NOISE for i, row in enumerate(rows)]
    threshold = sum(sorted(now)[1:3]) / 2
    batch = ExactBatch(table, LONG, Script(rows), threshold=threshold)
    for _ in rows:
        batch.pick()
    assert batch.informative == [score > threshold for score in now]
    assert any(batch.informative) and not all(batch.informative)


def test_variances_stay_after_a_pick_that_ends_the_batch():
    table, script = make(n=25, m=6), Script([3, 4])
    batch = ExactBatch(table, LONG, script, threshold=1e9, ends_uninformed=True)
    batch.pick()
    assert batch.complete and batch.informative == [False]
    batch.pick()
    assert torch.equal(script.shown[0][1], script.shown[1][1])


def test_upper_bounds():
    mean, var = torch.tensor([0.0, 1.0]), torch.tensor([4.0, 0.25])
    assert UpperBound(2.0)(mean, var).tolist() == [4.0, 2.0]
    assert UpperBound(0.0)(mean, var).tolist() == [0.0, 1.0]
