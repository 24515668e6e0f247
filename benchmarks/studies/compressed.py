r"""The effect of an information threshold on the compressed GP paper's three problems.

UCB, EI and MPI run on a dense belief, a compressed one, a compressed one that discards nothing, and
BKB. As in the paper, the kernel is RBF with length-scale 1, the noise variance is 0.001, there are
``2^d`` initial points, and bounds hold with probability 0.9. There are two clocks: the optimizer's
own CPU time, and the same with the CPU time of the objective. Only evaluated points count there:
a skipped candidate costs the objective nothing. Ten seeds take 80 minutes with two processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import RBFKernel

from benchmarks.cases import play_all
from benchmarks.machine import CPUClock
from benchmarks.problems.boxes import BoxProblem, digits, rosenbrock, waves
from benchmarks.report import Options, Report
from botorch_bkb import (
    BKB,
    GPUCB,
    CompressedEI,
    CompressedMPI,
    CompressedUCB,
    epsilon_for_horizon,
)
from botorch_bkb.confidence.widths import compressed as theorem_3_2
from botorch_bkb.optimizers import Optimizer

SEEDS = 10
COLUMNS = (
    "problem", "acquisition", "variant", "epsilon", "steps", "repetitions", "figure", "mean", "sd",
)  # fmt: skip
NOISE_VAR = 0.001
PROBLEMS = {"example": waves, "Rosenbrock": rosenbrock, "tuning": lambda _: digits()}
COMPRESSED = {"ucb": CompressedUCB, "ei": CompressedEI, "mpi": CompressedMPI}
VARIANTS = ("dense", "compressed", "compressed, nothing discarded", "BKB")
#: Time of compressed over dense beliefs in the paper (Tables 2 to 4), with UCB, EI and MPI.
FRACTIONS = {
    "example": {"ucb": 0.79, "ei": 0.54, "mpi": 0.74},
    "Rosenbrock": {"ucb": 0.79, "ei": 0.86, "mpi": 0.86},
    "tuning": {"ucb": 0.28, "ei": 0.27, "mpi": 0.23},
}
#: Clocks by name: without and with the objective.
CLOCKS = {"seconds": "seconds", "seconds with the objective": "total"}
SEARCH = {"num_restarts": 2, "raw_samples": 64, "options": {"maxiter": 50}}


class Case(NamedTuple):
    r"""The settings of one run."""

    problem: str
    acquisition: str
    variant: str
    epsilon: float
    steps: int
    seed: int


class Curve(NamedTuple):
    r"""The outcome of one run, step by step."""

    values: np.ndarray  #: values of the selected points, without noise if known
    seconds: np.ndarray  #: cumulative CPU time of the optimizer
    objective: np.ndarray  #: cumulative CPU time of the objective at the evaluated points
    order: np.ndarray  #: number of observations, or of dictionary points, in the belief
    evaluated: int  #: number of evaluations
    best: float  #: highest value of the problem, NaN if unknown

    @property
    def total(self) -> np.ndarray:
        r"""The cumulative time of optimizer and objective."""
        return self.seconds + self.objective


def run(options: Options, report: Report) -> None:
    r"""Run all problems, acquisitions and beliefs."""
    steps, long = (6, 9) if options.quick else (300, 1500)
    results = Results(play_all(play, Curve, list(cases(options.seeds, steps, long)), options))
    results.record(report)
    results.claim(report, steps, long)
    for name in PROBLEMS:
        draw(results, name, steps, report)


def make(case: Case, problem: BoxProblem) -> Optimizer:
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(1.0, dtype=torch.float64)
    options: dict[str, Any] = {
        "bounds": problem.bounds,
        "covar_module": kernel,
        "noise_var": NOISE_VAR,
        "width": theorem_3_2,
        "delta": 0.1,
        "num_initial": 2 ** problem.bounds.shape[-1],
        "acquisition_options": SEARCH,
        "seed": case.seed,
    }
    if case.variant == "dense":
        return GPUCB(acquisition=case.acquisition, **options)
    if case.variant == "BKB":
        return BKB(acquisition=case.acquisition, **options)
    algorithm = COMPRESSED[case.acquisition]
    if case.variant == "compressed":
        return algorithm(epsilon=case.epsilon, **options)
    # A skipped point has no result to keep, so here every point is evaluated.
    return algorithm(epsilon=case.epsilon, discard=False, on_uninformative="evaluate", **options)


def play(case: Case) -> Curve:
    r"""Run one case, and measure the CPU time of optimizer and objective apart, on one core.

    A skipped point counts as a step. It costs the objective nothing, also where it is evaluated for
    the record of its regret.
    """
    problem = PROBLEMS[case.problem](NOISE_VAR)
    rng, apart = np.random.default_rng(case.seed), np.random.default_rng(10_000 + case.seed)
    optimizer = make(case, problem)
    values, seconds, objective, order = [], [], [], []
    clock, evaluating = CPUClock(), CPUClock()
    while len(values) < case.steps:
        with clock:
            suggestion = optimizer.ask()
        awaited = torch.tensor([id_ >= 0 for id_ in suggestion.ids])
        to_do = suggestion[awaited]
        with evaluating:
            Y = problem.observe(to_do.X, rng)
        with clock:
            optimizer.tell(to_do, Y)
        if problem.value is not None:
            values += problem.value(suggestion.X).tolist()
        else:  # a skipped point is evaluated for the record only
            skipped = problem.observe(suggestion.X[~awaited], apart)
            values += Y.tolist() + skipped.tolist()
        m = len(optimizer.dictionary) if case.variant == "BKB" else optimizer.model_order
        seconds += [clock.seconds] * len(suggestion)
        objective += [evaluating.seconds] * len(suggestion)
        order += [m] * len(suggestion)
    curves = (np.array(c[: case.steps]) for c in (values, seconds, objective, order))
    return Curve(*curves, optimizer.num_observations, problem.best)


def cases(repetitions: int, steps: int, long: int) -> Iterator[Case]:
    r"""Yield short runs of all acquisitions, long UCB runs, and runs with the paper's epsilon."""
    for seed, name, acquisition, variant in itertools.product(
        range(repetitions), PROBLEMS, COMPRESSED, VARIANTS
    ):
        yield Case(name, acquisition, variant, threshold(name), steps, seed)
    for seed, name, variant in itertools.product(
        range(max(1, repetitions // 5)), PROBLEMS, VARIANTS
    ):
        yield Case(name, "ucb", variant, threshold(name), long, seed)
    for name in PROBLEMS:
        yield Case(name, "ucb", "compressed", 1e-4, steps, 0)


def threshold(problem: str, horizon: int = 1000) -> float:
    r"""Return the theorem's threshold with ``alpha = 1 / (2 d)``."""
    return epsilon_for_horizon(horizon, {"example": 1, "Rosenbrock": 2, "tuning": 4}[problem])


def average_regret(curve: Curve, best: float) -> np.ndarray:
    regret = best - curve.values
    return np.cumsum(regret) / np.arange(1, len(regret) + 1)


class Results:
    r"""Curves by case, and the figures derived from them."""

    def __init__(self, curves: dict[Case, Curve]) -> None:
        self.curves = curves
        self.best = {name: max(c.best for k, c in curves.items() if k.problem == name)
                     for name in PROBLEMS}  # fmt: skip
        if np.isnan(self.best["tuning"]):
            # The highest mean of the ten best steps of a run, since a single step may be lucky.
            runs = (c.values for k, c in curves.items() if k.problem == "tuning")
            self.best["tuning"] = max(float(np.sort(v)[-10:].mean()) for v in runs)

    def of(self, problem: str, acquisition: str, variant: str, steps: int) -> list[Curve]:
        r"""Return the repetitions of one setting with the theorem's threshold."""
        return [
            curve
            for case, curve in self.curves.items()
            if (case.problem, case.acquisition, case.variant, case.steps)
            == (problem, acquisition, variant, steps)
            and case.epsilon != 1e-4
        ]

    def final(self, problem: str, curves: list[Curve]) -> dict[str, np.ndarray]:
        r"""Return the figures at the end of each repetition."""
        return {
            "average regret": np.array([average_regret(c, self.best[problem])[-1] for c in curves]),
            "seconds": np.array([c.seconds[-1] for c in curves]),
            "seconds of the objective": np.array([c.objective[-1] for c in curves]),
            "seconds with the objective": np.array([c.total[-1] for c in curves]),
            "order": np.array([c.order[-1] for c in curves]),
            "order at half time": np.array([c.order[len(c.order) // 2] for c in curves]),
            "evaluated": np.array([c.evaluated for c in curves]),
        }

    def record(self, report: Report) -> None:
        r"""Write the figures of all settings to the report."""
        for case in dict.fromkeys(case._replace(seed=0) for case in self.curves):
            runs = [c for k, c in self.curves.items() if k._replace(seed=0) == case]
            for figure, values in self.final(case.problem, runs).items():
                spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
                report.row(*case[:-1], len(values), figure, float(values.mean()), spread)

    def claim(self, report: Report, steps: int, long: int) -> None:
        r"""Report the claims on regret, model order and time."""
        for name, acquisition in itertools.product(PROBLEMS, COMPRESSED):
            dense, ours = (
                self.final(name, self.of(name, acquisition, v, steps)) for v in VARIANTS[:2]
            )
            a, b = dense["average regret"], ours["average regret"]
            spread = max(a.std(ddof=1), b.std(ddof=1)) if len(a) > 1 else np.nan
            gap = (b.mean() - a.mean()) / spread
            what = f"{name} {acquisition}: regret of compressed less dense, in sd"
            report.claim(what, "<= 1", gap, gap <= 1)
            if name == "tuning":
                self.claim_times(report, name, acquisition, steps, (steps,))
        for name in PROBLEMS:
            ours = self.of(name, "ucb", "compressed", long)
            growth = float(np.mean([c.order[-1] / c.order[len(c.order) // 2] for c in ours]))
            what = f"{name} ucb: model order at T={long} over T={long // 2}"
            report.claim(what, "<= 1.1", growth, growth <= 1.1)
            self.claim_times(report, name, "ucb", long, (2 * long // 3, long))

    def claim_times(
        self, report: Report, name: str, acquisition: str, steps: int, times: tuple[int, ...]
    ) -> None:
        r"""Report the claims on time at some steps, by the clocks without and with the objective.

        The dearer the objective, the closer is the second to the ratio of the evaluations.
        """
        runs = [self.of(name, acquisition, variant, steps) for variant in VARIANTS]
        dense, ours, _, bkb = runs
        asked = FRACTIONS[name][acquisition]
        for t, (clock, field) in itertools.product(times, CLOCKS.items()):
            plain, fast, sampled = (
                float(np.mean([getattr(c, field)[t - 1] for c in some]))
                for some in (dense, ours, bkb)
            )
            setting = f"{name} {acquisition} T={t}: {clock}"
            ratio = fast / plain
            report.claim(f"{setting}, compressed over dense", f"<= {asked}", ratio, ratio <= asked)
            ratio = sampled / plain
            report.claim(f"{setting}, BKB over dense", "<= 1", ratio, ratio <= 1)
        share = float(np.mean([c.evaluated for c in ours]) / np.mean([c.evaluated for c in dense]))
        what = f"{name} {acquisition} T={steps}: evaluations, compressed over dense"
        report.claim(what, f"<= {asked}", share, share <= asked)


def draw(results: Results, name: str, steps: int, report: Report) -> None:
    r"""Plot average regret against steps and time, and model order, by acquisition."""
    with report.picture(f"compressed_{name}", 4, 3) as axes:
        for column, acquisition in enumerate(COMPRESSED):
            for i, variant in enumerate(VARIANTS):
                runs = results.of(name, acquisition, variant, steps)
                regret = np.stack([average_regret(c, results.best[name]) for c in runs])
                seconds, total, order = (
                    np.stack([getattr(c, f) for c in runs]) for f in ("seconds", "total", "order")
                )
                t = np.arange(1, steps + 1)
                style = {"color": f"C{i}", "label": variant, "linestyle": ["-", "--", ":", "-."][i]}
                mean, sd = regret.mean(0), regret.std(0)
                axes[0, column].plot(t, mean, **style)
                axes[0, column].fill_between(
                    t, mean - sd, mean + sd, color=f"C{i}", alpha=0.12, lw=0
                )
                axes[1, column].plot(seconds.mean(0), mean, **style)
                axes[2, column].plot(total.mean(0), mean, **style)
                axes[3, column].plot(t, order.mean(0), **style)
            axes[0, column].set_title(acquisition.upper())
        regret_axes = [(x, "average regret") for x in ("step", *CLOCKS)]
        for row, (x, y) in enumerate([*regret_axes, ("step", "model order")]):
            for ax in axes[row]:
                ax.set_xlabel(x)
                ax.set_ylabel(y)
                if y == "average regret":
                    ax.set_yscale("log")
                ax.grid(alpha=0.3)
        axes[0, 0].legend(fontsize=8)
        runs = len(results.of(name, "ucb", "dense", steps))
        title = f"{name}: mean of {runs} repetitions, band one standard deviation"
        axes[0, 0].figure.suptitle(title)
