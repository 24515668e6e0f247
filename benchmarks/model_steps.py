r"""The second part of the study ``model``: steps of the likelihood, fits, acquisition functions.

All times are CPU seconds of one thread, the best of several calls that take turns, except for the
two large fits, which are one run each.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.machine import best_of, in_a_process, peak_memory, stopwatch
from benchmarks.model_cases import EXACT, OURS, SVGP, D, M, Times, closure_of, objective, problem
from benchmarks.problems.functions import Problem as Noisy
from benchmarks.report import Options, Report
from botorch_bkb import DTCGP, BudgetedUCB
from botorch_bkb.acquisition.moments import Marginals
from botorch_bkb.acquisition.scores import LogImprovement, UpperBound
from botorch_bkb.models.reading import read_model

#: CPU seconds of the fit of 5,000 points before likelihood and gradient were analytic, on the
#: machine of the page, and the error of its predictions.
EARLIER_FIT, EARLIER_ERROR = 111.2, 0.164

LARGE_STEP, ZZ = "step, m = 200, closure built", "product Z'Z"
SMALL_STEP, CHOLESKY = "exact step, closure built", "Cholesky factor and inverse"
IN_A_FIT = "exact step of a fit"  # without BoTorch's closure, which fits of ours do not use
SMALL_FIT, FIT_5000, FIT_LARGE = "build and fit, defaults", "fit, defaults", "fit, m = 200"
UCB, LOG_EI = "UCB + gradient, 4 points", "LogEI + gradient, 4 points"
PUBLIC = "ours on DTCGP"  # what users have: ``BudgetedUCB`` and ``LogImprovement``
STOCK_ON_OURS, STOCK = "BoTorch's on DTCGP", "BoTorch's on SingleTaskGP"
#: Seconds of a value and gradient of BoTorch's classes on ``DTCGP`` before they were analytic.
EARLIER_SCORES = {UCB: 1.12e-3, LOG_EI: 1.42e-3}
GIBIBYTES = 6


def run(options: Options, report: Report) -> None:
    r"""Time steps, fits and acquisition functions, and claim what they cost."""
    effort = (2, 0.1) if options.quick else (20, 30.0)
    times = large_steps(
        report, (250, 300) if options.quick else (10_000, 100_000, 1_000_000), effort
    )
    times |= small_steps(report, (20, 30) if options.quick else (50, 200), effort)
    times |= small_fits(report, 20 if options.quick else 150, effort)
    times |= fit_of_noisy_hartmann(report, 60 if options.quick else 5_000)
    times |= largest_fit(report, 300 if options.quick else 1_000_000)
    times |= scores(report, (200, 20) if options.quick else (2_000, 150), effort)
    report.say(f"\n{'milliseconds of CPU time':34}{'':26}{'n':>9}")
    for (operation, name, n), seconds in times.items():
        report.say(f"{operation:34}{name:26}{n:9}{1e3 * seconds:14.4g}")
        report.row(operation, name, n, seconds)


def cpu_best_of(cases: dict, effort: tuple[int, float]) -> Times:
    for call in cases.values():
        call()
    return best_of(cases, *effort, time.process_time)


# ---------------------------------------------------------------------- steps


def large_steps(report: Report, sizes: tuple[int, ...], effort: tuple[int, float]) -> Times:
    r"""Time steps of given dictionaries beside the product ``Z'Z``; the smallest beside SVGP's."""
    times: Times = {}
    for n in sizes:
        p, Z = problem(n), torch.rand(n, M, dtype=torch.float64)
        cases = {
            (LARGE_STEP, OURS, n): closure_of(objective(OURS, p)),
            (ZZ, "torch", n): partial(torch.matmul, Z.mT, Z),
        }
        if n == sizes[0]:
            cases[LARGE_STEP, SVGP, n] = closure_of(objective(SVGP, p))
        times |= cpu_best_of(cases, effort)
        ratio = times[LARGE_STEP, OURS, n] / times[ZZ, "torch", n]
        report.claim(f"{LARGE_STEP}: n={n} over {ZZ}", "<= 4", ratio, ratio <= 4)
    n = sizes[0]
    ratio = times[LARGE_STEP, SVGP, n] / times[LARGE_STEP, OURS, n]
    report.claim(f"{LARGE_STEP}: SVGP over {OURS}, n={n}", "> 1", ratio, ratio > 1)
    return times


def defaults(name: str, X: Tensor, Y: Tensor) -> ExactMarginalLogLikelihood:
    r"""Return the marginal likelihood of a model with default settings."""
    model = DTCGP(X, Y) if name == OURS else SingleTaskGP(X, Y)
    return ExactMarginalLogLikelihood(model.likelihood, model).train()


def small_steps(report: Report, sizes: tuple[int, ...], effort: tuple[int, float]) -> Times:
    r"""Time exact steps beside a factorisation and an inverse, which they need."""
    times: Times = {}
    for n in sizes:
        p = problem(n)
        K = torch.eye(n, dtype=torch.float64) + 1 / n
        cases: dict = {
            (SMALL_STEP, name, n): closure_of(defaults(name, p.X, p.Y)) for name in (OURS, EXACT)
        }
        cases[CHOLESKY, "torch", n] = partial(factor_and_inverse, K)
        cases[IN_A_FIT, OURS, n] = step_of_fit(defaults(OURS, p.X, p.Y))
        times |= cpu_best_of(cases, effort)
        for step in (SMALL_STEP, IN_A_FIT):
            ratio = times[SMALL_STEP, EXACT, n] / times[step, OURS, n]
            report.claim(f"{step}: {EXACT} over {OURS}, n={n}", ">= 10", ratio, ratio >= 10)
            bound = times[step, OURS, n] / times[CHOLESKY, "torch", n]
            report.say(f"   {step}: {OURS} over {CHOLESKY}, n={n}: {bound:.3g}")
    return times


def step_of_fit(mll: ExactMarginalLogLikelihood) -> Callable[[], object]:
    r"""Return the function that a fit of ours calls for the loss and its gradients."""
    posterior = read_model(mll)
    assert posterior is not None
    return partial(posterior.evaluate, [h.array for h in posterior.hyperparameters])


def factor_and_inverse(K: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(K)[0])


# ---------------------------------------------------------------------- fits


def small_fits(report: Report, n: int, effort: tuple[int, float]) -> Times:
    r"""Time whole fits of exact models with default settings."""
    p = problem(n)
    cases = {
        (SMALL_FIT, name, n): lambda name=name: fit_gpytorch_mll(defaults(name, p.X, p.Y))
        for name in (OURS, EXACT)
    }
    times = cpu_best_of(cases, (min(effort[0], 5), effort[1]))
    ratio = times[SMALL_FIT, OURS, n] / times[SMALL_FIT, EXACT, n]
    report.claim(f"{SMALL_FIT}: {OURS} over {EXACT}, n={n}", "<= 0.2", ratio, ratio <= 0.2)
    return times


def fit_of_noisy_hartmann(report: Report, n: int) -> Times:
    r"""Fit Hartmann6 with noise of a tenth of its deviation, and predict 2,000 values."""
    f, generator = Noisy("Hartmann6", noise=0.1), torch.Generator().manual_seed(0)
    X, x = (torch.rand(k, 6, generator=generator, dtype=torch.float64) for k in (n, 2_000))
    torch.manual_seed(0)
    mll = defaults(OURS, X, f.observe(X, generator).unsqueeze(-1))
    seconds = stopwatch(partial(fit_gpytorch_mll, mll), time.process_time)
    with torch.no_grad():
        mean = mll.model.posterior(x).mean.squeeze(-1)
    error = float((mean - f.value(x)).square().mean().sqrt())
    ratio = EARLIER_FIT / seconds
    what = f"{FIT_5000}, n={n}: seconds of the earlier version ({EARLIER_FIT:.0f}) over ours"
    report.claim(what, ">= 10", ratio, ratio >= 10)
    what = f"{FIT_5000}, n={n}: RMSE of 2000 values"
    report.claim(what, f"<= {EARLIER_ERROR} (earlier)", error, error <= EARLIER_ERROR)
    return {(FIT_5000, OURS, n): seconds}


def largest_fit(report: Report, n: int) -> Times:
    r"""Fit the default kernel with a given dictionary in a process of its own."""
    seconds, memory = in_a_process(fit_with_memory, n)
    most = 1024 * GIBIBYTES
    what = f"{FIT_LARGE}, n={n}: peak memory of the process in MiB"
    report.claim(what, f"<= {most}", memory, memory <= most)
    return {(FIT_LARGE, OURS, n): seconds}


def fit_with_memory(n: int) -> tuple[float, float]:
    r"""Return the CPU seconds of a fit and the peak memory of the process in MiB."""
    torch.set_num_threads(1)
    p = problem(n)
    model = DTCGP(p.X, p.Y, dictionary=p.indices, outcome_transform=None)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    return stopwatch(partial(fit_gpytorch_mll, mll), time.process_time), peak_memory()


# ---------------------------------------------------------------------- acquisition functions


def scores(report: Report, sizes: tuple[int, int], effort: tuple[int, float]) -> Times:
    r"""Time value and gradient at four points, beside BoTorch's classes.

    Args:
        report: The report.
        sizes: The number of data and of dictionary points.
        effort: Repeats and budget.
    """
    n, m = sizes
    p = problem(n)
    sparse = DTCGP(p.X, p.Y, dictionary=torch.arange(m), outcome_transform=None).eval()
    exact = SingleTaskGP(p.X[:m], p.Y[:m], outcome_transform=None).eval()
    x = torch.rand(4, 1, p.X.shape[-1], generator=torch.Generator().manual_seed(0)).to(p.X)
    marginals, best_f = Marginals(sparse, 1.0), float(p.Y.max())
    functions: dict[tuple[str, str, int], Any] = {
        (UCB, OURS, n): UpperBound(marginals, 2.0),
        (UCB, PUBLIC, n): BudgetedUCB(sparse, 2.0),
        (UCB, STOCK_ON_OURS, n): UpperConfidenceBound(sparse, beta=4.0),
        (UCB, STOCK, m): UpperConfidenceBound(exact, beta=4.0),
        (LOG_EI, OURS, n): LogImprovement(marginals, best_f),
        (LOG_EI, PUBLIC, n): LogImprovement(sparse, best_f),
        (LOG_EI, STOCK_ON_OURS, n): LogExpectedImprovement(sparse, best_f),
        (LOG_EI, STOCK, m): LogExpectedImprovement(exact, best_f),
    }
    cases: dict[tuple[str, str, int], Callable[[], object]] = {
        key: partial(gradient, function, x) for key, function in functions.items()
    }
    times = cpu_best_of(cases, (effort[0], min(effort[1], 2.0)))
    for operation in (UCB, LOG_EI):
        ours = times[operation, OURS, n]
        earlier = EARLIER_SCORES[operation]
        what = f"{operation}, m={m}: seconds of the earlier version ({earlier:g}) over ours"
        report.claim(what, ">= 8", earlier / ours, earlier / ours >= 8)
        for user, least in ((PUBLIC, 2.5), (STOCK_ON_OURS, 1.5)):
            ratio = times[operation, STOCK, m] / times[operation, user, n]
            what = f"{operation}, m={m}: {STOCK} over {user}"
            report.claim(what, f">= {least}", ratio, ratio >= least)
        for other, k in ((STOCK_ON_OURS, n), (STOCK, m)):
            ratio = times[operation, other, k] / ours
            report.say(f"   {operation}, m={m}: {other} over ours: {ratio:.3g}")
        distance = distance_of_candidates(
            *(functions[operation, o, n] for o in (OURS, STOCK_ON_OURS))
        )
        what = f"{operation}: distance of optimize_acqf's candidates from those of BoTorch's class"
        report.claim(what, "<= 0.001", distance, distance <= 1e-3)
    return times


def distance_of_candidates(*functions: AcquisitionFunction, count: int = 5) -> float:
    r"""Return the largest distance of what ``optimize_acqf`` finds for two functions."""
    found = []
    cube = torch.tensor([[0.0] * D, [1.0] * D], dtype=torch.float64)
    for function, seed in itertools.product(functions, range(count)):
        torch.manual_seed(seed)
        found.append(optimize_acqf(function, cube, q=1, num_restarts=4, raw_samples=64)[0])
    ours, theirs = torch.cat(found).chunk(2)
    return float((ours - theirs).norm(dim=-1).max())


def gradient(function: AcquisitionFunction, x: Tensor) -> Tensor:
    r"""Return the gradient of an acquisition function at ``q x 1 x d`` points."""
    x = x.clone().requires_grad_(True)
    return torch.autograd.grad(function(x).sum(), x)[0]
