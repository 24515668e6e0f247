r"""BoTorch's own pieces over a box: ``SingleTaskGP`` with qLogNEI, and a Sobol design."""

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
    r"""``SingleTaskGP`` with its defaults over a normalised box."""
    model = SingleTaskGP(X, Y.unsqueeze(-1), input_transform=Normalize(X.shape[-1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def next_point(X: Tensor, Y: Tensor, bounds: Tensor) -> tuple[SingleTaskGP, Tensor]:
    r"""A fit, and the maximiser of ``qLogNoisyExpectedImprovement``."""
    model = fitted(X, Y, bounds)
    acquisition = qLogNoisyExpectedImprovement(model, X_baseline=X, prune_baseline=True)
    new, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=128)
    return model, new


def play_qlognei(
    problem: Problem, steps: int, generator: torch.Generator, seed: int
) -> Iterator[tuple[Tensor, Tensor | None, float]]:
    r"""What is evaluated, the recommendation before it (None in the design), seconds of a core."""
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
