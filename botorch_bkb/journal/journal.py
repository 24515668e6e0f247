r"""``Journal``: the durable record of a run in one SQLite file.

A run can be killed at any moment without losing a result. Suggestions are committed before they
are evaluated. Outcomes are committed before the optimizer is told them, in one transaction with
the decision to tell them. Asking and telling are deterministic. The state of the optimizer
therefore follows from the last snapshot and the events after it.
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

from botorch_bkb.encoding import encode
from botorch_bkb.journal.files import JournalError, check_exists, check_kind, errors, locked
from botorch_bkb.journal.reading import JournalReader
from botorch_bkb.journal.records import Asked, Measurement, Outcome
from botorch_bkb.journal.schema import (
    APPLICATION,
    PAGE_SIZE,
    TABLES,
    VERSION,
    checksum,
    create,
    insert,
)

#: Tables and columns with the numbers of events and, in the last entry, of attempts.
NUMBERED = (("events", "event"), ("measurements", "event"), ("snapshots", "event"),
            ("attempts", "number"))  # fmt: skip
#: Outcomes are flushed to the disk at most once in this many seconds.
SYNC_SECONDS = 0.05


class Journal(JournalReader):
    r"""An open journal, made by :meth:`create`, :meth:`append` or :meth:`read`.

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
        super().__init__(path, connection)
        self._lock = lock
        self._waiting: list[tuple[str, Sequence[Any]]] = []
        self._synced, self._durable = 0.0, True
        with self._errors():
            last = [
                connection.execute(f"SELECT max({column}) FROM {table}").fetchone()[0]
                for table, column in NUMBERED
            ]
        # If records were lost, any of the tables may hold the highest number.
        self.last_event: int = max(number or 0 for number in last[:-1])
        self._attempts: int = -1 if last[-1] is None else last[-1]

    # ------------------------------------------------------------------ opening

    @classmethod
    def create(cls, path: str | Path, settings: dict[str, Any]) -> Self:
        r"""Create a journal.

        Args:
            path: The new file, which must not exist.
            settings: Values to be read back from :attr:`settings`.
        """
        encoded = {key: encode(value) for key, value in settings.items()}
        rows = {"settings": [(k, v, checksum("settings", (k, v))) for k, v in encoded.items()]}
        return cls.of_rows(path, rows)

    @classmethod
    def of_rows(cls, path: str | Path, rows: dict[str, list[tuple]]) -> Self:
        r"""Create a journal from rows by table, checksums included."""

        def prepare(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                raise JournalError(
                    f"{path} exists. Choose another name, or continue its run with "
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
        r"""Open an existing journal for writing; only one process at a time can do so."""
        check_exists(path)
        return cls._opened(path, partial(check_kind, path=path))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        r"""Open an existing journal for reading only, even while a run writes to it."""
        check_exists(path)
        return cls._opened(path, partial(check_kind, path=path), readonly=True)

    @classmethod
    def _opened(
        cls, path: str | Path, prepare: Callable[[sqlite3.Connection], None], readonly: bool = False
    ) -> Self:
        path = Path(path).resolve()
        with ExitStack() as cleanup, errors(path):
            if path.is_dir():
                raise JournalError(
                    f"The journal must be a file, got the folder {path}: give a file name."
                )
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
        r"""Write all pending records, close the file and release its lock."""
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

    def ask(self, requested: int | None, asked: Sequence[Asked], *, fills: bool = False) -> None:
        r"""Record suggestions; must be called before any of them is evaluated.

        Args:
            requested: The number of points requested; None for a whole batch.
            asked: The points suggested, possibly none.
            fills: Whether these points were asked beyond the batch rule.
        """
        # Flushed to the disk only with the first outcome: until then no evaluation can be lost.
        with self._transaction():
            self._append("suggestions", asked)
            self._event("fill" if fills else "ask", requested, [a.suggestion for a in asked])

    def outcomes(self, outcomes: Sequence[Outcome], told: Sequence[int] = ()) -> None:
        r"""Record outcomes; after the return they survive the end of the process.

        They also survive a power cut, unless other outcomes were flushed to the disk less than
        ``SYNC_SECONDS`` before. An evaluation that takes longer than that is always safe.

        Args:
            outcomes: New outcomes.
            told: Suggestions whose outcomes the optimizer is told now, including earlier outcomes.
        """
        with self._transaction(durable=time.monotonic() - self._synced > SYNC_SECONDS):
            self._append("outcomes", outcomes)
            if told:
                self._event("tell", None, told)

    def attempt_failed(self, suggestion: int, error: str) -> None:
        r"""Record a failed attempt that will be repeated, with the next transaction."""
        self._attempts += 1
        self._waiting.append(("attempts", (self._attempts, suggestion, error, time.time())))

    def measured(self, measurement: Measurement) -> None:
        r"""Record a measurement with the next transaction."""
        self._waiting.append(("measurements", measurement))

    def set(self, key: str, value: Any) -> None:
        r"""Change one setting."""
        with self._transaction(durable=True):
            self._connection.execute("DELETE FROM settings WHERE key = ?", [key])
            self._append("settings", [(key, encode(value))])

    def snapshot(self, state: dict[str, Any]) -> None:
        r"""Record the optimizer's state after the last event, so that replays start from it."""
        data = encode(state)
        with self._transaction():
            first = "(SELECT min(event) FROM snapshots)"
            self._connection.execute(f"DELETE FROM snapshots WHERE event > {first}")
            self._connection.execute("DELETE FROM snapshots WHERE event = ?", [self.last_event])
            self._append("snapshots", [(self.last_event, data)])

    def restart(self, next_number: int, told: Sequence[int], state: dict[str, Any]) -> None:
        r"""Record that a new optimizer was told all results; replays start from here.

        Args:
            next_number: The number of the next suggestion.
            told: Suggestions whose outcomes the new optimizer knows.
            state: The state of the new optimizer.
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
        r"""Run a block in one transaction, together with the records that wait to be written.

        Args:
            durable: Whether the transaction, and all before it, must survive a power cut. Every
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


def _as_stored(value: Any) -> Any:
    r"""Return a value as SQLite stores it: without negative zero and with NULL for NaN."""
    if type(value) is not float:
        return value
    return value + 0.0 if value == value else None
