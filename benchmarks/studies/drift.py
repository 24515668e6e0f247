r"""Rewards that drift: regret with half-lives of 50, 200 and 800 observations, and with none.

There are 500 arms, uniform in a square. Rewards are Branin's function, negative and standardised,
whose argument moves: a circle of radius 0.3 of the square's side is passed once, or not at all, or
the function jumps twice to another place. The noise is 0.1 of the standard deviation. BKB picks
2,000 arms one by one, with hyperparameters given (those fitted to the function at rest) or fitted
along the way. Regret is measured against the best arm at each step, and divided by the uniform
policy's. About an hour with one process.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.test_functions import Branin
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from benchmarks.cases import of, play_all
from benchmarks.report import Options, Report
from botorch_bkb import BKB

SEEDS = 3
COLUMNS = ("drift", "how", "half_life", "figure", "runs", "mean", "sd")
DRIFTS = ("none", "circle", "jumps")
HALF_LIVES = (50.0, 200.0, 800.0, math.inf)
NOISE, RADIUS, BLOCKS = 0.1, 0.3, 20


class Case(NamedTuple):
    r"""The settings of one run."""

    drift: str
    how: str
    half_life: float
    num_arms: int
    steps: int
    seed: int


class Run(NamedTuple):
    r"""The outcome of one run."""

    curve: np.ndarray  #: mean regret in each of 20 parts of the run, over the uniform policy's
    regret: float  #: mean regret of the whole run, over the uniform policy's
    results: int  #: distinct arms in the belief at the end


def run(options: Options, report: Report) -> None:
    r"""Run all half-lives on all problems."""
    num_arms, steps = (20, 20) if options.quick else (500, 2000)
    cases = [
        Case(drift, how, half_life, num_arms, steps, seed)
        for seed in range(options.seeds)
        for drift, how, half_life in itertools.product(DRIFTS, ("given", "fitted"), HALF_LIVES)
    ]
    runs = play_all(play, Run, cases, options)
    means: dict[tuple[str, str, float], float] = {}
    for drift, how, half_life in itertools.product(DRIFTS, ("given", "fitted"), HALF_LIVES):
        some = of(runs, drift=drift, how=how, half_life=half_life)
        for figure in ("regret", "results"):
            values = [float(getattr(r, figure)) for r in some]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            report.row(drift, how, half_life, figure, len(some), float(np.mean(values)), spread)
            if figure == "regret":
                means[drift, how, half_life] = float(np.mean(values))
    claims(report, means)
    draw(report, runs)


def claims(report: Report, means: dict[tuple[str, str, float], float]) -> None:
    r"""Compare half-lives with remembering everything."""
    for drift, how in itertools.product(DRIFTS, ("given", "fitted")):
        for half_life in HALF_LIVES[:-1]:
            ratio = means[drift, how, half_life] / means[drift, how, math.inf]
            what = f"drift {drift}, {how}: regret with half-life {half_life:g} over that with none"
            # Without a drift forgetting must cost something.
            target, holds = ("<= 2", ratio <= 2) if drift == "none" else ("< 1", ratio < 1)
            report.claim(what, target, ratio, holds)


def centre(drift: str, share: float) -> tuple[float, float]:
    r"""Return by how much the function has moved after a share of the run, in sides."""
    if drift == "circle":
        angle = 2 * math.pi * share
        return RADIUS * (math.cos(angle) - 1), RADIUS * math.sin(angle)
    if drift == "jumps":
        return ((0.0, 0.0), (0.3, -0.2), (-0.2, 0.3))[min(2, int(3 * share))]
    return 0.0, 0.0


def values(arms: Tensor, drift: str, share: float) -> Tensor:
    r"""Return the expected rewards of all arms after a share of the run.

    The function is reflected at the sides of the square, and so continuous wherever it moves.
    """
    X = arms + arms.new_tensor(centre(drift, share))
    X = 1 - (X.remainder(2) - 1).abs()
    branin = Branin(negate=True)
    low, high = branin.bounds.to(arms)
    f = branin(low + X * (high - low))
    return (f + 54.3) / 51.3  # mean and standard deviation over the square, at rest


def play(case: Case) -> Run:
    r"""Run one case."""
    generator = torch.Generator().manual_seed(case.seed)
    arms = torch.rand(case.num_arms, 2, generator=generator, dtype=torch.float64)
    known: dict[str, Any] = {}
    if case.how == "given":
        kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)).double()
        kernel.base_kernel.lengthscale = torch.tensor([0.3, 0.6], dtype=torch.float64)
        kernel.outputscale = 2.0
        known = {"covar_module": kernel, "noise_var": NOISE**2}
    optimizer = BKB(arms, half_life=case.half_life, seed=case.seed, **known)
    regrets, uniform = [], []
    for t in range(case.steps):
        f = values(arms, case.drift, t / case.steps)
        suggestion = optimizer.ask(at_most=1)
        noise = NOISE * torch.randn(1, generator=generator, dtype=torch.float64)
        optimizer.tell(suggestion, f[suggestion.indices] + noise)
        regrets.append(float(f.max() - f[suggestion.indices]))
        uniform.append(float(f.max() - f.mean()))
    share = np.array(regrets).reshape(BLOCKS, -1).mean(1) / np.array(uniform).mean()
    return Run(share, float(share.mean()), len(optimizer.history.rows))


def draw(report: Report, runs: dict[Case, Run]) -> None:
    r"""Plot the regret along the run, one line per half-life."""
    with report.picture("drift", 2, len(DRIFTS)) as axes:
        for i, how in enumerate(("given", "fitted")):
            for ax, drift in zip(axes[i], DRIFTS, strict=True):
                for half_life in HALF_LIVES:
                    some = of(runs, drift=drift, how=how, half_life=half_life)
                    curve = np.mean([r.curve for r in some], 0)
                    x = (np.arange(BLOCKS) + 0.5) / BLOCKS
                    name = "none" if math.isinf(half_life) else f"{half_life:g}"
                    ax.plot(x, curve.clip(1e-4), label=f"half-life {name}")
                ax.set(yscale="log", title=f"drift: {drift}, {how}", xlabel="share of the run")
                ax.grid(alpha=0.3)
            axes[i, 0].set_ylabel("regret over uniform policy's")
        axes[0, 0].legend(fontsize=7)
