r"""Bayesian optimisation over a box with BoTorch's ``SingleTaskGP`` and qLogNEI."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.problems.functions import Problem

QLOGNEI = "SingleTaskGP + qLogNEI"


def fitted(X: Tensor, Y: Tensor, bounds: Tensor) -> SingleTaskGP:
    r"""Fit ``SingleTaskGP`` with its defaults and inputs normalised to the unit cube."""
    model = SingleTaskGP(X, Y.unsqueeze(-1), input_transform=Normalize(X.shape[-1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def next_point(X: Tensor, Y: Tensor, bounds: Tensor) -> tuple[SingleTaskGP, Tensor]:
    r"""Fit a model, and return it with the maximiser of ``qLogNoisyExpectedImprovement``."""
    model = fitted(X, Y, bounds)
    acquisition = qLogNoisyExpectedImprovement(model, X_baseline=X, prune_baseline=True)
    new, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=128)
    return model, new


def play_qlognei(
    problem: Problem, steps: int, generator: torch.Generator, seed: int
) -> Iterator[tuple[Tensor, Tensor | None, float]]:
    r"""Yield each point, the recommendation before it, and the seconds of one core so far.

    The recommendation is None during the initial design.
    """
    d = problem.bounds.shape[-1]
    X = draw_sobol_samples(problem.bounds, n=2 * d + 2, q=1, seed=seed).squeeze(1)[:steps]
    Y, clock = problem.observe(X, generator), 0.0
    for x in X:
        yield x, None, clock
    while len(X) < steps:
        start = time.process_time()
        model, new = next_point(X, Y, problem.bounds)
        clock += time.process_time() - start
        yield new.squeeze(0), X[model.posterior(X).mean.argmax()], clock
        X, Y = torch.cat([X, new]), torch.cat([Y, problem.observe(new, generator)])
