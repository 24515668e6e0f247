r"""Convert a journal to a table of plain columns."""

from __future__ import annotations

from pathlib import Path

import torch

from botorch_bkb.journal import Journal, Measurement
from botorch_bkb.runs.record import RunRecord, read_record
from botorch_bkb.runs.result import Table, coordinates


def read_journal(path: str | Path) -> Table:
    r"""Read a journal into a table with one row per point, even while its run continues.

    The columns of the point are ``t``, ``batch``, ``beyond`` (whether it lies beyond the batch
    rule), ``status`` (``done``, ``failed``, ``pending`` or ``skipped``), ``reward``, ``variance``,
    ``error``, ``attempts`` and ``seconds``. The columns of its batch are ``dictionary``,
    ``dimension``, ``width``, ``asking``, ``telling`` and ``waiting``.
    The last columns are ``arm`` and the coordinates ``x0 .. x{d-1}``. Missing values are None. Use
    ``pandas.DataFrame(read_journal(path))`` to get a data frame.

    Args:
        path: The journal.

    Returns:
        The columns by name, as lists of equal length.

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
        return table_of(read_record(journal, journal.events()))


def table_of(record: RunRecord) -> Table:
    r"""Convert a record to a table with one row per point, see :func:`read_journal`."""
    points = [record.points[number] for number in sorted(record.points)]
    measured = Measurement._fields[1:]
    names = ("t", "batch", "beyond", "status", "reward", "variance", "error", "attempts", "seconds")
    table: Table = {name: [] for name in (*names, *measured, "arm")}
    for point in points:
        outcome = record.outcomes.get(point.number)
        row: list = [point.number, point.batch, point.beyond]
        if outcome is None:
            row += ["skipped" if point.id == -1 else "pending", *[None] * 5]
        else:
            row += ["failed" if outcome.reward is None else "done", *outcome[1:6]]
        measurement = record.measurements.get(record.told.get(point.number, -1))
        row += measurement[1:] if measurement else [None] * len(measured)
        for name, value in zip(table, [*row, point.arm], strict=True):
            table[name].append(value)
    return {**table, **(coordinates(torch.stack([p.x for p in points])) if points else {})}
