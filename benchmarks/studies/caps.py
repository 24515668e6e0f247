r"""What to keep where a dictionary may not have as many points as are drawn.

The first part is regression on California housing and noisy Hartmann6, with one kernel for all
rules. Ridge leverage sampling with an oversampling of 4 is capped in three ways: by the highest
scores, by a lower oversampling with the same coins, and by thinning the draw at random. They are
compared with random rows, with randomly pivoted Cholesky and with a greedy one. The second part
fits kernel and noise to all rows: ours with 500 points, and SGPR with 200 points that it learns, in
the same time. The third part runs BBKB with a cap over arms and over a box. Regret is relative to
that of a uniform policy. Needs ``--data``. About twenty minutes with one process.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.model import Model
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.arm_runs import Setting, setting
from benchmarks.arm_runs import play as play_bandit
from benchmarks.cap_rules import GREEDY, HIGHEST, LOWERED, PIVOTED, RANDOM, THINNED, rule
from benchmarks.cases import of, play_all
from benchmarks.peers.sparse import evidence, fitted_sgpr
from benchmarks.problems.bandits import generated
from benchmarks.problems.regressions import HARTMANN, HOUSING, Regression, regression, with_kernel
from benchmarks.report import Options, Report
from botorch_bkb import BBKB, DTCGP, RidgeLeverageSampling
from botorch_bkb.dictionaries import Candidates, unexplained

SEEDS = 3
COLUMNS = ("part", "problem", "rule", "points", "figure", "runs", "mean", "sd")
RULES = (HIGHEST, LOWERED, THINNED, RANDOM, PIVOTED, GREEDY)
CAPS = (HIGHEST, LOWERED, THINNED, PIVOTED, GREEDY)
UNCAPPED, OURS, SGPR = "no cap", "DTCGP", "SGPR, learned points"
ABALONE, GENERATED, BOX = "abalone", "generated arms", "Hartmann6 box"
#: The largest dictionaries of BBKB, and numbers of results.
RUNS = {ABALONE: (100, 1_000), GENERATED: (60, 1_000), BOX: (25, 150)}
#: Seconds after which a fit of ours is stopped. SGPR has the seconds that ours took.
LIMIT = 120.0
#: The standard deviation of the noise over the box.
NOISE = 0.1


def run(options: Options, report: Report) -> None:
    r"""Compare rules in models, learned points, and rules in BBKB."""
    folder = str(options.data or "")
    sizes = (5, 10, 20) if options.quick else (200, 400, 1_000)
    fits = [
        Fit(problem, name, m, seed, folder, options.quick)
        for problem, m, name in itertools.product((HARTMANN, HOUSING), sizes, RULES)
        for seed in range(1 if name == GREEDY else options.seeds)
    ]
    models = play_all(play_fit, Quality, fits, options)
    fitted = [EqualTime(problem, folder, options.quick) for problem in (HARTMANN, HOUSING)]
    learned = play_all(play_equal_time, Learned, fitted, options)
    cases = [
        Case(problem, name, seed, folder, options.quick)
        for problem, name in itertools.product(RUNS, (UNCAPPED, *CAPS))
        for seed in range(options.seeds)
    ]
    regrets = play_all(play, Run, cases, options)
    record(report, models, learned, regrets, sizes)
    claim(report, models, regrets, sizes)
    draw(report, models, regrets, sizes)


# ---------------------------------------------------------------------- models


class Fit(NamedTuple):
    r"""The settings of one model."""

    problem: str
    rule: str
    size: int
    seed: int
    folder: str
    quick: bool


class Quality(NamedTuple):
    r"""How well a model predicts."""

    rmse: float
    nlpd: float
    variance: float  #: mean posterior variance at the test inputs
    residual: float  #: share of the prior variance at the data that is left unexplained
    seconds: float  #: of the choice of the dictionary, CPU time


def play_fit(case: Fit) -> Quality:
    r"""Choose a dictionary, and compare the model's predictions with the test data."""
    data = Path(case.folder) if case.folder else None
    problem, kernel, noise = with_kernel(case.problem, data, case.quick)
    noises = torch.full_like(problem.Y, noise)
    generator = torch.Generator().manual_seed(case.seed)
    start = time.process_time()
    chosen = rule(case.rule, case.size, 4.0)
    rows = chosen.choose(Candidates(problem.X, kernel, noises), generator).positions
    seconds = time.process_time() - start
    model = DTCGP(
        problem.X, problem.Y[:, None], noises[:, None], covar_module=kernel,
        dictionary=rows, outcome_transform=None,
    )  # fmt: skip
    with torch.no_grad():
        posterior = model.posterior(problem.x)
    mean, variance = posterior.mean.squeeze(-1), posterior.variance.squeeze(-1)
    share = unexplained(kernel, problem.X[model.dictionary_indices], problem.X)
    return Quality(*problem.errors(mean, variance + noise), float(variance.mean()), share, seconds)


