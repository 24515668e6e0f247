r"""The local rule: never shorter than the sum rule, and with the same guarantee."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import BBKB, GPBUCB, AdaBBKB, AllPoints
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import (
    ExactBatch,
    GreedyBatch,
    LazyBatch,
    LocalRule,
    ProductRule,
    SumRule,
    ThompsonBatch,
    UpperBound,
)
from botorch_bkb.batches.rules import as_batch_rule
from tests import naive
from tests.arms.support import NOISE, make
from tests.batches.support import apart, over_box, whole
from tests.optimizers.inside import batch_of, inputs_of
from tests.optimizers.support import Problem
from tests.optimizers.tree.support import BOX, sines, uniform
from tests.optimizers.tree.support import given as given_options
from tests.problems import rbf

KERNELS = {
    "rbf": lambda: RBFKernel(),
    "matern": lambda: ScaleKernel(MaternKernel(nu=1.5)),
    "linear": lambda: LinearKernel(),
}


def table_of(name, seed, points, n=40) -> ArmTable:
    r"""A table after some pulls, many of them not in its dictionary."""
    generator = torch.Generator().manual_seed(seed)
    X = 3 * torch.rand(n, 2, generator=generator, dtype=torch.float64)
    kernel = KERNELS[name]().double().requires_grad_(False)
    table = ArmTable(X, kernel, NOISE, torch.arange(points))
    rows = torch.randint(n, (30,), generator=generator)
    table.observe(rows, torch.randn(30, generator=generator, dtype=torch.float64))
    return table


def dense_variances(table, picks, joins):
    r"""All variances after hallucinated picks, with a fixed dictionary or an exact conditional."""
    X, k = table.X, table.kernel
    S, pulled = X[table.dictionary], table.pulled
    rows = torch.repeat_interleave(pulled, table.counts[pulled].long())
    if not joins:
        rows = torch.cat([rows, torch.tensor(picks, dtype=torch.long)])
    lam = torch.full((len(rows),), NOISE, dtype=torch.float64)
    zero = torch.zeros_like(lam)
    cov = naive.dtc(
        k(S).to_dense(), k(X[rows], S).to_dense(), k(X, S).to_dense(), k(X).to_dense(), zero, lam
    )[1]
    if joins:
        C = cov[picks][:, picks] + NOISE * torch.eye(len(picks), dtype=torch.float64)
        cov = cov - cov[:, picks] @ torch.linalg.inv(C) @ cov[picks]
    return cov.diagonal()


@given(
    st.sampled_from(sorted(KERNELS)),
    st.integers(0, 1000),
    st.sampled_from([1, 5, 20]),
    st.sampled_from([1.0, 1.3, 2.0, 6.0]),
    st.booleans(),
    st.lists(st.integers(0, 39), max_size=3),
)
def test_never_shorter_than_the_sum_rule_and_no_variance_falls_by_more(
    name, seed, points, threshold, joins, stragglers
):
    table = table_of(name, seed, points)

    def batch(rule):
        options = {"stragglers": stragglers}
        if joins:
            return ExactBatch(table, rule, UpperBound(2.0), **options)
        return LazyBatch(table, rule, 2.0, **options)

    shorter = whole(batch(SumRule(threshold, max_size=200)))
    longer = whole(batch(LocalRule(threshold, max_size=200)))
    assert longer.picks[: len(shorter.picks)] == shorter.picks
    if longer.picks:
        before = dense_variances(table, stragglers[:0], joins)
        after = dense_variances(table, [*stragglers, *longer.picks[:-1]], joins)
        scale = float(before.max())
        assert (after >= before / threshold - 1e-8 * scale).all()


def test_batches_are_longer_where_arms_know_nothing_of_each_other():
    # Every arm has a score of 5, so a limit of 10 allows for two picks of each, and one more.
    table = apart(6)
    table = ArmTable(table.X, table.kernel, NOISE, torch.arange(6))
    assert len(whole(LazyBatch(table, SumRule(11.1), 2.0)).picks) == 3
    assert len(whole(LazyBatch(table, LocalRule(11.1), 2.0)).picks) == 6 * 2 + 1


def test_an_arm_that_the_dictionary_does_not_explain_is_not_pulled_for_ever():
    batch = whole(LazyBatch(apart(6), LocalRule(11.1), 2.0, stragglers=(1,)))
    assert 3 <= len(batch.picks) < 20
    assert max(batch.picks.count(row) for row in range(6)) <= 3


def test_stragglers_count_and_rows_given_up_do_not():
    table = ArmTable(apart(1).X, apart(1).kernel, NOISE, torch.arange(1))
    rule = LocalRule(11.1)
    assert len(whole(LazyBatch(table, rule, 2.0)).picks) == 3
    assert len(whole(LazyBatch(table, rule, 2.0, stragglers=(0,))).picks) == 2
    assert len(whole(LazyBatch(table, rule, 2.0, given_up=(0,))).picks) == 3
    assert LazyBatch(table, rule, 2.0, stragglers=(0, 0, 0)).complete


@pytest.mark.parametrize("joins", [True, False])
def test_random_batches_are_never_shorter_either(joins):
    for seed in range(5):
        table = table_of("rbf", seed, 10)
        for kind, more in ((ThompsonBatch, ()), (GreedyBatch, (0.5,))):
            picks = []
            for rule in (SumRule(3.0), LocalRule(3.0, max_size=300)):
                generator = torch.Generator().manual_seed(seed)
                picks.append(whole(kind(table, rule, *more, generator, joins=joins)).picks)
            assert picks[1][: len(picks[0])] == picks[0]


# ------------------------------------------------------------------ over boxes and trees


def tree_after(seed, **more) -> AdaBBKB:
    optimizer = AdaBBKB(bounds=BOX, **given_options(width=2.0, **more))
    X = uniform(BOX, 12, seed=seed)
    optimizer.tell(X, sines(X))
    return optimizer


def dense_anywhere(optimizer, picks, X, exact):
    r"""Variances of any inputs after picks, with the dictionary of a run."""
    noise, S = optimizer.table.noise_var, optimizer.dictionary
    seen = torch.repeat_interleave(
        inputs_of(optimizer, optimizer.history.rows), optimizer.history.weights.long(), 0
    )
    if not exact:
        seen = torch.cat([seen, picks])
    x = torch.cat([X, picks]) if exact else X
    lam = torch.full((len(seen),), noise, dtype=torch.float64)
    cov = naive.dtc(rbf(S, S), rbf(seen, S), rbf(x, S), rbf(x, x), torch.zeros_like(lam), lam)[1]
    if exact and len(picks):
        more = torch.full((len(picks),), noise, dtype=torch.float64)
        mean = torch.zeros(len(x), dtype=torch.float64)
        cov = naive.condition(mean, cov, torch.zeros_like(more), more, len(picks))[1]
    return cov.diagonal()


@pytest.mark.parametrize("dictionary", [None, AllPoints()])
@pytest.mark.parametrize("threshold", [1.5, 4.0])
@pytest.mark.parametrize("seed", range(4))
def test_over_a_tree_no_variance_anywhere_falls_by_more(seed, threshold, dictionary):
    optimizer = tree_after(seed, dictionary=dictionary)
    shorter = whole(batch_of(optimizer, batch=SumRule(threshold)))
    longer = whole(batch_of(optimizer, batch=LocalRule(threshold)))
    assert longer.picks[: len(shorter.picks)] == shorter.picks
    picks = longer.inputs[longer.picks[:-1]]
    # Also at centres of cells that the batch has made, and at those that it has not.
    X = torch.cat([uniform(BOX, 300, seed=1), longer.inputs])
    for exact in (False, True):
        before = dense_anywhere(optimizer, picks[:0], X, exact)
        after = dense_anywhere(optimizer, picks, X, exact)
        assert (after >= before / threshold - 1e-9).all()


@pytest.mark.parametrize("threshold", [6.0, 15.0])
def test_over_a_box_no_variance_anywhere_falls_by_more(threshold):
    optimizer = over_box()
    shorter = whole(batch_of(optimizer, batch=SumRule(threshold)))
    longer = whole(batch_of(optimizer, batch=LocalRule(threshold)))
    assert longer.picks[: len(shorter.picks)] == shorter.picks
    assert len(longer.picks) > len(shorter.picks)
    picks = longer.inputs[longer.picks]
    X = torch.cat([uniform(optimizer.domain.bounds, 300), longer.inputs])
    before = dense_anywhere(optimizer, picks[:0], X, True)
    after = dense_anywhere(optimizer, picks[:-1], X, True)
    assert (after >= before / threshold - 1e-9).all()
    # Pick for pick: the eigenvalue exceeds the limit with the last pick, and not before.
    S, seen = optimizer.dictionary, inputs_of(optimizer, optimizer.history.rows)
    lam = torch.full((len(seen),), NOISE, dtype=torch.float64)
    zero = torch.zeros_like(lam)
    cov = naive.dtc(rbf(S, S), rbf(seen, S), rbf(picks, S), rbf(picks, picks), zero, lam)[1]
    largest = [
        float(torch.linalg.eigvalsh(cov[:b, :b] / NOISE)[-1]) for b in range(1, len(picks) + 1)
    ]
    assert max(largest[:-1]) <= threshold - 1 < largest[-1]


def test_an_initial_design_is_asked_as_a_whole():
    assert len(over_box(results=False, batch=LocalRule(1.0)).ask()) == 6


# ------------------------------------------------------------------ in whole runs


@pytest.mark.parametrize("algorithm", [BBKB, GPBUCB])
def test_asking_one_by_one_equals_asking_at_once(algorithm):
    problem = Problem()
    options = problem.options(batch_rule="local", batch_threshold=20.0)
    one, all_, saved = (algorithm(problem.arms, **options) for _ in range(3))
    rows = torch.arange(60)
    rewards = problem.rewards(rows)
    for optimizer in (one, all_, saved):
        optimizer.tell(rows, rewards)
    expected = all_.ask().indices.tolist()
    assert len(expected) > 20
    assert [int(one.ask(at_most=1).indices) for _ in expected] == expected
    for start in range(0, len(expected), 5):
        again = algorithm(problem.arms, **options)
        again.load_state_dict(saved.state_dict())
        asked = again.ask(at_most=5).indices.tolist()
        assert asked == expected[start : start + 5]
        saved = again


def test_theory_counts_on_the_threshold():
    rule = LocalRule(3.0, max_size=7)
    assert as_batch_rule("local", 3.0, 7) == rule != SumRule(3.0, max_size=7)
    assert (rule.limit, rule.inflation, rule.delay, rule.repeats(0.5)) == (2.0, 3.0, 3.0, 1.0)
    arms = torch.rand(9, 2, dtype=torch.float64)
    options = {"covar_module": RBFKernel(), "noise_var": 0.1, "horizon": 50, "seed": 0}
    options |= {"oversampling": "theory", "width": "theory", "norm_bound": 1.0}
    local, summed = (
        BBKB(arms, batch_rule=rule, batch_threshold=3.0, **options) for rule in ("local", "sum")
    )
    assert local.oversampling == summed.oversampling
    for optimizer in (local, summed):
        optimizer.tell([0, 3, 5], [0.1, 0.5, 0.2])
    assert local.width_now == summed.width_now


class InformationRule(ProductRule):
    r"""A user's rule that sees covariances: the information of the picks."""

    def total(self, picks):
        root = picks.counts.sqrt()
        C = root.unsqueeze(-1) * picks.covariance() * root
        return float(torch.logdet(C + torch.eye(len(C)).to(C)))


