r"""The tables of a journal, appended to and, but for settings and snapshots, never changed.

Every row ends in a checksum of the others, so that a record is known to be whole wherever it is
found, and no flipped bit is taken for a result.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

#: Of the files.
VERSION = 1
#: Marks a SQLite file as a journal of ours.
APPLICATION = 0x424B_424A
PAGE_SIZE = 4096

TABLES: dict[str, dict[str, str]] = {
    "settings": {"key": "TEXT PRIMARY KEY", "value": "BLOB"},
    # What the optimizer was asked and told, in order: replayed, it arrives at the same state.
    "events": {
        "event": "INTEGER PRIMARY KEY",
        "kind": "TEXT",  # ask, tell, or restart: all members were told to a new optimizer
        "requested": "INTEGER",  # how many points; of a restart, the number of the next point
        "members": "BLOB",  # suggestions asked or told, int64
        "time": "REAL",
    },
    "suggestions": {
        "suggestion": "INTEGER PRIMARY KEY",
        "point": "BLOB",  # d numbers of the optimizer's dtype
        "arm": "INTEGER",  # null over a box
        "id": "INTEGER",  # by which the optimizer knows it; -1 if no result is expected
        "batch": "INTEGER",
    },
    "outcomes": {
        "suggestion": "INTEGER PRIMARY KEY",
        "reward": "REAL",  # null if all attempts failed
        "variance": "REAL",
        "error": "TEXT",
        "attempts": "INTEGER",
        "seconds": "REAL",
        "time": "REAL",
    },
    # Attempts that failed and were repeated.
    "attempts": {
        "number": "INTEGER PRIMARY KEY",
        "suggestion": "INTEGER",
        "error": "TEXT",
        "time": "REAL",
    },
    "measurements": {
        "event": "INTEGER PRIMARY KEY",  # the tell after which it was measured
        "dictionary": "INTEGER",
        "dimension": "REAL",
        "width": "REAL",
        "asking": "REAL",
        "telling": "REAL",
        "waiting": "REAL",
    },
    # States of the optimizer after an event; caches of what the events say.
    "snapshots": {"event": "INTEGER PRIMARY KEY", "state": "BLOB"},
}


def create(table: str) -> str:
    r"""The statement that makes a table."""
    columns = [f"{name} {kind}" for name, kind in TABLES[table].items()]
    return f"CREATE TABLE {table} ({', '.join(columns)}, checksum INTEGER NOT NULL)"


def insert(table: str) -> str:
    r"""The statement that appends a row."""
    marks = ", ".join("?" * (len(TABLES[table]) + 1))
    return f"INSERT INTO {table} VALUES ({marks})"


#: Tables whose second column may be large.
LARGE = ("settings", "snapshots")
SEEDS = {table: zlib.crc32(table.encode()) for table in TABLES}


def checksum(table: str, values: Sequence[Any]) -> int:
    r"""Of a row, and of the table it belongs to."""
    if table in LARGE:
        if not isinstance(values[1], bytes):
            return -1  # whatever it is, nobody wrote it
        values = (values[0], zlib.crc32(values[1]))
    return zlib.crc32(repr(tuple(values)).encode(), SEEDS[table])
