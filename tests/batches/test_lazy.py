from __future__ import annotations

import heapq
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import LazyBatch, SumRule, hallucination, lazy
from tests import naive
from tests.arms.support import NOISE, dense_joint, dense_residual, kernel, make
from tests.batches.support import whole
from tests.problems import rbf


def whole_batch(table, width, threshold, **options) -> LazyBatch:
    return whole(LazyBatch(table, SumRule(threshold), width, **options))


#: Sizes at which a small problem goes through elections and folds.
SMALL = {"POOL": 3, "MOST": 20, "SINGLES": 1, "REFRESH": 2}


@given(
    st.integers(0, 1000),
    st.sampled_from([0.3, 1.0, 5.0]),
    st.sampled_from([1.5, 4.0, 12.0]),
    st.sampled_from([{"POOL": 512}, SMALL]),
)
def test_picks_equal_the_dense_transcription(seed, width, threshold, sizes):
    torch.manual_seed(seed)
    table = make(n=40, m=6)
    table.observe(torch.randint(40, (12,)), torch.randn(12, dtype=torch.float64))
    table.set_dictionary(torch.arange(1, 8))
    X, S = table.X, table.X[table.dictionary]
    expected = naive.batch(
        rbf(S, S), rbf(X, S), torch.ones(40).double(), table.counts, table.mean(), NOISE, width,
        threshold,
    )  # fmt: skip
    fold = 64 if "MOST" not in sizes else 2
    with patch.multiple(lazy, **sizes), patch.object(hallucination, "FOLD", fold):
        assert whole_batch(table, width, threshold).picks == expected


def dense_picks(table, width, n, num_arms, stragglers, given_up) -> list[int]:
    r"""The highest bounds, with all variances computed anew for each pick.

    What the dictionary does not explain of a row that was given up falls as well.
    """
    mean, residual = table.mean(), dense_residual(table)
    lost = torch.zeros_like(residual)
    for row in given_up:
        left = residual[row] - lost[row]
        lost[row] += left**2 / (NOISE + left)
    picks: list[int] = []
    for _ in range(n):
        more = torch.tensor([*stragglers, *given_up, *picks], dtype=torch.long)
        var = dense_joint(table, more)[1].diagonal() - lost
        picks.append(int((mean + width * var.sqrt())[:num_arms].argmax()))
    return picks


@given(
    st.integers(0, 1000),
    st.lists(st.integers(0, 39), max_size=4),
    st.lists(st.integers(0, 39), max_size=4),
    st.sampled_from([{"POOL": 512}, SMALL]),
)
def test_picks_that_were_asked_earlier_count_as_picked(seed, stragglers, given_up, sizes):
    torch.manual_seed(seed)
    table = make(n=40, m=8)
    options = {"stragglers": stragglers, "given_up": given_up, "num_arms": 30}
    with patch.multiple(lazy, **sizes):
        batch = LazyBatch(table, SumRule(1e6), 2.0, **options)
        picks = [batch.pick() for _ in range(8)]
    assert picks == dense_picks(table, 2.0, 8, 30, stragglers, given_up)


def test_a_row_given_up_is_not_picked_again_at_once():
    table = ArmTable(
        100 * torch.arange(5, dtype=torch.float64).unsqueeze(-1), kernel(), NOISE, torch.tensor([0])
    )
    first = LazyBatch(table, SumRule(1.0), 2.0).pick()
    assert LazyBatch(table, SumRule(1.0), 2.0, given_up=(first,)).pick() != first


def test_what_a_pick_teaches_is_judged_by_all_picks_before_it():
    table = make(n=40, m=8)
    before = LazyBatch(table, SumRule(1e6), 2.0)
    picks = [before.pick() for _ in range(8)]
    now = []
    for i, row in enumerate(picks):
        more = torch.tensor(picks[:i], dtype=torch.long)
        now.append(float(dense_joint(table, more)[1][row, row]) / NOISE)
    threshold = sum(sorted(now)[3:5]) / 2
    batch = LazyBatch(table, SumRule(1e6), 2.0, threshold=threshold)
    assert [batch.pick() for _ in range(8)] == picks
    assert batch.informative == [score > threshold for score in now]


def test_equal_bounds_do_not_let_everybody_stand():
    X = 100 * torch.arange(20_000, dtype=torch.float64).unsqueeze(-1)
    table = ArmTable(X, kernel(), 2.0, torch.tensor([0]))
    with patch.object(lazy, "heapq", wraps=heapq) as heap:
        batch = whole_batch(table, 2.0, 4.0)
    # The first arm is in the dictionary; what another has beyond it never falls within a batch.
    assert batch.picks == [0] + [1] * (len(batch.picks) - 1)
    assert batch.refreshed < 5000 and 0 < heap.heappush.call_count < 5000


def test_only_arms_near_the_top_are_examined_again():
    table = make(n=3000, m=30)
    batch = whole_batch(table, 1.0, 60.0)
    assert len(batch.picks) > 20
    assert batch.refreshed < 0.1 * len(batch.picks) * 3000


@pytest.mark.parametrize("n", [1, 2])
def test_few_arms(n):
    table = make(n=n, m=1)
    batch = whole_batch(table, 2.0, 700.0)
    assert set(batch.picks) <= set(range(n))
    assert len(batch.picks) > 64  # the hallucinated directions outgrow their first room
