r"""Regression problems with a given kernel, for models with many data."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.test_functions import Hartmann
from gpytorch.kernels import Kernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.problems.bandits import load

HOUSING, HARTMANN = "California housing", "Hartmann6"


class Regression(NamedTuple):
    r"""Training and test data, outcomes in units of their standard deviation."""

    X: Tensor
    Y: Tensor
    x: Tensor
    y: Tensor

    @property
    def size(self) -> int:
        r"""The number of training rows."""
        return len(self.X)

    def errors(self, mean: Tensor, variance: Tensor) -> tuple[float, float]:
        r"""Return RMSE and NLPD of test outcomes.

        Args:
            mean: Posterior means at ``x``.
            variance: Posterior variances of outcomes at ``x``, with their noise.
        """
        square = (mean - self.y).square()
        nlpd = 0.5 * (torch.log(2 * math.pi * variance) + square / variance)
        return float(square.mean().sqrt()), float(nlpd.mean())


def regression(name: str, data: Path | None, quick: bool) -> Regression:
    r"""Return a problem; its test data are a fifth of the rows, or 4,000 new ones.

    Args:
        name: ``"California housing"``, features in [0, 1], or ``"Hartmann6"``, 5,000 uniform points
            with noise of standard deviation 0.1.
        data: Folder with the table.
        quick: Whether to take few rows.
    """
    generator = torch.Generator().manual_seed(0)
    if name == HOUSING:
        X, y, _ = load("cadata", data, 0.0, in_unit_cube=True)
        num = len(X) * 4 // 5
    else:
        num = 120 if quick else 5_000
        X = torch.rand(num + num * 4 // 5, 6, generator=generator, dtype=torch.float64)
        y = Hartmann(dim=6)(X)
        y = y + 0.1 * torch.randn(len(y), generator=generator, dtype=torch.float64)
    order = torch.randperm(len(X), generator=generator)
    train, test = order[:num], order[num:]
    y = (y - y[train].mean()) / y[train].std()
    return Regression(X[train], y[train], X[test], y[test])


@cache
def with_kernel(name: str, data: Path | None, quick: bool) -> tuple[Regression, Kernel, float]:
    r"""Return a problem with BoTorch's default kernel and a noise variance.

    Both are fitted to the first 1,000 rows with an exact GP.
    """
    problem, num = regression(name, data, quick), 50 if quick else 1_000
    model = SingleTaskGP(problem.X[:num], problem.Y[:num, None], outcome_transform=None)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    kernel = model.covar_module.requires_grad_(False)
    return problem, kernel, float(model.likelihood.noise)
