from __future__ import annotations

import pytest
import torch

from botorch_bkb.batches import (
    Candidates,
    ExactBatch,
    GreedyBatch,
    LazyBatch,
    SumRule,
    ThompsonBatch,
    UpperBound,
    lazy,
)
from tests.arms.support import make
from tests.batches.support import whole

FIRST = torch.tensor([0, 1, 1, 3, 4])


def of(**changes):
    options = {
        "evaluated": torch.tensor([0.0, 2, 0, 0, 1]), "max_replicates": None, "taken": (),
        "distinct": False, "exclude": (),
    }  # fmt: skip
    return Candidates.of(FIRST, **{**options, **changes})


def test_without_limits_there_is_nothing_to_keep():
    assert of(taken=(3, 4)) is None


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_replicates": 2}, [2, 0, 0, 2, 1]),
        ({"max_replicates": 2, "taken": (3, 4, 0, 0, 7)}, [0, 0, 0, 1, 0]),
        ({"distinct": True}, [1, 1, 0, 1, 1]),
        ({"distinct": True, "taken": (2, 4)}, [1, 0, 0, 1, 0]),
        ({"exclude": (0, 2), "distinct": True}, [0, 0, 0, 1, 1]),
        ({"max_replicates": 3, "distinct": True, "exclude": (0,)}, [0, 1, 0, 1, 1]),
    ],
)
def test_how_often_arms_may_be_picked(limits, left):
    candidates = of(**limits)
    assert candidates.total == sum(left)
    assert candidates.is_open.tolist() == [x > 0 for x in left]


def test_excluded_arms_alone_leave_the_others_without_limit():
    candidates = of(exclude=(1,))
    assert candidates.total == torch.inf
    assert candidates.is_open.tolist() == [True, False, False, True, True]


def batches(table, left):
    rule = SumRule(1e6)
    options = {"candidates": Candidates(left.clone()), "num_arms": 30}
    yield LazyBatch(table, rule, 0.5, **options)
    options = {"candidates": Candidates(left.clone()), "num_arms": 30}
    yield ExactBatch(table, rule, UpperBound(0.5), **options)
    options = {"candidates": Candidates(left.clone()), "num_arms": 30}
    yield ThompsonBatch(table, rule, torch.Generator().manual_seed(0), **options)
    options = {"candidates": Candidates(left.clone()), "num_arms": 30}
    yield GreedyBatch(table, rule, 0.3, torch.Generator().manual_seed(0), **options)


def test_every_batch_picks_each_arm_as_often_as_it_may(monkeypatch):
    monkeypatch.setattr(lazy, "POOL", 4)
    torch.manual_seed(0)
    table = make(n=40, m=8)
    table.observe(torch.arange(8), torch.randn(8, dtype=torch.float64))
    left = torch.randint(0, 3, (30,)).double()
    for batch in batches(table, left):
        whole(batch)
        counts = torch.bincount(torch.tensor(batch.picks), minlength=30).double()
        assert torch.equal(counts, left), type(batch).__name__
        assert batch.exhausted


def test_limits_change_nothing_where_they_do_not_bind():
    torch.manual_seed(0)
    table = make(n=40, m=8)
    many = Candidates(torch.full((40,), 1e6, dtype=torch.float64))
    limited = LazyBatch(table, SumRule(40.0), 2.0, candidates=many)
    assert whole(limited).picks == whole(LazyBatch(table, SumRule(40.0), 2.0)).picks
