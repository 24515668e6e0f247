r"""The record of a run in memory, and its conversion to and from the rows of a journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from botorch_bkb.journal import Asked, Event, Journal, Measurement, Outcome
from botorch_bkb.optimizers import Optimizer
from botorch_bkb.runs.points import UNKNOWN, Point, Reward


@dataclass(eq=False)
class RunRecord:
    r"""The points, outcomes and measurements of a run so far.

    Attributes:
        points: All points by number.
        outcomes: Outcomes by the number of their point.
        told: The event in which the outcome of each point was told to the optimizer.
        measurements: Measurements by event.
        attempts: The number of failed and repeated attempts by the number of the point.
        next_number: The number of the next point.
        batch_is_whole: Whether all points of the current batch were asked.
        is_filled: Whether idle workers were given points beyond the rule of the current batch.
    """

    points: dict[int, Point] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    measurements: dict[int, Measurement] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    next_number: int = 0
    batch_is_whole: bool = False
    is_filled: bool = False

    @property
    def open(self) -> list[Point]:
        r"""Points whose outcome is still awaited."""
        return [p for n, p in self.points.items() if p.id != -1 and n not in self.outcomes]

    @property
    def ready(self) -> list[int]:
        r"""Numbers of the points whose outcome was not told to the optimizer yet."""
        return [number for number in self.outcomes if number not in self.told]


def read_record(journal: Journal, events: list[Event]) -> RunRecord:
    r"""Read the record of a run from its journal.

    Args:
        journal: The journal.
        events: All events of the journal.

    Returns:
        The record. Its ``told`` holds only what was told already.
    """
    dtype = journal.settings.get("dtype", "float64")
    points = {point.number: point for point in as_points(journal.suggestion_list(), dtype)}
    arrived = journal.outcome_list()
    outcomes = {o.suggestion: o for o in arrived if o.suggestion in points}
    measurements = {m.event: m for m in journal.measurement_list()}
    attempts = Counter(suggestion for _, suggestion, *_ in journal.rows("attempts"))
    told: dict[int, int] = {}
    known_from = 0
    for event in events:
        if event.kind == "restart":
            known_from = event.requested or 0
        if not event.asks:
            told |= {n: event.event for n in event.members if n in outcomes and n not in told}
    for number, point in points.items():
        if number < known_from and point.id != -1:
            points[number] = point._replace(id=UNKNOWN)
    # If records were lost, their numbers must not be used again.
    numbers = [*points, *(o.suggestion for o in arrived), *attempts]
    numbers += [number for event in events for number in event.members]
    next_number = max(known_from, max(numbers, default=-1) + 1)
    last = events[-1] if events else None
    filled = last is not None and last.kind == "fill"
    whole = last is not None and last.kind == "ask" and ends_batch(
        last.requested or 0, [points[number] for number in last.members if number in points]
    )  # fmt: skip
    return RunRecord(
        points, outcomes, told, measurements, dict(attempts), next_number, whole or filled, filled
    )


def ends_batch(requested: int, points: Sequence[Point]) -> bool:
    r"""Return whether a batch is complete after an ask for ``requested`` points gave ``points``.

    A skipped point ends the batch. So do points that were pending when the run began, for which
    ``requested`` is 0.
    """
    return len(points) < requested or not requested or points[-1].id == -1


def as_asked(point: Point) -> Asked:
    r"""Convert a point to its row in the journal."""
    x = point.x.detach().cpu().contiguous().numpy().tobytes()
    return Asked(point.number, x, point.arm, point.id, point.batch, int(point.beyond))


def as_points(asked: list[Asked], dtype: str) -> list[Point]:
    r"""Convert rows written by :func:`as_asked` back to points.

    Args:
        asked: The rows.
        dtype: The name of the dtype of their coordinates, such as ``"float64"``.
    """
    if not asked:
        return []
    data = bytearray(b"".join(a.point for a in asked))
    X = torch.frombuffer(data, dtype=getattr(torch, dtype)).reshape(len(asked), -1)
    return [
        Point(a.suggestion, x, a.arm, a.id, a.batch, bool(a.beyond))
        for a, x in zip(asked, X.unbind(), strict=True)
    ]


def as_reward(outcome: Outcome) -> Reward | None:
    r"""Convert an outcome to the reward to tell; None if all attempts failed."""
    return None if outcome.reward is None else Reward(outcome.reward, outcome.variance)


def measured(optimizer: Optimizer, event: int, *seconds: float) -> Measurement:
    r"""Measure the optimizer's belief after an event.

    Args:
        optimizer: The optimizer.
        event: The number of the event.
        seconds: The seconds of asking, telling and waiting before it.
    """
    size, dimension = len(optimizer.dictionary), optimizer.effective_dimension
    return Measurement(event, size, dimension, optimizer.width_now, *seconds)
