r"""BoTorch's test functions with noise, in units of their standard deviation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, Rosenbrock, Shekel
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

FUNCTIONS: dict[str, Callable[[], Any]] = {
    "Branin": lambda: Branin(negate=True),
    "Hartmann6": lambda: Hartmann(dim=6, negate=True),
    "Ackley5": lambda: Ackley(dim=5, negate=True),
    "Rosenbrock": lambda: Rosenbrock(dim=2, negate=True),
    "Levy": lambda: Levy(dim=4, negate=True),
    "Shekel": lambda: Shekel(negate=True),
}
#: Functions with their maximum at the centre of the box. A tree begins there and every odd grid has
#: it, so their boxes are cut.
CENTRED = ("Ackley5",)
#: Functions for the study ``scaling`` alone.
ALSO = {"Rosenbrock4": lambda: Rosenbrock(dim=4, negate=True)}
#: Functions of one and three dimensions, for methods that are made for few dimensions.
FEW = {
    "Levy1": lambda: Levy(dim=1, negate=True),
    "Hartmann3": lambda: Hartmann(dim=3, negate=True),
}


def cut(bounds: Tensor) -> Tensor:
    r"""Cut less than three tenths off one end of each side, by fixed irrational parts of it."""
    primes = (2, 3, 5, 7, 11, 13)[: bounds.shape[-1]]
    parts = torch.tensor([math.sqrt(p) % 1 - 0.5 for p in primes], dtype=bounds.dtype)
    ends = torch.stack([parts.clamp_min(0), parts.clamp_max(0)])
    return bounds + ends * (bounds[1] - bounds[0])


class Problem:
    r"""A test function in units of its standard deviation over the box.

    Its maximum is not at the centre of the box.

    Args:
        name: Name of the function.
        noise: Standard deviation of the noise, in the same units.
    """

    def __init__(self, name: str, noise: float = 0.1) -> None:
        self.noise = noise
        self.f = {**FUNCTIONS, **ALSO, **FEW}[name]().to(torch.float64)
        self.bounds = self.f.bounds.to(torch.float64)
        if name in CENTRED:
            self.bounds = cut(self.bounds)
        sample = self.f(draw_sobol_samples(self.bounds, n=4096, q=1, seed=0).squeeze(1))
        self.unit, self.mean = float(sample.std()), float(sample.mean())
        self.best = (float(self.f.optimal_value) - self.mean) / self.unit

    def value(self, X: Tensor) -> Tensor:
        r"""Return the values without noise."""
        return (self.f(X) - self.mean) / self.unit

    def observe(self, X: Tensor, generator: torch.Generator) -> Tensor:
        r"""Return noisy values."""
        noise = torch.randn(len(X), generator=generator, dtype=torch.float64)
        return self.value(X) + self.noise * noise


def grid(bounds: Tensor, cells: int) -> Tensor:
    r"""Return the centres of a regular grid of about ``cells`` cells."""
    d = bounds.shape[-1]
    side = max(2, round(cells ** (1 / d)))
    steps = (torch.arange(side, dtype=bounds.dtype) + 0.5) / side
    axes = [low + steps * (high - low) for low, high in bounds.T]
    return torch.cartesian_prod(*axes).reshape(-1, d)
