r"""BBKB's claims: sublinear regret in a fraction of the time, in few and large batches.

The experiment is that of the paper: 10,000 pulls on Abalone and California housing ("Cadata"). The
kernel is RBF with squared width 5, and the model's noise variance is 0.2. Oversampling and batch
threshold are 2, and delta is 1 / T. The paper does not say how features are scaled, nor how large
the noise is. Two readings are run. In the first, features are standardised, and the norm bound is
20, or 5 on Cadata, whose labels are smaller. In the second ("[0,1]") features are scaled to [0, 1],
and the norm bound is the printed 20. The standard deviation of the noise is 1, and 0.1 on Cadata.
The information width uses it. The width of Theorem 2 is run with the theorem's oversampling, and
the batches of BBKB by the sum rule and by the local rule. BKB and GP-UCB select one arm at a time.
They have a fifth of the pulls on Cadata, and so has the theorem's width on standardised features.
The regret of that fifth is also recorded for both widths. BKB, GP-UCB, GP-BUCB and the anytime
bound have three seeds. Seconds are the optimizer's own on one core. Needs ``--data``.
"""

from __future__ import annotations

import itertools
import re
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.arm_runs import OVERSAMPLING, Run, Setting, setting
from benchmarks.arm_runs import play as play_bandit
from benchmarks.cases import of, play_all
from benchmarks.curves import COLORS
from benchmarks.drawing import band
from benchmarks.report import Options, Report
from botorch_bkb import BBKB, BKB, GPBUCB, GPUCB, EpsilonGreedy, MiniGPUCB, confidence
from botorch_bkb.optimizers import Optimizer

SEEDS, BATCH_THRESHOLD = 10, 2.0
COLUMNS = ("problem", "method", "pulls", "figure", "runs", "mean", "sd")
#: Names of the problems here and in ``arm_runs``.
PROBLEMS = {
    "abalone": "abalone 0.2",
    "abalone [0,1]": "abalone [0,1]",
    "cadata": "cadata",
    "cadata [0,1]": "cadata [0,1]",
}
METHODS: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "BBKB, sum": (BBKB, {"batch_rule": "sum"}),
    "BBKB, local": (BBKB, {"batch_rule": "local"}),
    "BBKB, oversampling 8": (BBKB, {"oversampling": 8.0}),
    "BBKB, two sd": (BBKB, {"width": "heuristic"}),
    "BBKB, anytime": (BBKB, {"width": "theory", "batch_rule": "sum"}),
    "BBKB, Theorem 2": (
        BBKB,
        {"width": "paper", "oversampling": "theory", "coupled": False, "batch_rule": "sum"},
    ),
    "BBKB, Thompson": (BBKB, {"acquisition": "thompson"}),
    "GP-BUCB": (GPBUCB, {}),
    "mini-GP-UCB": (MiniGPUCB, {}),
    "BKB": (BKB, {}),
    "GP-UCB": (GPUCB, {}),
    "epsilon-greedy": (EpsilonGreedy, {}),
}
#: The batch rules of BBKB, for which the paper's claims are checked.
OURS = ("BBKB, sum", "BBKB, local")
ONE_BY_ONE = ("BKB", "GP-UCB")
#: Methods that have a fifth of the pulls. With the theorem's oversampling every arm that was pulled
#: is in the dictionary.
SLOW = {"cadata": (*ONE_BY_ONE, "BBKB, Theorem 2"), "cadata [0,1]": ONE_BY_ONE}
#: Methods of which the regret of this fifth is recorded, too: the two widths.
COMPARED = ("BBKB, local", "BBKB, Theorem 2")
#: Methods with three seeds. They take minutes per run on Cadata.
FEW_SEEDS = {*ONE_BY_ONE, "GP-BUCB", "BBKB, anytime"}
#: The largest batch in the paper (section 4).
LARGEST = {"abalone": 3700, "cadata": 3900}


class Case(NamedTuple):
    r"""The settings of one run."""

    problem: str
    method: str
    pulls: int
    horizon: int
    seed: int
    data: Path


def run(options: Options, report: Report) -> None:
    r"""Run all methods on both tables in both readings."""
    T = 100 if options.quick else 10_000
    data = options.data or Path()
    settings = {problem: _setting(problem, data) for problem in PROBLEMS}
    cases = []
    for seed, problem, method in itertools.product(range(options.seeds), PROBLEMS, METHODS):
        if method in FEW_SEEDS and seed >= 3:
            continue
        pulls = T // 5 if method in SLOW.get(problem, ()) else T
        cases.append(Case(problem, method, pulls, T, seed, data))
    runs = play_all(play, Run, cases, options)
    for one in settings.values():
        record(report, one, runs, T)
        claim(report, one, runs, T)
        draw(report, one, runs, T)


@cache
def _setting(problem: str, data: Path) -> Setting:
    return setting(PROBLEMS[problem], data)._replace(name=problem)


