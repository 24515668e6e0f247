r"""Evaluations and results of about 200 fits along runs, from the last results and from the start.

Six test functions with noise are observed at uniformly random points, 20 to 5,000. Kernel and noise
are fitted at 33 numbers of observations in four ways: by BoTorch's optimizer in stored parameters,
by ours from the initial values, by ours from the results of the last fit as optimizers do, and so
with a second fit from the initial values at each doubling. All have the same dictionary and the
same likelihood. About seventeen minutes with one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.cases import of, play_all
from benchmarks.problems.functions import FUNCTIONS, Problem
from benchmarks.report import Options, Report
from botorch_bkb import DTCGP
from botorch_bkb.models import Surrogate
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.models.log_posterior import LogPosterior
from botorch_bkb.models.loss import Loss
from botorch_bkb.units import UnitCube

SEEDS = 1
STOCK, COLD, WARM, SECOND = (
    "BoTorch's",
    "ours from the start",
    "ours from the last",
    "with restarts",
)
METHODS = (STOCK, COLD, WARM, SECOND)
COLUMNS = ("problem", "seed", "n", "points", "method", "evaluations", "seconds", "log posterior")
#: A difference of log posteriors, in nats, that counts.
NOTABLE = 0.1
#: Beyond the first number of observations, BoTorch's fits and ours from the initial values are made
#: at every third size; beyond the second not at all. The others are made at every size.
MANY, MOST = 1_000, 3_000
NOTES = """
Evaluations of the likelihood and log posteriors are totals and differences over the fits that
BoTorch's optimizer made too. Differences are in nats, relative to BoTorch's."""


class Case(NamedTuple):
    r"""One run."""

    problem: str
    seed: int
    quick: bool


class Run(NamedTuple):
    r"""All fits along a run. Rows are :data:`METHODS`, columns sizes; NaN where not measured."""

    sizes: np.ndarray
    points: np.ndarray
    evaluations: np.ndarray
    seconds: np.ndarray
    log_posterior: np.ndarray


class Fitted(NamedTuple):
    r"""The outcome of one fit."""

    evaluations: int
    seconds: float
    log_posterior: float  #: in nats
    hyper: Hyperparameters | None = None


def run(options: Options, report: Report) -> None:
    r"""Fit along runs of all problems."""
    names = list(FUNCTIONS)[:2] if options.quick else list(FUNCTIONS)
    cases = [Case(p, seed, options.quick) for p in names for seed in range(options.seeds)]
    runs = play_all(play, Run, cases, options)
    record(report, runs)
    show(report, runs, names)
    claim(report, list(runs.values()))
    draw(report, runs, names)


# ---------------------------------------------------------------------- fits


def play(case: Case) -> Run:
    r"""Fit at every size of one run."""
    sizes = np.geomspace(20, 40 if case.quick else 5_000, 4 if case.quick else 33).round()
    problem, generator = Problem(case.problem), torch.Generator().manual_seed(case.seed)
    d = problem.bounds.shape[-1]
    X = torch.rand(int(sizes[-1]), d, generator=generator, dtype=torch.float64)
    Y = problem.observe(UnitCube(problem.bounds).from_unit(X), generator)
    figures = np.full((3, len(METHODS), len(sizes)), np.nan)
    points, chains = np.zeros(len(sizes)), {WARM: Chain(0), SECOND: Chain(2)}
    for i, n in enumerate(sizes.astype(int)):
        data = Data.of(X[:n], Y[:n])
        points[i] = len(data.dictionary)
        fits: dict[str, Callable[[], Fitted]] = {}
        if n <= MANY or (n <= MOST and i % 3 == 2):
            fits |= {STOCK: data.fit_stock, COLD: data.fit_cold}
        for name, chain in chains.items():
            fits[name] = lambda chain=chain, data=data: chain.fit(data)
        for name, fit in fits.items():
            figures[:, METHODS.index(name), i] = fit()[:3]
    return Run(sizes, points, *figures)


class Meter:
    r"""A context manager that measures evaluations of the likelihood and CPU seconds."""

    def __enter__(self) -> Meter:
        self.evaluations, self._evaluate = 0, LogPosterior.evaluate

        def counted(posterior: LogPosterior, values: list[Tensor]) -> Any:
            self.evaluations += 1
            return self._evaluate(posterior, values)

        LogPosterior.evaluate = counted  # type: ignore[method-assign]
        self._start = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._start
        LogPosterior.evaluate = self._evaluate  # type: ignore[method-assign]


class Data(NamedTuple):
    r"""Observations, and the dictionary that the default rule draws for them."""

    X: Tensor
    history: History
    dictionary: Tensor
    found: dict[int, Fitted]  #: fits by the results from which they began

    @classmethod
    def of(cls, X: Tensor, Y: Tensor) -> Data:
        r"""Draw the dictionary with the initial hyperparameters."""
        torch.manual_seed(len(X))
        history = History.empty(X.device).with_pulls(
            torch.arange(len(X), device=X.device), Y, torch.ones_like(Y)
        )
        with torch.no_grad():
            return cls(X, history, DTCGP(X, Y.unsqueeze(-1)).dictionary_indices, {})

    def likelihood(self) -> ExactMarginalLogLikelihood:
        r"""Return the marginal likelihood of standardised outcomes, with the initial values."""
        Y = self.history.standardisation().to_model(self.history.means)
        model = DTCGP(
            self.X, Y.unsqueeze(-1), dictionary=self.dictionary, outcome_transform=None
        )  # fmt: skip
        return ExactMarginalLogLikelihood(model.likelihood, model).train()

    def nats(self, mll: ExactMarginalLogLikelihood) -> float:
        r"""Return the log posterior of a model's hyperparameters."""
        return -len(self.X) * float(Loss()(mll.train()).detach())

    def fit_stock(self) -> Fitted:
        r"""Fit by BoTorch's optimizer in stored parameters."""
        return self._fit_by_botorch(optimizer=fit_gpytorch_mll_scipy)

    def fit_cold(self) -> Fitted:
        r"""Fit by our optimizer in logarithms, from the initial values."""
        return self._fit_by_botorch()

    def _fit_by_botorch(self, **options: Any) -> Fitted:
        mll = self.likelihood()
        with Meter() as cost:
            fit_gpytorch_mll(mll, **options)
        return Fitted(cost.evaluations, cost.seconds, self.nats(mll))

    def fit_from(self, last: Hyperparameters | None) -> Fitted:
        r"""Fit as optimizers do, from the results of the last fit, or return such a fit again."""
        if id(last) not in self.found:
            self.found[id(last)] = self._fit_from(last)
        return self.found[id(last)]

    def _fit_from(self, last: Hyperparameters | None) -> Fitted:
        with Meter() as cost:
            hyper = Surrogate().fit(self.X, self.history, self.dictionary, None, 0, last)
        assert hyper is not None
        mll, units = self.likelihood(), self.history.standardisation()
        mll.model.covar_module.load_state_dict(hyper.kernel.state_dict())
        mll.model.mean_module.constant = units.to_model(hyper.units.offset)
        mll.likelihood.noise = hyper.noise_var
        return Fitted(cost.evaluations, cost.seconds, self.nats(mll), hyper)