class EqualTime(NamedTuple):
    r"""A problem on which ours and SGPR have the same time."""

    problem: str
    folder: str
    quick: bool


class Learned(NamedTuple):
    r"""Fits of kernel and noise: ours, and one of inducing points as well."""

    rmse: float
    nlpd: float
    seconds: float
    rmse_of_sgpr: float
    nlpd_of_sgpr: float
    seconds_of_sgpr: float


def play_equal_time(case: EqualTime) -> Learned:
    r"""Fit ours, and then SGPR in the same time, to all rows."""
    problem = regression(case.problem, Path(case.folder) if case.folder else None, case.quick)
    ours, theirs = few_and_fewer(case.quick)
    start = time.perf_counter()
    model = DTCGP(
        problem.X, problem.Y[:, None], outcome_transform=None,
        dictionary=RidgeLeverageSampling(4.0, ours),
    )  # fmt: skip
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer_kwargs={"timeout_sec": LIMIT})
    limit = time.perf_counter() - start
    start = time.perf_counter()
    other = fitted_sgpr(problem.X, problem.Y, theirs, limit)
    seconds = time.perf_counter() - start
    return Learned(*errors(model, problem), limit, *errors(other, problem), seconds)


def few_and_fewer(quick: bool) -> tuple[int, int]:
    r"""Return the number of our points, and of SGPR's."""
    return (20, 10) if quick else (500, 200)


def errors(model: Model, problem: Regression) -> tuple[float, float]:
    with torch.no_grad(), evidence(low_rank=True):
        posterior = model.posterior(problem.x, observation_noise=True)
        return problem.errors(posterior.mean.squeeze(-1), posterior.variance.squeeze(-1))


# ---------------------------------------------------------------------- optimizers


class Case(NamedTuple):
    r"""The settings of one run of BBKB."""

    problem: str
    rule: str
    seed: int
    folder: str
    quick: bool


class Run(NamedTuple):
    r"""The outcome of one run."""

    regret: float  #: relative to that of a uniform policy
    batches: int
    dictionary: int
    seconds: float


def play(case: Case) -> Run:
    r"""Run one case."""
    cap, budget = (5, 20) if case.quick else RUNS[case.problem]
    oversampling = 2.0 if case.problem == BOX else 8.0
    capped = RidgeLeverageSampling(oversampling)
    if case.rule != UNCAPPED:
        capped = rule(case.rule, cap, oversampling)
    if case.problem == BOX:
        return play_box(case, capped, budget)
    one = problem_over_arms(case)
    more = one.bounds(budget) if case.problem == ABALONE else {"width": "heuristic"}
    optimizer = BBKB(one.bandit.arms, dictionary=capped, seed=case.seed, **one.model, **more)
    found = play_bandit(optimizer, one.bandit, budget, case.seed, time.process_time)
    uniform = float(one.bandit.f.max() - one.bandit.f.mean()) * budget
    return Run(
        found.regret[-1] / uniform, len(found.pulls), int(found.dictionary[-1]), found.seconds[-1]
    )


def problem_over_arms(case: Case) -> Setting:
    if case.problem == ABALONE:
        return setting("abalone 0.2", Path(case.folder) if case.folder else None)
    arms = generated(2_000, 4, 0.1, 0, torch.float64)
    return Setting(GENERATED, arms, noise_var=0.01, norm_bound=2.0, squared_width=0.04)


def play_box(case: Case, capped, budget: int) -> Run:
    r"""Run BBKB over the box of Hartmann6, with fitted kernel and noise."""
    f = Hartmann(dim=6, negate=True).to(torch.float64)
    generator = torch.Generator().manual_seed(case.seed)
    options = {"num_restarts": 2, "raw_samples": 64}
    optimizer = BBKB(
        bounds=f.bounds, dictionary=capped, seed=case.seed, acquisition_options=options
    )
    uniform = torch.rand(10_000, 6, generator=torch.Generator().manual_seed(0)).double()
    regret, batches, start = 0.0, 0, time.process_time()
    while (left := budget - optimizer.num_observations) > 0:
        suggestion = optimizer.ask(at_most=left)
        values = f(suggestion.X)
        eps = torch.randn(len(values), generator=generator, dtype=torch.float64)
        optimizer.tell(suggestion, values + NOISE * eps)
        regret += float((f.optimal_value - values).sum())
        batches += 1
    seconds = time.process_time() - start
    scale = float(f.optimal_value - f(uniform).mean()) * budget
    return Run(regret / scale, batches, len(optimizer.dictionary), seconds)


