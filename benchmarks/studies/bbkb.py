r"""BBKB's claims: sublinear regret in a fraction of the time, in few and large batches.

The experiment is that of the paper: 10,000 pulls on Abalone and California housing ("Cadata"). The
kernel is RBF with squared width 5, and the model's noise variance is 0.2. The norm bound is 20, or
5 on Cadata, whose labels are smaller. Oversampling and batch threshold are 2, and delta is 1 / T.
The information width uses the true standard deviation of the noise (1, and 0.1 on Cadata). BKB and
GP-UCB select one arm at a time and have a fifth of the pulls on Cadata. Seconds are the optimizer's
own on one core. Two hours with two processes. Needs ``--data``.
"""

from __future__ import annotations

import itertools
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.arm_runs import Run, Setting, setting
from benchmarks.arm_runs import play as play_bandit
from benchmarks.cases import of, play_all
from benchmarks.drawing import band
from benchmarks.report import Options, Report
from botorch_bkb import BBKB, BKB, GPBUCB, GPUCB, EpsilonGreedy, MiniGPUCB
from botorch_bkb.optimizers import Optimizer

SEEDS = 10
COLUMNS = ("problem", "method", "pulls", "figure", "runs", "mean", "sd")
PROBLEMS = ("abalone 0.2", "cadata")
METHODS: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "BBKB": (BBKB, {}),
    "BBKB, oversampling 8": (BBKB, {"oversampling": 8.0}),
    "BBKB, sum rule": (BBKB, {"batch_rule": "sum"}),
    "BBKB, two sd": (BBKB, {"width": "heuristic"}),
    "BBKB, Thompson": (BBKB, {"acquisition": "thompson"}),
    "GP-BUCB": (GPBUCB, {}),
    "mini-GP-UCB": (MiniGPUCB, {}),
    "BKB": (BKB, {}),
    "GP-UCB": (GPUCB, {}),
    "epsilon-greedy": (EpsilonGreedy, {}),
}
ONE_BY_ONE = ("BKB", "GP-UCB")


class Case(NamedTuple):
    r"""The settings of one run."""

    problem: str
    method: str
    pulls: int
    horizon: int
    seed: int
    data: Path


def run(options: Options, report: Report) -> None:
    r"""Run all methods on both problems."""
    T = 100 if options.quick else 10_000
    data = options.data or Path()
    settings = {problem: setting(problem, data) for problem in PROBLEMS}
    cases = []
    for seed, problem, method in itertools.product(range(options.seeds), PROBLEMS, METHODS):
        pulls = T // 5 if method in ONE_BY_ONE and problem == "cadata" else T
        cases.append(Case(problem, method, pulls, T, seed, data))
    runs = play_all(play, Run, cases, options)
    for one in settings.values():
        record(report, one, runs, T)
        claim(report, one, runs, T)
        draw(report, one, runs, T)


@cache
def _setting(problem: str, data: Path) -> Setting:
    return setting(problem, data)


def play(case: Case) -> Run:
    r"""Run one case."""
    torch.set_default_dtype(torch.float64)
    one = _setting(case.problem, case.data)
    kind, more = METHODS[case.method]
    optimizer = one.make(kind, case.horizon, case.seed, **more)
    return play_bandit(optimizer, one.bandit, case.pulls, case.seed, time.process_time)


def regret_of_uniform(setting: Setting) -> float:
    r"""Return the mean regret per pull of a uniform policy."""
    return float(setting.bandit.f.max() - setting.bandit.f.mean())


def record(report: Report, setting: Setting, runs: dict[Case, Run], T: int) -> None:
    r"""Record the outcome of every method, also relative to the uniform policy's regret."""
    uniform = regret_of_uniform(setting)
    report.row(setting.name, "uniform policy", T, "regret", 1, uniform * T, 0.0)
    for method in METHODS:
        some = of(runs, problem=setting.name, method=method)
        pulls = int(some[0].pulls[-1])
        figures = {
            "regret": [r.regret[-1] for r in some],
            "regret over uniform": [r.regret[-1] / (uniform * pulls) for r in some],
            "seconds": [r.seconds[-1] for r in some],
            "batches": [len(r.pulls) for r in some],
            "largest batch": [r.batches.max() for r in some],
            "dictionary": [r.dictionary[-1] for r in some],
            "effective dimension": [r.dimension for r in some],
            "distinct arms": [r.distinct for r in some],
        }
        for figure, values in figures.items():
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            mean = float(np.mean(values))
            report.row(setting.name, method, pulls, figure, len(some), mean, spread)


def at(run: Run, pulls: int, values: np.ndarray) -> float:
    r"""Return the value of a curve after the batch that contains this pull."""
    return float(values[np.searchsorted(run.pulls, pulls)])


def claim(report: Report, setting: Setting, runs: dict[Case, Run], T: int) -> None:
    name = setting.name
    ours = of(runs, problem=name, method="BBKB")
    halves = [at(r, T // 2, r.regret) / at(r, T // 2, r.pulls) for r in ours]
    whole = float(np.mean([r.regret[-1] / T for r in ours]))
    ratio = whole / float(np.mean(halves))
    report.claim(f"{name}: BBKB, average regret at T over at T/2", "< 1", ratio, ratio < 1)
    share = whole / regret_of_uniform(setting)
    report.claim(f"{name}: BBKB, regret over the uniform policy's", "< 0.5", share, share < 0.5)
    for method in ONE_BY_ONE:
        theirs = of(runs, problem=name, method=method)
        t = int(theirs[0].pulls[-1])
        ratio = np.mean([r.seconds[-1] for r in theirs]) / np.mean(
            [at(r, t, r.seconds) for r in ours]
        )
        report.claim(f"{name}: seconds of {method} over BBKB's, t={t}", "> 1", ratio, ratio > 1)
    largest = float(np.mean([r.batches.max() for r in ours]))
    report.claim(f"{name}: largest batch of BBKB", ">= 1000", largest, largest >= 1000)
    ratio = float(np.mean([len(r.pulls) / r.dimension for r in ours]))
    what = f"{name}: resparsifications of BBKB over the effective dimension"
    report.claim(what, "<= 10", ratio, ratio <= 10)


def draw(report: Report, setting: Setting, runs: dict[Case, Run], T: int) -> None:
    r"""Plot relative regret, seconds, batch sizes and dictionary sizes against pulls."""
    marks = np.unique(np.geomspace(1, T, 100).astype(int))
    uniform = regret_of_uniform(setting)
    with report.picture(f"bbkb_{setting.name.split()[0]}", 2, 2, figsize=(11, 8)) as axes:
        for i, method in enumerate(METHODS):
            some = of(runs, problem=setting.name, method=method)
            reached = marks[marks <= some[0].pulls[-1]]
            curves = [
                [(at(r, t, r.regret) / (uniform * at(r, t, r.pulls)), at(r, t, r.seconds),
                  at(r, t, r.batches), at(r, t, r.dictionary)) for t in reached]
                for r in some
            ]  # fmt: skip
            for ax, values in zip(axes.flat, np.array(curves).transpose(2, 0, 1), strict=True):
                band(ax, values, method, f"C{i}", reached)
        labels = ("regret over uniform policy's", "seconds", "batch size", "dictionary")
        for ax, label in zip(axes.flat, labels, strict=True):
            ax.set(xscale="log", yscale="log", xlabel="pulls", ylabel=label, title=setting.name)
            ax.grid(alpha=0.3)
        axes[0, 0].legend(fontsize=9)
