r"""A function over a box with a known maximum."""

from __future__ import annotations

import torch

BOUNDS = torch.tensor([[0.0, -5.0], [1.0, 10.0]], dtype=torch.float64)
FAST = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 20}}


def f(X):
    r"""Best at (0.3, 2), where it is zero."""
    return -4 * (X[:, 0] - 0.3).square() - ((X[:, 1] - 2) / 7).square()


def noisy(X, generator):
    return f(X) + 0.01 * torch.randn(len(X), generator=generator, dtype=torch.float64)


def play(optimizer, steps, seed=0):
    r"""Ask and tell until so many steps are done; yields each suggestion after its results."""
    generator = torch.Generator().manual_seed(seed)
    while optimizer.num_steps < steps:
        suggestion = optimizer.ask()
        to_do = suggestion[suggestion.informative]
        optimizer.tell(to_do, noisy(to_do.X, generator))
        yield suggestion
