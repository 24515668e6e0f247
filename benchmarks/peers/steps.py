r"""What a step over a box costs others, after ``t`` observations."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from botorch.acquisition import UpperConfidenceBound
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from torch import Tensor

from benchmarks.machine import stopwatch
from benchmarks.peers.sparse import fitted_sgpr, fitted_svgp
from benchmarks.peers.stock import QLOGNEI, fitted, next_point
from benchmarks.problems.functions import Problem

#: Inducing points of the sparse models.
INDUCING = 200


class Cost(NamedTuple):
    r"""Seconds."""

    step: float  #: of one step, its own fit included where each has one
    fit: float = 0.0  #: of a fit that serves many steps
    stopped: bool = False  #: whether that fit was stopped at the limit
    dictionary: int = 0


#: Of a problem, ``t`` inputs and observations, steps after a fit, and seconds a fit may take.
Stepping = Callable[[Problem, Tensor, Tensor, int, float], Cost]


class Peer(NamedTuple):
    r"""Something one would take instead."""

    cost: Stepping
    most: int  #: observations beyond which it takes many minutes, or many gigabytes


def qlognei(problem: Problem, X: Tensor, Y: Tensor, steps: int, limit: float) -> Cost:
    r"""A fit of ``SingleTaskGP`` and the maximiser of qLogNEI."""
    return Cost(stopwatch(partial(next_point, X, Y, problem.bounds)))


def maximiser(model: Model, bounds: Tensor, **more: Any) -> Tensor:
    r"""Of the upper confidence bound, by the search our optimizers use."""
    bound = UpperConfidenceBound(model, beta=4)
    return optimize_acqf(bound, bounds, q=1, num_restarts=4, raw_samples=128, **more)[0]


def exact_ucb(problem: Problem, X: Tensor, Y: Tensor, steps: int, limit: float) -> Cost:
    r"""``SingleTaskGP`` with UCB, conditioned on each result until the next fit."""
    start = time.perf_counter()
    model = fitted(X, Y, problem.bounds)
    x = maximiser(model, problem.bounds)  # the first has the factorisation to do
    fit = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(steps):
        model = model.condition_on_observations(x, problem.value(x).unsqueeze(-1))
        x = maximiser(model, problem.bounds)
    return Cost((time.perf_counter() - start) / steps, fit)


def sparse_ucb(fit: Callable[[Tensor, Tensor, int, float], Model], **more: Any) -> Stepping:
    r"""A sparse model with UCB; it learns of results with the next fit only."""

    def cost(problem: Problem, X: Tensor, Y: Tensor, steps: int, limit: float) -> Cost:
        low, high = problem.bounds
        unit = (X - low) / (high - low)
        start = time.perf_counter()
        model = fit(unit, Y, INDUCING, limit)
        fitting = time.perf_counter() - start
        cube = (problem.bounds - low) / (high - low)
        step = stopwatch(lambda: [maximiser(model, cube, **more) for _ in range(steps)]) / steps
        return Cost(step, fitting, fitting >= limit)

    return cost


def optuna_gp(problem: Problem, X: Tensor, Y: Tensor, steps: int, limit: float) -> Cost:
    r"""A trial of Optuna's ``GPSampler``, which fits at each."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    box = {
        f"x{i}": optuna.distributions.FloatDistribution(low, high)
        for i, (low, high) in enumerate(problem.bounds.T.tolist())
    }
    study = optuna.create_study(sampler=optuna.samplers.GPSampler(seed=0), direction="maximize")
    for x, y in zip(X.tolist(), Y.tolist(), strict=True):
        params = dict(zip(box, x, strict=True))
        study.add_trial(optuna.trial.create_trial(params=params, distributions=box, value=y))
    value = float(Y.mean())
    return Cost(stopwatch(lambda: study.tell(study.ask(box), value)))


def ax_default(problem: Problem, X: Tensor, Y: Tensor, steps: int, limit: float) -> Cost:
    r"""A trial of Ax's default strategy, which fits at each."""
    from benchmarks.peers.ax_client import client_after, seconds_a_trial

    return Cost(seconds_a_trial(client_after(problem.bounds, X, Y), float(Y.mean())))


AX = "Ax default"
#: SGPR has ``n x m`` numbers for each point it is asked about at a time.
PEERS = {
    QLOGNEI: Peer(qlognei, 2_000),
    "SingleTaskGP + UCB": Peer(exact_ucb, 2_000),
    "SVGP + UCB": Peer(sparse_ucb(fitted_svgp), 100_000),
    "SGPR + UCB": Peer(sparse_ucb(fitted_sgpr, options={"init_batch_limit": 16}), 10_000),
    "Optuna GPSampler": Peer(optuna_gp, 2_000),
    AX: Peer(ax_default, 2_000),
}
