r"""Regret and wall clock of BBKB with 1, 8 and 64 workers, kept busy or not.

The functions are noisy test functions of BoTorch. An evaluation takes a third of a second on
average, with a log-normal factor, so that some take several times as long as others. The workers
are threads that wait. All runs have as many evaluations. BBKB has all defaults, and is run batch by
batch and asynchronously. Workers that its rule leaves idle get points beyond the rule
(``keep_busy=True``, the default), or wait. Busy is the share of the workers' time that is spent in
evaluations. Seven minutes with six processes: they mostly wait.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from torch import Tensor

from benchmarks.cases import of, play_all
from benchmarks.problems.functions import Problem
from benchmarks.report import Options, Report
from botorch_bkb import BBKB
from botorch_bkb import run as run_all

SEEDS = 5
COLUMNS = ("function", "workers", "mode", "figure", "runs", "mean", "sd")
NAMES = ("Branin", "Hartmann6", "Ackley5")
WORKERS = (1, 8, 64)
MODES = ("batches, idle", "batches, busy", "asynchronous, idle", "asynchronous, busy")
#: Mean seconds of an evaluation, and the spread of their logarithms.
SECONDS, SPREAD = 1 / 3, 0.5
FIGURES = ("simple regret", "average regret", "seconds", "busy")


class Case(NamedTuple):
    r"""One run."""

    function: str
    workers: int
    mode: str
    budget: int
    seed: int


class Run(NamedTuple):
    r"""The outcome of one run."""

    simple: float
    average: float
    seconds: float
    busy: float


class Evaluation:
    r"""A noisy function that takes its time, for threads.

    Args:
        problem: The function.
        seed: Seed of noise and durations.
        seconds: Mean seconds of an evaluation.
    """

    def __init__(self, problem: Problem, seed: int, seconds: float) -> None:
        self.problem, self.seconds, self.busy = problem, seconds, 0.0
        self._random, self._lock = random.Random(seed), threading.Lock()

    def __call__(self, x: Tensor) -> float:
        r"""Return a noisy value of a point."""
        with self._lock:
            noise = self.problem.noise * self._random.gauss(0, 1)
            factor = math.exp(SPREAD * self._random.gauss(0, 1) - SPREAD**2 / 2)
            self.busy += self.seconds * factor
        threading.Event().wait(self.seconds * factor)
        return float(self.problem.value(x.unsqueeze(0))) + noise


def run(options: Options, report: Report) -> None:
    r"""Run all modes, and compare those that keep workers busy with those that do not."""
    budget, seeds = (12, 1) if options.quick else (192, options.seeds)
    names, workers = (NAMES[:1], (1, 4)) if options.quick else (NAMES, WORKERS)
    cases = [
        Case(function, count, mode, budget, seed)
        for seed, function, count, mode in itertools.product(range(seeds), names, workers, MODES)
        if count > 1 or mode.endswith("busy")
    ]
    runs = play_all(play, Run, cases, options)
    for function, count, mode in dict.fromkeys(case[:3] for case in cases):
        some = of(runs, function=function, workers=count, mode=mode)
        for figure, values in zip(FIGURES, zip(*some, strict=True), strict=True):
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            report.row(function, count, mode, figure, len(some), float(np.mean(values)), spread)
    claim(runs, names, workers, report)
    draw(runs, names, workers, report)


def play(case: Case) -> Run:
    r"""Run one case."""
    problem = Problem(case.function)
    objective = Evaluation(problem, case.seed, SECONDS if case.budget > 12 else 0.01)
    start = time.perf_counter()
    with ThreadPoolExecutor(case.workers) as executor:
        result = run_all(
            BBKB(bounds=problem.bounds, seed=case.seed),
            objective,
            budget=case.budget,
            executor=executor,
            progress=False,
            asynchronous=case.mode.startswith("asynchronous"),
            keep_busy=case.mode.endswith("busy"),
        )
    seconds = time.perf_counter() - start
    assert result.best is not None
    regret = problem.best - problem.value(result.X)
    simple = problem.best - float(problem.value(result.best.X.unsqueeze(0)))
    return Run(simple, float(regret.mean()), seconds, objective.busy / (case.workers * seconds))


def average(runs: dict[Case, Run], field: str, **which: object) -> float:
    r"""Return the geometric mean of a figure."""
    return float(np.exp(np.mean([np.log(max(1e-4, getattr(r, field))) for r in of(runs, **which)])))


def claim(
    runs: dict[Case, Run], names: tuple[str, ...], workers: tuple[int, ...], report: Report
) -> None:
    r"""Compare wall clock and regret of workers that are kept busy, and that may be idle."""
    for count, how in itertools.product(workers[1:], ("batches", "asynchronous")):
        busy, idle = ({"workers": count, "mode": f"{how}, {m}"} for m in ("busy", "idle"))
        ratio = average(runs, "seconds", **busy) / average(runs, "seconds", **idle)
        what = f"{count} workers, {how}: seconds, kept busy over idle"
        report.claim(what, "< 1", ratio, ratio < 1)
        for field, what in (("simple", "simple regret"), ("average", "average regret")):
            ratio = average(runs, field, **busy) / average(runs, field, **idle)
            what = f"{count} workers, {how}: {what}, kept busy over idle"
            report.claim(what, "<= 2", ratio, ratio <= 2)


def draw(
    runs: dict[Case, Run], names: tuple[str, ...], workers: tuple[int, ...], report: Report
) -> None:
    r"""Plot regret against wall clock, one point for each number of workers and mode."""
    with report.picture("workers", 1, len(names)) as axes:
        for ax, function in zip(axes[0], names, strict=True):
            for i, mode in enumerate(MODES):
                points = [
                    [average(runs, field, function=function, workers=count, mode=mode)
                     for field in ("seconds", "simple")] + [count]
                    for count in workers if count > 1 or mode.endswith("busy")
                ]  # fmt: skip
                x, y, counts = zip(*points, strict=True)
                ax.plot(x, y, "o-" if mode.endswith("busy") else "s--", color=f"C{i}", label=mode)
                for place in zip(x, y, counts, strict=True):
                    ax.annotate(str(place[2]), place[:2], xytext=(3, 3), textcoords="offset points")
            ax.set(title=function, xscale="log", yscale="log", xlabel="seconds")
            ax.set_ylabel("simple regret")
            ax.grid(alpha=0.3)
        handles = axes[0, 0].get_legend_handles_labels()
        axes[0, 0].figure.legend(*handles, loc="outside upper center", ncols=len(MODES))
