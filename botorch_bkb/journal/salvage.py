r"""Recover all complete records from a damaged journal.

SQLite reads a table from its root page downwards, so one damaged page hides all pages below it.
Here every page of the file, and of the write-ahead log next to it, is read independently. The
checksums of the rows show which of them are complete.

References:
    The layout of pages, cells and records: the SQLite documentation, "Database File Format".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from botorch_bkb.journal.files import JournalError
from botorch_bkb.journal.journal import Journal
from botorch_bkb.journal.schema import PAGE_SIZE, TABLES, checksum

#: The type of a page that holds rows of a table.
LEAF = 0x0D
#: Sizes of the headers in bytes.
FRAME_HEADER, LOG_HEADER, FILE_HEADER = 24, 32, 100


def recover(path: str | Path, new: str | Path) -> dict[str, int]:
    r"""Write every complete record of a damaged journal to a new journal.

    Args:
        path: The damaged file, which is not changed.
        new: The file to write.

    Returns:
        The number of recovered rows of each table.

    Raises:
        JournalError: There is no complete record, or ``new`` exists.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from botorch_bkb import BKB, read_journal, run
        >>> from botorch_bkb.journal import recover
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path, new = Path(folder) / "run.journal", Path(folder) / "saved.journal"
        ...     _ = run(optimizer, lambda X: X[:, 0], budget=3, journal=path, progress=False)
        ...     found = recover(path, new)
        ...     rewards = read_journal(new)["reward"]
        >>> found["outcomes"], len(rewards)
        (3, 3)
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise JournalError(f"There is no file {path}: give the damaged journal.")
    found: dict[str, dict[Any, tuple]] = {table: {} for table in TABLES}
    pages: dict[int, bytes] = {}
    for changed in _versions(path):
        pages |= changed
        for number, page in changed.items():
            for row in _rows(page, FILE_HEADER if number == 1 else 0, pages):
                _keep(row, found)
    rows = {table: [kept[key] for key in sorted(kept)] for table, kept in found.items()}
    if not any(rows.values()):
        raise JournalError(f"{path} has no complete record: there is nothing to recover.")
    Journal.of_rows(new, rows).close()
    return {table: len(kept) for table, kept in rows.items()}


def _keep(row: tuple, found: dict[str, dict[Any, tuple]]) -> None:
    r"""Add a row to every table whose number of columns and checksum it matches."""
    for table, columns in TABLES.items():
        if len(row) == len(columns) + 2:
            values, expected = _as_inserted(row, list(columns.values())), row[-1]
            if checksum(table, values) == expected:
                found[table][values[0]] = (*values, expected)


def _as_inserted(row: tuple, kinds: list[str]) -> list[Any]:
    r"""Return the values of a row as they were inserted.

    SQLite stores integer keys as row ids, and whole floats as integers.
    """
    rowid, *values, _ = row
    if kinds[0].startswith("INTEGER"):
        values[0] = rowid
    return [
        float(value) if kind == "REAL" and isinstance(value, int) else value
        for value, kind in zip(values, kinds, strict=True)
    ]


def _versions(path: Path) -> Iterator[dict[int, bytes]]:
    r"""Yield pages by number: first those of the file, then those of each transaction in its log.

    Transactions come in order, the oldest first. An earlier version of a page is also searched,
    because it may be intact where the latest one is damaged.
    """
    data = path.read_bytes()
    yield {
        1 + start // PAGE_SIZE: data[start : start + PAGE_SIZE]
        for start in range(0, len(data) - PAGE_SIZE + 1, PAGE_SIZE)
    }
    log = path.with_name(path.name + "-wal")
    if log.exists():
        yield from _logged(log.read_bytes())


def _logged(log: bytes) -> Iterator[dict[int, bytes]]:
    r"""Yield the pages of each transaction in a write-ahead log.

    SQLite restarts the log from its beginning, with a new salt. Frames with another salt are left
    over from before the restart, so they are older and come first.
    """
    size, salt = FRAME_HEADER + PAGE_SIZE, log[16:24]
    starts = range(LOG_HEADER, len(log) - size + 1, size)
    earlier = [start for start in starts if log[start + 8 : start + 16] != salt]
    present = [start for start in starts if log[start + 8 : start + 16] == salt]
    for frames in (earlier, present):
        pages: dict[int, bytes] = {}
        for start in frames:
            number, commits = struct.unpack_from(">II", log, start)
            pages[number] = log[start + FRAME_HEADER : start + size]
            if commits:
                yield pages
                pages = {}
        yield pages


def _rows(page: bytes, start: int, pages: dict[int, bytes]) -> Iterator[tuple]:
    r"""Yield the row id and the values of each readable cell of a page."""
    if page[start] != LEAF:
        return
    (cells,) = struct.unpack_from(">H", page, start + 3)
    for i in range(cells):
        try:
            (place,) = struct.unpack_from(">H", page, start + 8 + 2 * i)
            size, place = _varint(page, place)
            rowid, place = _varint(page, place)
            yield (rowid, *_record(_payload(page, place, size, pages)))
        except (IndexError, KeyError, ValueError, struct.error):
            continue


def _payload(page: bytes, place: int, size: int, pages: dict[int, bytes]) -> bytes:
    r"""Return the bytes of a record, including those on overflow pages."""
    most = PAGE_SIZE - 35
    if size <= most:
        return _exactly(page[place : place + size], size)
    least = (PAGE_SIZE - 12) * 32 // 255 - 23
    here = least + (size - least) % (PAGE_SIZE - 4)
    here = here if here <= most else least
    if size > PAGE_SIZE * len(pages):
        raise ValueError
    parts, rest = [page[place : place + here]], size - here
    (number,) = struct.unpack_from(">I", page, place + here)
    while rest > 0:
        more = pages[number]
        (number,) = struct.unpack_from(">I", more)
        parts.append(more[4 : 4 + min(rest, PAGE_SIZE - 4)])
        rest -= len(parts[-1])
    return _exactly(b"".join(parts), size)


def _exactly(data: bytes, size: int) -> bytes:
    r"""Return ``data``, or raise a ``ValueError`` if it does not have the expected size."""
    if len(data) != size:
        raise ValueError
    return data


def _record(data: bytes) -> list[Any]:
    r"""Decode the values of a record."""
    end, place = _varint(data, 0)
    types = []
    while place < end:
        kind, place = _varint(data, place)
        types.append(kind)
    values, place = [], end
    for kind in types:
        value, place = _value(kind, data, place)
        values.append(value)
    return values


def _value(kind: int, data: bytes, place: int) -> tuple[Any, int]:
    r"""Decode one value of a given serial type; also return the position after it."""
    if kind in (0, 8, 9):
        return {0: None, 8: 0, 9: 1}[kind], place
    if kind < 7:
        size = (1, 2, 3, 4, 6, 8)[kind - 1]
        raw = _exactly(data[place : place + size], size)
        return int.from_bytes(raw, "big", signed=True), place + size
    if kind == 7:
        return struct.unpack_from(">d", data, place)[0], place + 8
    if kind < 12:
        raise ValueError
    size = (kind - 12) // 2
    raw = _exactly(data[place : place + size], size)
    return (raw if kind % 2 == 0 else raw.decode()), place + size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    r"""Decode an integer of variable length; also return the position after it."""
    value = 0
    for i in range(9):
        byte = data[place + i]
        if i == 8:
            value = value << 8 | byte
            break
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    if value >= 1 << 63:
        value -= 1 << 64
    return value, place + i + 1
