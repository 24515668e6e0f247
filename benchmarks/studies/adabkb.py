r"""Ada-BKB's claims: sublinear regret over a box, in a fraction of a fine grid's time.

The functions and settings are those of the study ``continuous``, whose runs are reused from the
cache. The methods are Ada-BKB with the kernel-metric radius and with the paper's radius, its
batched form, and its form with an exact posterior (AdaGP-UCB). They are compared with exact GP-UCB
and BKB on a grid of 2,000 points. Further parts have kernel and noise given. They compare radii,
the cost of a step up to 2,000 evaluations with the complexity that the paper states, and Ada-BKB
with BKB on a grid of the resolution that its tree reaches. The last one counts the runs in which
the certificate holds.
"""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.box_runs import Case, Run, play, with_optimizer
from benchmarks.cases import of, play_all
from benchmarks.drawing import band
from benchmarks.machine import in_a_process
from benchmarks.problems.functions import FUNCTIONS, grid
from benchmarks.report import Options, Report
from benchmarks.studies import continuous
from benchmarks.tree_runs import GROWING, RADII, Step, branin, certified, growth, with_radius
from botorch_bkb import BKB, AdaBKB, AdaGPUCB

SEEDS = 10
COLUMNS = continuous.COLUMNS
TREES = ("AdaBKB", "AdaBKB (1, 1/2)", "AdaBBKB", "AdaGP-UCB")
OTHERS = ("exact GP-UCB", "BKB on a grid")


def run(options: Options, report: Report) -> None:
    r"""Compare the tree methods with the methods that they replace."""
    length = 6 if options.quick else 200
    every = itertools.product(range(options.seeds), FUNCTIONS, TREES + OTHERS)
    cases = [Case(function, method, length, seed) for seed, function, method in every]
    runs = play_all(play, Run, cases, options)
    continuous.record(runs, report)
    claim_regret(runs, report)
    claim_radii(5 if options.quick else 300, report)
    costs = claim_growth((3, 4, 5, 6) if options.quick else (250, 500, 1000, 2000), report)
    claim_resolution(5 if options.quick else 300, report)
    claim_certificate(2 if options.quick else 10, 5 if options.quick else 40, report)
    draw(runs, costs, report)


