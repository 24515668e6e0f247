r"""Recommendations: by mean, by lower bound, and a past pull."""

from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb import BBKB, BKB, CompressedUCB
from tests.optimizers.support import Problem, warm

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


@pytest.fixture
def optimizer():
    return warm(Problem(), BBKB)


def test_by_mean_and_by_lower_bound(optimizer):
    mean, var = optimizer.table.moments()
    half = optimizer.width_now * var.sqrt()
    assert optimizer.best().index == optimizer.best(by="mean").index == int(mean.argmax())
    surest = optimizer.best(by="lower")
    assert surest.index == int((mean - half).argmax())
    assert surest.lower == pytest.approx(float((mean - half).max()))
    highest = float((mean + half).max())
    assert optimizer.gap() == pytest.approx(highest - surest.lower)


def test_a_past_pull_is_drawn_with_the_weights_of_the_pulls():
    problem, seen = Problem(), torch.zeros(3)
    for seed in range(300):
        optimizer = BKB(problem.arms, **problem.options(seed=seed))
        optimizer.tell([4, 7, 7, 7], [0.0, 0.0, 1.0, 2.0])
        seen[[4, 7].index(optimizer.best(by="past").index)] += 1
    # The share of the first is 1/4; four standard deviations of 300 draws are 0.1.
    assert abs(float(seen[0]) / 300 - 0.25) < 0.1


def test_a_recommendation_changes_nothing(optimizer):
    problem = Problem()
    other = warm(problem, BBKB)
    again = [optimizer.best(by="past").index for _ in range(3)]
    assert len(set(again)) == 1
    assert optimizer.ask().indices.tolist() == other.ask().indices.tolist()


@pytest.mark.parametrize("by", ["mean", "lower", "past"])
def test_over_a_box_it_is_an_observed_point(by):
    optimizer = BKB(bounds=BOUNDS, seed=0)
    suggestion = optimizer.ask()
    optimizer.tell(suggestion, suggestion.X.sum(-1))
    best = optimizer.best(by=by)
    assert best.index is None and (suggestion.X == best.X).all(-1).any()
    assert best.lower <= best.mean <= best.upper


def test_a_compressed_belief_recommends_a_pull_that_it_kept():
    problem = Problem()
    optimizer = warm(problem, CompressedUCB, epsilon=0.5)
    assert optimizer.best(by="past").index in optimizer.history.rows.tolist()


def test_other_rules_are_refused(optimizer):
    with pytest.raises(InputDataError, match="by must be one of mean, lower, past, got 'median'"):
        optimizer.best(by="median")
