r"""Ada-BKB's claims: cells bound how a function varies, and the gap bounds the regret."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.problems.bandits import rbf
from benchmarks.theorems.problems import DELTA, LENGTHSCALE, NORM
from botorch_bkb import AdaBBKB, AdaBKB, AllPoints

NOISE_VAR = 0.05


class Known:
    r"""A function of known norm on a box, with its highest value on a fine grid."""

    def __init__(self, seed: int, dim: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.kernel = rbf(LENGTHSCALE**2)
        self.bounds = torch.tensor([[0.0] * dim, [1.5] * dim], dtype=torch.float64)
        self.centres = 1.5 * torch.rand(5, dim, generator=self.generator, dtype=torch.float64)
        w = torch.randn(5, generator=self.generator, dtype=torch.float64)
        K = self.kernel(self.centres).to_dense().detach()
        self.weights = NORM * w / (w @ K @ w).sqrt()
        line = torch.linspace(0, 1.5, 401 if dim == 1 else 61, dtype=torch.float64)
        self.highest = float(self(torch.cartesian_prod(*[line] * dim).reshape(-1, dim)).max())

    def __call__(self, X: Tensor) -> Tensor:
        r"""Return the values without noise."""
        return self.kernel(X, self.centres).to_dense().detach() @ self.weights

    def rewards(self, X: Tensor) -> Tensor:
        r"""Return noisy rewards."""
        noise = torch.randn(len(X), generator=self.generator, dtype=torch.float64)
        return self(X) + NOISE_VAR**0.5 * noise


def check(dim: int, seed: int, steps: int) -> dict[str, float]:
    r"""Check the radius of cells and the certificate of both algorithms."""
    found = {}
    for name, kind in (("Ada-BKB", AdaBKB), ("Ada-BBKB", AdaBBKB)):
        problem = Known(seed, dim)
        optimizer = kind(
            bounds=problem.bounds, covar_module=problem.kernel, noise_var=NOISE_VAR,
            norm_bound=NORM, delta=DELTA, width="theory", dictionary=AllPoints(), seed=seed,
        )  # fmt: skip
        worst = 0.0
        while optimizer.num_observations < steps:
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, problem.rewards(suggestion.X))
            regret = problem.highest - float(problem(optimizer.best(by="lower").X.unsqueeze(0)))
            worst = max(worst, regret / optimizer.gap())
        found[f"{name}: regret of the recommendation over the gap"] = worst
        found[f"{name}: variation within a cell over its radius"] = variation(
            problem, optimizer.tree.lower, optimizer.tree.upper
        )
    return found


def variation(problem: Known, lower: Tensor, upper: Tensor) -> float:
    r"""Return how far a function varies from the centre of a cell, over ``F d_k`` to a corner."""
    centre = (lower + upper) / 2
    near = torch.exp(-((upper - centre) ** 2).sum(-1) / (2 * LENGTHSCALE**2))
    radius = NORM * (2 - 2 * near).sqrt()
    shape = (16, *lower.shape)
    u = torch.rand(shape, generator=problem.generator, dtype=torch.float64)
    X = lower + u * (upper - lower)
    values = problem(X.reshape(-1, shape[-1])).reshape(shape[:-1])
    return float(((values - problem(centre)).abs().amax(0) / radius).max())
