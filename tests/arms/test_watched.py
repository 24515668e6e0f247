from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from botorch_bkb.arms import ArmTable, WatchedTable
from botorch_bkb.arms import table as tables
from botorch_bkb.arms import watched as module
from tests.arms.support import NOISE, assert_current, dense, kernel

TOLERANCE = {"atol": 1e-8, "rtol": 0}


def make(kind=WatchedTable, n=40, m=12):
    generator = torch.Generator().manual_seed(1)
    X = 2 * torch.rand(n, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(n, generator=generator, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "SPARE", 20)  # enough columns for any number of steps
        return kind(X, kernel(), NOISE, torch.arange(m), torch.ones_like(y), y)


def step(tables, seed, *, add=True):
    r"""Add a row, observe some, and exchange a part of the dictionary: the same in all tables."""
    generator = torch.Generator().manual_seed(seed)

    def integers(high, k):
        return torch.randint(high, (k,), generator=generator)

    x = 2 * torch.rand(1, 2, generator=generator, dtype=torch.float64)
    n, now = len(tables[0].X) + add, tables[0].dictionary
    rows = torch.cat([integers(n, 2), torch.tensor([n - 1])])
    rewards = torch.randn(3, generator=generator, dtype=torch.float64)
    leaving = now[integers(len(now), 2)]
    joining = torch.cat([integers(n, 2), rows[-1:]]).unique()
    for table in tables:
        if add:
            table.extend(x)
        table.observe(rows, rewards)
        yield table, "observed"
    stays = now[~torch.isin(now, leaving)]
    for table in tables:
        table.slide(torch.cat([stays, joining[~torch.isin(joining, stays)]]).sort().values)
        yield table, "slid"


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 14))
def test_it_equals_a_table_that_keeps_all_rows_current(seed, steps):
    ours, theirs = make(), make(ArmTable)
    for i in range(steps):
        for table, _ in step([theirs, ours], seed + i, add=i % 3 != 2):
            if table is theirs:
                continue
            every = torch.arange(len(ours.X))
            expected = theirs.settled_variance(every)
            torch.testing.assert_close(ours.settled_variance(every), expected, **TOLERANCE)
            assert (ours.settled_bounds(every) >= expected - 1e-9).all()
            for a, b in zip(ours.moments(), theirs.moments(), strict=True):
                torch.testing.assert_close(a, b, **TOLERANCE)
            torch.testing.assert_close(ours.residual(), theirs.residual(), **TOLERANCE)
    assert_current(ours)


def test_the_oracle_agrees_when_rounding_errors_are_removed(monkeypatch):
    monkeypatch.setattr(module, "CHANGES_BEFORE_REBUILD", 2)
    table = make(n=60, m=30)
    for i in range(12):
        for _, event in step([table], i):
            if event == "slid":
                assert_current(table)
                every = torch.arange(len(table.X))
                torch.testing.assert_close(
                    table.settled_variance(every), dense(table)[1], **TOLERANCE
                )
    assert not table.rebuilt


def test_a_table_replays_its_log_to_the_last_bit_whatever_was_read():
    table, silent = make(), make()
    for i in range(10):
        for each, _ in step([table, silent], i):
            if each is table:
                every = torch.arange(len(table.X))
                table.moments(), table.settled_variance(every), table.settled_bounds(every)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "SPARE", 20)
        replayed = WatchedTable.from_log(table.X[:40], kernel(), NOISE, table.log)
    for other in (silent, replayed):
        every = torch.arange(len(table.X))
        assert torch.equal(table.settled_variance(every), other.settled_variance(every))
        assert torch.equal(table.settled_bounds(every), other.settled_bounds(every))
        for a, b in zip(table.moments(), other.moments(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize(("leaders", "is_exact"), [(1024, True), (3, False)])
def test_the_highest_mean_is_sought_among_leaders_and_later_rows(leaders, is_exact, monkeypatch):
    monkeypatch.setattr(module, "LEADERS", leaders)
    table = make()
    allowed = torch.cat([table.mean().topk(3).indices, torch.arange(40, 60)])
    for i in range(10):
        for _ in step([table], i):
            rows = torch.arange(1, len(table.X))
            among = rows if is_exact else rows[torch.isin(rows, allowed)]
            assert table.highest_mean(rows) == int(among[table.mean()[among].argmax()])
    alone = torch.tensor([int(table.mean()[:40].argmin())])
    assert table.highest_mean(alone) == int(alone)


def test_points_that_leave_and_return_need_no_pass_over_the_rows(monkeypatch):
    table, dictionaries = make(n=200), (torch.arange(12), torch.arange(3, 12))
    table.slide(dictionaries[1])  # they leave the core
    passes = []
    monkeypatch.setattr(
        WatchedTable, "_raise_ceilings", lambda self, raising: passes.extend(raising)
    )
    for i in range(6):
        table.observe(torch.tensor([i]), torch.ones(1, dtype=torch.float64))
        table.slide(dictionaries[i % 2])
        assert_current(table)
    assert not passes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_are_close_where_the_dictionary_stays(dtype):
    X = torch.rand(50, 2, dtype=torch.float64).to(dtype)
    ones = torch.ones(50, dtype=torch.float64)
    table, every = WatchedTable(X, kernel(dtype), NOISE, torch.arange(20), ones), torch.arange(50)
    torch.testing.assert_close(
        table.settled_bounds(every), table.settled_variance(every), atol=1e-5, rtol=1e-5
    )
