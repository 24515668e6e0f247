r"""The tables of a journal and the checksums of their rows.

Rows are appended and never changed, except in the tables ``settings`` and ``snapshots``. The last
column of every row is a checksum of the other columns. It shows that a row is complete, wherever
in the file it is found, and it detects flipped bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

#: The version of the file format.
VERSION = 5
#: The SQLite application id that marks a file as a journal.
APPLICATION = 0x424B_424A
PAGE_SIZE = 4096

TABLES: dict[str, dict[str, str]] = {
    "settings": {"key": "TEXT PRIMARY KEY", "value": "BLOB"},
    # The calls to the optimizer, in order. Replaying them reproduces its state.
    "events": {
        "event": "INTEGER PRIMARY KEY",
        # ask; fill (exactly so many points, beyond the batch rule); tell; or restart (all members
        # were told to a new optimizer)
        "kind": "TEXT",
        "requested": "INTEGER",  # number of points; for a restart, the number of the next point
        "members": "BLOB",  # numbers of the suggestions asked or told, int64
        "time": "REAL",
    },
    "suggestions": {
        "suggestion": "INTEGER PRIMARY KEY",
        "point": "BLOB",  # d coordinates in the optimizer's dtype
        "arm": "INTEGER",  # row in the arms; null over a box
        "id": "INTEGER",  # the optimizer's id for it; -1 if no result is expected
        "batch": "INTEGER",
        "beyond": "INTEGER",  # 1 if the point lies beyond the batch rule
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
    # Failed attempts that were repeated.
    "attempts": {
        "number": "INTEGER PRIMARY KEY",
        "suggestion": "INTEGER",
        "error": "TEXT",
        "time": "REAL",
    },
    "measurements": {
        "event": "INTEGER PRIMARY KEY",  # the tell that preceded the measurement
        "dictionary": "INTEGER",
        "dimension": "REAL",
        "width": "REAL",
        "asking": "REAL",
        "telling": "REAL",
        "waiting": "REAL",
    },
    # States of the optimizer after an event. They only save replaying the events before it.
    "snapshots": {"event": "INTEGER PRIMARY KEY", "state": "BLOB"},
}


def create(table: str) -> str:
    r"""Return the SQL statement that creates a table."""
    columns = [f"{name} {kind}" for name, kind in TABLES[table].items()]
    return f"CREATE TABLE {table} ({', '.join(columns)}, checksum INTEGER NOT NULL)"


def insert(table: str) -> str:
    r"""Return the SQL statement that appends a row to a table."""
    marks = ", ".join("?" * (len(TABLES[table]) + 1))
    return f"INSERT INTO {table} VALUES ({marks})"


#: Tables whose second column may be large and is reduced to its own checksum first.
LARGE = ("settings", "snapshots")
#: Start values of the checksums, so that a row is valid in its own table only.
SEEDS = {table: zlib.crc32(table.encode()) for table in TABLES}


def checksum(table: str, values: Sequence[Any]) -> int:
    r"""Return the checksum of a row of a table, given the values of its other columns."""
    if table in LARGE:
        if not isinstance(values[1], bytes):
            return -1  # damaged: these columns are always written as bytes, and no CRC is negative
        values = (values[0], zlib.crc32(values[1]))
    return zlib.crc32(repr(tuple(values)).encode(), SEEDS[table])
