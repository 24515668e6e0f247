r"""How wide bounds with a guarantee are, and what they cost in regret.

The problems are those of the study ``trade-off`` with given kernel and noise: 4,000 generated arms
in two and six dimensions, noise of 0.1 and of 1, in units of the standard deviation of the
function over the arms. The function is a sum of bumps, each a kernel function, so its norm is
known. Unlike there its mean is not subtracted, since a constant has no known norm. With ``--data``
there is also Abalone as in the BBKB paper, with the paper's norm bound of 20, which nobody has
proved. BBKB and BKB run with two standard deviations, the information width, the anytime bound
(``"theory"``) and the papers' bounds, at the default oversampling, and the papers' bounds also at
the theorem's oversampling. An interval fails if at some batch it misses the function at some arm.
About an hour with two processes.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.arm_runs import setting
from benchmarks.cases import of, play_all
from benchmarks.curves import COLORS
from benchmarks.problems.bandits import Bandit, bumps, rbf
from benchmarks.report import Options, Report
from botorch_bkb import BBKB, BKB
from botorch_bkb.optimizers import Optimizer

SEEDS, DELTA = 3, 0.1
COLUMNS = ("algorithm", "width", "problem", "pulls", "figure", "runs", "mean", "sd")
GENERATED = {f"d={d} noise {s:g}": (d, s) for d, s in itertools.product((2, 6), (0.1, 1.0))}
TABLE = "abalone 0.2"
FRESH = {"oversampling": "theory", "coupled": False}
#: Widths, with the optimizer's arguments.
WIDTHS: dict[str, dict[str, Any]] = {
    "two sd": {"width": 2.0},
    "information": {"width": "information"},
    "anytime": {"width": "theory"},
    "paper": {"width": "paper"},
    "paper, oversampling of the theorem": {"width": "paper", **FRESH},
}
#: Widths with a guarantee.
PROVED = ("anytime", "paper, oversampling of the theorem")
ALGORITHMS: dict[str, type[Optimizer]] = {"BBKB": BBKB, "BKB": BKB}


class Case(NamedTuple):
    r"""The settings of one run."""

    algorithm: str
    width: str
    problem: str
    pulls: int
    seed: int
    data: str = ""


class Run(NamedTuple):
    r"""The outcome of one run at several numbers of pulls."""

    pulls: np.ndarray
    width: np.ndarray  #: standard deviations
    regret: np.ndarray  #: mean regret so far, divided by the uniform policy's
    missed: int  #: batches at which some arm was outside of its interval
    seconds: float


def run(options: Options, report: Report) -> None:
    r"""Run all widths on all problems."""
    problems = [*GENERATED, *([TABLE] if options.data else [])]
    if options.quick:
        problems = problems[:1]
    cases = [
        Case(
            name,
            width,
            problem,
            20 if options.quick else num_pulls(name, problem),
            seed,
            str(options.data) if problem == TABLE else "",
        )
        for seed, problem, width, name in itertools.product(
            range(options.seeds), problems, WIDTHS, ALGORITHMS
        )
    ]
    runs = play_all(play, Run, cases, options)
    for name, width, problem in dict.fromkeys(case[:3] for case in runs):
        record(report, name, width, problem, of(runs, algorithm=name, width=width, problem=problem))
    claims(report, runs)
    draw(report, runs, problems)


def num_pulls(algorithm: str, problem: str) -> int:
    r"""Return the number of pulls.

    BKB draws a dictionary at every pull and has fewer. In six dimensions with little noise wide
    bounds pull nearly every arm, and the dictionary has thousands of points.
    """
    return 1000 if algorithm == "BKB" or problem == "d=6 noise 0.1" else 10_000


def problem_of(case: Case) -> tuple[Bandit, dict[str, Any]]:
    r"""Return the arms of a case, with kernel, noise variance and norm bound."""
    if case.data:
        table = setting(case.problem, Path(case.data))
        return table.bandit, {**table.model, **table.bounds(case.pulls)}
    dim, noise = GENERATED[case.problem]
    bandit, norm = bumps(4000, dim, noise, case.seed)
    scale = bandit.f.std()
    known = {"covar_module": rbf(0.25), "noise_var": noise**2, "delta": DELTA}
    return bandit._replace(f=bandit.f / scale), {**known, "norm_bound": norm / float(scale)}


def play(case: Case) -> Run:
    r"""Run one case, with a look at all intervals after every batch."""
    torch.set_default_dtype(torch.float64)
    bandit, known = problem_of(case)
    more = dict(WIDTHS[case.width])
    if more["width"] == 2.0:
        known = {name: known[name] for name in ("covar_module", "noise_var")}
    if more.get("oversampling") == "theory":
        more["horizon"] = case.pulls
    optimizer = ALGORITHMS[case.algorithm](bandit.arms, seed=case.seed, **known, **more)
    generator = torch.Generator().manual_seed(case.seed)
    uniform = float(bandit.f.max() - bandit.f.mean())
    seconds, regret, missed, curve = 0.0, 0.0, 0, []
    while (left := case.pulls - optimizer.num_observations) > 0:
        start = time.process_time()
        suggestion = optimizer.ask(at_most=left)
        width = optimizer.width_now
        optimizer.tell(suggestion, bandit.rewards(suggestion.indices, generator))
        seconds += time.process_time() - start
        regret += float(bandit.regret(suggestion.indices).sum())
        t = optimizer.num_observations
        curve.append((t, width, regret / t / uniform))
        mean, var = optimizer.table.moments()
        outside = (bandit.f - mean).abs() > optimizer.width_now * var.sqrt() * (1 + 1e-9)
        missed += bool(outside.any())
    pulls, widths, regrets = (np.array(column) for column in zip(*curve, strict=True))
    return Run(pulls, widths, regrets, missed, seconds)


def at(run: Run, pulls: int, values: np.ndarray) -> float:
    r"""Return a value after the batch that contains this pull."""
    return float(values[min(np.searchsorted(run.pulls, pulls), len(values) - 1)])


def marks(run: Run) -> list[int]:
    r"""Return the powers of ten up to the end of a run."""
    return [t for t in (10, 100, 1000, 10_000) if t <= run.pulls[-1]] or [int(run.pulls[-1])]


def record(report: Report, name: str, width: str, problem: str, runs: list[Run]) -> None:
    r"""Record width and regret at powers of ten, and at the end seconds and failures."""
    for t in marks(runs[0]):
        for figure in ("width", "regret"):
            values = [at(r, t, getattr(r, figure)) for r in runs]
            mean, sd = float(np.mean(values)), float(np.std(values))
            report.row(name, width, problem, t, figure, len(runs), mean, sd)
    T = int(runs[0].pulls[-1])
    for figure in ("missed", "seconds"):
        values = [float(getattr(r, figure)) for r in runs]
        mean, sd = float(np.mean(values)), float(np.std(values))
        report.row(name, width, problem, T, figure, len(runs), mean, sd)


def claims(report: Report, runs: dict[Case, Run]) -> None:
    r"""Compare the anytime bound with the papers', and check that guarantees hold."""
    for width in PROVED:
        # Nobody knows the norm of Abalone's labels.
        known = [r.missed > 0 for case, r in runs.items() if case.width == width and not case.data]
        share = float(np.mean(known))
        report.claim(
            f"{width}: share of runs with a missed interval", "<= 0.1", share, share <= 0.1
        )
    for name, problem in dict.fromkeys((case.algorithm, case.problem) for case in runs):
        some = {w: of(runs, algorithm=name, width=w, problem=problem) for w in WIDTHS}
        T = int(some["anytime"][0].pulls[-1])
        for other in ("paper", "paper, oversampling of the theorem"):
            for figure in ("width", "regret"):
                ratios = [
                    at(a, t, getattr(a, figure)) / at(b, t, getattr(b, figure))
                    for a, b in zip(some["anytime"], some[other], strict=True)
                    for t in (marks(a) if figure == "width" else [T])
                ]
                worst = max(ratios) if figure == "width" else float(np.mean(ratios))
                what = f"{name}, {problem}: {figure} of the anytime bound over {other}"
                report.claim(what, "<= 1", worst, worst <= 1)


def draw(report: Report, runs: dict[Case, Run], problems: list[str]) -> None:
    r"""Plot widths and regrets of BBKB against pulls, one column per problem."""
    size = (3.2 * len(problems) + 2, 6.5)
    with report.picture("widths", 2, len(problems), figsize=size) as axes:
        for column, problem in zip(axes.T, problems, strict=True):
            for color, width in zip(COLORS, WIDTHS, strict=False):
                one = of(runs, algorithm="BBKB", width=width, problem=problem, seed=0)[0]
                for ax, values in zip(column, (one.width, one.regret), strict=True):
                    ax.plot(one.pulls, values, color=color, label=width)
                    ax.set(xscale="log", yscale="log", xlabel="pulls")
                    ax.grid(alpha=0.3)
            column[0].set(title=problem)
        axes[0, 0].set(ylabel="width in standard deviations")
        axes[1, 0].set(ylabel="regret over uniform policy's")
        axes[0, 0].legend(fontsize=8)
