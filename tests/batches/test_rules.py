from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.batches import (
    BatchRule,
    HoldingRule,
    LazyBatch,
    LocalRule,
    OneAtATime,
    ProductRule,
    SumRule,
)
from botorch_bkb.batches.rules import as_batch_rule
from tests.arms.support import make
from tests.batches.support import whole


def test_lemma_4_holds_at_the_end_of_a_batch():
    table = make(n=50, m=8)
    before = table.scores()
    batch = whole(LazyBatch(table, SumRule(6.0), 2.0))
    rows = torch.tensor(batch.picks)
    table.observe(rows, torch.zeros(len(rows), dtype=torch.float64))
    after, total = table.scores(), 1 + sum(batch.scores)
    assert (after <= before + 1e-9).all() and (after >= before / total - 1e-9).all()


def test_the_sum_rule_never_gives_smaller_batches_than_the_product_rule():
    batch = whole(LazyBatch(make(n=50, m=8), SumRule(6.0), 2.0))
    shorter = torch.tensor(batch.scores[:-1])
    assert (1 + shorter).prod() >= 1 + shorter.sum()
    assert 1 + shorter.sum() <= 6.0


@pytest.mark.parametrize(
    ("rule", "limit", "inflation", "delay", "spent", "repeats"),
    [
        (BatchRule(), 0.0, 1.0, 1.0, 1.0, 1.0),
        (OneAtATime(), 0.0, 1.0, 1.0, 1.0, 1.0),
        (SumRule(3.0), 2.0, 3.0, 3.0, 0.5, 1.0),
        (LocalRule(3.0), 2.0, 3.0, 3.0, 0.5, 1.0),
        (ProductRule(3.0), math.log(3), 3.0, 3.0, math.log(1.5), 1.0),
        (HoldingRule(3.0), 0.0, 1.0, 9.0, 1.0, 16.0),
    ],
    ids=str,
)
def test_what_a_rule_says(rule, limit, inflation, delay, spent, repeats):
    assert (rule.limit, rule.inflation, rule.delay) == (limit, inflation, delay)
    assert (rule.spent(0.5), rule.repeats(0.5)) == (spent, repeats)


def test_a_pick_is_held_at_least_once_and_for_ever_where_nothing_is_left_to_learn():
    rule = HoldingRule(2.0)
    assert rule.repeats(3.0) == rule.repeats(1e9) == 1 and rule.repeats(1.4) == 2
    assert rule.repeats(0.0) == math.inf


@pytest.mark.parametrize("kind", [SumRule, LocalRule, ProductRule, HoldingRule])
@pytest.mark.parametrize("threshold", [0.9, math.inf, math.nan])
def test_impossible_thresholds_are_refused(kind, threshold):
    with pytest.raises(InputDataError, match="batch_threshold must be finite and at least 1"):
        kind(threshold)


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(InputDataError, match="max_batch_size must be a positive integer"):
        SumRule(2.0, max_size=size)


def test_rules_are_values():
    assert SumRule(3.0) == SumRule(3.0) != ProductRule(3.0)
    assert SumRule(3.0) != SumRule(3.0, max_size=5)
    with pytest.raises(FrozenInstanceError):
        SumRule(3.0).threshold = 4.0


def test_rules_by_name():
    assert as_batch_rule("one") == OneAtATime()
    assert as_batch_rule("sum") == SumRule(2.0) != as_batch_rule("local") == LocalRule(2.0)
    assert as_batch_rule("product", 4.0) == ProductRule(4.0)
    assert as_batch_rule("hold", 4.0, 7) == HoldingRule(4.0, max_size=7)


def test_a_rule_is_taken_as_it_is():
    rule = SumRule(3.0)
    assert as_batch_rule(rule) is rule
    for more in ((4.0,), (2.0, 5)):
        with pytest.raises(InputDataError, match="no effect beside a batch rule"):
            as_batch_rule(rule, *more)


def test_arguments_without_effect_and_unknown_names_are_refused():
    with pytest.raises(InputDataError, match='no effect where batch_rule is "one"'):
        as_batch_rule("one", 4.0)
    with pytest.raises(InputDataError, match="batch_rule must be one of one, sum"):
        as_batch_rule("many")
