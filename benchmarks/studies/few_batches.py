r"""Three batches of 96: elimination against optimizers that were made for more feedback.

There are 4,000 generated arms in two and six dimensions, as in the study ``trade-off``, with noise
of 0.1 and of 1 standard deviation of the rewards. Hyperparameters are given or fitted. All methods
get the same 288 evaluations in three batches and then recommend an arm. BBKB and GP-BUCB pick their
batches with a threshold so high that only the size ends a batch. The baseline evaluates random
arms. Regrets of the recommendation are divided by the uniform policy's. With a given kernel there
is also elimination with the theorem's width, for which the norm is known. About ten minutes with
one process.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel

from benchmarks.cases import of, play_all
from benchmarks.problems.bandits import Bandit, generated, rbf
from benchmarks.report import Options, Report
from botorch_bkb import BBKB, GPBUCB, GPUCB, BatchedElimination, FinishedError
from botorch_bkb.batches import SumRule
from botorch_bkb.optimizers import Optimizer

SEEDS = 10
COLUMNS = ("problem", "method", "figure", "runs", "mean", "sd")
SQUARED_WIDTH = 0.25  # that of the generated bumps
DIMENSIONS, NOISES = (2, 6), (0.1, 1.0)
ELIMINATION = "elimination"
METHODS = (
    ELIMINATION, "with repeats", "growing batches", "theory", "BBKB", "GP-BUCB", "Thompson",
    "random",
)  # fmt: skip


class Case(NamedTuple):
    r"""The settings of one run."""

    method: str
    dim: int
    noise: float
    how: str
    num_arms: int
    size: int
    seed: int


class Run(NamedTuple):
    r"""The outcome of one run."""

    simple: float  #: regret of the recommendation, divided by the uniform policy's
    regret: float  #: mean regret of all evaluations, divided by the uniform policy's
    survivors: float  #: share of the arms that are left
    distinct: int  #: distinct arms evaluated


def run(options: Options, report: Report) -> None:
    r"""Run all methods on all problems."""
    num_arms, size = (60, 6) if options.quick else (4000, 96)
    cases = [
        Case(method, dim, noise, how, num_arms, size, seed)
        for seed in range(options.seeds)
        for dim, noise, how in itertools.product(DIMENSIONS, NOISES, ("given", "fitted"))
        for method in METHODS
        if how == "given" or method != "theory"
    ]
    runs = play_all(play, Run, cases, options)
    problems = list(dict.fromkeys((case.dim, case.noise, case.how) for case in cases))
    means: dict[tuple[str, str], float] = {}
    for (dim, noise, how), method in itertools.product(problems, METHODS):
        some = of(runs, dim=dim, noise=noise, how=how, method=method)
        name = f"d={dim} noise {noise:g} {how}"
        for figure in Run._fields if some else ():
            values = [float(getattr(r, figure)) for r in some]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            report.row(name, method, figure, len(some), float(np.mean(values)), spread)
            if figure == "simple":
                means[name, method] = float(np.mean(values))
    claims(report, means)
    draw(report, means)


def problem(case: Case) -> tuple[Bandit, dict[str, Any], float]:
    r"""Return the arms, the kernel and noise that are known, and the norm of the function.

    The function is not centred, so that it lies in the space of the kernel.
    """
    bandit = generated(case.num_arms, case.dim, case.noise, case.seed, torch.float64)
    generator = torch.Generator().manual_seed(case.seed)
    torch.rand(case.num_arms, case.dim, generator=generator, dtype=torch.float64)
    centres = torch.rand(10, case.dim, generator=generator, dtype=torch.float64)
    heights = torch.rand(10, generator=generator, dtype=torch.float64)
    scale = float(bandit.f.std())
    bandit = bandit._replace(f=bandit.f / scale)
    kernel = ScaleKernel(rbf(SQUARED_WIDTH)).double()
    kernel.outputscale = float(bandit.f.square().mean())
    norm = float((heights @ kernel(centres).to_dense() @ heights).detach()) ** 0.5
    norm /= scale * float(kernel.outputscale)
    known = {"covar_module": kernel, "noise_var": case.noise**2}
    return bandit, known if case.how == "given" else {}, norm


def make(case: Case, bandit: Bandit, known: dict[str, Any], norm: float) -> Optimizer:
    r"""Return the optimizer of a method; random arms are told to the exact one."""
    arms, sizes = bandit.arms, [case.size] * 3
    rule = SumRule(1e9, max_size=case.size)
    given = {**known, "seed": case.seed}
    if case.method == "growing batches":
        return BatchedElimination(
            arms, budget=sum(sizes), num_batches=3, batch_sizes="growing", **given
        )
    if case.method == "theory":
        return BatchedElimination(arms, batch_sizes=sizes, norm_bound=norm, **given)
    if case.method in (ELIMINATION, "with repeats"):
        distinct = case.method == ELIMINATION
        return BatchedElimination(arms, batch_sizes=sizes, distinct=distinct, **given)
    if case.method == "Thompson":
        return BBKB(arms, batch_rule=rule, acquisition="thompson", **given)
    kind: Any = {"BBKB": BBKB, "GP-BUCB": GPBUCB, "random": GPUCB}[case.method]
    return kind(arms, **given) if kind is GPUCB else kind(arms, batch_rule=rule, **given)


def play(case: Case) -> Run:
    r"""Run one case."""
    bandit, known, norm = problem(case)
    optimizer = make(case, bandit, known, norm)
    generator = torch.Generator().manual_seed(case.seed)
    rows: list[int] = []
    for _ in range(3):
        try:
            asked: Any = optimizer.ask() if case.method != "random" else None
        except FinishedError:  # one arm is left
            break
        some = torch.randint(case.num_arms, (case.size,), generator=generator)
        some = some if asked is None else asked.indices
        optimizer.tell(some if asked is None else asked, bandit.rewards(some, generator))
        rows += some.tolist()
    uniform = float(bandit.f.max() - bandit.f.mean())
    simple = float(bandit.regret(torch.tensor(optimizer.best().index))) / uniform
    mean = float(bandit.regret(torch.tensor(rows)).mean()) / uniform
    eliminates = isinstance(optimizer, BatchedElimination)
    left = len(optimizer.survivors) / case.num_arms if eliminates else 1.0
    return Run(simple, mean, left, len(set(rows)))


def claims(report: Report, means: dict[tuple[str, str], float]) -> None:
    r"""Compare elimination with the others, by geometric means over problems."""
    for how in ("given", "fitted"):
        names = list(dict.fromkeys(name for name, _ in means if name.endswith(how)))

        def average(method: str, names: list[str] = names) -> float:
            # Smaller regrets than a thousandth of the uniform policy's are luck.
            return float(np.exp(np.mean([np.log(max(1e-3, means[n, method])) for n in names])))

        for other in ("BBKB", "GP-BUCB", "Thompson", "random"):
            ratio = average(ELIMINATION) / average(other)
            what = f"{how}: simple regret of elimination over that of {other}"
            report.claim(what, "<= 1", ratio, ratio <= 1)


def draw(report: Report, means: dict[tuple[str, str], float]) -> None:
    r"""Plot simple regrets, one group of bars per problem."""
    names = list(dict.fromkeys(name for name, _ in means))
    with report.picture("few-batches", 1, 1, figsize=(12, 4)) as axes:
        ax, width = axes[0, 0], 0.8 / len(METHODS)
        for j, method in enumerate(METHODS):
            x = [i for i, name in enumerate(names) if (name, method) in means]
            heights = [max(1e-3, means[names[i], method]) for i in x]
            ax.bar(np.array(x) + (j - len(METHODS) / 2) * width, heights, width, label=method)
        ax.set_xticks(range(len(names)), names, rotation=20, ha="right")
        ax.set(yscale="log", ylabel="simple regret over uniform policy's")
        ax.legend(fontsize=7, ncols=2)
        ax.grid(alpha=0.3, axis="y")
