r"""Runs over a box with each of the compared methods."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from benchmarks.peers.stock import QLOGNEI, play_qlognei
from benchmarks.problems.functions import Problem, grid
from botorch_bkb import BBKB, BKB, GPUCB, AdaBBKB, AdaBKB, AdaGPUCB, QuadratureFeatures
from botorch_bkb.domains import Tree
from botorch_bkb.optimizers import Optimizer


class Case(NamedTuple):
    r"""The settings of one run."""

    function: str
    method: str
    steps: int
    seed: int


class Run(NamedTuple):
    r"""The outcome of one run."""

    regret: np.ndarray  #: regret of each evaluation
    simple: np.ndarray  #: simple regret of the recommendation after each batch
    seconds: np.ndarray  #: cumulative time of the optimizer on one core
    cells: int  #: number of leaves of the tree that were not pruned, 0 without a tree


def with_optimizer(make: Callable[[Tensor, int], Optimizer]) -> Callable[..., Run]:
    r"""Return a function that runs the optimizer that ``make`` returns for bounds and a seed."""

    def run(problem: Problem, steps: int, seed: int) -> Run:
        generator = torch.Generator().manual_seed(seed)
        optimizer, clock = make(problem.bounds, seed), 0.0
        regret, simple, seconds = [], [], []
        while len(regret) < steps:
            start = time.process_time()
            suggestion = optimizer.ask(at_most=steps - len(regret))
            clock += time.process_time() - start
            Y = problem.observe(suggestion.X, generator)
            start = time.process_time()
            optimizer.tell(suggestion, Y)
            clock += time.process_time() - start
            regret += (problem.best - problem.value(suggestion.X)).tolist()
            best = problem.value(optimizer.best().X.unsqueeze(0))
            simple += [problem.best - float(best)] * len(suggestion)
            seconds += [clock] * len(suggestion)
        cells = len(optimizer.tree.leaves) if isinstance(optimizer.domain, Tree) else 0
        return Run(np.array(regret), np.array(simple), np.array(seconds), cells)

    return run


def qlognei(problem: Problem, steps: int, seed: int) -> Run:
    r"""Run ``SingleTaskGP`` and ``qLogNoisyExpectedImprovement``, with a fit at every step."""
    generator = torch.Generator().manual_seed(seed)
    regret, simple, seconds = [], [], []
    for x, best, clock in play_qlognei(problem, steps, generator, seed):
        regret.append(problem.best - float(problem.value(x)))
        simple.append(math.nan if best is None else problem.best - float(problem.value(best)))
        seconds.append(clock)
    return Run(np.array(regret), np.array(simple), np.array(seconds), 0)


def sobol(problem: Problem, steps: int, seed: int) -> Run:
    r"""Evaluate a Sobol design, and recommend its best observation so far."""
    generator = torch.Generator().manual_seed(seed)
    X = draw_sobol_samples(problem.bounds, n=steps, q=1, seed=seed).squeeze(1)
    Y, value = problem.observe(X, generator), problem.value(X)
    best = [int(Y[: i + 1].argmax()) for i in range(steps)]
    regret = (problem.best - value).numpy()
    return Run(regret, regret[best], np.zeros(steps), 0)


#: Nodes of the quadrature in each dimension, by the number of dimensions.
NODES = {1: 500, 2: 24, 3: 10}


def with_features(bounds: Tensor, seed: int, acquisition: str) -> Optimizer:
    r"""Return QFF-UCB or QFF-TS."""
    return BKB(
        bounds=bounds,
        dictionary=QuadratureFeatures(NODES[bounds.shape[-1]]),
        acquisition=acquisition,
        width=2.0,
        seed=seed,
    )


METHODS: dict[str, Callable[..., Run]] = {
    "BKB": with_optimizer(lambda b, seed: BKB(bounds=b, seed=seed, width=2.0)),
    "BBKB": with_optimizer(lambda b, seed: BBKB(bounds=b, seed=seed, width=2.0)),
    "exact GP-UCB": with_optimizer(lambda b, seed: GPUCB(bounds=b, seed=seed, width=2.0)),
    "AdaBKB": with_optimizer(lambda b, seed: AdaBKB(bounds=b, seed=seed)),
    "AdaBKB (1, 1/2)": with_optimizer(
        lambda b, seed: AdaBKB(bounds=b, seed=seed, radius=(1.0, 0.5))
    ),
    "AdaBBKB": with_optimizer(lambda b, seed: AdaBBKB(bounds=b, seed=seed)),
    "AdaGP-UCB": with_optimizer(lambda b, seed: AdaGPUCB(bounds=b, seed=seed)),
    "BKB on a grid": with_optimizer(lambda b, seed: BKB(grid(b, 2000), seed=seed)),
    "Sobol": sobol,
    QLOGNEI: qlognei,
    "QFF-UCB": with_optimizer(lambda b, seed: with_features(b, seed, "ucb")),
    "QFF-TS": with_optimizer(lambda b, seed: with_features(b, seed, "thompson")),
}


def play(case: Case) -> Run:
    r"""Run one case."""
    return METHODS[case.method](Problem(case.function), case.steps, case.seed)
