r"""What a run returns, and what its journal can be read as."""

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
    r"""A point of which nothing came."""

    x: Tensor
    error: str
    attempts: int


@dataclass(frozen=True, eq=False)
class Result:
    r"""A run.

    Attributes:
        X: ``n x d``, points with a result, in the order they were asked.
        Y: ``n`` rewards.
        best: The recommended point; None if there was no result.
        history: One row a result, plain columns: ``t`` (place among all points), ``batch``,
            ``reward``, ``best`` (reward so far), ``dictionary``, ``dimension`` (effective),
            ``width``, and ``asking``, ``telling`` and ``waiting``, the seconds of its batch.
        failures: Points of which nothing came.
        num_skipped: Points that were not evaluated, since they would have taught too little.
        stopped: Why the run ended.
        seconds: How long it took, since it was begun or resumed.
        optimizer: The optimizer, to go on with.

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
        r"""Points of which nothing came."""
        return len(self.failures)

    def spent(self, *what: str) -> Tensor:
        r"""Seconds so far, after each result.

        Args:
            what: Columns of the history: ``"asking"``, ``"telling"``, ``"waiting"``; the first
                two, the optimizer's own, if there are none.

        Returns:
            ``n`` seconds, nondecreasing; those of a batch, which stand in each of its rows, count
            once.
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
        r"""The history, and the coordinates ``x0 .. x{d-1}``."""
        write_csv(path, {**self.history, **coordinates(self.X)})

    def to_pandas(self) -> Any:
        r"""The same as a ``pandas.DataFrame``."""
        return data_frame({**self.history, **coordinates(self.X)})


def coordinates(X: Tensor) -> Table:
    r"""One column a coordinate."""
    return {f"x{i}": column.tolist() for i, column in enumerate(X.mT)}


def history_table(
    points: Sequence[Point],
    outcomes: dict[int, Outcome],
    told: dict[int, int],
    measurements: dict[int, Measurement],
) -> Table:
    r"""One row for each point with a reward.

    Args:
        points: All points.
        outcomes: What came of them, by number.
        told: The event in which each was told.
        measurements: What was measured after each event.
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


def rewarded(points: Sequence[Point], outcomes: dict[int, Outcome], like: Tensor) -> Any:
    r"""Inputs, rewards and failures of all points; ``like`` is any ``r x d`` inputs."""
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
    inputs = torch.stack(X) if X else like[:0]
    return inputs, torch.tensor(Y, dtype=torch.float64, device=inputs.device), failures


def write_csv(path: str | Path, table: Table) -> None:
    r"""A table of plain columns as a file."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def data_frame(table: Table) -> Any:
    r"""A table of plain columns as a ``pandas.DataFrame``."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("A data frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(table)
