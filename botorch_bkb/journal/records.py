r"""What stands in a journal, one class a table."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    r"""Something the optimizer was asked or told."""

    event: int
    kind: str
    requested: int | None
    members: tuple[int, ...]


class Asked(NamedTuple):
    r"""One suggestion."""

    suggestion: int
    point: bytes
    arm: int | None
    id: int
    batch: int


class Outcome(NamedTuple):
    r"""What became of a suggestion; ``reward`` is None if all attempts failed."""

    suggestion: int
    reward: float | None
    variance: float | None
    error: str | None
    attempts: int
    seconds: float
    time: float


class Measurement(NamedTuple):
    r"""What was measured after a tell."""

    event: int
    dictionary: int
    dimension: float
    width: float
    asking: float
    telling: float
    waiting: float
