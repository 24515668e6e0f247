from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.arms import ArmTable, TableLog
from botorch_bkb.arms.log import DictionaryExchanged, PullsObserved, RowsAdded
from tests.arms.support import NOISE, kernel, make

changes = st.lists(st.sampled_from(["extend", "observe", "slide"]), max_size=12)


def change(table: ArmTable, name: str, generator: torch.Generator) -> None:
    r"""Change a table at random; a dictionary is exchanged in place where that is allowed."""
    n = len(table.X)
    if name == "extend":
        table.extend(2 * torch.rand(2, 2, generator=generator, dtype=torch.float64))
    elif name == "observe":
        rows = torch.randint(n, (3,), generator=generator)
        rewards, weights = torch.rand(2, 3, generator=generator, dtype=torch.float64)
        table.observe(rows, rewards, weights + 0.5)
    else:
        stay = table.dictionary[1:]
        others = torch.randperm(n, generator=generator)
        dictionary = torch.cat([stay, others[~torch.isin(others, stay)][:1]])
        if table.rebuild_is_better(dictionary):
            table.set_dictionary(dictionary)
        else:
            table.slide(dictionary)


def replayed(table: ArmTable, log: TableLog) -> ArmTable:
    X = table.X[: log.num_rows]
    return ArmTable.from_log(X, table.kernel, NOISE, log, keep=table.keep)


def assert_same_bits(table: ArmTable, other: ArmTable) -> None:
    pairs = [
        (table.X, other.X),
        (table.counts, other.counts),
        (table.sums, other.sums),
        (table.dictionary, other.dictionary),
        (table.coordinates(slice(None)), other.coordinates(slice(None))),
        (table.inverse_information, other.inverse_information),
        *zip(table.moments(), other.moments(), strict=True),
    ]
    assert all(torch.equal(a, b) for a, b in pairs)
    assert table.log_determinant == other.log_determinant


@given(st.integers(0, 1000), changes, st.sampled_from(["extend", "observe", "slide"]))
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])
def test_replaying_a_log_gives_the_same_table_bit_for_bit(keep, seed, names, last):
    generator = torch.Generator().manual_seed(seed)
    X = 2 * torch.rand(30, 2, generator=generator, dtype=torch.float64)
    table = ArmTable(X, kernel(), NOISE, torch.arange(10), keep=keep)
    for name in names:
        change(table, name, generator)
    other = replayed(table, table.log)
    assert_same_bits(table, other)
    # They also go on in the same way.
    for t in (table, other):
        change(t, last, torch.Generator().manual_seed(seed + 1))
    assert_same_bits(table, other)


def with_every_change() -> ArmTable:
    table = make(n=30, m=12)
    table.observe(torch.tensor([2, 3]), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.5]))
    table.slide(torch.arange(1, 13))
    table.extend(2 * torch.rand(3, 2, dtype=torch.float64))
    return table


def test_a_log_names_every_change_since_the_start():
    log = with_every_change().log
    kinds = [type(change) for change in log.changes]
    assert kinds == [PullsObserved, PullsObserved, DictionaryExchanged, RowsAdded]
    assert log.num_rows == 30 and log.start.tolist() == list(range(12))
    assert log.dictionary.tolist() == list(range(1, 13))


def test_a_rebuild_starts_a_short_log():
    table = with_every_change()
    table.set_dictionary(torch.arange(20, 25))
    log = table.log
    assert table.rebuilt and log.changes == ()
    assert log.num_rows == 33 and log.dictionary.tolist() == list(range(20, 25))
    assert torch.equal(log.rows, table.pulled)
    assert torch.equal(log.counts, table.counts[table.pulled])
    assert_same_bits(table, replayed(table, log))


def test_a_log_comes_back_from_a_file(tmp_path):
    table = with_every_change()
    torch.save(table.log.to_dict(), tmp_path / "log.pt")
    back = TableLog.from_dict(torch.load(tmp_path / "log.pt", weights_only=True))
    assert [type(c) for c in back.changes] == [type(c) for c in table.log.changes]
    assert_same_bits(table, replayed(table, back))


def test_a_further_change_leaves_the_old_log_as_it_was():
    table = with_every_change()
    log, before, n = table.log, table.mean().clone(), len(table.log.changes)
    table.observe(torch.tensor([5]), torch.tensor([3.0]))
    table.slide(torch.arange(2, 14))
    table.extend(torch.zeros(1, 2, dtype=torch.float64))
    assert len(log.changes) == n and len(table.log.changes) == n + 3
    assert log.dictionary.tolist() == list(range(1, 13))
    other = ArmTable.from_log(table.X[:30], table.kernel, NOISE, log)
    assert torch.equal(other.mean(), before)


def test_a_log_cannot_be_changed():
    log = with_every_change().log
    with pytest.raises(FrozenInstanceError):
        log.changes = ()
    assert log.followed_by(DictionaryExchanged(torch.arange(3))).dictionary.tolist() == [0, 1, 2]
    assert log.dictionary.tolist() == list(range(1, 13))


def test_observing_nothing_is_no_change():
    table = with_every_change()
    log = table.log
    table.observe(torch.empty(0, dtype=torch.long), torch.empty(0))
    assert table.log is log
