r"""The table of a state: built, exchanged, compacted and moved to other arms."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bkb import BBKB, BKB, AdaBKB
from botorch_bkb.arms import ArmTable, WatchedTable
from botorch_bkb.domains import Arms
from botorch_bkb.optimizers import tables
from botorch_bkb.optimizers.tables import (
    build_table,
    compacted,
    exchange_dictionary,
    moved,
    new_table,
)
from tests.optimizers.inside import state_of
from tests.optimizers.support import Problem, play, warm

ELSEWHERE = torch.tensor([[5.0, 5.0], [0.3, 0.4]], dtype=torch.float64)


@pytest.fixture
def optimizer():
    problem = Problem()
    optimizer = warm(problem)
    optimizer.tell(ELSEWHERE, [1.0, 2.0])
    for _ in play(optimizer, problem, 60):
        pass
    optimizer.ask(at_most=2)
    return optimizer


def moments(table, rows=slice(None)):
    return torch.stack(table.moments())[:, rows]


def test_the_table_of_a_state_is_the_same_to_the_last_bit(optimizer):
    state = state_of(optimizer)
    assert len(state.table.changes) > 3
    for _ in range(2):
        assert torch.equal(moments(build_table(optimizer.domain, state)), moments(optimizer.table))


def test_a_new_table_says_the_same_from_the_history_alone(optimizer):
    state = state_of(optimizer)
    table = new_table(optimizer.domain, state, state.table.dictionary)
    torch.testing.assert_close(moments(table), moments(optimizer.table), atol=1e-8, rtol=0)
    assert table.log.changes == () and torch.equal(table.log.rows, state.history.rows)


def test_another_dictionary_in_place_or_by_a_new_table(optimizer):
    state, domain = state_of(optimizer), optimizer.domain
    rows = state.history.rows
    for dictionary in (state.table.dictionary[1:], rows[:1]):
        table = build_table(domain, state)
        is_new = table.rebuild_is_better(dictionary)
        exchanged = exchange_dictionary(domain, state, table, dictionary)
        assert (exchanged is not table) == is_new
        expected = new_table(domain, state, dictionary)
        assert torch.equal(exchanged.log.dictionary, dictionary)
        torch.testing.assert_close(moments(exchanged), moments(expected), atol=1e-8, rtol=0)


def test_compacting_forgets_rows_that_nobody_observed(optimizer):
    state, before = state_of(optimizer), optimizer.table
    unseen = state.observations.with_rows(torch.full((1, 2), 9.0, dtype=torch.float64))
    state, table = compacted(optimizer.domain, replace(state, observations=unseen), before)
    assert len(state.observations.added) == 2 and len(table.log.changes) == 0
    torch.testing.assert_close(moments(table), moments(before), atol=1e-8, rtol=0)
    assert state.in_flight.rows.keys() == set(optimizer.pending.ids)


def test_compacting_keeps_the_rows_of_a_tree():
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    optimizer = AdaBKB(bounds, seed=0)
    for _ in range(6):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, -suggestion.X.square().sum(-1))
    before = state_of(optimizer)
    state, table = compacted(optimizer.domain, before, optimizer.table)
    assert torch.equal(state.observations.added, before.observations.added)
    assert len(table.X) == len(optimizer.table.X)


def test_moving_to_other_arms_keeps_what_was_observed(optimizer):
    state, table, domain = state_of(optimizer), optimizer.table, optimizer.domain
    target = Arms(domain.arms[20:50].flip(0))
    after, other = moved(domain, state, table, target)
    assert after.history.num_observations == state.history.num_observations
    inputs = after.observations.inputs(target.arms, after.history.rows)
    before = state.observations.inputs(domain.arms, state.history.rows)
    assert {tuple(x) for x in inputs.tolist()} == {tuple(x) for x in before.tolist()}
    torch.testing.assert_close(
        moments(other, slice(30)).flip(1), moments(table, slice(20, 50)), atol=1e-7, rtol=0
    )
    pending = torch.tensor(list(after.in_flight.rows.values()))
    assert torch.equal(after.observations.inputs(target.arms, pending), optimizer.pending.X)


def test_moving_before_the_first_result():
    optimizer = BBKB(torch.rand(9, 2, dtype=torch.float64), seed=0)
    optimizer.set_arms(torch.rand(4, 2, dtype=torch.float64))
    assert sorted(optimizer.ask().indices.tolist()) == [9, 10, 11, 12]


def test_over_a_box_dictionaries_are_those_of_a_table_that_keeps_all_rows_current(monkeypatch):
    def dictionaries(kind):
        monkeypatch.setattr(tables, "_kind", lambda *_: kind)
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        optimizer = BKB(bounds=bounds, covar_module=RBFKernel().double(), noise_var=0.02, seed=3)
        X = torch.rand(150, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        for x in X:  # points that another method chose
            optimizer.tell(x.unsqueeze(0), [float((6 * x).sin().sum())])
            yield optimizer.dictionary

    ours, theirs = (list(dictionaries(kind)) for kind in (WatchedTable, ArmTable))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert 10 < max(map(len, ours)) < 100
