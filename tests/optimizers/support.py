r"""Small bandit problems."""

from __future__ import annotations

import inspect

import torch
from gpytorch.kernels import RBFKernel

from botorch_bkb import BBKB
from tests.problems import rbf

NOISE = 0.1


def kernel(lengthscale: float = 0.4) -> RBFKernel:
    k = RBFKernel().double()
    k.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return k


def has_constant_width(options) -> bool:
    r"""Whether these arguments, which include a norm, make a width that ignores it."""
    width = options.get("width")
    if width is None:
        return options["covar_module"] is None or options["noise_var"] is None
    return width == "heuristic" or isinstance(width, (int, float))


def takes(algorithm, name) -> bool:
    r"""Whether a class has an argument of that name."""
    return name in inspect.signature(algorithm).parameters


class Problem:
    r"""Arms in a square and a function of known norm, observed with Gaussian noise."""

    def __init__(self, num_arms=60, norm=2.0, noise=NOISE, seed=0, d=2):
        self.generator = torch.Generator().manual_seed(seed)
        self.arms = 2 * torch.rand(num_arms, d, generator=self.generator, dtype=torch.float64)
        self.K = rbf(self.arms, self.arms)
        centres = torch.rand(6, d, generator=self.generator, dtype=torch.float64) * 2
        weights = torch.randn(6, generator=self.generator, dtype=torch.float64)
        square = weights @ rbf(centres, centres) @ weights
        self.f = norm / square.sqrt() * (rbf(self.arms, centres) @ weights)
        self.noise, self.norm = noise, norm

    def rewards(self, rows):
        noise = torch.randn(len(rows), generator=self.generator, dtype=torch.float64)
        return self.f[rows] + self.noise**0.5 * noise

    def options(self, **more):
        r"""Kernel, noise, norm and seed; the norm is left out where the width is constant."""
        options = {
            "covar_module": kernel(),
            "noise_var": self.noise,
            "norm_bound": self.norm,
            "seed": 0,
            **more,
        }
        if "norm_bound" not in more and has_constant_width(options):
            del options["norm_bound"]
        return options

    def regret(self, rows):
        return float((self.f.max() - self.f[rows]).sum())


def play(optimizer, problem, budget):
    r"""Ask and tell until the budget is spent; yields each suggestion after its results."""
    while optimizer.num_observations < budget:
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, problem.rewards(suggestion.indices))
        yield suggestion


def make(problem, algorithm=BBKB, **more):
    r"""An optimizer of the problem; its batches are large where its class has a threshold."""
    if takes(algorithm, "batch_threshold"):
        more = {"batch_threshold": 40.0, **more}
    return algorithm(problem.arms, **problem.options(**more))


def warm(problem, algorithm=BBKB, pulls=30, **more):
    optimizer = make(problem, algorithm, **more)
    rows = torch.arange(pulls)
    optimizer.tell(rows, problem.rewards(rows))
    return optimizer
