r"""The records of a journal: one class for each kind of row that is read back."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    r"""A call to the optimizer: an ask, a fill (beyond the batch rule), a tell or a restart."""

    event: int
    kind: str
    requested: int | None
    members: tuple[int, ...]

    @property
    def asks(self) -> bool:
        r"""Whether points were asked for, within or beyond the batch rule."""
        return self.kind in ("ask", "fill")


class Asked(NamedTuple):
    r"""One suggested point."""

    suggestion: int
    point: bytes
    arm: int | None
    id: int
    batch: int
    beyond: int = 0


class Outcome(NamedTuple):
    r"""The outcome of one suggestion; ``reward`` is None if all attempts failed."""

    suggestion: int
    reward: float | None
    variance: float | None
    error: str | None
    attempts: int
    seconds: float
    time: float


class Measurement(NamedTuple):
    r"""The size of the belief and the seconds spent, measured after a tell."""

    event: int
    dictionary: int
    dimension: float
    width: float
    asking: float
    telling: float
    waiting: float
