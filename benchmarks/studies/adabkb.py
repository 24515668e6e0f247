r"""Ada-BKB's claims: sublinear regret over a box, in a fraction of a fine grid's time.

The functions and settings are those of the study ``continuous``, whose runs are reused from the
cache. The methods are Ada-BKB with the kernel-metric radius and with the paper's radius, its
batched form, and its form with an exact posterior (AdaGP-UCB). They are compared with exact GP-UCB
and BKB on a grid of 2,000 points. A second part runs Ada-BKB on Branin with kernel and noise given.
There it is compared with BKB on a grid of the resolution that the tree reaches.
"""

from __future__ import annotations

import itertools

import numpy as np
from gpytorch.kernels import RBFKernel

from benchmarks.box_runs import Case, Run, play, with_optimizer
from benchmarks.cases import of, play_all
from benchmarks.drawing import band
from benchmarks.machine import in_a_process
from benchmarks.problems.functions import FUNCTIONS, Problem, grid
from benchmarks.report import Options, Report
from benchmarks.studies import continuous
from botorch_bkb import BKB, AdaBKB

SEEDS = 10
COLUMNS = continuous.COLUMNS
TREES = ("AdaBKB", "AdaBKB (1, 1/2)", "AdaBBKB", "AdaGP-UCB")
OTHERS = ("exact GP-UCB", "BKB on a grid")


def run(options: Options, report: Report) -> None:
    r"""Compare the tree methods with the methods that they replace."""
    steps = 12 if options.quick else 200
    every = itertools.product(range(options.seeds), FUNCTIONS, TREES + OTHERS)
    cases = [Case(function, method, steps, seed) for seed, function, method in every]
    runs = play_all(play, Run, cases, options)
    continuous.record(runs, report)
    for function, method in itertools.product(("Branin", "Hartmann6"), TREES[:2]):
        some = of(runs, function=function, method=method)
        half, whole = (
            np.median([r.regret[: len(r.regret) // part].mean() for r in some]) for part in (2, 1)
        )
        what = f"{function}: {method}, average regret at T over at T/2"
        report.claim(what, "< 0.8", whole / half, whole < 0.8 * half)
    budget = 10 if options.quick else 300
    ada, on_grid, size = in_a_process(against_a_grid, budget)
    for name, one in (("AdaBKB", ada), (f"BKB on {size} cells", on_grid)):
        for figure, value in (
            (f"seconds of {budget} evaluations", one.seconds[-1]),
            ("cumulative regret", one.regret.sum()),
            ("cells", float(one.cells)),
        ):
            report.row("Branin given kernel", name, figure, 1, float(value), "", "")
    ratio = on_grid.seconds[-1] / ada.seconds[-1]
    what = f"Branin: BKB on {size} cells over AdaBKB ({ada.cells} cells), seconds"
    report.claim(what, ">= 10", ratio, ratio >= 10)
    draw(runs, report)


def against_a_grid(budget: int) -> tuple[Run, Run, int]:
    r"""Run Ada-BKB on Branin, then BKB on a grid of the resolution that the tree reached.

    Kernel and noise are given. The noise is small, so that a high resolution is worthwhile.
    """
    problem = Problem("Branin", noise=0.01)
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = 0.3 * (problem.bounds[1] - problem.bounds[0])
    given = {"covar_module": kernel, "noise_var": problem.noise**2, "width": 2.0, "seed": 0}
    ada = AdaBKB(bounds=problem.bounds, **given)
    ours = with_optimizer(lambda b, seed: ada)(problem, budget, 0)
    arms = grid(problem.bounds, int(3 ** ada.tree.depth.max()))
    theirs = with_optimizer(lambda b, seed: BKB(arms, **given))(problem, budget, 0)
    return ours, theirs, len(arms)


def draw(runs: dict[Case, Run], report: Report) -> None:
    r"""Plot cumulative regret and seconds against evaluations, for each function."""
    with report.picture("adabkb", 4, 3, figsize=(12, 13)) as axes:
        for place, function in enumerate(FUNCTIONS):
            row, column = divmod(place, 3)
            regret, seconds = axes[2 * row : 2 * row + 2, column]
            for i, method in enumerate(TREES + OTHERS):
                some = of(runs, function=function, method=method)
                band(regret, np.stack([np.cumsum(r.regret) for r in some]), method, f"C{i}")
                band(seconds, np.stack([r.seconds for r in some]).clip(1e-2), method, f"C{i}")
            regret.set(title=function, ylabel="cumulative regret")
            seconds.set(yscale="log", ylabel="seconds")
        for ax in axes.flat:
            ax.set_xlabel("evaluations")
            ax.grid(alpha=0.3)
        handles = axes[0, 0].get_legend_handles_labels()
        axes[0, 0].figure.legend(*handles, loc="outside upper center", ncols=len(TREES + OTHERS))
