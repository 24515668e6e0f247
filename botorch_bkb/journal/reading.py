r"""Read the records of an open journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from botorch_bkb.encoding import decode
from botorch_bkb.journal.files import JournalError, damaged, errors
from botorch_bkb.journal.records import Asked, Event, Measurement, Outcome
from botorch_bkb.journal.schema import checksum


class JournalReader:
    r"""The reading methods of a journal.

    Args:
        path: The file.
        connection: A connection to it.
    """

    def __init__(self, path: str | Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = Path(path), connection

    def _errors(self) -> Any:
        return errors(self.path)

    def rows(self, table: str, where: str = "") -> list[tuple]:
        r"""Return rows of a table in order, after verifying their checksums.

        Raises:
            JournalError: A row is damaged.
        """
        with self._errors():
            found = self._connection.execute(f"SELECT * FROM {table} {where}").fetchall()
        rows = [row[:-1] for row in found]
        for row, values in zip(found, rows, strict=True):
            if checksum(table, values) != row[-1]:
                raise damaged(self.path, f"a record of {table}")
        return rows

    @property
    def settings(self) -> dict[str, Any]:
        r"""The settings of the run by name."""
        try:
            return {key: decode(value) for key, value in self.rows("settings")}
        except ValueError as error:
            raise damaged(self.path, "the settings") from error

    def events(self) -> list[Event]:
        r"""Return all calls to the optimizer, in order."""
        return [
            Event(event, kind, requested, tuple(np.frombuffer(members, "<i8").tolist()))
            for event, kind, requested, members, _ in self.rows("events")
        ]

    def suggestion_list(self) -> list[Asked]:
        r"""Return all suggestions, in order of their numbers."""
        return list(map(Asked._make, self.rows("suggestions")))

    def outcome_list(self) -> list[Outcome]:
        r"""Return all outcomes, in order of the suggestions."""
        return list(map(Outcome._make, self.rows("outcomes")))

    def measurement_list(self) -> list[Measurement]:
        r"""Return all measurements, in order of the events."""
        return list(map(Measurement._make, self.rows("measurements")))

    def snapshots(self) -> Iterator[tuple[int, dict[str, Any]]]:
        r"""Yield the undamaged snapshots, the latest first.

        Each comes with the number of the event after which it was taken.
        """
        with self._errors():
            found = self._connection.execute("SELECT event FROM snapshots ORDER BY event DESC")
            events = [event for (event,) in found.fetchall()]
        for event in events:
            with suppress(JournalError, ValueError):
                ((_, data),) = self.rows("snapshots", f"WHERE event = {event}")
                yield event, decode(data)

    def check(self) -> None:
        r"""Raise a ``JournalError`` if the structure of the file is damaged.

        The content of the rows is checked when they are read.
        """
        with self._errors():
            (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise damaged(self.path, verdict)
