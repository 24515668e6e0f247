r"""What evaluates points, and the simplest: one call of a vectorised objective."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.runs.points import Point, Reward, read_reward

Objective = Callable[..., Any]


class Answer(NamedTuple):
    r"""What came of one attempt: a reward, or an error."""

    point: Point
    reward: Reward | None
    error: str | None
    seconds: float


class OfSinglePoints(InputDataError):
    r"""The objective is one of single points and was called with several."""


class EvaluatorLost(Exception):
    r"""Nothing can be evaluated any more."""


class Evaluator(ABC):
    r"""Evaluates points.

    Args:
        objective: What is evaluated.
        by_index: Whether it takes rows of the arms in place of inputs.
    """

    def __init__(self, objective: Objective, by_index: bool) -> None:
        self.objective, self.by_index = objective, by_index

    @property
    @abstractmethod
    def busy(self) -> int:
        r"""How many points are under way."""

    @property
    @abstractmethod
    def free(self) -> int | None:
        r"""How many points could be evaluated at once now; None for any number."""

    @abstractmethod
    def submit(self, points: Sequence[Point]) -> None:
        r"""Evaluate these, sooner or later."""

    @abstractmethod
    def collect(self) -> list[Answer]:
        r"""Wait until something has come of some points."""

    @abstractmethod
    def withdraw(self) -> None:
        r"""Begin no more evaluations of what was submitted."""

    @abstractmethod
    def close(self) -> None:
        r"""Let go of what is still under way."""


class InOneCall(Evaluator):
    r"""All points that wait, in one call of a vectorised objective."""

    def __init__(self, objective: Objective, by_index: bool) -> None:
        super().__init__(objective, by_index)
        self._points: list[Point] = []
        self._has_worked = False

    @property
    def busy(self) -> int:
        r"""How many points wait."""
        return len(self._points)

    @property
    def free(self) -> int | None:
        r"""Any number."""
        return None

    def submit(self, points: Sequence[Point]) -> None:
        r"""Let them wait for the call."""
        self._points += points

    def collect(self) -> list[Answer]:
        r"""Call the objective."""
        points, start = self._points, time.perf_counter()
        if not points:
            return []
        values: list[Any]
        try:
            values = self._split(self.objective(self._argument(points)), len(points))
            self._has_worked = True
        except Exception as error:
            if isinstance(error, OfSinglePoints) and not self._has_worked:
                raise  # nobody need pay for these
            values = [error] * len(points)
        self._points = []  # not before: what interrupts the call leaves them waiting
        each = (time.perf_counter() - start) / len(points)
        return [answer_of(point, value, each) for point, value in zip(points, values, strict=True)]

    def _argument(self, points: list[Point]) -> torch.Tensor:
        X = torch.stack([point.x for point in points])
        if self.by_index:
            return torch.tensor([point.arm for point in points], device=X.device)
        return X

    def withdraw(self) -> None:
        r"""Forget what waits for the call."""
        self._points = []

    def close(self) -> None:
        r"""Nothing is under way between two calls."""

    @staticmethod
    def _split(value: Any, n: int) -> list[Any]:
        r"""One value, or one pair, for each point."""
        columns = value if isinstance(value, tuple) and value else (value,)
        flat = []
        for column in columns:
            try:
                tensor = torch.as_tensor(column).detach().cpu().reshape(-1)
            except (TypeError, ValueError, RuntimeError) as error:
                raise ValueError(
                    f"the objective returned {column!r}, not {n} numbers ({error})"
                ) from None
            if len(tensor) != n:
                kind = OfSinglePoints if len(tensor) == 1 < n else ValueError
                raise kind(
                    f"the objective returned {len(tensor)} values for {n} points: it is called "
                    "with a q x d tensor and returns q rewards; pass an executor (--workers on the "
                    "command line) for an objective of one point"
                )
            flat.append(tensor.tolist())
        return [row if len(row) > 1 else row[0] for row in zip(*flat, strict=True)]


def answer_of(point: Point, value: Any, seconds: float) -> Answer:
    r"""What an objective returned for a point, or the error it raised, as an answer."""
    error = value
    if not isinstance(value, BaseException):
        try:
            return Answer(point, read_reward(value), None, seconds)
        except Exception as failure:
            error = failure
    return Answer(point, None, _said(error), seconds)


def _said(error: BaseException) -> str:
    r"""What an error says, in letters that can be written down."""
    try:
        text = str(error)
    except Exception:
        text = "(an error that cannot say what it is)"
    return f"{type(error).__name__}: {text}".encode("utf-8", "backslashreplace").decode()
