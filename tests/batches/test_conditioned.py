from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import ArmsDesign, Candidates, ConditionedBatch, OneAtATime, SumRule
from botorch_bkb.batches import conditioned as module
from tests import naive
from tests.arms.support import NOISE, conditioned, dense_joint, kernel, make


def after_results(seed=0, n=40):
    torch.manual_seed(seed)
    table = make(n=n, m=6)
    table.observe(torch.randint(n, (12,)), torch.randn(12, dtype=torch.float64))
    table.set_dictionary(torch.arange(1, 8))
    return table


def once(n=40):
    return Candidates(torch.ones(n, dtype=torch.float64))


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([1, 3, 64]))
def test_picks_equal_the_dense_transcription(seed, width, group):
    table = after_results(seed)
    mean, cov = dense_joint(table)
    with patch.object(module, "GROUP", group):
        batch = ConditionedBatch(table, OneAtATime(), width, candidates=once())
        picks = [batch.pick() for _ in range(25)]
    assert picks == naive.plate(mean, cov, NOISE, width, 25)
    assert len(set(picks)) == 25 and not batch.exhausted


def test_arms_may_be_picked_again_where_that_is_allowed():
    table = after_results()
    mean, cov = dense_joint(table)
    batch = ConditionedBatch(table, OneAtATime(), 0.2)
    picks = [batch.pick() for _ in range(30)]
    left = torch.full((40,), 1e9, dtype=torch.float64)
    assert picks == naive.plate(mean, cov, NOISE, 0.2, 30, left=left)
    assert len(set(picks)) < 30


@pytest.mark.parametrize("earlier", ["stragglers", "given_up"])
def test_points_asked_earlier_are_conditioned_on(earlier):
    table = after_results()
    mean, cov = dense_joint(table)
    for row in (7, 20, 7):
        cov = cov - torch.outer(cov[:, row], cov[row]) / (cov[row, row] + NOISE)
    batch = ConditionedBatch(
        table, OneAtATime(), 2.0, num_arms=30, candidates=once(30), **{earlier: (7, 20, 7)}
    )
    picks = [batch.pick() for _ in range(10)]
    assert picks == naive.plate(mean[:30], cov[:30, :30], NOISE, 2.0, 10)


def test_a_design_has_the_highest_variances_whatever_the_means():
    table = after_results()
    mean, cov = dense_joint(table)
    design = ArmsDesign(table, OneAtATime(), 12, first=5, candidates=once())
    while not design.complete:
        design.pick()
    assert design.picks == naive.plate(torch.zeros_like(mean), cov, NOISE, 1.0, 12, first=5)
    assert design.is_design and design.exhausted and design.informative == [True] * 12


def test_scores_are_those_at_the_start_and_all_picks_spend_until_the_rule_is_broken():
    table = after_results()
    start = table.scores()
    rule = SumRule(4.0)
    batch = ConditionedBatch(table, rule, 2.0, candidates=once())
    for _ in range(8):
        is_complete = 1 + sum(batch.scores) > 4.0
        assert batch.complete == is_complete
        batch.pick()
    assert batch.scores == start[batch.picks].tolist()


def test_what_a_pick_teaches_is_judged_by_all_picks_before_it():
    table = after_results()
    cov = dense_joint(table)[1]
    before = ConditionedBatch(table, OneAtATime(), 2.0)
    picks = [before.pick() for _ in range(8)]
    now = [float(conditioned(cov, picks[:i])[row]) / NOISE for i, row in enumerate(picks)]
    threshold = sum(sorted(now)[3:5]) / 2
    batch = ConditionedBatch(table, OneAtATime(), 2.0, threshold=threshold)
    assert [batch.pick() for _ in range(8)] == picks
    assert batch.informative == [score > threshold for score in now]


def test_few_arms_are_examined_where_the_bounds_differ():
    torch.manual_seed(0)
    table = make(n=3000, m=30)
    table.observe(torch.arange(30), 3 * torch.randn(30, dtype=torch.float64))
    batch = ConditionedBatch(table, OneAtATime(), 1.0)
    for _ in range(30):
        batch.pick()
    assert batch.examined < 0.1 * 30 * 3000


def test_equal_arms_far_apart_are_picked_in_turn():
    X = 100 * torch.arange(500, dtype=torch.float64).unsqueeze(-1)
    table = ArmTable(X, kernel(), NOISE, torch.tensor([0]))
    batch = ConditionedBatch(table, OneAtATime(), 2.0)
    picks = [batch.pick() for _ in range(96)]
    assert sorted(picks) == list(range(96))
