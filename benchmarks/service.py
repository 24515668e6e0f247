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


def inside_ax(sizes: tuple[int, ...]) -> tuple[list[str], list[str]]:
    r"""A trial of ``BKBNode`` and of Ax's default, and what of it is Ax's own."""
    from benchmarks.ax_client import client_after, seconds_a_trial
    from botorch_bkb.ax import BKBNode, bkb_generation_strategy

    generator = torch.Generator().manual_seed(0)
    X = torch.rand(max(sizes), 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(X), generator=generator, dtype=torch.float64)
    Y, bounds = objective(X) + 0.3 * noise, torch.tensor([[0.0] * 4, [1.0] * 4])
    rows, said, inside, depth = [], [], [0.0], [0]

    def timed(method):
        def call(self, *args, **kwargs):
            start = time.perf_counter()
            depth[0] += 1
            try:
                return method(self, *args, **kwargs)
            finally:
                depth[0] -= 1
                if not depth[0]:  # one of them calls another
                    inside[0] += time.perf_counter() - start

        return call

    for name in ("new_trial_limit", "update_generator_state", "get_next_candidate"):
        setattr(BKBNode, name, timed(getattr(BKBNode, name)))
    for n in sizes:
        client = client_after(bounds, X[:n], Y[:n], bkb_generation_strategy("BBKB", seed=0))
        seconds_a_trial(client, 0.0)
        inside[0], trials = 0.0, 5
        ours = seconds_a_trial(client, 0.0, trials)
        own = ours - inside[0] / (trials + 1)
        theirs = seconds_a_trial(client_after(bounds, X[:n], Y[:n]), 0.0)
        rows += [
            f"ax,{n},BKBNode,s a trial,{ours:.4g}",
            f"ax,{n},BKBNode: Ax's bookkeeping,s a trial,{own:.4g}",
            f"ax,{n},Ax default,s a trial,{theirs:.4g}",
        ]
        what = f"Ax default over Ax with BKBNode at n={n} (without Ax's bookkeeping: "
        what += f"{(theirs - own) / (ours - own):.3g})"
        said.append(verdict(what, "more than 1", theirs / ours, theirs > ours))
        print(*rows[-3:], sep="\n", flush=True)
    return rows, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--no-ax", action="store_true", help="the journal alone")
    parser.add_argument("--out", type=Path, help="folder for service.csv")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    header = circumstances("0")
    print(*header, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        sizes = (200, 1000) if args.quick else (1000, 10_000, 100_000)
        rows, said = journals(sizes, Path(folder))
    if not args.no_ax:
        more, also = inside_ax((20, 40) if args.quick else (100, 1000, 2000))
        rows, said = rows + more, said + also
    print(*rows, "", "claim | asked | measured | verdict", *said, sep="\n")
    if args.out:
        write_csv(args.out / "service.csv", header + said, "study,n,what,unit,figure", rows)


if __name__ == "__main__":
    main()
