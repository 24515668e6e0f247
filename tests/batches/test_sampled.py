r"""Random picks. Tests of frequencies have a fixed seed and allow five standard deviations."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import GreedyBatch, OneAtATime, SumRule, ThompsonBatch
from tests.arms.support import NOISE, kernel, make
from tests.problems import rbf

LONG = SumRule(1e9)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def picks_of(batch, n):
    return [batch.pick() for _ in range(n)]


def pair(dictionary) -> ArmTable:
    r"""Two arms that know of each other; the first was observed twice."""
    X = torch.tensor([[0.0, 0.0], [0.3, 0.0]], dtype=torch.float64)
    table = ArmTable(X, kernel(), NOISE, torch.tensor(dictionary))
    table.observe(torch.tensor([0, 0]), torch.tensor([1.6, 2.0]))
    return table


@pytest.mark.parametrize("dictionary", [[0, 1], [0]], ids=["both", "one"])
def test_thompson_picks_each_arm_as_often_as_it_is_best(dictionary):
    table, n = pair(dictionary), 4000
    S = table.X[dictionary]
    z = rbf(table.X, S) @ torch.linalg.inv(torch.linalg.cholesky(rbf(S, S))).mT
    Q = torch.linalg.inv(torch.eye(len(S)) + 2 / NOISE * torch.outer(z[0], z[0]))
    unexplained = 1 - z.square().sum(-1)  # drawn independently
    gap = z[0] - z[1]
    sd = float((gap @ Q @ gap + unexplained.sum()).sqrt())
    mean = table.mean()
    p = float(Normal(0.0, 1.0).cdf((mean[0] - mean[1]) / sd))
    hits = picks_of(ThompsonBatch(table, LONG, seeded()), n).count(0)
    assert 0.02 < p < 0.98
    assert abs(hits - n * p) < 5 * math.sqrt(n * p * (1 - p))


def test_thompson_knows_what_was_observed_often():
    table = make(n=5, m=5)
    rows = torch.arange(5).repeat_interleave(10_000)
    table.observe(rows, rows.double())
    assert picks_of(ThompsonBatch(table, LONG, seeded()), 30) == [4] * 30


@pytest.mark.parametrize("kind", ["thompson", "greedy"])
def test_a_seed_makes_picks_repeatable(kind):
    table = make(n=30, m=6)

    def batch(seed):
        if kind == "thompson":
            return ThompsonBatch(table, LONG, seeded(seed))
        return GreedyBatch(table, LONG, 0.8, seeded(seed))

    first = picks_of(batch(0), 40)
    assert picks_of(batch(0), 40) == first != picks_of(batch(1), 40)
    other = batch(0)
    other.follow(first[:17])
    assert picks_of(other, 23) == first[17:]


@pytest.mark.parametrize("kind", ["thompson", "greedy"])
def test_rows_behind_the_arms_are_never_picked(kind):
    table = make(n=30, m=6)
    table.observe(torch.tensor([29] * 50), torch.full((50,), 9.0))
    options = {"num_arms": 4, "given_up": (29, 1)}
    if kind == "thompson":
        batch = ThompsonBatch(table, LONG, seeded(), **options)
    else:
        batch = GreedyBatch(table, LONG, 0.9, seeded(), **options)
    assert set(picks_of(batch, 200)) <= {0, 1, 2, 3}


def test_greedy_without_chance_takes_the_highest_mean():
    table = make(n=30, m=6)
    best = int(table.mean().argmax())
    assert picks_of(GreedyBatch(table, LONG, 0.0, seeded()), 20) == [best] * 20


def test_greedy_leaves_out_what_was_given_up():
    table = make(n=30, m=6)
    order = table.mean().argsort(descending=True).tolist()
    batch = GreedyBatch(table, LONG, 0.0, seeded(), given_up=order[:2])
    assert batch.pick() == order[2]
    everything = GreedyBatch(table, OneAtATime(), 0.0, seeded(), given_up=range(30))
    assert 0 <= everything.pick() < 30


@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_greedy_takes_any_arm_with_its_probability(epsilon):
    table, n = make(n=4, m=3), 4000
    best = int(table.mean().argmax())
    hits = torch.bincount(
        torch.tensor(picks_of(GreedyBatch(table, LONG, epsilon, seeded()), n)), minlength=4
    )
    for row in range(4):
        p = epsilon / 4 + (1 - epsilon) * (row == best)
        assert abs(int(hits[row]) - n * p) < 5 * math.sqrt(n * p * (1 - p))
