r"""The cost of a step over a box after ``t`` observations, for our optimizers and others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from benchmarks.machine import peak_memory, stopwatch
from benchmarks.peers.steps import PEERS, Cost
from benchmarks.problems.functions import Problem
from botorch_bkb import BBKB, BKB
from botorch_bkb.optimizers import Optimizer

OURS: dict[str, type[Optimizer]] = {"BKB": BKB, "BBKB": BBKB}
#: Observations of a warm-up run. It excludes one-time costs, such as imports, from the timing.
WARM = 12


class Measured(NamedTuple):
    r"""The time and memory of one method."""

    cost: Cost
    memory: float  #: growth of the peak resident memory in MiB


def measured(method: str, function: str, t: int, steps: int, limit: float) -> Measured:
    r"""Measure one method after ``t`` Sobol observations.

    Call it in a separate process, so that the memory is that of this method alone.

    Args:
        method: Name of one of our optimizers or of a peer.
        function: Name of the problem.
        t: Number of observations.
        steps: Number of steps to average over, for methods that do not fit at every step.
        limit: Seconds after which the fits of some peers are stopped.
    """
    warnings.simplefilter("ignore")
    problem, generator = Problem(function), torch.Generator().manual_seed(0)
    X = draw_sobol_samples(problem.bounds, n=max(t, WARM), q=1, seed=0).squeeze(1)
    Y = problem.observe(X, generator)
    cost = partial(cost_of, OURS[method]) if method in OURS else PEERS[method].cost
    if t > WARM:
        cost(problem, X[:WARM], Y[:WARM], 1, 0.1)
    before = peak_memory()
    return Measured(cost(problem, X[:t], Y[:t], steps, limit), peak_memory() - before)


def cost_of(
    make: type[Optimizer], problem: Problem, X: Tensor, Y: Tensor, steps: int, limit: float
) -> Cost:
    r"""Measure one of our optimizers with its defaults. The fit is to tell all results at once."""
    optimizer = make(bounds=problem.bounds, seed=0)
    fit = stopwatch(lambda: optimizer.tell(X, Y))
    generator = torch.Generator().manual_seed(1)
    step = seconds_a_step(optimizer, lambda new: problem.observe(new, generator), steps)
    return Cost(step, fit, dictionary=len(optimizer.dictionary))


def seconds_a_step(optimizer: Optimizer, observe: Callable[[Tensor], Tensor], steps: int) -> float:
    r"""Return the mean seconds per step of asking and telling, over ``steps`` more results."""
    seconds, done = 0.0, 0
    while done < steps:
        start = time.perf_counter()
        suggestion = optimizer.ask(at_most=steps - done)
        seconds += time.perf_counter() - start
        Y = observe(suggestion.X)
        start = time.perf_counter()
        optimizer.tell(suggestion, Y)
        seconds += time.perf_counter() - start
        done += len(suggestion)
    return seconds / done
