r"""Optuna's samplers, keeping all workers of an executor busy."""

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
    r"""Where a study stands after some results."""

    trials: int  #: finished ones
    own: float  #: seconds of asking and telling so far
    study: optuna.Study

    def best(self) -> dict[str, Any]:
        r"""Parameters of the trial of highest value."""
        return self.study.best_params


def distribution(dimension: Dimension) -> BaseDistribution:
    r"""What Optuna calls a parameter whose grid is one of whole numbers."""
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
    r"""Ask whenever a worker is free, tell whatever has come back.

    Args:
        sampler: Picks the points.
        space: The parameters.
        objective: Of the parameters; to be maximised.
        executor: Evaluates them.
        workers: How many at a time.
        trials: How many in all.
        goes_on: Asked before every trial; once it says no, those under way are waited for.
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
