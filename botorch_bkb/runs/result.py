r"""The result of a run, and its conversion to tables."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from botorch_bkb.journal import Measurement, Outcome
from botorch_bkb.optimizers import Best, Optimizer
from botorch_bkb.runs.points import Point

Table = dict[str, list[Any]]


class Failure(NamedTuple):
    r"""A point whose evaluation failed in all attempts."""

    x: Tensor
    error: str
    attempts: int


@dataclass(frozen=True, eq=False)
class Result:
    r"""The result of a run.

    Attributes:
        X: ``n x d`` points with a result, in the order they were asked.
        Y: ``n`` rewards.
        best: The recommended point; None if there was no result.
        history: Plain columns with one row per result: ``t`` (position among all points),
            ``batch``, ``reward``, ``best`` (the highest reward so far), ``dictionary``,
            ``dimension`` (effective), ``width``, and the seconds of its batch ``asking``,
            ``telling`` and ``waiting``.
        failures: Points whose evaluation failed in all attempts.
        num_skipped: The number of points skipped because they were not informative enough.
        stopped: Why the run ended.
        seconds: The duration of the run since it was started or resumed.
        optimizer: The optimizer, which can be used further.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import BBKB, run
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = BBKB(arms, covar_module=RBFKernel(), noise_var=0.01, seed=0)
        >>> result = run(optimizer, lambda X: -(X - 0.3).norm(dim=-1), budget=20, progress=False)
        >>> result.X.shape, result.Y.shape, result.num_failed, result.stopped
        (torch.Size([20, 1]), torch.Size([20]), 0, 'budget spent')
        >>> result.history["best"][-1] == float(result.Y.max())
        True
        >>> abs(result.best.X.item() - 0.3) < 0.05
        True
    """

    X: Tensor
    Y: Tensor
    best: Best | None
    history: Table
    failures: list[Failure]
    num_skipped: int
    stopped: str
    seconds: float
    optimizer: Optimizer

    @property
    def num_failed(self) -> int:
        r"""The number of points whose evaluation failed in all attempts."""
        return len(self.failures)

    def spent(self, *what: str) -> Tensor:
        r"""Return the cumulative seconds after each result.

        Args:
            what: Columns of the history, out of ``"asking"``, ``"telling"`` and ``"waiting"``. The
                default is the first two, the optimizer's own time.

        Returns:
            ``n`` nondecreasing seconds. The seconds of a batch are repeated in each of its rows of
            the history, but counted once here.
        """
        kinds = ("asking", "telling", "waiting")
        columns = (self.history[name] for name in kinds)
        chosen = [kinds.index(name) for name in what or kinds[:2]]
        total, totals, counted = 0.0, [], set()
        for seconds in zip(*columns, strict=True):
            if seconds not in counted and None not in seconds:
                counted.add(seconds)
                total += sum(seconds[i] for i in chosen)
            totals.append(total)
        return torch.tensor(totals, dtype=torch.float64)

    def to_csv(self, path: str | Path) -> None:
        r"""Write the history and the coordinates ``x0 .. x{d-1}`` to a CSV file."""
        write_csv(path, {**self.history, **coordinates(self.X)})

    def to_pandas(self) -> Any:
        r"""Return the history and the coordinates ``x0 .. x{d-1}`` as a ``pandas.DataFrame``."""
        return data_frame({**self.history, **coordinates(self.X)})


def coordinates(X: Tensor) -> Table:
    r"""Return one column per coordinate, named ``x0 .. x{d-1}``."""
    return {f"x{i}": column.tolist() for i, column in enumerate(X.mT)}


def history_table(
    points: Sequence[Point],
    outcomes: dict[int, Outcome],
    told: dict[int, int],
    measurements: dict[int, Measurement],
) -> Table:
    r"""Return the history of a run, with one row for each point with a reward.

    Args:
        points: All points.
        outcomes: Outcomes by the number of their point.
        told: The event in which the outcome of each point was told.
        measurements: Measurements by event.
    """
    names = ("t", "batch", "reward", "best", *Measurement._fields[1:])
    rows = []
    best, nothing = -float("inf"), (None,) * (len(Measurement._fields) - 1)
    for point in points:
        outcome = outcomes.get(point.number)
        if outcome is None or outcome.reward is None:
            continue
        best = max(best, outcome.reward)
        measured = measurements.get(told.get(point.number, -1))
        rest = measured[1:] if measured else nothing
        rows.append((point.number, point.batch, outcome.reward, best, *rest))
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


def rewarded(
    points: Sequence[Point],
    outcomes: dict[int, Outcome],
    dim: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor, list[Failure]]:
    r"""Collect the inputs and rewards of all points with a reward, and all failures.

    Args:
        points: All points.
        outcomes: Outcomes by the number of their point.
        dim: ``d``, the number of coordinates of a point.
        dtype: The dtype of the inputs.
        device: The device of the inputs.

    Returns:
        ``n x d`` inputs, ``n`` rewards, and the points that failed.
    """
    X, Y, failures = [], [], []
    for point in points:
        outcome = outcomes.get(point.number)
        if outcome is None:
            continue
        if outcome.reward is None:
            failures.append(Failure(point.x, outcome.error or "", outcome.attempts))
        else:
            X.append(point.x)
            Y.append(outcome.reward)
    inputs = torch.stack(X) if X else torch.empty(0, dim, dtype=dtype, device=device)
    return inputs, torch.tensor(Y, dtype=torch.float64, device=inputs.device), failures


def write_csv(path: str | Path, table: Table) -> None:
    r"""Write a table of plain columns to a CSV file."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def data_frame(table: Table) -> Any:
    r"""Convert a table of plain columns to a ``pandas.DataFrame``."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("A data frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(table)
