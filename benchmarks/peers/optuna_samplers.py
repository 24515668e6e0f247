r"""Optuna's samplers on all workers of an executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any, NamedTuple

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from botorch_bkb.integrations.spaces import Dimension, Space


class Told(NamedTuple):
    r"""The state of an Optuna study after some results."""

    trials: int  #: number of finished trials
    own: float  #: cumulative seconds of asking and telling
    study: optuna.Study

    def best(self) -> dict[str, Any]:
        r"""Return the parameters of the trial with the highest value."""
        return self.study.best_params


def distribution(dimension: Dimension) -> BaseDistribution:
    r"""Convert a dimension to a distribution of Optuna. Grids must be of whole numbers."""
    if dimension.is_choice:
        return CategoricalDistribution(dimension.values)
    if dimension.values is not None:
        return IntDistribution(int(dimension.lower), int(dimension.upper), log=dimension.log)
    return FloatDistribution(dimension.lower, dimension.upper, log=dimension.log)


def play_sampler(
    sampler: optuna.samplers.BaseSampler,
    space: Space,
    objective: Callable[[dict[str, Any]], float],
    executor: Executor,
    workers: int,
    trials: int,
    goes_on: Callable[[], bool],
) -> Iterator[Told]:
    r"""Ask for a trial whenever a worker is free, and tell each result as it arrives.

    Args:
        sampler: Sampler that selects the points.
        space: Search space.
        objective: Function of the parameters to maximise.
        executor: Executor that evaluates the objective.
        workers: Number of trials evaluated at a time.
        trials: Total number of trials.
        goes_on: Function called before every trial. Once it returns False, only the running trials
            are completed.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {dimension.name: distribution(dimension) for dimension in space.dimensions}
    running: dict[Future, optuna.Trial] = {}
    own, told = 0.0, 0
    while True:
        while len(running) < workers and told + len(running) < trials and goes_on():
            start = time.perf_counter()
            trial = study.ask(distributions)
            own += time.perf_counter() - start
            running[executor.submit(objective, trial.params)] = trial
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            start = time.perf_counter()
            study.tell(running.pop(future), future.result())
            own += time.perf_counter() - start
            told += 1
        yield Told(told, own, study)