@pytest.mark.parametrize("joins", [True, False])
def test_a_rule_of_ones_own_sees_covariances(joins):
    lengths, threshold = [], 1e3
    for seed in range(6):
        table, picks = table_of("rbf", seed, 10), []
        for rule in (ProductRule(threshold), InformationRule(threshold)):
            if joins:
                picks.append(whole(ExactBatch(table, rule, UpperBound(2.0))).picks)
            else:
                picks.append(whole(LazyBatch(table, rule, 2.0)).picks)
        product, own = picks
        assert own[: len(product)] == product
        lengths.append(len(own) - len(product))
        after = dense_variances(table, own[:-1], joins)
        assert (after >= dense_variances(table, [], joins) / threshold - 1e-9).all()
    assert max(lengths) > 0


def test_a_rule_of_ones_own_works_over_boxes_and_trees():
    for optimizer in (over_box(), tree_after(0)):
        sizes = [
            len(whole(batch_of(optimizer, batch=rule)).picks)
            for rule in (ProductRule(8.0), InformationRule(8.0))
        ]
        assert 1 <= sizes[0] <= sizes[1]


def test_few_arms():
    for n in (1, 2):
        batch = whole(LazyBatch(make(n=n, m=1), LocalRule(700.0), 2.0))
        assert set(batch.picks) <= set(range(n)) and len(batch.picks) > 64
