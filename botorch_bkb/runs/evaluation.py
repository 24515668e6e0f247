r"""Evaluators of points, and the simplest of them: one call of a vectorised objective."""

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
    r"""The result of one attempt to evaluate a point: a reward or an error."""

    point: Point
    reward: Reward | None
    error: str | None
    seconds: float


class SinglePointObjectiveError(InputDataError):
    r"""Raised if an objective of single points was called with several points."""


class EvaluatorLostError(Exception):
    r"""Raised if no more points can be evaluated."""


class Evaluator(ABC):
    r"""A base class for evaluators, which evaluate an objective at submitted points.

    Args:
        objective: The objective.
        by_index: Whether it takes row indices of the arms instead of inputs.
    """

    #: The number of points evaluated at a time; None where all are evaluated in one call.
    workers: int | None = None

    def __init__(self, objective: Objective, by_index: bool) -> None:
        self.objective, self.by_index = objective, by_index

    @property
    @abstractmethod
    def busy(self) -> int:
        r"""The number of submitted points without an answer."""

    @property
    @abstractmethod
    def free(self) -> int | None:
        r"""The number of points that can be submitted and start at once; None for any number."""

    @abstractmethod
    def submit(self, points: Sequence[Point]) -> None:
        r"""Submit points for evaluation."""

    @abstractmethod
    def collect(self) -> list[Answer]:
        r"""Wait for answers to some of the submitted points, and return them."""

    @abstractmethod
    def withdraw(self) -> None:
        r"""Discard the submitted points whose evaluation has not started."""

    @abstractmethod
    def close(self) -> None:
        r"""Release all resources without waiting for running evaluations."""


class InOneCall(Evaluator):
    r"""An evaluator that evaluates all waiting points in one call of a vectorised objective."""

    def __init__(self, objective: Objective, by_index: bool) -> None:
        super().__init__(objective, by_index)
        self._points: list[Point] = []
        self._has_worked = False

    @property
    def busy(self) -> int:
        r"""The number of waiting points."""
        return len(self._points)

    @property
    def free(self) -> int | None:
        r"""None, because any number of points can be submitted."""
        return None

    def submit(self, points: Sequence[Point]) -> None:
        r"""Add points to those that wait for the next call."""
        self._points += points

    def collect(self) -> list[Answer]:
        r"""Call the objective with all waiting points, and return their answers."""
        points, start = self._points, time.perf_counter()
        if not points:
            return []
        values: list[Any]
        try:
            values = self._split(self.objective(self._argument(points)), len(points))
            self._has_worked = True
        except Exception as error:
            if isinstance(error, SinglePointObjectiveError) and not self._has_worked:
                raise  # a mistake in the call: stop before more evaluations are spent
            values = [error] * len(points)
        self._points = []  # only now: if the call is interrupted, the points must still wait
        each = (time.perf_counter() - start) / len(points)
        return [answer_of(point, value, each) for point, value in zip(points, values, strict=True)]

    def _argument(self, points: list[Point]) -> torch.Tensor:
        X = torch.stack([point.x for point in points])
        if self.by_index:
            return torch.tensor([point.arm for point in points], device=X.device)
        return X

    def withdraw(self) -> None:
        r"""Discard the waiting points."""
        self._points = []

    def close(self) -> None:
        r"""Do nothing, because no evaluation runs between two calls."""

    @staticmethod
    def _split(value: Any, n: int) -> list[Any]:
        r"""Split the value of one call into one value, or one pair, per point."""
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
                kind = SinglePointObjectiveError if len(tensor) == 1 < n else ValueError
                raise kind(
                    f"the objective returned {len(tensor)} values for {n} points: it is called "
                    "with a q x d tensor and must return q rewards. If it takes a single point, "
                    "pass an executor (--workers on the command line)"
                )
            flat.append(tensor.tolist())
        return [row if len(row) > 1 else row[0] for row in zip(*flat, strict=True)]


def answer_of(point: Point, value: Any, seconds: float) -> Answer:
    r"""Make an answer from what an objective returned for a point, or from the error it raised."""
    error = value
    if not isinstance(value, BaseException):
        try:
            return Answer(point, read_reward(value), None, seconds)
        except Exception as failure:
            error = failure
    return Answer(point, None, _message(error), seconds)


def _message(error: BaseException) -> str:
    r"""Return the type and message of an error as text that can be encoded."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {text}".encode("utf-8", "backslashreplace").decode()
