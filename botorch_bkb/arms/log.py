r"""The log of a table: where it started and what was done to it since.

A table is large and changes in place. Its log is small and immutable. Replaying the log on the same
inputs gives the same table, to the last bit, so that a run saves the log and never the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor


class RowsAdded(NamedTuple):
    r"""Rows were added at the end of the table."""

    X: Tensor  #: ``h x d`` inputs


class PullsObserved(NamedTuple):
    r"""Rewards of some rows were observed."""

    rows: Tensor
    rewards: Tensor
    weights: Tensor


class DictionaryExchanged(NamedTuple):
    r"""The dictionary was exchanged in place."""

    dictionary: Tensor


Change = RowsAdded | PullsObserved | DictionaryExchanged
KINDS: dict[str, type[Change]] = {
    kind.__name__: kind for kind in (RowsAdded, PullsObserved, DictionaryExchanged)
}


@dataclass(frozen=True, eq=False)
class TableLog:
    r"""How a table came about. A value; a further change gives a new log.

    Attributes:
        num_rows: The number of rows at the start.
        start: Rows of the dictionary at the start.
        rows: The rows that had been pulled by then.
        counts: Their pulls, weighted.
        sums: Their weighted sums of rewards.
        changes: The changes since, in order.
    """

    num_rows: int
    start: Tensor
    rows: Tensor
    counts: Tensor
    sums: Tensor
    changes: tuple[Change, ...] = ()

    @property
    def dictionary(self) -> Tensor:
        r"""Rows of the dictionary after all changes."""
        for change in reversed(self.changes):
            if isinstance(change, DictionaryExchanged):
                return change.dictionary
        return self.start

    def followed_by(self, change: Change) -> TableLog:
        r"""Return the log with one more change."""
        return replace(self, changes=(*self.changes, change))

    def to_dict(self) -> dict[str, Any]:
        r"""Return the log as numbers, strings, lists and tensors."""
        changes = [[type(change).__name__, *change] for change in self.changes]
        names = ("num_rows", "start", "rows", "counts", "sums")
        return {**{name: getattr(self, name) for name in names}, "changes": changes}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> TableLog:
        r"""Restore a log from :meth:`to_dict`."""
        changes = tuple(KINDS[kind](*values) for kind, *values in saved["changes"])
        return cls(**{**saved, "changes": changes})
