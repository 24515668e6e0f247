r"""What a step over a box costs after ``t`` observations: our optimizers, and others."""

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
#: Observations of a run before the one that counts: what is first used is nobody's cost.
WARM = 12


class Measured(NamedTuple):
    r"""What was found."""

    cost: Cost
    memory: float  #: MiB by which the largest resident size has grown


def measured(method: str, function: str, t: int, steps: int, limit: float) -> Measured:
    r"""One method after ``t`` Sobol observations; a process of its own makes sense of the memory.

    Args:
        method: Ours or a peer, by name.
        function: Name of the problem.
        t: Observations.
        steps: Over which a step is averaged where fits are rarer.
        limit: Seconds after which some fits of others are stopped.
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
    r"""One of our optimizers with its defaults; telling all results at once is the fit."""
    optimizer = make(bounds=problem.bounds, seed=0)
    fit = stopwatch(lambda: optimizer.tell(X, Y))
    generator = torch.Generator().manual_seed(1)
    step = seconds_a_step(optimizer, lambda new: problem.observe(new, generator), steps)
    return Cost(step, fit, dictionary=len(optimizer.dictionary))


def seconds_a_step(optimizer: Optimizer, observe: Callable[[Tensor], Tensor], steps: int) -> float:
    r"""Of asking and telling, until there are ``steps`` results more."""
    seconds, done = 0.0, 0
    while done < steps:
        start = time.perf_counter()
        suggestion = optimizer.ask(steps - done)
        seconds += time.perf_counter() - start
        Y = observe(suggestion.X)
        start = time.perf_counter()
        optimizer.tell(suggestion, Y)
        seconds += time.perf_counter() - start
        done += len(suggestion)
    return seconds / done
