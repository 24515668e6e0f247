r"""Large batches over a box, from a pool of candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from botorch_bkb.acquisition import EI
from botorch_bkb.batches import Request
from botorch_bkb.batches import pool as module
from botorch_bkb.batches.begin import begin_batch
from botorch_bkb.batches.box import BoxBatch
from botorch_bkb.batches.pool import PoolBatch
from botorch_bkb.domains import Box
from tests import naive
from tests.arms.support import NOISE
from tests.batches.support import context_of, over_box
from tests.problems import rbf


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def context(optimizer, n=40, distinct=True, **options):
    found = context_of(optimizer, **options)
    return replace(found, request=Request(n=n, distinct=distinct))


def dense_pool(optimizer, batch):
    r"""Mean and joint covariance at all candidates, by the oracle."""
    state, S, pool = optimizer.history, optimizer.dictionary, batch.pool
    X = optimizer.table.X[state.rows]
    noise = NOISE / state.weights
    return naive.dtc(
        rbf(S, S),
        rbf(X, S),
        rbf(pool, S),
        rbf(pool, pool),
        state.means,
        noise,
    )


@pytest.mark.parametrize("width", [0.5, 2.0])
def test_picks_are_those_of_the_dense_transcription(width, monkeypatch):
    monkeypatch.setattr(module, "LEAST", 256)
    optimizer = over_box(Box)
    batch = begin_batch(optimizer.domain, context(optimizer, 32, width=width))
    assert isinstance(batch, PoolBatch)
    mean, cov = dense_pool(optimizer, batch)
    expected = naive.plate(mean, cov, NOISE, width, 32)
    rows = [batch.pick() for _ in range(32)]
    torch.testing.assert_close(batch.inputs[rows], batch.pool[expected], atol=1e-9, rtol=0)
    assert len(batch.inputs[rows].unique(dim=0)) == 32


def test_points_asked_earlier_are_conditioned_on_and_not_asked_again(monkeypatch):
    monkeypatch.setattr(module, "LEAST", 256)
    optimizer = over_box(Box)
    earlier = optimizer.ask(3)
    rows = [int((x == optimizer.table.X).all(-1).nonzero()[0]) for x in earlier.X]
    batch = begin_batch(optimizer.domain, context(optimizer, 32, stragglers=tuple(rows)))
    mean, cov = dense_pool(optimizer, batch)
    for place in range(3):
        cov = cov - torch.outer(cov[:, place], cov[place]) / (cov[place, place] + NOISE)
    left = torch.ones(len(mean), dtype=torch.float64)
    left[:3] = 0
    expected = naive.plate(mean, cov, NOISE, 2.0, 32, left=left)
    picks = [batch.pick() for _ in range(32)]
    torch.testing.assert_close(batch.inputs[picks], batch.pool[expected], atol=1e-9, rtol=0)


@pytest.mark.parametrize("columns", [1, 5])
def test_picks_do_not_depend_on_how_many_columns_are_computed_together(columns, monkeypatch):
    expected = over_box(Box).ask(40).X
    monkeypatch.setattr(module, "COLUMNS", columns)
    torch.testing.assert_close(over_box(Box).ask(40).X, expected, atol=1e-9, rtol=0)


def test_scores_of_picks_are_those_before_the_batch():
    optimizer = over_box(Box)
    batch = begin_batch(optimizer.domain, context(optimizer))
    rows = [batch.pick() for _ in range(40)]
    searched = BoxBatch(optimizer.domain, context(optimizer, None))
    searched.inputs = batch.inputs
    expected = torch.tensor(searched._scores_at_start(rows)).double()
    torch.testing.assert_close(torch.tensor(batch.scores).double(), expected)


def test_picks_beyond_the_rule_join_the_table_in_one_block():
    optimizer = over_box(Box)
    before = len(optimizer.table.log.changes)
    suggestion = optimizer.ask(40)
    rows = [len(change.X) for change in optimizer.table.log.changes[before:]]
    beyond = int(suggestion.beyond.sum())
    assert beyond > 1 and sum(rows) == 40 and rows[-1] == beyond


@pytest.mark.parametrize(
    ("n", "options"), [(31, {}), (None, {}), (40, {"acquisition": EI()})], ids=str
)
def test_small_batches_and_other_rules_are_searched(n, options):
    optimizer = over_box(Box)
    batch = begin_batch(optimizer.domain, context(optimizer, n, **options))
    assert type(batch) is BoxBatch


def test_boxes_with_constraints_are_searched():
    optimizer = over_box(Box)
    half = (torch.tensor([0]), torch.ones(1).double(), 0.5)
    options = {"inequality_constraints": [half]}
    domain = replace(optimizer.domain, acquisition_options=options)
    assert type(begin_batch(domain, context(optimizer))) is BoxBatch


def test_a_large_batch_goes_on_after_loading():
    first, second = over_box(Box), over_box(Box)
    first.ask(50)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.pending.X, first.pending.X)
    assert torch.equal(second.ask(33).X, first.ask(33).X)


def test_contexts_fix_coordinates_of_large_batches():
    suggestion = over_box(Box).ask(40, context={1: 0.25})
    assert (suggestion.X[:, 1] == 0.25).all() and len(suggestion.X.unique(dim=0)) == 40
