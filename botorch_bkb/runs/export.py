r"""A journal as a table of plain columns."""

from __future__ import annotations

from pathlib import Path

import torch

from botorch_bkb.journal import Journal, Measurement
from botorch_bkb.runs.loop import Past
from botorch_bkb.runs.replay import read_past
from botorch_bkb.runs.result import Table, coordinates


def read_journal(path: str | Path) -> Table:
    r"""Every point of a run, one row each, also while the run goes on.

    Columns: ``t``, ``batch``, ``status`` (``done``, ``failed``, ``pending`` or ``skipped``),
    ``reward``, ``variance``, ``error``, ``attempts``, ``seconds``; ``dictionary``, ``dimension``,
    ``width``, ``asking``, ``telling`` and ``waiting`` of its batch; ``arm`` and the coordinates
    ``x0 .. x{d-1}``. None where there is nothing. ``pandas.DataFrame(read_journal(path))`` makes a
    data frame of it.

    Args:
        path: The journal.

    Returns:
        The columns by name, lists of equal length.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import torch
        >>> from botorch_bkb import BKB, read_journal, run
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "run.journal"
        ...     _ = run(optimizer, lambda X: X[:, 0], budget=3, journal=path, progress=False)
        ...     table = read_journal(path)
        >>> table["t"], table["status"]
        ([0, 1, 2], ['done', 'done', 'done'])
    """
    with Journal.read(path) as journal:
        return table_of(read_past(journal, journal.events()))


def table_of(past: Past) -> Table:
    r"""One row for each point."""
    points = [past.points[number] for number in sorted(past.points)]
    measured = Measurement._fields[1:]
    names = ("t", "batch", "status", "reward", "variance", "error", "attempts", "seconds")
    table: Table = {name: [] for name in (*names, *measured, "arm")}
    for point in points:
        outcome = past.outcomes.get(point.number)
        row: list = [point.number, point.batch]
        if outcome is None:
            row += ["skipped" if point.id == -1 else "pending", *[None] * 5]
        else:
            row += ["failed" if outcome.reward is None else "done", *outcome[1:6]]
        measurement = past.measurements.get(past.told.get(point.number, -1))
        row += measurement[1:] if measurement else [None] * len(measured)
        for name, value in zip(table, [*row, point.arm], strict=True):
            table[name].append(value)
    return {**table, **(coordinates(torch.stack([p.x for p in points])) if points else {})}