def claim_regret(runs: dict[Case, Run], report: Report) -> None:
    r"""Sublinear regret, and that of GP-UCB in a fraction of its time."""
    for function, method in itertools.product(("Branin", "Hartmann6"), TREES[:2]):
        some = of(runs, function=function, method=method)
        half, whole = (
            np.median([r.regret[: len(r.regret) // part].mean() for r in some]) for part in (2, 1)
        )
        what = f"{function}: {method}, average regret at T over at T/2"
        report.claim(what, "< 0.8", whole / half, whole < 0.8 * half)
    for function in FUNCTIONS:
        ours, theirs = (of(runs, function=function, method=m) for m in ("AdaBKB", "exact GP-UCB"))
        regret = np.median([r.regret.mean() for r in ours])
        ratio = regret / np.median([r.regret.mean() for r in theirs])
        report.claim(
            f"{function}: AdaBKB's average regret over GP-UCB's", "<= 1.1", ratio, ratio <= 1.1
        )
        seconds = np.median([r.seconds[-1] for r in ours])
        ratio = seconds / np.median([r.seconds[-1] for r in theirs])
        report.claim(f"{function}: AdaBKB's seconds over GP-UCB's", "< 1", ratio, ratio < 1)


def claim_radii(budget: int, report: Report) -> None:
    r"""The size of the tree and the cost of a step, with different radii."""
    for name in RADII:
        step = in_a_process(with_radius, name, budget)
        record_step(f"AdaBKB, radius {name}", step, report)
        if name != "kernel":
            what = f"Branin, kernel given: leaves kept with radius {name}"
            report.claim(what, "<= 30", step.leaves, step.leaves <= 30)


def claim_growth(times: tuple[int, ...], report: Report) -> dict[str, list[Step]]:
    r"""The cost of a step as results accumulate, and what the complexity of the paper allows.

    In all ``T^2 d_eff^2`` for Ada-BKB and ``T^4`` for AdaGP-UCB: a step may grow like ``t`` and
    ``t^3``.
    """
    costs = {name: in_a_process(growth, name, times) for name in GROWING}
    for name, found in costs.items():
        for step in found:
            record_step(name, step, report)
    span = times[-1] / times[1]
    for name, power in (("AdaBKB", 1), ("AdaGPUCB", 3)):
        found = costs[name]
        ratio = found[-1].seconds / found[1].seconds
        what = f"Branin: {name}'s step at t = {times[-1]} over at {times[1]}"
        report.claim(what, f"<= {span**power:g} (t^{power})", ratio, ratio <= span**power)
    exact, sampled = costs["AdaGPUCB"][-1], costs["AdaBKB"][-1]
    ratio = exact.seconds / sampled.seconds
    what = f"Branin: AdaGPUCB's step at t = {times[-1]} over AdaBKB's"
    report.claim(what, "> 1", ratio, ratio > 1)
    ratio = sampled.regret / exact.regret
    what = f"Branin: AdaBKB's cumulative regret at t = {times[-1]} over AdaGPUCB's"
    report.claim(what, "<= 1.1", ratio, ratio <= 1.1)
    return costs


def record_step(name: str, step: Step, report: Report) -> None:
    r"""Record all figures of a step."""
    for figure, value in (
        ("milliseconds of a step", 1e3 * step.seconds),
        ("cumulative regret", step.regret),
        ("dictionary", float(step.dictionary)),
        ("cells", float(step.leaves)),
        ("cells pruned", float(step.pruned)),
    ):
        report.row("Branin given kernel", name, f"{figure}, t = {step.t}", 1, value, "", "")


def claim_resolution(budget: int, report: Report) -> None:
    r"""The time of a grid of the resolution that the tree reaches."""
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


def against_a_grid(budget: int) -> tuple[Run, Run, int]:
    r"""Run Ada-BKB on Branin, then BKB on a grid of the resolution that the tree reached."""
    problem, given = branin()
    ada = AdaBKB(bounds=problem.bounds, **given)
    ours = with_optimizer(lambda b, seed: ada)(problem, budget, 0)
    arms = grid(problem.bounds, int(3 ** ada.tree.depth.max()))
    theirs = with_optimizer(lambda b, seed: BKB(arms, **given))(problem, budget, 0)
    return ours, theirs, len(arms)


def claim_certificate(count: int, budget: int, report: Report) -> None:
    r"""The gap bounds the regret of the recommendation with probability ``1 - delta = 0.9``."""
    for kind in (AdaBKB, AdaGPUCB):
        share = np.mean([certified(kind, seed, budget) for seed in range(count)])
        what = f"{kind.__name__}, width of the theorem: runs in which gap() bounds the regret"
        report.claim(what, ">= 0.9", float(share), share >= 0.9)


def draw(runs: dict[Case, Run], costs: dict[str, list[Step]], report: Report) -> None:
    r"""Plot cumulative regret and seconds for each function, and the cost of a step."""
    with report.picture("adabkb", 5, 3, figsize=(12, 16)) as axes:
        for place, function in enumerate(FUNCTIONS):
            row, column = divmod(place, 3)
            regret, seconds = axes[2 * row : 2 * row + 2, column]
            for i, method in enumerate(TREES + OTHERS):
                some = of(runs, function=function, method=method)
                band(regret, np.stack([np.cumsum(r.regret) for r in some]), method, f"C{i}")
                band(seconds, np.stack([r.seconds for r in some]).clip(1e-2), method, f"C{i}")
            regret.set(title=function, ylabel="cumulative regret", xlabel="evaluations")
            seconds.set(yscale="log", ylabel="seconds", xlabel="evaluations")
        draw_costs(axes[4], costs)
        for ax in axes.flat:
            ax.grid(alpha=0.3)
        handles = axes[0, 0].get_legend_handles_labels()
        axes[0, 0].figure.legend(*handles, loc="outside upper center", ncols=len(TREES + OTHERS))


def draw_costs(axes: np.ndarray, costs: dict[str, list[Step]]) -> None:
    r"""Plot the milliseconds of a step, the dictionary and the leaves against time."""
    figures = {
        "milliseconds per step": lambda step: 1e3 * step.seconds,
        "dictionary": lambda step: step.dictionary,
        "leaves or arms": lambda step: step.leaves,
    }
    for ax, (label, figure) in zip(axes, figures.items(), strict=True):
        for name, marker in zip(costs, "os^", strict=True):
            found = costs[name]
            ax.plot([s.t for s in found], [figure(s) for s in found], f"{marker}-", label=name)
        ax.set(xscale="log", yscale="log", xlabel="evaluations", ylabel=label)
        ax.set_xticks([step.t for step in found], [f"{step.t:,}" for step in found], minor=False)
        ax.set_xticks([], minor=True)
        ax.set_title("Branin, kernel given")
    axes[0].legend(fontsize=8)
