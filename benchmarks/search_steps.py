r"""The CPU time of a step over a box after many observations."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from benchmarks.peers.stock import next_point
from benchmarks.problems.functions import Problem
from benchmarks.search_methods import QLOGNEI
from botorch_bkb import BBKB, BKB
from botorch_bkb.optimizers import Optimizer

OURS: dict[str, type[Optimizer]] = {"BKB": BKB, "BBKB": BBKB}
#: The function, as in the study ``scaling``.
TIMED = "Rosenbrock4"
#: Part of the observations that is observed besides while ours are timed, so that they fit.
MORE = 0.25


class StepCase(NamedTuple):
    r"""The timing of steps after many observations."""

    method: str
    observations: int
    seed: int = 0


class Step(NamedTuple):
    r"""The CPU seconds of a step, with its part of the fits."""

    seconds: float


def play_step(case: StepCase) -> Step:
    r"""Time one step of the reference, or the mean step of ours until a quarter more is known."""
    problem, generator = Problem(TIMED), torch.Generator().manual_seed(0)
    X = draw_sobol_samples(problem.bounds, n=case.observations, q=1, seed=0).squeeze(1)
    Y = problem.observe(X, generator)
    if case.method == QLOGNEI:
        start = time.process_time()
        next_point(X, Y, problem.bounds)
        return Step(time.process_time() - start)
    optimizer = OURS[case.method](bounds=problem.bounds, seed=0)
    optimizer.tell(X, Y)
    return Step(mean_step(optimizer, problem, max(1, round(MORE * len(X))), generator))


def mean_step(
    optimizer: Optimizer, problem: Problem, steps: int, generator: torch.Generator
) -> float:
    r"""Return the mean CPU seconds of asking and telling, over ``steps`` more results."""
    last, seconds = optimizer.num_observations + steps, 0.0
    while optimizer.num_observations < last:
        start = time.process_time()
        suggestion = optimizer.ask(at_most=last - optimizer.num_observations)
        seconds += time.process_time() - start
        Y: Tensor = problem.observe(suggestion.X, generator)
        start = time.process_time()
        optimizer.tell(suggestion, Y)
        seconds += time.process_time() - start
    return seconds / steps
