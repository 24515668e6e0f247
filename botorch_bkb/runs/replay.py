r"""From a journal back to a run that goes on as if it had never stopped."""

from __future__ import annotations

import logging
from collections import Counter

import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.journal import Asked, Event, Journal, JournalError
from botorch_bkb.optimizers import BatchCompleteError, Optimizer
from botorch_bkb.runs.loop import Past, as_reward, ends_batch, measured
from botorch_bkb.runs.points import UNKNOWN, Point, tell

logger = logging.getLogger("botorch_bkb")


def read_past(journal: Journal, events: list[Event]) -> Past:
    r"""Points, outcomes and measurements of a journal; what was not told yet is not in ``told``.

    Args:
        journal: The journal.
        events: All of its events.
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
        if event.kind != "ask":
            told |= {n: event.event for n in event.members if n in outcomes and n not in told}
    for number, point in points.items():
        if number < known_from and point.id != -1:
            points[number] = point._replace(id=UNKNOWN)
    # A journal that has lost records must not use their numbers again.
    numbers = [*points, *(o.suggestion for o in arrived), *attempts]
    numbers += [number for event in events for number in event.members]
    next_number = max(known_from, max(numbers, default=-1) + 1)
    last = events[-1] if events else None
    whole = last is not None and last.kind == "ask" and ends_batch(
        last.requested or 0, [points[number] for number in last.members if number in points]
    )  # fmt: skip
    return Past(points, outcomes, told, measurements, dict(attempts), next_number, whole)


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
    events = journal.events()
    past = read_past(journal, events)
    _move(past, optimizer)
    start = _from_snapshot(journal, optimizer, past, events)
    told = {number for number, event in past.told.items() if event <= start}
    for event in events:
        if event.event <= start:
            continue
        if event.event != start + 1 or not _repeated(event, optimizer, past):
            break
        start = event.event
        if event.kind == "tell":
            told.update(event.members)
            if event.event not in past.measurements:  # it was interrupted before
                past.measurements[event.event] = measured(optimizer, event.event, 0.0, 0.0, 0.0)
                journal.measured(past.measurements[event.event])
    missing = [number for number in past.outcomes if number in past.told and number not in told]
    if start < journal.last_event or missing:
        logger.warning(
            "%s: the optimizer does not repeat itself, or records are lost. It is told the other "
            "results as points nobody asked for: nothing else is lost, but the run will differ "
            "from one that was not interrupted.",
            journal.path,
        )
        _restart(journal, optimizer, past, told)
    return past


def _from_snapshot(journal: Journal, optimizer: Optimizer, past: Past, events: list[Event]) -> int:
    r"""Load the last state whose events are all there; returns the event after which it was."""
    restarts = [event.event for event in events if event.kind == "restart"]
    whole = {e.event for e in events if _is_whole(e, past)}
    for last, state in journal.snapshots():
        first = max((r for r in restarts if r <= last), default=0)
        if all(event in whole for event in range(first + 1, last + 1)):
            try:
                optimizer.load_state_dict(state)
            except InputDataError as error:
                raise JournalError(
                    f"{journal.path}: the optimizer is not the one of the run. {error}"
                ) from error
            return last
    return 0


def _is_whole(event: Event, past: Past) -> bool:
    there = past.points if event.kind == "ask" else past.outcomes
    return all(number in there for number in event.members)


def _repeated(event: Event, optimizer: Optimizer, past: Past) -> bool:
    r"""Ask or tell again; whether it was the same."""
    if event.kind == "restart" or not _is_whole(event, past):
        return False
    points = [past.points[number] for number in event.members]
    if event.kind == "tell":
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


def _restart(journal: Journal, optimizer: Optimizer, past: Past, told: set[int]) -> None:
    r"""Tell all results that the optimizer does not know of, and let it forget what it asked."""
    optimizer.give_up(optimizer.pending)
    for number, point in past.points.items():
        if point.id != -1:
            past.points[number] = point._replace(id=UNKNOWN)
    rest = sorted(number for number in past.outcomes if number not in told)
    tell(optimizer, [(past.points[n], as_reward(past.outcomes[n])) for n in rest])
    journal.restart(past.next_number, sorted(past.outcomes), optimizer.state_dict())
    past.told |= {n: journal.last_event for n in past.outcomes if n not in past.told}
    past.batch_is_whole = True


def _move(past: Past, optimizer: Optimizer) -> None:
    r"""Points to the optimizer's device."""
    device = optimizer.tables.arms.device
    if device.type != "cpu":
        past.points = {n: point._replace(x=point.x.to(device)) for n, point in past.points.items()}