def table_of(problem: str) -> str:
    r"""Return the table of a problem, whatever the reading."""
    return problem.split()[0]


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
            report.row(setting.name, method, pulls, figure, len(some), *mean_and_sd(values))
        if setting.name in SLOW and method in COMPARED and pulls == T:
            early = [regret_of_first(r, T // 5) / (uniform * (T // 5)) for r in some]
            figure = "regret over uniform"
            report.row(setting.name, method, T // 5, figure, len(some), *mean_and_sd(early))


def mean_and_sd(values: list[float]) -> tuple[float, float]:
    r"""Return mean and standard deviation, which is zero for one value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def regret_of_first(run: Run, pulls: int) -> float:
    r"""Return the regret of the first pulls; those of a batch count alike."""
    return float(np.interp(pulls, np.append(0, run.pulls), np.append(0.0, run.regret)))


def at(run: Run, pulls: int, values: np.ndarray) -> float:
    r"""Return the value of a curve after the batch that contains this pull."""
    return float(values[np.searchsorted(run.pulls, pulls)])


def claim(report: Report, setting: Setting, runs: dict[Case, Run], T: int) -> None:
    r"""Report which figures of the paper this reading reproduces, and which bounds hold."""
    name = setting.name
    for method in OURS:
        found = [
            *regrets(report, setting, runs, method, T),
            *times(report, setting, runs, method),
            batches(report, setting, runs, method),
        ]
        what = f"{name}: {method}, figures of the paper that this reading reproduces"
        report.claim(what, f"{len(found)}", sum(found), all(found))
        bounds(report, setting, of(runs, problem=name, method=method), method)


def regrets(
    report: Report, setting: Setting, runs: dict[Case, Run], method: str, T: int
) -> tuple[bool, bool]:
    r"""Compare regrets: sublinear, and below that of epsilon-greedy (Figure 1)."""
    name, ours = setting.name, of(runs, problem=setting.name, method=method)
    halves = [at(r, T // 2, r.regret) / at(r, T // 2, r.pulls) for r in ours]
    whole = float(np.mean([r.regret[-1] / T for r in ours]))
    ratio = whole / float(np.mean(halves))
    report.claim(f"{name}: {method}, average regret at T over at T/2", "< 1", ratio, ratio < 1)
    share = whole / regret_of_uniform(setting)
    report.claim(f"{name}: {method}, regret over the uniform policy's", "< 0.5", share, share < 0.5)
    greedy = of(runs, problem=name, method="epsilon-greedy")
    worse = float(np.mean([r.regret[-1] / T for r in greedy])) / whole
    what = f"{name}: regret of epsilon-greedy over that of {method}"
    report.claim(what, "> 1", worse, worse > 1)
    return ratio < 1, worse > 1


def times(
    report: Report, setting: Setting, runs: dict[Case, Run], method: str
) -> tuple[bool, bool]:
    r"""Compare times: a fraction of those of BKB and GP-UCB (Figure 1)."""
    name, holds = setting.name, []
    ours = of(runs, problem=name, method=method)
    for other in ONE_BY_ONE:
        theirs = of(runs, problem=name, method=other)
        t = int(theirs[0].pulls[-1])
        ratio = float(
            np.mean([r.seconds[-1] for r in theirs]) / np.mean([at(r, t, r.seconds) for r in ours])
        )
        what = f"{name}: seconds of {other} over those of {method}, t={t}"
        report.claim(what, "> 1", ratio, ratio > 1)
        holds.append(ratio > 1)
    return holds[0], holds[1]


def batches(report: Report, setting: Setting, runs: dict[Case, Run], method: str) -> bool:
    r"""Compare the largest batch with the paper's, within a factor of two (Figure 2)."""
    largest = max(
        int(r.batches.max()) for r in of(runs, problem=setting.name, method=method)
    )  # "grows up to"
    paper = LARGEST[table_of(setting.name)]
    holds = paper / 2 <= largest <= 2 * paper
    what = f"{setting.name}: largest batch of {method}, any seed"
    report.claim(what, f"{paper} within a factor of 2", largest, holds)
    return holds


def bounds(report: Report, setting: Setting, ours: list[Run], method: str) -> None:
    r"""Compare the dictionary and the number of batches with Theorem 1's bounds.

    The theorem requires a noise variance of at least 1 and a larger oversampling than here.
    """
    given = {"noise_var": setting.noise_var, "batch_threshold": BATCH_THRESHOLD}
    size = max(
        r.dictionary.max() / confidence.bbkb_dictionary_size(r.dimension, OVERSAMPLING, **given)
        for r in ours
    )
    what = f"{setting.name}: {method}, dictionary over Theorem 1's bound, at most"
    report.claim(what, "<= 1", float(size), size <= 1)
    count = max(
        len(r.pulls) / confidence.bbkb_batches(r.dimension, int(r.pulls[-1]), **given) for r in ours
    )
    what = f"{setting.name}: {method}, batches over Theorem 1's bound, at most"
    report.claim(what, "<= 1", float(count), count <= 1)
    ratio = float(np.mean([len(r.pulls) / r.dimension for r in ours]))
    what = f"{setting.name}: resparsifications of {method} over the effective dimension"
    report.claim(what, "<= 10", ratio, ratio <= 10)


def draw(report: Report, setting: Setting, runs: dict[Case, Run], T: int) -> None:
    r"""Plot relative regret, seconds, batch sizes and dictionary sizes against pulls."""
    marks = np.unique(np.geomspace(1, T, 100).astype(int))
    uniform = regret_of_uniform(setting)
    file = re.sub(r"\W+", "_", setting.name).strip("_")
    with report.picture(f"bbkb_{file}", 2, 2, figsize=(11, 8)) as axes:
        for i, method in enumerate(METHODS):
            some = of(runs, problem=setting.name, method=method)
            reached = marks[marks <= some[0].pulls[-1]]
            curves = [
                [(at(r, t, r.regret) / (uniform * at(r, t, r.pulls)), at(r, t, r.seconds),
                  at(r, t, r.batches), at(r, t, r.dictionary)) for t in reached]
                for r in some
            ]  # fmt: skip
            for ax, values in zip(axes.flat, np.array(curves).transpose(2, 0, 1), strict=True):
                band(ax, values, method, COLORS[i], reached)
        labels = ("regret over uniform policy's", "seconds", "batch size", "dictionary")
        for ax, label in zip(axes.flat, labels, strict=True):
            ax.set(xscale="log", yscale="log", xlabel="pulls", ylabel=label, title=setting.name)
            ax.grid(alpha=0.3)
        axes[0, 0].legend(fontsize=8)
