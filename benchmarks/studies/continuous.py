r"""Regret over a box: BKB, BBKB and Ada-BKB against exact GP-UCB, qLogNEI, a grid and Sobol.

The problems are noisy test functions of BoTorch, in units of their standard deviation over the box.
The noise is 0.1 of these units, and a run has 200 evaluations. All optimizers use upper bounds of
two standard deviations and otherwise their defaults, with fitted hyperparameters. Seconds are those
of one core. About 70 minutes with two processes. QFF-UCB and QFF-TS have quadrature Fourier
features in place of a dictionary (Mutny and Krause 2018). They run in at most three dimensions,
also on two functions of one and three dimensions, which are not plotted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.box_runs import METHODS, QLOGNEI, Case, Run, play
from benchmarks.cases import of, play_all
from benchmarks.drawing import band
from benchmarks.problems.functions import FEW, FUNCTIONS
from benchmarks.report import Options, Report

SEEDS = 10
COLUMNS = ("function", "method", "figure", "runs", "median", "tenth", "ninetieth")
#: Functions on which the slow method, qLogNEI, is run.
SLOW = ("Branin", "Hartmann6")
#: A method that only the study ``adabkb`` runs.
ELSEWHERE = "AdaGP-UCB"
#: Methods for few dimensions, and the functions on which they are run.
FEATURES = ("QFF-UCB", "QFF-TS")
SMALL = ("Branin", "Rosenbrock", *FEW)
#: The methods that they are compared with on functions that are not plotted.
RIVALS = ("BKB", "exact GP-UCB")


def run(options: Options, report: Report) -> None:
    r"""Run all methods on all functions."""
    steps = 6 if options.quick else 200
    runs = play_all(play, Run, list(cases(options.seeds, steps)), options)
    record(runs, report)
    claims(runs, report)
    draw(runs, report)


def cases(seeds: int, steps: int) -> Iterator[Case]:
    for seed, function, method in itertools.product(range(seeds), (*FUNCTIONS, *FEW), METHODS):
        if method in FEATURES or function in FEW:
            is_run = function in SMALL and method in FEATURES + RIVALS
        else:
            is_run = method != ELSEWHERE and (method != QLOGNEI or function in SLOW)
        if is_run:
            yield Case(function, method, steps, seed)


def record(runs: dict[Case, Run], report: Report) -> None:
    r"""Record medians and quantiles of the figures at the end of the runs."""
    for function, method in itertools.product((*FUNCTIONS, *FEW), METHODS):
        some = of(runs, function=function, method=method)
        figures = {
            "simple regret": [r.simple[-1] for r in some],
            "average regret at half time": [r.regret[: len(r.regret) // 2].mean() for r in some],
            "average regret": [r.regret.mean() for r in some],
            "seconds": [r.seconds[-1] for r in some],
            "cells": [r.cells for r in some],
        }
        absent = {"seconds"} if method == "Sobol" else set()
        if "Ada" not in method:
            absent.add("cells")
        for figure, values in figures.items():
            if some and figure not in absent:
                low, median, high = map(float, np.quantile(values, [0.1, 0.5, 0.9]))
                report.row(function, method, figure, len(some), median, low, high)


def claims(runs: dict[Case, Run], report: Report) -> None:
    def final(function: str, method: str) -> np.ndarray:
        return np.array([r.simple[-1] for r in of(runs, function=function, method=method)])

    for function, method in itertools.product(SLOW, ("BKB", "BBKB")):
        ours, worst = np.median(final(function, method)), final(function, QLOGNEI).max()
        what = f"{function}: median simple regret of {method}, worst of qLogNEI's {worst:.3g}"
        report.claim(what, "within its spread", ours, ours <= worst)
    for function, method in itertools.product(FUNCTIONS, ("BKB", "BBKB")):
        ours, theirs = (np.median(final(function, m)) for m in (method, "Sobol"))
        what = f"{function}: median simple regret of {method} over Sobol's"
        report.claim(what, "< 1", ours / theirs, ours < theirs)
    for function, method in itertools.product(SMALL, FEATURES):
        ours, worst = np.median(final(function, method)), final(function, "exact GP-UCB").max()
        what = f"{function}: median simple regret of {method}, worst of exact GP-UCB's {worst:.3g}"
        report.claim(what, "within its spread", ours, ours <= worst)


def draw(runs: dict[Case, Run], report: Report) -> None:
    r"""Plot simple regret, cumulative regret and seconds, one column per function."""
    names = list(FUNCTIONS)
    for number, functions in enumerate((names[:3], names[3:]), 1):
        with report.picture(f"continuous_{number}", 3, 3, figsize=(12, 10)) as axes:
            for column, function in enumerate(functions):
                draw_function(axes[:, column], runs, function)
            methods = [label for label in METHODS if label != ELSEWHERE]
            lines = [axes[0, 0].plot([], [], color=color(m), label=m)[0] for m in methods]
            axes[0, 0].figure.legend(handles=lines, loc="outside upper center", ncols=5)


def color(method: str) -> str:
    place = list(METHODS).index(method)
    return f"C{place}" if place < 10 else ("k", "0.6")[place - 10]


def draw_function(axes: np.ndarray, runs: dict[Case, Run], function: str) -> None:
    r"""Plot one function. Simple regret is clipped at 1e-4, since the axes are logarithmic."""
    for method in METHODS:
        some = of(runs, function=function, method=method)
        if not some:
            continue
        curves = [
            np.stack([r.simple for r in some]).clip(1e-4),
            np.stack([np.cumsum(r.regret) for r in some]).clip(1e-2),
            np.stack([r.seconds for r in some]).clip(1e-2),
        ]
        for ax, values in zip(axes, curves[: 2 if method == "Sobol" else 3], strict=False):
            band(ax, values, method, color(method))
    axes[0].set_title(function)
    for ax, label in zip(axes, ("simple regret", "cumulative regret", "seconds"), strict=True):
        ax.set(yscale="log", xlabel="evaluations", ylabel=label)
        ax.grid(alpha=0.3)
