r"""Small bandit problems."""

from __future__ import annotations

import torch
from gpytorch.kernels import RBFKernel

from botorch_bkb import BBKB
from tests.problems import rbf

NOISE = 0.1


def kernel(lengthscale: float = 0.4) -> RBFKernel:
    k = RBFKernel().double()
    k.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return k


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
        return {
            "covar_module": kernel(),
            "noise_var": self.noise,
            "norm_bound": self.norm,
            "seed": 0,
            **more,
        }

    def regret(self, rows):
        return float((self.f.max() - self.f[rows]).sum())


def play(optimizer, problem, budget):
    r"""Ask and tell until the budget is spent; yields each suggestion after its results."""
    while optimizer.num_observations < budget:
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, problem.rewards(suggestion.indices))
        yield suggestion


def make(problem, algorithm=BBKB, **more):
    return algorithm(problem.arms, **problem.options(**{"batch_threshold": 40.0, **more}))


def warm(problem, algorithm=BBKB, pulls=30, **more):
    optimizer = make(problem, algorithm, **more)
    rows = torch.arange(pulls)
    optimizer.tell(rows, problem.rewards(rows))
    return optimizer
