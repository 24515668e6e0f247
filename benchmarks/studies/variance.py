r"""BKB's claims about its variance: no starvation, a factor alpha accurate, a small dictionary.

The first part is in one dimension, with a gap between observations and ``k(x, x) = 1``. It compares
the standard deviations of the exact posterior, DTC, the subset of regressors (SoR) and random
Fourier features (RFF, as many features as dictionary points), as the dictionary grows. The second
part is in :mod:`benchmarks.starvation`. It has a fixed number of features and more and more
observations. The third part runs BKB on the unit interval and cube, with kernel and noise given. It
measures the worst ratio of DTC's variance to the exact one over all arms. Theorem 1 bounds this
ratio by ``1 / alpha`` and ``alpha``, here with ``epsilon = 1/2`` and so ``alpha = 3``. It also
compares the size of the dictionary with the effective dimension. Four minutes with two processes.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from benchmarks.cases import of, play_all
from benchmarks.drawing import band
from benchmarks.problems.bandits import generated, rbf
from benchmarks.report import Options, Report
from benchmarks.starvation import growth
from botorch_bkb import BKB, DTCGP, AllPoints, RandomFeatures, RidgeLeverageSampling, confidence

SEEDS = 20
COLUMNS = ("part", "what", "oversampling", "figure", "runs", "median", "tenth", "ninetieth")
ALPHA, DELTA, NOISE_VAR = 3.0, 0.1, 0.01
OVERSAMPLING = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
DIMENSIONS = (1, 3)


def run(options: Options, report: Report) -> None:
    r"""Compare variances in one dimension, then along runs of BKB."""
    starvation(options, report)
    growth(options, report, record)
    T = 20 if options.quick else 300
    theory = confidence.bkb_oversampling(T, DELTA)
    cases = [
        Case(dim, oversampling, T, seed)
        for seed, dim, oversampling in itertools.product(
            range(options.seeds), DIMENSIONS, (*OVERSAMPLING, theory)
        )
    ]
    runs = play_all(play, Run, cases, options)
    accuracy(report, runs, theory)


# ---------------------------------------------------------------------- in one dimension


class Toy(NamedTuple):
    r"""Observations with a gap, test inputs ``x``, and a kernel."""

    X: Tensor
    x: Tensor
    kernel: RBFKernel

    @classmethod
    def make(cls, seed: int) -> Toy:
        r"""Draw 150 observations left of 0.45 and 50 right of 0.75."""
        u = torch.rand(200, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        X = torch.cat([0.45 * u[:150], 0.75 + 0.25 * u[150:]])
        x = torch.linspace(-0.1, 1.1, 601, dtype=torch.float64).unsqueeze(-1)
        return cls(X, x, rbf(0.05**2))

    def embedding(self, S: Tensor, X: Tensor) -> Tensor:
        r"""Return the embeddings ``z(x) = L^-1 k_S(x)``, one row per input."""
        K = self.kernel(S).to_dense()
        root = torch.linalg.cholesky(K + 1e-10 * torch.eye(len(S)).to(K))
        return torch.linalg.solve_triangular(root, self.kernel(S, X).to_dense(), upper=False).mT

    def deviations(self, S: Tensor, seed: int) -> dict[str, Tensor]:
        r"""Return the standard deviations at ``x``, by name of the approximation."""
        Y, Yvar = torch.zeros_like(self.X), torch.full_like(self.X, NOISE_VAR)
        given = {"covar_module": self.kernel, "outcome_transform": None}
        found = {}
        features = RandomFeatures(len(S) + len(S) % 2, seed)
        for name, dictionary in (("exact", AllPoints()), ("DTC", S), ("RFF", features)):
            model = DTCGP(self.X, Y, Yvar, dictionary=dictionary, **given)
            with torch.no_grad():
                found[name] = model.posterior(self.x).variance.squeeze(-1).sqrt()
        points = self.X[S]
        found["SoR"] = linear_deviation(
            self.embedding(points, self.X), self.embedding(points, self.x)
        )
        return found


def linear_deviation(Z: Tensor, z: Tensor) -> Tensor:
    r"""Return ``sqrt(lambda z' (Z'Z + lambda I)^-1 z)``, the deviation of a linear model."""
    V = Z.mT @ Z + NOISE_VAR * torch.eye(Z.shape[-1]).to(Z)
    inner = torch.linalg.solve_triangular(torch.linalg.cholesky(V), z.mT, upper=False)
    return (NOISE_VAR * inner.square().sum(0)).sqrt()


def starvation(options: Options, report: Report) -> None:
    r"""Find the least ratio of each standard deviation to the exact one over all test inputs."""
    names, levels = ("DTC", "SoR", "RFF"), (0.5, 2.0, 8.0)
    least = {key: [] for key in itertools.product(names, levels)}
    sizes = {level: [] for level in levels}
    with report.picture("variance", 1, len(levels), sharey=True) as axes:
        for seed, level in itertools.product(range(options.seeds), levels):
            toy = Toy.make(seed)
            noise = torch.full((len(toy.X),), NOISE_VAR, dtype=torch.float64)
            rule = RidgeLeverageSampling(level)
            generator = torch.Generator().manual_seed(seed)
            S = rule.select(toy.X, toy.kernel, noise, generator=generator)
            found = toy.deviations(S, seed)
            sizes[level].append(len(S))
            for name in names:
                least[name, level].append(float((found[name] / found["exact"]).min()))
            if seed == 0:
                ax = axes[0, levels.index(level)]
                for i, name in enumerate(("exact", *names)):
                    look = {"color": ["k", "C0", "C1", "C2"][i], "ls": ["-", "--", "-.", ":"][i]}
                    ax.plot(toy.x, found[name], label=name, **look)
                ax.plot(toy.X, 0 * toy.X - 0.03, "|", color="0.6", label="observations")
                ax.plot(toy.X[S], 0 * toy.X[S] - 0.08, "^", color="C3", ms=4, label="dictionary")
                ax.set(title=f"oversampling {level:g}: {len(S)} points", xlabel="x")
        axes[0, 0].set_ylabel("posterior standard deviation")
        axes[0, 0].legend(fontsize=7)
    for level in levels:
        record(report, "one dimension", "dictionary", level, "points", sizes[level])
        for name in names:
            values = least[name, level]
            record(report, "one dimension", name, level, "least sd over the exact", values)
            worst = min(values)
            starves = worst < 1 / math.sqrt(ALPHA)
            what = f"oversampling {level:g}: least sd of {name} over the exact one, worst seed"
            asked = ">= 0.58" if name == "DTC" else "starves: < 0.58"
            report.claim(what, asked, worst, starves == (name != "DTC"))


def record(
    report: Report, part: str, what: str, oversampling: float, figure: str, values: list
) -> None:
    low, median, high = map(float, np.quantile(values, [0.1, 0.5, 0.9]))
    report.row(part, what, oversampling, figure, len(values), median, low, high)


# ---------------------------------------------------------------------- along runs of BKB


class Case(NamedTuple):
    r"""The settings of one run of BKB."""

    dim: int
    oversampling: float
    steps: int
    seed: int


class Run(NamedTuple):
    r"""The state of one run at some of its steps."""

    steps: np.ndarray  #: numbers of the steps
    factor: np.ndarray  #: worst of ``DTC / exact`` and ``exact / DTC`` over all arms
    dictionary: np.ndarray  #: number of dictionary points
    dimension: np.ndarray  #: effective dimension


def play(case: Case) -> Run:
    r"""Run one case, and compare it with the exact posterior at some steps."""
    bandit = generated(500, case.dim, math.sqrt(NOISE_VAR), 0, torch.float64)
    kernel = rbf((0.1 if case.dim == 1 else 0.4) ** 2)
    optimizer = BKB(
        bandit.arms, covar_module=kernel, noise_var=NOISE_VAR, oversampling=case.oversampling,
        coupled=False, width=2.0, seed=case.seed,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(case.seed)
    looks = {round(t) for t in np.geomspace(min(10, case.steps), case.steps, 8)}
    found = []
    for t in range(1, case.steps + 1):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, bandit.rewards(suggestion.indices, generator))
        if t in looks:
            model = optimizer.model
            exact = DTCGP(
                model.train_inputs[0], model.train_targets.unsqueeze(-1),
                model.likelihood.noise.unsqueeze(-1), covar_module=kernel, outcome_transform=None,
                dictionary=AllPoints(),
            )  # fmt: skip
            with torch.no_grad():
                a, b = (m.posterior(bandit.arms).variance for m in (model, exact))
            factor = float(torch.maximum(a / b, b / a).max())
            found.append((t, factor, len(optimizer.dictionary), optimizer.effective_dimension))
    return Run(*(np.array(column) for column in zip(*found, strict=True)))


def accuracy(report: Report, runs: dict[Case, Run], theory: float) -> None:
    r"""Compare the bounds of Theorem 1 with the measured accuracy and dictionary size."""
    levels = (*OVERSAMPLING, theory)
    with report.picture("variance_accuracy", 1, 2) as axes:
        for i, dim in enumerate(DIMENSIONS):
            part = f"{dim} dimension{'s' * (dim > 1)}"
            factors, sizes = [], []
            for level in levels:
                some = of(runs, dim=dim, oversampling=level)
                worst = [float(r.factor.max()) for r in some]
                ratios = [float(r.dictionary[-1] / r.dimension[-1]) for r in some]
                record(report, part, "variance", level, "worst factor", worst)
                record(
                    report, part, "dictionary", level, "points", [r.dictionary[-1] for r in some]
                )
                record(report, part, "dictionary", level, "over effective dimension", ratios)
                factors.append(worst)
                sizes.append(ratios)
                share = float(np.mean(np.array(worst) <= ALPHA))
                report.row(part, "variance", level, "share within alpha", len(some), share, "", "")
            x = np.array(levels)
            band(axes[0, 0], np.array(factors).T, part, f"C{i}", x)
            band(axes[0, 1], np.array(sizes).T, part, f"C{i}", x)
            share = float(np.mean(np.array(factors[-1]) <= ALPHA))
            what = f"{part}: runs within alpha = 3 at the theorem's oversampling of {theory:.0f}"
            report.claim(what, f">= {1 - DELTA}", share, share >= 1 - DELTA)
            enough = [q for q, f in zip(levels, factors, strict=True) if np.max(f) <= ALPHA]
            what = f"{part}: least oversampling at which every run is within alpha = 3"
            report.claim(what, "<= the theorem's", min(enough, default=math.inf), bool(enough))
            most = max(
                np.max(ratios) / (3 * (1 + 1 / NOISE_VAR) * ALPHA * q)
                for q, ratios in zip(levels, sizes, strict=True)
            )
            what = f"{part}: dictionary over Theorem 1's bound, at most"
            report.claim(what, "<= 1", float(most), most <= 1)
        axes[0, 0].axhline(ALPHA, color="k", lw=0.8, ls="--", label="alpha = 3")
        axes[0, 0].set(ylabel="worst ratio of variances over a run")
        axes[0, 1].set(ylabel="dictionary over effective dimension")
        for ax in axes[0]:
            ax.axvline(theory, color="0.5", lw=0.8, ls=":", label="oversampling of Theorem 1")
            ax.set(xscale="log", yscale="log", xlabel="oversampling")
            ax.grid(alpha=0.3)
            ax.legend(fontsize=7)
