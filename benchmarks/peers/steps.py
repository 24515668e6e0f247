r"""The cost of a step over a box for other methods, after ``t`` observations."""

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

#: Number of inducing points of the sparse models.
INDUCING = 200


class Cost(NamedTuple):
    r"""The cost of a step in seconds."""

    step: float  #: seconds of one step, including its fit if there is one at every step
    fit: float = 0.0  #: seconds of a fit that serves many steps
    stopped: bool = False  #: whether that fit was stopped at the limit
    dictionary: int = 0  #: number of dictionary points


#: A function of a problem, ``t`` inputs, their observations, the number of steps after a fit, and
#: the seconds that a fit may take.
Stepping = Callable[[Problem, Tensor, Tensor, int, float], Cost]


class Peer(NamedTuple):
    r"""A method that ours are compared with."""

    cost: Stepping
    most: int  #: observations beyond which it takes many minutes or many gigabytes


def qlognei(problem: Problem, X: Tensor, Y: Tensor, steps: int, limit: float) -> Cost:
    r"""Measure a step with ``SingleTaskGP`` and qLogNEI, including its fit."""
    return Cost(stopwatch(partial(next_point, X, Y, problem.bounds)))


def maximiser(model: Model, bounds: Tensor, **more: Any) -> Tensor:
    r"""Maximise the upper confidence bound with the same search as our optimizers."""
    bound = UpperConfidenceBound(model, beta=4)
    return optimize_acqf(bound, bounds, q=1, num_restarts=4, raw_samples=128, **more)[0]


def exact_ucb(problem: Problem, X: Tensor, Y: Tensor, steps: int, limit: float) -> Cost:
    r"""Measure ``SingleTaskGP`` with UCB, conditioned on each result until the next fit."""
    start = time.perf_counter()
    model = fitted(X, Y, problem.bounds)
    x = maximiser(model, problem.bounds)  # the first call computes the factorisation
    fit = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(steps):
        model = model.condition_on_observations(x, problem.value(x).unsqueeze(-1))
        x = maximiser(model, problem.bounds)
    return Cost((time.perf_counter() - start) / steps, fit)


def sparse_ucb(fit: Callable[[Tensor, Tensor, int, float], Model], **more: Any) -> Stepping:
    r"""Return a function that measures a sparse model with UCB, which sees results at fits only."""

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
    r"""Measure a trial of Optuna's ``GPSampler``, which fits at every trial."""
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
    r"""Measure a trial of Ax's default strategy, which fits at every trial."""
    from benchmarks.peers.ax_client import client_after, seconds_a_trial

    return Cost(seconds_a_trial(client_after(problem.bounds, X, Y), float(Y.mean())))


AX = "Ax default"
#: SGPR needs memory for ``n x m`` numbers per point of a batch, hence its ``init_batch_limit``.
PEERS = {
    QLOGNEI: Peer(qlognei, 2_000),
    "SingleTaskGP + UCB": Peer(exact_ucb, 2_000),
    "SVGP + UCB": Peer(sparse_ucb(fitted_svgp), 100_000),
    "SGPR + UCB": Peer(sparse_ucb(fitted_sgpr, options={"init_batch_limit": 16}), 10_000),
    "Optuna GPSampler": Peer(optuna_gp, 2_000),
    AX: Peer(ax_default, 2_000),
}
