r"""The cost of a run with a journal, and of a trial in Ax with and without ``BKBNode``.

The overhead is all time outside the optimizer and the objective: the loop, its measurements, the
journal and its snapshots. About ten minutes on an idle machine.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from benchmarks.report import Options, Report
from botorch_bkb import BBKB, Callback, resume
from botorch_bkb import run as optimise
from botorch_bkb.runs import Result

SEEDS = 1
COLUMNS = ("study", "n", "what", "unit", "figure")


def run(options: Options, report: Report) -> None:
    r"""Measure runs with a journal, then trials in Ax."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = (200, 400) if options.quick else (1000, 10_000, 100_000)
        journals(report, sizes, Path(folder))
    inside_ax(report, (20, 30) if options.quick else (100, 1000, 2000))
    draw(report)


def arms() -> Tensor:
    return torch.rand(1000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def objective(X: Tensor) -> Tensor:
    return torch.sin(5 * X).sum(-1)


def optimizer(**more) -> BBKB:
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(0.5, dtype=torch.float64)
    given = {"covar_module": kernel, "noise_var": 0.1, "width": "information"}
    given |= {"seed": 0, "batch_threshold": 10.0}
    return BBKB(arms(), **given, **more)


class Clock(Callback):
    r"""A callback that measures the seconds from the first ask to the end."""

    def __init__(self) -> None:
        self.start = self.seconds = 0.0

    def on_ask(self, loop, points) -> None:
        r"""Start the clock at the first ask."""
        self.start = self.start or time.perf_counter()

    def on_stop(self, loop) -> None:
        r"""Stop the clock."""
        self.seconds = time.perf_counter() - self.start


def overhead(result: Result, since: int, seconds: float) -> float:
    r"""Return the overhead in milliseconds per evaluation, without the first ``since`` ones."""
    done = len(result.Y) - since
    spent = result.spent("asking", "telling", "waiting")
    before = float(spent[since - 1]) if since else 0.0
    return 1e3 * (seconds - float(spent[-1]) + before) / done


def journals(report: Report, sizes: tuple[int, ...], folder: Path) -> None:
    r"""Measure the overhead of a run with a journal of ``n`` outcomes."""
    batched, single, opened = [], [], []
    for n in sizes:
        path = folder / f"{n}.sqlite"
        clock = Clock()
        quiet = {"progress": False, "callbacks": [clock]}
        result = optimise(optimizer(), objective, n, journal=path, **quiet)
        batched.append(overhead(result, 0, clock.seconds))
        start = time.perf_counter()
        resume(path, objective, progress=False)
        opened.append(time.perf_counter() - start)
        one_by_one = optimizer(max_batch_size=1)
        steps = min(n, 500)
        clock.start = 0.0
        result = resume(path, objective, optimizer=one_by_one, budget=n + steps, **quiet)
        single.append(overhead(result, n, clock.seconds))
        spent = result.spent()
        own = float(spent[-1] - spent[n - 1]) / steps
        for what, unit, figure in (
            ("overhead in batches", "ms an evaluation", batched[-1]),
            ("overhead one by one", "ms an evaluation", single[-1]),
            ("optimizer one by one", "ms an evaluation", 1e3 * own),
            ("opening", "s", opened[-1]),
            ("size", "MB", path.stat().st_size / 1e6),
        ):
            report.row("journal", n, what, unit, figure)
    for kind, values in (("in batches", batched), ("one by one", single)):
        for n, value in zip(sizes, values, strict=True):
            what = f"overhead at n={n}, ms an evaluation, {kind}"
            report.claim(what, "< 1", value, value < 1)
    growth = single[-1] / single[0]
    report.claim(f"overhead at n={sizes[-1]} over n={sizes[0]}", "flat", growth, growth < 2)
    what = f"opening a journal of {sizes[-1]} outcomes, s"
    report.claim(what, "< 2", opened[-1], opened[-1] < 2)


def inside_ax(report: Report, sizes: tuple[int, ...]) -> None:
    r"""Measure a trial with ``BKBNode`` and with Ax's default, and Ax's own share of it."""
    from benchmarks.peers.ax_client import client_after, seconds_a_trial
    from botorch_bkb.ax import BKBNode, bkb_generation_strategy

    generator = torch.Generator().manual_seed(0)
    X = torch.rand(max(sizes), 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(X), generator=generator, dtype=torch.float64)
    Y, bounds = objective(X) + 0.3 * noise, torch.tensor([[0.0] * 4, [1.0] * 4])
    inside, depth = [0.0], [0]

    def timed(method):
        def call(self, *args, **kwargs):
            start = time.perf_counter()
            depth[0] += 1
            try:
                return method(self, *args, **kwargs)
            finally:
                depth[0] -= 1
                if not depth[0]:  # the timed methods call each other
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
        for what, seconds in (
            ("BKBNode", ours),
            ("BKBNode: Ax's bookkeeping", own),
            ("Ax default", theirs),
        ):
            report.row("ax", n, what, "s a trial", seconds)
        what = f"Ax default over Ax with BKBNode at n={n} (without Ax's bookkeeping: "
        what += f"{(theirs - own) / (ours - own):.3g})"
        report.claim(what, "more than 1", theirs / ours, theirs > ours)


def draw(report: Report) -> None:
    r"""Plot the cost of an evaluation in a run, and of a trial in Ax, against their number."""
    panels = (
        ("journal", "ms an evaluation", "A run with a journal", "outcomes"),
        ("ax", "s a trial", "Ax, with and without BKBNode", "trials"),
    )
    with report.picture("service", 1, 2) as axes:
        for ax, (part, unit, title, counted) in zip(axes[0], panels, strict=True):
            rows = [row for row in report.rows if (row[0], row[3]) == (part, unit)]
            for what in dict.fromkeys(row[2] for row in rows):
                points = [(int(n), float(y)) for _, n, name, _, y in rows if name == what]
                ax.plot(*zip(*points, strict=True), "o-", ms=4, label=what)
            ax.set(xscale="log", yscale="log", title=title, xlabel=counted, ylabel=unit)
            ax.grid(alpha=0.3)
            ax.legend(fontsize=7)
