r"""Points that were asked, and whose results are awaited or will never come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torch import Tensor

from botorch_bkb.state.observations import Results
from botorch_bkb.state.stage import Stage

#: The number of points given up that later picks take into account.
MOST_GIVEN_UP = 100


class Pending(NamedTuple):
    r"""A point that was asked and has no result yet."""

    row: int
    score: float  #: ``tau`` under the model that chose it
    beyond: bool = False  #: whether it lies beyond the rule of its batch


class BatchRecord(NamedTuple):
    r"""The batch that is being asked. Its picks follow from this record and the belief."""

    width: float  #: the width of the bounds, in posterior standard deviations
    seed: int
    stragglers: tuple[int, ...]  #: rows pending when the batch began
    given_up: tuple[int, ...] = ()  #: rows given up before it
    designed: int = 0  #: points of the initial design asked before it
    cells: int = 0  #: cells of the tree before it
    picks: tuple[int, ...] = ()  #: rows asked so far


@dataclass(frozen=True, eq=False)
class InFlight:
    r"""Points asked and not told, and the batch being asked.

    Attributes:
        design_seed: Seed of the initial design over a box.
        designed: The number of points of the design asked so far.
        pending: Points asked and not told, by id.
        given_up: Rows of the last points that were given up.
        next_id: The id of the next point asked.
        batch: The batch being asked, if any.
        stage: How far an elimination in fixed batches has come, if there is one.
    """

    design_seed: int
    designed: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)
    given_up: tuple[int, ...] = ()
    next_id: int = 0
    batch: BatchRecord | None = None
    stage: Stage | None = None

    @property
    def rows(self) -> dict[int, int]:
        r"""The rows of the pending points, by id."""
        return {id_: point.row for id_, point in self.pending.items()}

    def begun(self, width: float, seed: int, num_cells: int) -> InFlight:
        r"""Return a state with a new batch, in which pending points count as picked."""
        stragglers = tuple(self.rows.values())
        record = BatchRecord(width, seed, stragglers, self.given_up, self.designed, num_cells)
        return replace(self, batch=record)

    def without_outstanding(self, width: float, num_cells: int) -> InFlight:
        r"""Return a state whose batch, or a new one of this width, knows of no other points."""
        record = self.batch or BatchRecord(width, 0, (), cells=num_cells)
        return replace(self, batch=record._replace(stragglers=(), given_up=()))

    def renumbered(self, new_rows: Callable[[Tensor], Tensor], like: Tensor) -> InFlight:
        r"""Return the same points with other row numbers.

        Args:
            new_rows: Maps old row numbers to new ones.
            like: Any tensor of row numbers.
        """
        pending = new_rows(like.new_tensor(list(self.rows.values())))
        moved = {
            id_: point._replace(row=row)
            for (id_, point), row in zip(self.pending.items(), pending.tolist(), strict=True)
        }
        given_up = new_rows(like.new_tensor(self.given_up))
        return replace(self, pending=moved, given_up=tuple(given_up.tolist()))

    def without_batch(self) -> InFlight:
        r"""Return the same points without the batch: the next ask begins a new one."""
        return replace(self, batch=None)

    def asked(
        self,
        picks: Sequence[int],
        pending: dict[int, Pending],
        *,
        is_design: bool,
        ends_batch: bool,
    ) -> InFlight:
        r"""Return a state in which more points are pending.

        Args:
            picks: The rows picked, as the batch numbers them.
            pending: Points whose results are awaited, by id.
            is_design: Whether the picks belong to the initial design.
            ends_batch: Whether a point was skipped, which ends the batch without feedback.
        """
        record = self.batch
        assert record is not None
        return replace(
            self,
            pending={**self.pending, **pending},
            next_id=self.next_id + len(pending),
            designed=self.designed + (len(picks) if is_design else 0),
            batch=None if ends_batch else record._replace(picks=(*record.picks, *picks)),
            stage=self.stage and self.stage.with_asked([p.row for p in pending.values()]),
        )

    def answered(self, results: Results) -> InFlight:
        r"""Return a state in which results have answered some points."""
        answered, rows = set(results.ids), set(results.rows.tolist())
        return replace(
            self,
            pending={id_: p for id_, p in self.pending.items() if id_ not in answered},
            given_up=tuple(row for row in self.given_up if row not in rows),
            batch=None,
            stage=self.stage and self.stage.with_results(results),
        )

    def with_given_up(self, ids: Collection[int], rows: Sequence[int]) -> InFlight:
        r"""Return a state in which some points are no longer pending."""
        return replace(
            self,
            pending={id_: point for id_, point in self.pending.items() if id_ not in ids},
            given_up=(*self.given_up, *rows)[-MOST_GIVEN_UP:],
            batch=None,
        )
