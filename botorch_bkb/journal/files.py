r"""Journals as files: what can be wrong with one, and who may write to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from botorch.exceptions.errors import BotorchError

from botorch_bkb.journal.schema import APPLICATION, VERSION


class JournalError(BotorchError):
    r"""A journal cannot be written, opened or read; the message names the file.

    Example:
        >>> from botorch_bkb import JournalError, read_journal
        >>> try:
        ...     read_journal("nowhere.journal")
        ... except JournalError as error:
        ...     print(error)
        There is no journal nowhere.journal: give the file that run() wrote.
    """


def damaged(path: str | Path, what: str) -> JournalError:
    r"""The error for a file that is not what was written."""
    return JournalError(
        f"{path} is damaged, or no journal ({what}). Salvage its complete records: "
        f"python -m botorch_bkb recover {path} NEW_FILE"
    )


def locked(path: Path) -> sqlite3.Connection:
    r"""Hold the lock of a journal until the connection is closed, or the process ends.

    It is a transaction on an empty file beside the journal, which leaves readers alone.
    """
    lock = sqlite3.connect(path.with_name(path.name + "-lock"), isolation_level=None, timeout=0.2)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if "locked" not in str(error):
            raise
        raise JournalError(
            f"{path} is in use: another process writes to it, or another run of this one. Wait "
            "until it has ended, or give the run a journal of its own."
        ) from None
    return lock


@contextmanager
def errors(path: str | Path) -> Iterator[None]:
    r"""Say what SQLite's errors mean for a journal."""
    folder = Path(path).absolute().parent
    access = f"the folder {folder} must exist, and file and folder must be writable"
    try:
        yield
    except OSError as error:
        raise JournalError(f"{path}: {error}; {access}.") from error
    except sqlite3.DatabaseError as error:
        said = str(error)
        if "full" in said:
            remedy = "everything before is written: make room on the disk, then resume"
        elif "readonly" in said or "unable to open" in said:
            remedy = access
        elif "disk I/O" in said:
            remedy = "everything before is written: see to the disk, then resume"
        elif "locked" in said or "busy" in said:
            remedy = "another process holds it: wait until it has ended"
        else:
            raise damaged(path, said) from error
        raise JournalError(f"{path}: {said}; {remedy}.") from error


def check_exists(path: str | Path) -> None:
    r"""Raise unless there is a file."""
    if not os.path.exists(path):
        raise JournalError(f"There is no journal {path}: give the file that run() wrote.")


def check_kind(connection: sqlite3.Connection, path: str | Path) -> None:
    r"""Raise unless it is a journal that this version understands."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise damaged(path, "it is no journal, or its first page is lost")
    if version != VERSION:
        raise JournalError(
            f"{path} has version {version} of the format, this botorch_bkb reads version "
            f"{VERSION}: install the one that wrote it."
        )
