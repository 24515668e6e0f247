r"""Runs of Ada-BKB with kernel and noise given: its radius, its cost, its certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from benchmarks.problems.functions import Problem, grid
from botorch_bkb import BKB, AdaBKB, AdaGPUCB
from botorch_bkb.domains import Tree
from botorch_bkb.optimizers import Optimizer

#: Radii by name. The box of Branin is 15 wide, and the kernel's lengthscale 4.5.
RADII: dict[str, Any] = {
    "kernel": "kernel",
    "(1, 1/2)": (1.0, 0.5),
    "(1.4, 0.58)": (2**0.5, 3**-0.5),
}


class Step(NamedTuple):
    r"""The state of a run after some evaluations."""

    t: int
    seconds: float  #: per evaluation, since the one before
    regret: float  #: cumulative
    dictionary: int
    leaves: int  #: of the tree, without those pruned; rows of a grid
    pruned: int


def branin() -> tuple[Problem, dict[str, Any]]:
    r"""Return Branin with little noise, so that a high resolution is worthwhile, and its model."""
    problem = Problem("Branin", noise=0.01)
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = 0.3 * (problem.bounds[1] - problem.bounds[0])
    given = {"covar_module": kernel, "noise_var": problem.noise**2, "width": 2.0, "seed": 0}
    return problem, given


def steps(optimizer: Optimizer, problem: Problem, times: tuple[int, ...]) -> list[Step]:
    r"""Run an optimizer, and look at it at some times."""
    generator, found = torch.Generator().manual_seed(0), []
    clock = regret = 0.0
    since = 0
    for t in range(1, times[-1] + 1):
        start = time.process_time()
        suggestion = optimizer.ask()
        clock += time.process_time() - start
        Y = problem.observe(suggestion.X, generator)
        start = time.process_time()
        optimizer.tell(suggestion, Y)
        clock += time.process_time() - start
        regret += float((problem.best - problem.value(suggestion.X)).sum())
        if t in times:
            seconds = clock / (t - since)
            found.append(Step(t, seconds, regret, len(optimizer.dictionary), *_size(optimizer)))
            clock, since = 0.0, t
    return found


def _size(optimizer: Optimizer) -> tuple[int, int]:
    if not isinstance(optimizer.domain, Tree):
        return len(optimizer.table.X), 0
    return len(optimizer.tree.leaves), len(optimizer.tree.pruned)


def with_radius(name: str, budget: int) -> Step:
    r"""Run Ada-BKB on Branin with a radius."""
    problem, given = branin()
    return steps(AdaBKB(problem.bounds, radius=RADII[name], **given), problem, (budget,))[0]


#: Methods whose cost is compared.
GROWING: dict[str, Callable[[Tensor, dict[str, Any]], Optimizer]] = {
    "AdaBKB": lambda b, given: AdaBKB(b, **given),
    "AdaGPUCB": lambda b, given: AdaGPUCB(b, **given),
    "BKB on 2,025 points": lambda b, given: BKB(grid(b, 2000), **given),
}


def growth(name: str, times: tuple[int, ...]) -> list[Step]:
    r"""Run a method on Branin, and measure its steps as results accumulate."""
    problem, given = branin()
    return steps(GROWING[name](problem.bounds, given), problem, times)


def certified(kind: type[AdaBKB] | type[AdaGPUCB], seed: int, budget: int) -> bool:
    r"""Return whether ``gap`` bounds the regret of ``best`` at all steps of a run.

    The function has norm one, and everything is as the theorem demands.
    """
    generator = torch.Generator().manual_seed(seed)
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.3
    Z = torch.rand(8, 2, generator=generator, dtype=torch.float64)
    w = torch.randn(8, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        w = w / (w @ kernel(Z).to_dense() @ w).sqrt()

    @torch.no_grad()
    def f(X: Tensor) -> Tensor:
        return kernel(X, Z).to_dense() @ w

    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    highest = float(f(grid(bounds, 40_000)).max())
    theory: dict[str, Any] = {"width": "theory", "norm_bound": 1.0, "delta": 0.1}
    if kind is AdaBKB:
        theory |= {"oversampling": "theory", "coupled": False, "horizon": budget}
    optimizer = kind(bounds, covar_module=kernel, noise_var=0.01, seed=seed, **theory)
    for _ in range(budget):
        suggestion = optimizer.ask()
        noise = 0.1 * torch.randn(len(suggestion), generator=generator, dtype=torch.float64)
        optimizer.tell(suggestion, f(suggestion.X) + noise)
        if highest - float(f(optimizer.best().X.unsqueeze(0))) > optimizer.gap():
            return False
    return True