# ---------------------------------------------------------------------- what is reported


def record(report: Report, models, learned, regrets, sizes) -> None:
    for problem, size, name in itertools.product((HARTMANN, HOUSING), sizes, RULES):
        some = of(models, problem=problem, size=size, rule=name)
        rows(report, ("regression", problem, name, size), some)
    for case, fit in learned.items():
        for name, size, values in zip(
            (OURS, SGPR), few_and_fewer(case.quick), (fit[:3], fit[3:]), strict=True
        ):
            for figure, value in zip(Learned._fields, values, strict=False):
                report.row("equal time", case.problem, name, size, figure, 1, float(value), 0.0)
    for problem, name in itertools.product(RUNS, (UNCAPPED, *CAPS)):
        some = of(regrets, problem=problem, rule=name)
        cap = "" if name == UNCAPPED else RUNS[problem][0]
        rows(report, ("BBKB", problem, name, cap), some)


def rows(report: Report, key: tuple, some: list) -> None:
    for figure in some[0]._fields:
        values = [float(getattr(one, figure)) for one in some]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        report.row(*key, figure, len(values), float(np.mean(values)), spread)


def mean(runs: dict, figure: str, **which) -> float:
    return float(np.mean([getattr(one, figure) for one in of(runs, **which)]))


def claim(report: Report, models, regrets, sizes) -> None:
    for problem, size in itertools.product((HARTMANN, HOUSING), sizes):
        key, where = {"problem": problem, "size": size}, f"{problem}, {size} points"
        error = {name: mean(models, "rmse", rule=name, **key) for name in RULES}
        ratio = error[HIGHEST] / error[THINNED]
        report.claim(f"{where}: RMSE, highest scores over thinned", "> 1", ratio, ratio > 1)
        ratio = error[THINNED] / error[LOWERED]
        what = f"{where}: RMSE, thinned over lower oversampling"
        report.claim(what, "<= 1.01", ratio, ratio <= 1.01)
        ratio = error[PIVOTED] / error[THINNED]
        report.claim(
            f"{where}: RMSE, pivoted Cholesky over thinned", "<= 1.01", ratio, ratio <= 1.01
        )
        left = {name: mean(models, "residual", rule=name, **key) for name in RULES}
        ratio = left[PIVOTED] / min(left[name] for name in RULES if name != PIVOTED)
        what = f"{where}: left unexplained, pivoted Cholesky over the best other rule"
        report.claim(what, "<= 1", ratio, ratio <= 1)
    for problem in RUNS:
        regret = {name: mean(regrets, "regret", problem=problem, rule=name) for name in CAPS}
        ours, other = (THINNED, HIGHEST) if problem == BOX else (HIGHEST, THINNED)
        ratio = regret[other] / regret[ours]
        report.claim(f"{problem}: regret, {other} over {ours}", "> 1", ratio, ratio > 1)


def draw(report: Report, models, regrets, sizes) -> None:
    r"""Plot errors against the number of points, and the regret of BBKB."""
    with report.picture("caps", 1, 3, figsize=(13, 3.8)) as axes:
        for ax, problem in zip(axes[0], (HARTMANN, HOUSING), strict=False):
            for i, name in enumerate(RULES):
                error = [mean(models, "rmse", problem=problem, rule=name, size=m) for m in sizes]
                ax.plot(sizes, error, "o-", ms=4, color=f"C{i}", label=name)
            ax.set(xscale="log", title=problem, xlabel="points", ylabel="RMSE")
            ax.set_xticks(sizes, [f"{m}" for m in sizes])
            ax.minorticks_off()
            ax.grid(alpha=0.3)
        axes[0, 0].legend(fontsize=7)
        for i, name in enumerate((UNCAPPED, *CAPS)):
            color = "0.5" if name == UNCAPPED else f"C{RULES.index(name)}"
            height = [mean(regrets, "regret", problem=problem, rule=name) for problem in RUNS]
            axes[0, 2].bar(np.arange(3) + 0.13 * (i - 2.5), height, 0.12, color=color, label=name)
        axes[0, 2].set_xticks(range(3), list(RUNS))
        axes[0, 2].set(title="BBKB with a cap", ylabel="regret over uniform policy's")
        axes[0, 2].legend(fontsize=7)
