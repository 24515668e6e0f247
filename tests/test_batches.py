from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import LazyBatch, SumRule, hallucination, lazy
from tests import naive
from tests.problems import rbf
from tests.test_arms import NOISE, kernel, make


def whole_batch(table, width, threshold) -> LazyBatch:
    batch = LazyBatch(table, SumRule(threshold), width)
    while not batch.complete:
        batch.pick()
    return batch


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


def test_lemma_4_holds_at_the_end_of_a_batch():
    table = make(n=50, m=8)
    before = table.scores()
    batch = whole_batch(table, 2.0, 6.0)
    rows = torch.tensor(batch.picks)
    table.observe(rows, torch.zeros(len(rows), dtype=torch.float64))
    after, total = table.scores(), 1 + sum(batch.scores)
    assert (after <= before + 1e-9).all() and (after >= before / total - 1e-9).all()


def test_the_sum_rule_never_gives_smaller_batches_than_the_product_rule():
    batch = whole_batch(make(n=50, m=8), 2.0, 6.0)
    shorter = torch.tensor(batch.scores[:-1])
    assert (1 + shorter).prod() >= 1 + shorter.sum()
    assert 1 + shorter.sum() <= 6.0


def test_equal_bounds_do_not_let_everybody_stand():
    X = 100 * torch.arange(20_000, dtype=torch.float64).unsqueeze(-1)
    table = ArmTable(X, kernel(), 2.0, torch.tensor([0]))
    batch = whole_batch(table, 2.0, 4.0)
    # The first arm is in the dictionary; what another has beyond it never falls within a batch.
    assert batch.picks == [0] + [1] * (len(batch.picks) - 1)
    assert batch.refreshed < 5000 and len(batch._pool) < 5000


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
