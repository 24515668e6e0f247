r"""What a durable run costs, and what Ax costs with and without us.

Run ``python -m benchmarks.service [--quick] [--no-ax] [--out DIR]``. The overhead is everything but
the optimizer's asking and telling and the objective: the loop, its measurements, the journal and
its snapshots.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from benchmarks.common import circumstances, verdict, write_csv
from botorch_bkb import BBKB, Callback, resume, run
from botorch_bkb.runs import Result


def arms() -> Tensor:
    return torch.rand(1000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def objective(X: Tensor) -> Tensor:
    return torch.sin(5 * X).sum(-1)


def optimizer(**more) -> BBKB:
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(0.5, dtype=torch.float64)
    given = {"covar_module": kernel, "noise_var": 0.1, "seed": 0, "batch_threshold": 10.0}
    return BBKB(arms(), **given, **more)


class Clock(Callback):
    r"""Seconds from the first point asked to the end."""

    def __init__(self) -> None:
        self.start = self.seconds = 0.0

    def on_ask(self, loop, points) -> None:
        r"""Start, the first time."""
        self.start = self.start or time.perf_counter()

    def on_stop(self, loop) -> None:
        r"""Stop."""
        self.seconds = time.perf_counter() - self.start


def overhead(result: Result, since: int, seconds: float) -> float:
    r"""Milliseconds an evaluation, of those after the first ``since``."""
    done = len(result.Y) - since
    batches = {}  # the seconds of a batch stand in each of its rows
    for i in range(since, len(result.Y)):
        batches[result.history["batch"][i]] = sum(
            result.history[name][i] for name in ("asking", "telling", "waiting")
        )
    return 1e3 * (seconds - sum(batches.values())) / done


def journals(sizes: tuple[int, ...], folder: Path) -> tuple[list[str], list[str]]:
    rows, batched, single, opened = [], [], [], []
    for n in sizes:
        path = folder / f"{n}.sqlite"
        clock = Clock()
        quiet = {"progress": False, "callbacks": [clock]}
        result = run(optimizer(), objective, n, journal=path, **quiet)
        batched.append(overhead(result, 0, clock.seconds))
        start = time.perf_counter()
        resume(path, objective, progress=False)
        opened.append(time.perf_counter() - start)
        one_by_one = optimizer(max_batch_size=1)
        steps = min(n, 500)
        clock.start = 0.0
        result = resume(path, objective, optimizer=one_by_one, budget=n + steps, **quiet)
        history = result.history
        single.append(overhead(result, n, clock.seconds))
        own = [history["asking"][i] + history["telling"][i] for i in range(n, n + steps)]
        rows += [
            f"journal,{n},overhead in batches,ms an evaluation,{batched[-1]:.4g}",
            f"journal,{n},overhead one by one,ms an evaluation,{single[-1]:.4g}",
            f"journal,{n},optimizer one by one,ms an evaluation,{1e3 * np.mean(own):.4g}",
            f"journal,{n},opening,s,{opened[-1]:.4g}",
            f"journal,{n},size,MB,{path.stat().st_size / 1e6:.4g}",
        ]
    said = [
        verdict(f"overhead at n={n}, ms an evaluation, {kind}", "< 1", value, value < 1)
        for kind, values in (("in batches", batched), ("one by one", single))
        for n, value in zip(sizes, values, strict=True)
    ]
    growth = single[-1] / single[0]
    said.append(verdict(f"overhead at n={sizes[-1]} over n={sizes[0]}", "flat", growth, growth < 2))
    said.append(
        verdict(f"opening a journal of {sizes[-1]} outcomes, s", "< 2", opened[-1], opened[-1] < 2)
    )
    return rows, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--out", type=Path, help="folder for service.csv")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    header = circumstances("0")
    print(*header, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        sizes = (200, 1000) if args.quick else (1000, 10_000, 100_000)
        rows, said = journals(sizes, Path(folder))
    print(*rows, "", "claim | asked | measured | verdict", *said, sep="\n")
    if args.out:
        write_csv(args.out / "service.csv", header + said, "study,n,what,unit,figure", rows)


if __name__ == "__main__":
    main()
