r"""``Journal``: the durable record of a run, one SQLite file.

The order of writing makes a run safe against being killed at any moment: suggestions are
committed before they are evaluated, and outcomes, together with the decision to tell them, before
the optimizer hears of them. Since asking and telling are deterministic, the state of the optimizer
follows from the last snapshot and the events after it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from botorch_bkb.encoding import decode, encode
from botorch_bkb.journal.files import (
    JournalError,
    check_exists,
    check_kind,
    damaged,
    errors,
    locked,
)
from botorch_bkb.journal.records import Asked, Event, Measurement, Outcome
from botorch_bkb.journal.schema import (
    APPLICATION,
    PAGE_SIZE,
    TABLES,
    VERSION,
    checksum,
    create,
    insert,
)

#: What numbers of events and attempts are found in.
NUMBERED = (("events", "event"), ("measurements", "event"), ("snapshots", "event"),
            ("attempts", "number"))  # fmt: skip
#: Seconds between two outcomes that are written through to the disk, where they come that fast.
SYNC_SECONDS = 0.05


class Journal:
    r"""A journal that is open; use :meth:`create`, :meth:`append` or :meth:`read`.

    Example:
        >>> import tempfile, pathlib
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name) / "run.sqlite"
        >>> with Journal.create(path, {"budget": 10}) as journal:
        ...     journal.ask(None, [Asked(0, b"", 3, 0, 0)])
        ...     journal.outcomes([Outcome(0, 1.5, None, None, 1, 0.1, 0.0)], told=[0])
        >>> with Journal.read(path) as journal:
        ...     [event.kind for event in journal.events()], journal.outcome_list()[0].reward
        (['ask', 'tell'], 1.5)
        >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, connection: sqlite3.Connection, lock: Any) -> None:
        self.path, self._connection, self._lock = Path(path), connection, lock
        self._waiting: list[tuple[str, Sequence[Any]]] = []
        self._synced, self._durable = 0.0, True
        with self._errors():
            last = [
                connection.execute(f"SELECT max({column}) FROM {table}").fetchone()[0]
                for table, column in NUMBERED
            ]
        # Of a journal that has lost records, any of these may be the last that is left.
        self.last_event: int = max(number or 0 for number in last[:-1])
        self._attempts: int = -1 if last[-1] is None else last[-1]

    # ------------------------------------------------------------------ opening

    @classmethod
    def create(cls, path: str | Path, settings: dict[str, Any]) -> Self:
        r"""A new file.

        Args:
            path: Where; nothing may be there.
            settings: To be found again under :attr:`settings`.
        """
        encoded = {key: encode(value) for key, value in settings.items()}
        rows = {"settings": [(k, v, checksum("settings", (k, v))) for k, v in encoded.items()]}
        return cls.of_rows(path, rows)

    @classmethod
    def of_rows(cls, path: str | Path, rows: dict[str, list[tuple]]) -> Self:
        r"""A new file with these rows of its tables, checksums included."""

        def prepare(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise JournalError(
                    f"{path} exists. Choose another name; or, to go on with its run, call "
                    f"resume({str(path)!r}, objective)."
                )
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            for table in TABLES:
                connection.execute(create(table))
                connection.executemany(insert(table), rows.get(table, []))
            connection.execute("COMMIT")

        return cls._opened(path, prepare)

    @classmethod
    def append(cls, path: str | Path) -> Self:
        r"""A file that exists, to go on with it; nobody else may have it open for that."""
        check_exists(path)
        return cls._opened(path, partial(check_kind, path=path))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        r"""A file that exists, to look at, even while a run writes to it."""
        check_exists(path)
        return cls._opened(path, partial(check_kind, path=path), readonly=True)

    @classmethod
    def _opened(
        cls, path: str | Path, prepare: Callable[[sqlite3.Connection], None], readonly: bool = False
    ) -> Self:
        path = Path(path).resolve()
        with ExitStack() as cleanup, errors(path):
            if path.is_dir():
                raise JournalError(f"The journal must be a file, got the folder {path}.")
            lock = None
            if not readonly:
                lock = locked(path)
                cleanup.callback(lock.close)
            uri = f"{path.as_uri()}?mode={'ro' if readonly else 'rwc'}"
            connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=10, check_same_thread=False
            )
            cleanup.callback(connection.close)
            prepare(connection)
            journal = cls(path, connection, lock)
            cleanup.pop_all()
        return journal

    def close(self) -> None:
        r"""Write what waits, and let others open it."""
        try:
            if self._lock is not None and self._waiting:
                with self._transaction(durable=True):
                    pass
        finally:
            self._connection.close()
            if self._lock is not None:
                self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ------------------------------------------------------------------ writing

    def ask(self, requested: int | None, asked: Sequence[Asked]) -> None:
        r"""Points were asked; to be called before any of them is evaluated.

        Args:
            requested: How many were to be asked; None for a whole batch.
            asked: What came of it, perhaps nothing.
        """
        # Not on the disk before the first outcome is: nothing was paid for until then.
        with self._transaction():
            self._append("suggestions", asked)
            self._event("ask", requested, [a.suggestion for a in asked])

    def outcomes(self, outcomes: Sequence[Outcome], told: Sequence[int] = ()) -> None:
        r"""Outcomes have arrived; once this returns they are safe, whatever ends the process.

        Against a power cut too, unless others were written to the disk ``SYNC_SECONDS`` before:
        what took longer to evaluate than that is always there.

        Args:
            outcomes: They.
            told: Suggestions whose outcomes the optimizer is told now, some of them earlier ones.
        """
        with self._transaction(durable=time.monotonic() - self._synced > SYNC_SECONDS):
            self._append("outcomes", outcomes)
            if told:
                self._event("tell", None, told)

    def attempt_failed(self, suggestion: int, error: str) -> None:
        r"""An evaluation failed and is repeated."""
        self._attempts += 1
        self._waiting.append(("attempts", (self._attempts, suggestion, error, time.time())))

    def measured(self, measurement: Measurement) -> None:
        r"""To be written with whatever is written next."""
        self._waiting.append(("measurements", measurement))

    def set(self, key: str, value: Any) -> None:
        r"""Change a setting."""
        with self._transaction(durable=True):
            self._connection.execute("DELETE FROM settings WHERE key = ?", [key])
            self._append("settings", [(key, encode(value))])

    def snapshot(self, state: dict[str, Any]) -> None:
        r"""The state after the last event, so that earlier ones need not be replayed."""
        data = encode(state)
        with self._transaction():
            first = "(SELECT min(event) FROM snapshots)"
            self._connection.execute(f"DELETE FROM snapshots WHERE event > {first}")
            self._connection.execute("DELETE FROM snapshots WHERE event = ?", [self.last_event])
            self._append("snapshots", [(self.last_event, data)])

    def restart(self, next_number: int, told: Sequence[int], state: dict[str, Any]) -> None:
        r"""The optimizer was told everything anew; what came before is of no more use to it.

        Args:
            next_number: The number of the next suggestion.
            told: Suggestions whose outcomes it knows.
            state: Its state.
        """
        with self._transaction(durable=True):
            self._event("restart", next_number, told)
            self._append("snapshots", [(self.last_event, encode(state))])

    def _event(self, kind: str, requested: int | None, members: Sequence[int]) -> None:
        blob = np.asarray(members, dtype="<i8").tobytes()
        row = (self.last_event + 1, kind, requested, blob, time.time())
        self._append("events", [row])
        self.last_event += 1

    def _append(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        plain = [tuple(map(_as_stored, row)) for row in rows]
        signed = [(*row, checksum(table, row)) for row in plain]
        self._connection.executemany(insert(table), signed)

    @contextmanager
    def _transaction(self, durable: bool = False) -> Iterator[None]:
        r"""All or nothing.

        Args:
            durable: Whether it must survive a power cut; all before it does then. Every
                transaction survives the end of the process.
        """
        last = self.last_event
        with self._errors():
            if durable is not self._durable:
                mode = "FULL" if durable else "NORMAL"
                self._connection.execute(f"PRAGMA synchronous = {mode}")
                self._durable = durable
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for table, row in self._waiting:
                    self._append(table, [row])
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self.last_event = last
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            self._waiting = []
            if durable:
                self._synced = time.monotonic()

    def _errors(self) -> Any:
        return errors(self.path)

    # ------------------------------------------------------------------ reading

    def rows(self, table: str, where: str = "") -> list[tuple]:
        r"""Rows of a table in order, checked.

        Raises:
            JournalError: One of them is damaged.
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
        r"""What the file was created with."""
        try:
            return {key: decode(value) for key, value in self.rows("settings")}
        except ValueError as error:
            raise damaged(self.path, "the settings") from error

    def events(self) -> list[Event]:
        r"""What the optimizer was asked and told, in order."""
        return [
            Event(event, kind, requested, tuple(np.frombuffer(members, "<i8").tolist()))
            for event, kind, requested, members, _ in self.rows("events")
        ]

    def suggestion_list(self) -> list[Asked]:
        r"""All suggestions."""
        return list(map(Asked._make, self.rows("suggestions")))

    def outcome_list(self) -> list[Outcome]:
        r"""All outcomes, in order of the suggestions."""
        return list(map(Outcome._make, self.rows("outcomes")))

    def measurement_list(self) -> list[Measurement]:
        r"""All measurements."""
        return list(map(Measurement._make, self.rows("measurements")))

    def snapshots(self) -> Iterator[tuple[int, dict[str, Any]]]:
        r"""Those that are whole, the latest first, each with the event after which it was taken."""
        with self._errors():
            found = self._connection.execute("SELECT event FROM snapshots ORDER BY event DESC")
            events = [event for (event,) in found.fetchall()]
        for event in events:
            with suppress(JournalError, ValueError):
                ((_, data),) = self.rows("snapshots", f"WHERE event = {event}")
                yield event, decode(data)

    def check(self) -> None:
        r"""Raise unless the file is whole; rows are checked when they are read."""
        with self._errors():
            (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise damaged(self.path, verdict)


def _as_stored(value: Any) -> Any:
    r"""What SQLite would make of it: it knows no negative zero and no NaN."""
    if type(value) is not float:
        return value
    return value + 0.0 if value == value else None
