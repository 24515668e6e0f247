r"""From a journal back to a run that goes on as if it had never stopped."""

from __future__ import annotations

import logging
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.journal import Asked, Event, Journal, JournalError
from botorch_bkb.optimizers import BatchCompleteError, Optimizer
from botorch_bkb.runs.loop import Past, as_reward
from botorch_bkb.runs.points import Point, tell

logger = logging.getLogger("botorch_bkb")

#: The id of a point that the optimizer does not know of.
UNKNOWN = -2


def read_past(journal: Journal) -> Past:
    r"""Points, outcomes and measurements of a journal; what was not told yet is not in ``told``."""
    dtype = journal.settings.get("dtype", "float64")
    points = {point.number: point for point in as_points(journal.suggestion_list(), dtype)}
    outcomes = {o.suggestion: o for o in journal.outcome_list() if o.suggestion in points}
    measurements = {m.event: m for m in journal.measurement_list()}
    told = {
        number: event.event
        for event in journal.events()
        if event.kind == "tell"
        for number in event.members
        if number in outcomes
    }
    return Past(points, outcomes, told, measurements)


def as_points(asked: list[Asked], dtype: str) -> list[Point]:
    r"""The inverse of :func:`~botorch_bkb.runs.loop.as_asked`."""
    if not asked:
        return []
    data = bytearray(b"".join(a.point for a in asked))
    X = torch.frombuffer(data, dtype=getattr(torch, dtype)).reshape(len(asked), -1)
    return [
        Point(a.suggestion, x, a.arm, a.id, a.batch) for a, x in zip(asked, X.unbind(), strict=True)
    ]


def replayed(journal: Journal, optimizer: Optimizer) -> Past:
    r"""Bring an optimizer to where the journal ends.

    From the last snapshot on, everything is asked and told again. Should the optimizer now ask for
    other points than then (on another machine the last bits may differ, or the journal may have
    lost records), then it is told all results as points nobody asked for.

    Args:
        journal: The journal.
        optimizer: The optimizer as it was constructed for the run; it is changed.
    """
    past = read_past(journal)
    _move(past, optimizer)
    snapshot, start = journal.last_snapshot(), 0
    if snapshot is not None:
        start, state = snapshot
        _load(journal, optimizer, state)
    told = {number for number, event in past.told.items() if event <= start}
    for event in journal.events(after=start):
        if event.event != start + 1 or not _repeated(event, optimizer, past):
            logger.warning(
                "%s: the optimizer does not repeat itself; it is told all results anew as points "
                "nobody asked for. Nothing is lost, but the run will differ from one that was "
                "not interrupted.",
                journal.path,
            )
            return _told_at_once(journal, optimizer, past, told)
        start = event.event
        told.update(event.members if event.kind == "tell" else ())
    return past


def _repeated(event: Event, optimizer: Optimizer, past: Past) -> bool:
    r"""Ask or tell again; whether it was the same."""
    if any(number not in past.points for number in event.members):
        return False
    points = [past.points[number] for number in event.members]
    if event.kind == "tell":
        if any(point.number not in past.outcomes for point in points):
            return False
        tell(optimizer, [(point, as_reward(past.outcomes[point.number])) for point in points])
        return True
    if event.requested == 0:  # adopted when the run began: in the first snapshot
        return True
    try:
        suggestion = optimizer.ask(event.requested)
    except BatchCompleteError:
        return not points
    return suggestion.ids == tuple(point.id for point in points) and all(
        torch.equal(x, point.x) for x, point in zip(suggestion.X, points, strict=True)
    )


def _told_at_once(journal: Journal, optimizer: Optimizer, past: Past, told: set[int]) -> Past:
    optimizer.give_up(optimizer.pending)
    for number, point in past.points.items():
        if point.id != -1:
            past.points[number] = point._replace(id=UNKNOWN)
    rest = sorted(number for number in past.outcomes if number not in told)
    if rest:
        journal.outcomes([], rest)
        tell(optimizer, [(past.points[n], as_reward(past.outcomes[n])) for n in rest])
        past.told |= dict.fromkeys(rest, journal.last_event)
    journal.snapshot(optimizer.state_dict())
    return past


def _move(past: Past, optimizer: Optimizer) -> None:
    r"""Points to the optimizer's device."""
    device = optimizer.tables.arms.device
    if device.type != "cpu":
        past.points = {n: point._replace(x=point.x.to(device)) for n, point in past.points.items()}


def _load(journal: Journal, optimizer: Optimizer, state: dict[str, Any]) -> None:
    try:
        optimizer.load_state_dict(state)
    except InputDataError as error:
        raise JournalError(
            f"{journal.path}: the optimizer is not the one of the run. {error}"
        ) from error
