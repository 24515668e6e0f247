r"""Ada-BKB and its batches: a plain transcription, and bounds that hold."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from gpytorch.kernels import PeriodicKernel

from botorch_bkb import AdaBBKB, AdaBKB, AdaGPUCB, AllPoints, BatchCompleteError
from tests import naive
from tests.optimizers.inside import batch_of, state_of
from tests.optimizers.tree.support import (
    BOTH,
    BOX,
    NOISE,
    UNIT,
    consistent,
    f,
    given,
    in_batches,
    rand,
    sines,
    uniform,
)
from tests.problems import rbf

CASES = [
    (AdaBKB, BOX, {"width": 2.0}),
    (AdaBKB, BOX, {"width": 2.0, "num_children": 2, "norm_bound": 0.5}),
    (AdaBKB, UNIT, {"width": 1.0, "num_children": 4, "norm_bound": 3.0, "max_depth": 3}),
    (AdaBKB, BOX, {}),
    (AdaBKB, BOX, {"width": 0.2, "norm_bound": 0.1}),
    (AdaBKB, BOX, {"width": 2.0, "oversampling": 2.0}),
    (AdaBBKB, BOX, {"width": 2.0, "batch_threshold": 15.0}),
    (AdaBBKB, UNIT, {"width": 1.0, "num_children": 2, "batch_threshold": 4.0}),
    (AdaBBKB, BOX, {"batch_threshold": 5.0, "norm_bound": 2.0}),
    (
        AdaBBKB,
        BOX,
        {"width": 2.0, "batch_threshold": 8.0, "oversampling": 2.0},
    ),
    (AdaBBKB, BOX, {"width": 0.2, "batch_threshold": 8.0, "norm_bound": 0.1}),
    (AdaBBKB, BOX, {"batch_threshold": 5.0, "norm_bound": 2.0, "batch_rule": "local"}),
    (
        AdaBBKB,
        BOX,
        {"width": 2.0, "batch_threshold": 4.0, "oversampling": 2.0, "batch_rule": "local"},
    ),
    (AdaGPUCB, BOX, {"width": 2.0}),
    (AdaGPUCB, UNIT, {"num_children": 2, "max_depth": 5, "norm_bound": 2.0}),
    (AdaGPUCB, BOX, {"width": 0.5, "norm_bound": 0.3}),
]


@pytest.mark.parametrize(("algorithm", "bounds", "options"), CASES)
def test_every_pick_and_every_cell_equals_the_plain_transcription(algorithm, bounds, options):
    options = {"norm_bound": 1.0, "num_children": 3, **options}
    if "oversampling" not in options and algorithm is not AdaGPUCB:
        options["dictionary"] = AllPoints()
    optimizer = algorithm(bounds=bounds, **given(**options))
    norm, depth = options["norm_bound"], options.get("max_depth")
    run = naive.AdaRun(rbf, bounds, NOISE, norm, options["num_children"], depth)
    # Without these the first cells are mirror images of each other, of equal index.
    X = uniform(bounds, 4)
    optimizer.tell(X, sines(X))
    run.observe(X, sines(X))
    threshold, rule = options.get("batch_threshold"), options.get("batch_rule", "sum")
    while optimizer.num_observations < 22:
        S = optimizer.dictionary
        if "oversampling" not in options:
            assert len(S) == len(run.X.mul(1e6).round().unique(dim=0))
        expected = run.next_batch(S, optimizer.width_now, threshold, rule)
        suggestion = optimizer.ask()
        torch.testing.assert_close(suggestion.X, expected, atol=1e-10, rtol=0)
        tree = optimizer.tree
        assert tree.parent.tolist() == run.parent and tree.depth.tolist() == run.depth
        assert tree.is_leaf.tolist() == run.leaf
        assert set(tree.pruned.tolist()) == run.pruned
        torch.testing.assert_close(
            tree.lower, torch.tensor(run.lower, dtype=torch.float64), atol=1e-10, rtol=0
        )
        torch.testing.assert_close(
            tree.upper, torch.tensor(run.upper, dtype=torch.float64), atol=1e-10, rtol=0
        )
        Y = sines(suggestion.X) + 0.1 * rand(len(suggestion), seed=optimizer.num_observations)
        optimizer.tell(suggestion, Y)
        run.observe(suggestion.X, Y)
    consistent(optimizer)
    assert len(tree) > 9


@pytest.mark.parametrize("algorithm", BOTH)
def test_indices_of_all_leaves_equal_the_plain_transcription(algorithm):
    options = {"width": 2.0, "dictionary": AllPoints(), **in_batches(algorithm, 30.0)}
    optimizer = algorithm(bounds=BOX, **given(**options))
    run = naive.AdaRun(rbf, BOX, NOISE, 1.0, 3, None)
    X = uniform(BOX, 12)
    optimizer.tell(X, sines(X))
    run.observe(X, sines(X))
    run.next_batch(X, 2.0, 30.0 if algorithm is AdaBBKB else None)
    picks = list(optimizer.ask().X.split(1))
    expected = run.indices(X, 2.0, picks)
    known = batch_of(optimizer).index
    leaves = [cell for cell in optimizer.tree.leaves.tolist() if known[cell] > -math.inf]
    assert len(leaves) > 2
    for cell in leaves:
        # A leaf that is picked, and cannot be split, was examined just before.
        batch = batch_of(optimizer, domain=replace(optimizer.domain, max_depth=1))
        batch.index[torch.arange(len(known)) != cell] = -math.inf
        assert batch.pick() == batch.rows[cell]
        assert float(batch.index[cell]) == pytest.approx(expected[cell], abs=1e-8)


def test_a_threshold_of_one_is_ada_bkb():
    ours = AdaBBKB(bounds=BOX, **given(width=2.0, batch_threshold=1.0))
    theirs = AdaBKB(bounds=BOX, **given(width=2.0))
    for _ in range(60):
        a, b = ours.ask(), theirs.ask()
        assert torch.equal(a.X, b.X)
        for o, s in ((ours, a), (theirs, b)):
            o.tell(s, sines(s.X))
    assert torch.equal(ours.tree.lower, theirs.tree.lower)
    assert ours.best().mean == theirs.best().mean


def test_ada_gp_ucb_is_ada_bkb_with_all_points():
    ours = AdaGPUCB(bounds=BOX, **given(width=2.0))
    theirs = AdaBKB(bounds=BOX, **given(width=2.0, dictionary=AllPoints()))
    for _ in range(30):
        a, b = ours.ask(), theirs.ask()
        assert torch.equal(a.X, b.X)
        for o, s in ((ours, a), (theirs, b)):
            o.tell(s, sines(s.X))
    assert torch.equal(ours.tree.lower, theirs.tree.lower)
    assert ours.gap() == theirs.gap() and ours.oversampling is None


def test_a_threshold_below_one_is_refused():
    with pytest.raises(InputDataError, match="at least 1"):
        AdaBBKB(bounds=BOX, batch_threshold=0.99)


def test_batches_spend_what_the_rule_allows():
    optimizer = AdaBBKB(bounds=BOX, **given(batch_threshold=6.0))
    X = uniform(BOX, 6)
    optimizer.tell(X, sines(X))
    for _ in range(5):
        suggestion = optimizer.ask()
        pending = state_of(optimizer).in_flight.pending.values()
        scores = [point.score for point in pending]
        expected = optimizer.table.scores()[[point.row for point in pending]]
        torch.testing.assert_close(torch.tensor(scores).double(), expected)
        assert 1 + sum(scores) > 6.0 >= 1 + sum(scores[:-1])
        with pytest.raises(BatchCompleteError):
            optimizer.ask()
        optimizer.tell(suggestion, sines(suggestion.X))


# ---------------------------------------------------------------------- bounds


class Known:
    r"""A function of known norm in a box, with its highest value on a fine grid."""

    def __init__(self, d, norm, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.bounds = torch.tensor([[0.0] * d, [1.5] * d], dtype=torch.float64)
        self.Z = 1.5 * torch.rand(5, d, generator=self.generator, dtype=torch.float64)
        w = torch.randn(5, generator=self.generator, dtype=torch.float64)
        self.w = norm * w / (w @ rbf(self.Z, self.Z) @ w).sqrt()
        line = torch.linspace(0, 1.5, 401 if d == 1 else 41, dtype=torch.float64)
        self.max = float(self(torch.cartesian_prod(*[line] * d).reshape(-1, d)).max())

    def __call__(self, X):
        return rbf(X, self.Z) @ self.w

    def rewards(self, X):
        noise = torch.randn(len(X), generator=self.generator, dtype=torch.float64)
        return self(X) + NOISE**0.5 * noise


def leaf_values(problem, tree):
    r"""Highest value at random points of each cell."""
    u = torch.rand(8, 1, problem.Z.shape[-1], generator=problem.generator, dtype=torch.float64)
    X = tree.lower + u * (tree.upper - tree.lower)
    return problem(X.reshape(-1, X.shape[-1])).reshape(8, -1).amax(0)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(
    ("algorithm", "norm"), [(AdaBKB, 1.0), (AdaBKB, 4.0), (AdaBBKB, 2.0), (AdaGPUCB, 2.0)]
)
def test_indices_are_bounds_and_the_gap_bounds_the_regret(algorithm, norm, d):
    failures, runs = 0, 10
    for seed in range(runs):
        problem = Known(d, norm, seed)
        options = given(norm_bound=norm, width="theory", delta=0.1)
        if algorithm is not AdaGPUCB:
            options["dictionary"] = AllPoints()
        optimizer, failed = algorithm(bounds=problem.bounds, **options), False
        while optimizer.num_observations < 15:
            batch, suggestion = batch_of(optimizer), optimizer.ask()
            while not batch.complete:
                batch.pick()
            tree = optimizer.tree
            assert torch.equal(batch.inputs[batch.picks], suggestion.X)
            assert torch.equal(batch.cells.lower, tree.lower)
            values, leaves = leaf_values(problem, tree), tree.leaves
            index = batch.index[leaves]
            assert (index > -math.inf).all()
            failed |= bool((values[leaves] > index).any())
            failed |= problem.max > float(index.max())
            optimizer.tell(suggestion, problem.rewards(suggestion.X))
            regret = problem.max - float(problem(optimizer.best().X.unsqueeze(0)))
            failed |= regret > optimizer.gap()
        failures += failed
    assert failures <= 0.1 * runs


def test_kernels_of_which_corners_are_not_farthest_are_refused_or_bounded():
    periodic = PeriodicKernel().double()
    periodic.period_length, periodic.lengthscale = 0.5, 1.0
    Z = torch.tensor([[0.25]], dtype=torch.float64)
    options = {"noise_var": 1e-4, "width": "theory", "dictionary": AllPoints(), "seed": 0}
    try:
        optimizer = AdaBKB(bounds=UNIT, covar_module=periodic, **options)
        for _ in range(20):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, periodic(suggestion.X, Z).to_dense().detach())
    except (InputDataError, UnsupportedError):
        return
    value = periodic(optimizer.best().X.unsqueeze(0), Z).to_dense().item()
    assert 1 - value <= optimizer.gap()  # the function has norm one and is at most one


def test_the_gap_closes():
    problem = Known(1, 1.0, 3)
    options = given(norm_bound=1.0, dictionary=AllPoints(), width="theory", max_depth=20)
    optimizer = AdaBKB(bounds=problem.bounds, **options)
    gaps = []
    for _ in range(150):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, problem.rewards(suggestion.X))
        gaps.append(optimizer.gap())
    assert gaps[-1] < 0.7 * gaps[10] < gaps[0]


def test_gap_and_best_leave_the_run_alone():
    a, b = (AdaBBKB(bounds=BOX, **given(batch_threshold=10.0)) for _ in range(2))
    for _ in range(4):
        a.gap(), a.num_observations and a.best()
        x, y = a.ask(at_most=1), b.ask(at_most=1)
        a.gap(), a.num_observations and a.best()
        assert torch.equal(x.X, y.X)
        for o in (a, b):
            with contextlib.suppress(BatchCompleteError):
                o.ask()
            o.tell(o.pending, sines(o.pending.X))
    assert torch.equal(a.tree.lower, b.tree.lower)


# ---------------------------------------------------------------------- a known optimum


@pytest.mark.parametrize("algorithm", BOTH)
@pytest.mark.parametrize(("d", "budget"), [(1, 25), (2, 30)])
def test_a_known_optimum_is_found_by_default(algorithm, d, budget):
    bounds = UNIT.expand(2, d)
    optimizer = algorithm(bounds=bounds, seed=0)
    while optimizer.num_observations < budget:
        suggestion = optimizer.ask()
        assert suggestion.indices is None
        assert (bounds[0] <= suggestion.X).all() and (bounds[1] >= suggestion.X).all()
        optimizer.tell(suggestion, f(suggestion.X))
    assert float((optimizer.best().X - 0.3).abs().max()) < 0.1
    assert 0 <= optimizer.gap() < 10
    consistent(optimizer)
