r"""Journal files: their errors, their lock, and checks that a file is a journal."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from botorch.exceptions.errors import BotorchError

from botorch_bkb.journal.schema import APPLICATION, VERSION


class JournalError(BotorchError):
    r"""Raised if a journal cannot be written, opened or read; the message names the file.

    Example:
        >>> from botorch_bkb import JournalError, read_journal
        >>> try:
        ...     read_journal("nowhere.journal")
        ... except JournalError as error:
        ...     print(error)
        There is no journal nowhere.journal: give the file that run() wrote.
    """


def damaged(path: str | Path, what: str) -> JournalError:
    r"""Return the error for a file whose content is not a valid journal.

    Args:
        path: The file.
        what: The part that is damaged.
    """
    return JournalError(
        f"{path} is damaged, or not a journal ({what}). Recover its complete records with: "
        f"python -m botorch_bkb recover {path} NEW_FILE"
    )


def locked(path: Path) -> sqlite3.Connection:
    r"""Lock a journal until the returned connection is closed or the process ends.

    The lock is a transaction on an empty file next to the journal. It does not block readers.
    """
    lock = sqlite3.connect(path.with_name(path.name + "-lock"), isolation_level=None, timeout=0.2)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if "locked" not in str(error):
            raise
        raise JournalError(
            f"{path} is in use by another process, or by another run in this process. Wait until "
            "that run has ended, or pass another file as journal."
        ) from None
    return lock


@contextmanager
def errors(path: str | Path) -> Iterator[None]:
    r"""Turn errors of SQLite and of the file system into a ``JournalError`` with a remedy."""
    folder = Path(path).absolute().parent
    access = f"the folder {folder} must exist, and file and folder must be writable"
    try:
        yield
    except OSError as error:
        raise JournalError(f"{path}: {error}; {access}.") from error
    except sqlite3.DatabaseError as error:
        said = str(error)
        if "full" in said:
            remedy = "everything before is written: free disk space, then resume"
        elif "readonly" in said or "unable to open" in said:
            remedy = access
        elif "disk I/O" in said:
            remedy = "everything before is written: check the disk, then resume"
        elif "locked" in said or "busy" in said:
            remedy = "another process has locked it: wait until that process has ended"
        else:
            raise damaged(path, said) from error
        raise JournalError(f"{path}: {said}; {remedy}.") from error


def check_exists(path: str | Path) -> None:
    r"""Raise a ``JournalError`` unless the file exists."""
    if not os.path.exists(path):
        raise JournalError(f"There is no journal {path}: give the file that run() wrote.")


def check_kind(connection: sqlite3.Connection, path: str | Path) -> None:
    r"""Raise a ``JournalError`` unless the file is a journal that this version can read."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise damaged(path, "its first page does not identify it as one")
    if version != VERSION:
        raise JournalError(
            f"{path} has version {version} of the format, but this botorch_bkb reads version "
            f"{VERSION}: install the botorch_bkb that wrote it."
        )