class Chain:
    r"""Fits that begin at the results of the last one.

    Args:
        growth: The growth of the observations after which a second fit begins at the initial
            values, and the better result counts; 0 for none.
    """

    def __init__(self, growth: float) -> None:
        self._growth, self._last, self._from = growth, None, 0

    def fit(self, data: Data) -> Fitted:
        r"""Fit to the data."""
        n, first = len(data.X), self._last is None
        found = data.fit_from(self._last)
        if first:
            self._from = n
        elif self._growth and n >= self._growth * self._from:
            other, self._from = data.fit_from(None), n
            best = max(found, other, key=lambda one: one.log_posterior)
            costs = (found.evaluations + other.evaluations, found.seconds + other.seconds)
            found = Fitted(*costs, *best[2:])
        self._last = found.hyper
        return found


# ---------------------------------------------------------------------- what is reported


def compared(runs: list[Run], method: str, other: str = STOCK) -> dict[str, np.ndarray]:
    r"""Return figures of two methods at the fits that BoTorch's optimizer made too."""
    i, j = METHODS.index(method), METHODS.index(other)
    found: dict[str, list[np.ndarray]] = {"evaluations": [], "seconds": [], "log_posterior": []}
    for one in runs:
        measured = np.isfinite(one.evaluations[METHODS.index(STOCK)])
        for name, values in found.items():
            values.append(getattr(one, name)[[i, j]][:, measured])
    return {name: np.concatenate(values, 1) for name, values in found.items()}


def ratio(runs: list[Run], method: str, figure: str, other: str = STOCK) -> float:
    r"""Return a total of a method over another's."""
    ours, theirs = compared(runs, method, other)[figure].sum(1)
    return float(ours / theirs)


def gains(runs: list[Run], method: str, other: str = STOCK) -> np.ndarray:
    r"""Return the nats by which a method's fits are better than another's."""
    ours, theirs = compared(runs, method, other)["log_posterior"]
    return ours - theirs


