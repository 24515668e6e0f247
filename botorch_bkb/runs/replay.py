r"""Replay a journal, so that its run continues as if it had never stopped."""

from __future__ import annotations

import logging

import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.journal import Event, Journal, JournalError
from botorch_bkb.optimizers import (
    BatchCompleteError,
    FinishedError,
    Optimizer,
    OutOfCandidatesError,
)
from botorch_bkb.runs.points import UNKNOWN, tell
from botorch_bkb.runs.record import RunRecord, as_reward, measured, read_record

logger = logging.getLogger("botorch_bkb")


def replayed(journal: Journal, optimizer: Optimizer) -> RunRecord:
    r"""Bring an optimizer to its state at the end of a journal, and return the run's record.

    All events after the last snapshot are repeated. The optimizer may now suggest other points:
    on another machine the last bits may differ, or the journal may have lost records. It is then
    told the remaining results as points that it did not suggest.

    Args:
        journal: The journal.
        optimizer: The optimizer, constructed as it was for the run; it is changed.
    """
    events = journal.events()
    record = read_record(journal, events)
    _move(record, optimizer)
    start = _from_snapshot(journal, optimizer, record, events)
    told = {number for number, event in record.told.items() if event <= start}
    for event in events:
        if event.event <= start:
            continue
        if event.event != start + 1 or not _repeated(event, optimizer, record):
            break
        start = event.event
        if event.kind == "tell":
            told.update(event.members)
            if event.event not in record.measurements:  # not written before the run ended
                record.measurements[event.event] = measured(optimizer, event.event, 0.0, 0.0, 0.0)
                journal.measured(record.measurements[event.event])
    missing = [number for number in record.outcomes if number in record.told and number not in told]
    if start < journal.last_event or missing:
        logger.warning(
            "%s: the optimizer does not repeat itself, or records are lost. It is told the other "
            "results as points that it did not suggest. All results in the journal are kept, but "
            "the run will differ from one that was not interrupted.",
            journal.path,
        )
        _restart(journal, optimizer, record, told)
    return record


def _from_snapshot(
    journal: Journal, optimizer: Optimizer, record: RunRecord, events: list[Event]
) -> int:
    r"""Load the last snapshot before which no event is incomplete; return its event, or 0."""
    restarts = [event.event for event in events if event.kind == "restart"]
    whole = {e.event for e in events if _is_whole(e, record)}
    for last, state in journal.snapshots():
        first = max((r for r in restarts if r <= last), default=0)
        if all(event in whole for event in range(first + 1, last + 1)):
            try:
                optimizer.load_state_dict(state)
            except InputDataError as error:
                raise JournalError(
                    f"{journal.path}: the optimizer is not the one of the run: pass `optimizer`, "
                    f"constructed as it was for the run. {error}"
                ) from error
            return last
    return 0


def _is_whole(event: Event, record: RunRecord) -> bool:
    r"""Return whether the record has all points or outcomes of an event."""
    there = record.points if event.asks else record.outcomes
    return all(number in there for number in event.members)


def _repeated(event: Event, optimizer: Optimizer, record: RunRecord) -> bool:
    r"""Repeat an ask or a tell; return whether the optimizer did the same as in the run."""
    if event.kind == "restart" or not _is_whole(event, record):
        return False
    points = [record.points[number] for number in event.members]
    if event.kind == "tell":
        tell(optimizer, [(point, as_reward(record.outcomes[point.number])) for point in points])
        return True
    if event.requested == 0:  # pending when the run began: part of the first snapshot
        return True
    try:
        if event.kind == "fill":
            suggestion = optimizer.ask(event.requested, distinct=False)
        else:
            suggestion = optimizer.ask(at_most=event.requested)
    except (BatchCompleteError, FinishedError, OutOfCandidatesError):
        return not points
    return suggestion.ids == tuple(point.id for point in points) and all(
        torch.equal(x, point.x) for x, point in zip(suggestion.X, points, strict=True)
    )


def _restart(journal: Journal, optimizer: Optimizer, record: RunRecord, told: set[int]) -> None:
    r"""Tell the optimizer all results that it does not know, and drop its pending points."""
    optimizer.give_up(optimizer.pending)
    for number, point in record.points.items():
        if point.id != -1:
            record.points[number] = point._replace(id=UNKNOWN)
    rest = sorted(number for number in record.outcomes if number not in told)
    tell(optimizer, [(record.points[n], as_reward(record.outcomes[n])) for n in rest])
    journal.restart(record.next_number, sorted(record.outcomes), optimizer.state_dict())
    record.told |= {n: journal.last_event for n in record.outcomes if n not in record.told}
    record.batch_is_whole = record.is_filled = True


def _move(record: RunRecord, optimizer: Optimizer) -> None:
    r"""Move the points of a record to the optimizer's device."""
    device = optimizer.device
    if device.type != "cpu":
        record.points = {
            n: point._replace(x=point.x.to(device)) for n, point in record.points.items()
        }