def record(report: Report, runs: dict[Case, Run]) -> None:
    for case, one in runs.items():
        for k, (n, m) in enumerate(zip(one.sizes, one.points, strict=True)):
            for i, method in enumerate(METHODS):
                if np.isfinite(one.evaluations[i, k]):
                    figures = (float(one.seconds[i, k]), f"{one.log_posterior[i, k]:.4f}")
                    count = int(one.evaluations[i, k])
                    report.row(case.problem, case.seed, int(n), int(m), method, count, *figures)


def show(report: Report, runs: dict[Case, Run], names: list[str]) -> None:
    r"""Print one line per problem and method."""
    heads = ("evaluations", "over", "seconds", "mean nats", "worst", "best", "worse", "better")
    report.say(f"\n{'':14}{'':22}" + "".join(f"{head:>12}" for head in heads))
    for problem in [*names, "all"]:
        some = list(runs.values()) if problem == "all" else of(runs, problem=problem)
        for method in METHODS:
            found, gain = compared(some, method), gains(some, method)
            figures = (
                found["evaluations"][0].mean(), ratio(some, method, "evaluations"),
                found["seconds"][0].mean(), gain.mean(), gain.min(), gain.max(),
                (gain < -NOTABLE).sum(), (gain > NOTABLE).sum(),
            )  # fmt: skip
            report.say(f"{problem:14}{method:22}" + "".join(f"{x:12.3g}" for x in figures))
    report.say(NOTES)
    for case, one in runs.items():
        notable_losses(report, case, one)


def notable_losses(report: Report, case: Case, one: Run) -> None:
    r"""Print the fits from the last results that are worse than ours from the initial values."""
    gain = one.log_posterior[METHODS.index(WARM)] - one.log_posterior[METHODS.index(COLD)]
    for n, nats in zip(one.sizes, gain, strict=True):
        if nats < -NOTABLE:
            report.say(f"{WARM} is worse than from the start: {case.problem}, {n:.0f}: {nats:.2f}")


def claim(report: Report, runs: list[Run]) -> None:
    value = ratio(runs, WARM, "evaluations")
    report.claim(f"evaluations, {WARM} over {STOCK}", "<= 0.2", value, value <= 0.2)
    value = ratio(runs, COLD, "evaluations")
    report.claim(f"evaluations, {COLD} over {STOCK}", "<= 0.5", value, value <= 0.5)
    for method in (COLD, WARM, SECOND):
        gain = gains(runs, method)
        value = float(gain.mean())
        what = f"mean log posterior, {method} minus {STOCK}, nats"
        report.claim(what, ">= 0", value, value >= 0)
        worse, better = int((gain < -NOTABLE).sum()), int((gain > NOTABLE).sum())
        what = f"fits worse by {NOTABLE} nats, {method} against {STOCK}"
        report.claim(what, f"<= {better}, those better", worse, worse <= better)


def draw(report: Report, runs: dict[Case, Run], names: list[str]) -> None:
    r"""Plot evaluations and differences of log posteriors against observations."""
    with report.picture("fits", 1, 3, figsize=(13, 3.8)) as axes:
        for i, method in enumerate(METHODS):
            ours = np.stack([one.evaluations[i] for one in runs.values()])
            sizes = next(iter(runs.values())).sizes
            measured = np.isfinite(ours).all(0)
            axes[0, 0].plot(
                sizes[measured], ours[:, measured].mean(0), "o-", ms=3, color=f"C{i}", label=method
            )
        axes[0, 0].set(
            yscale="log", ylim=(None, 200), ylabel="evaluations of a fit, mean over problems"
        )
        axes[0, 0].legend(fontsize=7)
        for ax, method in zip(axes[0, 1:], (WARM, SECOND), strict=True):
            for j, problem in enumerate(names):
                for one in of(runs, problem=problem):
                    gain = one.log_posterior[METHODS.index(method)] - one.log_posterior[0]
                    measured = np.isfinite(gain)
                    x, y = one.sizes[measured], gain[measured]
                    ax.plot(x, y, "o-", ms=3, lw=0.8, color=f"C{j}", label=problem)
            ax.set_yscale("symlog", linthresh=NOTABLE)
            ax.set(title=method, ylabel="log posterior minus BoTorch's, nats")
            ax.axhspan(-NOTABLE, NOTABLE, color="0.9", zorder=0)
        axes[0, 1].legend(fontsize=7)
        for ax in axes[0]:
            ax.set(xscale="log", xlabel="observations")
            ax.grid(alpha=0.3)
