r"""The functions of the study ``search``, moved off the centres of their boxes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch import test_functions
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

CHOOSE, REPORT = "choose", "report"
#: How close to a side of its box a maximum may be, as a part of the sides.
MARGIN = 0.1
#: Number of Fourier features of a draw from a Gaussian process.
FEATURES = 2_000


class Function(NamedTuple):
    r"""A function of the study.

    Attributes:
        half: ``"choose"`` if choices may be made on it, ``"report"`` if not.
        make: Name of a class of BoTorch, or of a kernel for a draw from a Gaussian process.
        dim: Number of coordinates that matter.
        noise: Standard deviation of the noise, in standard deviations of the function.
        of: Number of all coordinates, if some do not matter.
        shift: The furthest that the box is moved, as a part of its sides. Functions with their
            maximum at the centre are moved further.
    """

    half: str
    make: str
    dim: int
    noise: float = 0.1
    of: int | None = None
    shift: float = 0.1


FUNCTIONS: dict[str, Function] = {
    "Branin2": Function(CHOOSE, "Branin", 2),
    "Hartmann4": Function(CHOOSE, "Hartmann", 4),
    "Rosenbrock4": Function(CHOOSE, "Rosenbrock", 4, noise=0.01),
    "Ackley5": Function(CHOOSE, "Ackley", 5, shift=0.3),
    "StyblinskiTang5": Function(CHOOSE, "StyblinskiTang", 5, noise=1.0),
    "DrawRBF4": Function(CHOOSE, "RBF", 4),
    "Levy12": Function(CHOOSE, "Levy", 12, shift=0.3),
    "Hartmann3in10": Function(CHOOSE, "Hartmann", 3, of=10),
    "SixHumpCamel2": Function(REPORT, "SixHumpCamel", 2, noise=0.01),
    "Hartmann6": Function(REPORT, "Hartmann", 6),
    "Michalewicz5": Function(REPORT, "Michalewicz", 5),
    "Rastrigin4": Function(REPORT, "Rastrigin", 4, shift=0.3),
    "Cosine8": Function(REPORT, "Cosine8", 8, noise=1.0, shift=0.3),
    "DrawMatern6": Function(REPORT, "Matern", 6),
    "Ackley10": Function(REPORT, "Ackley", 10, shift=0.3),
    "Hartmann6in20": Function(REPORT, "Hartmann", 6, of=20),
}
#: Classes of BoTorch that do not take the number of dimensions.
FIXED = ("Branin", "SixHumpCamel", "Cosine8")
#: Length-scale and seed of draws: the first seed with the maximum off all sides of the box.
DRAWS = {"RBF": (0.3, 4), "Matern": (0.5, 4)}
#: Maximisers that BoTorch does not have. Those of draws were found by a long search.
MAXIMISERS: dict[str, tuple[float, ...]] = {
    "Michalewicz5": (2.202905516, 1.570796326, 1.284991569, 1.923058469, 1.720469774),
    "Hartmann4": (0.187395272, 0.194151532, 0.557917783, 0.264779622),
    "DrawRBF4": (0.702319869, 0.964308351, 0.571713221, 0.69733719),
    "DrawMatern6": (0.246989202, 0.933939692, 0.340925222, 0.643700736, 0.861792445, 0.022606583),
}


class Draw:
    r"""A draw from a Gaussian process on the unit cube by random Fourier features.

    ``f(x) = sqrt(2 / F) sum_i a_i cos(w_i . x + b_i)`` with standard normal ``a``, uniform phases
    and frequencies from the kernel's spectral density (Rahimi and Recht 2007).

    Args:
        kernel: ``"RBF"`` or ``"Matern"``, with smoothness 5/2.
        dim: Number of dimensions.
        length: Length-scale of all dimensions.
        seed: Seed of the draw.
    """

    def __init__(self, kernel: str, dim: int, length: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        frequencies = rng.standard_normal((FEATURES, dim)) / length
        if kernel == "Matern":
            frequencies *= np.sqrt(5 / rng.chisquare(5, (FEATURES, 1)))
        self._frequencies = torch.from_numpy(frequencies)
        self._phases = torch.from_numpy(2 * math.pi * rng.random(FEATURES))
        self._weights = torch.from_numpy(rng.standard_normal(FEATURES))

    def __call__(self, X: Tensor) -> Tensor:
        r"""Return the values at ``n x d`` points."""
        waves = (X @ self._frequencies.T + self._phases).cos()
        return math.sqrt(2 / FEATURES) * waves @ self._weights


class SearchProblem:
    r"""A function of the study in units of its standard deviation over its box.

    The box of a function of BoTorch is moved by a vector that its name determines. All of these
    functions have no larger values outside their boxes, so that the maximum is known.

    Args:
        name: Name of the function, a key of ``FUNCTIONS``.

    Attributes:
        bounds: Bounds of the box, ``2 x d``.
        noise: Standard deviation of the noise.
        used: Coordinates that matter.
        maximiser: A point of the highest value, at the middle of coordinates that do not matter.
        best: Highest value.
    """

    def __init__(self, name: str) -> None:
        function = FUNCTIONS[name]
        self.name, self.noise, make = name, function.noise, function.make
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        if make in DRAWS:
            self._f: Callable[[Tensor], Tensor] = Draw(make, function.dim, *DRAWS[make])
            self.bounds = unit_box(function.dim)
        else:
            there = stock(make, function.dim)
            shift = rng.uniform(-function.shift, function.shift, function.dim)
            self.bounds = moved(there.bounds, maximiser(name, there), torch.from_numpy(shift))
            self._f = stock(
                make, function.dim, bounds=list(zip(*self.bounds.tolist(), strict=True))
            )
        self.used = np.arange(function.dim)
        if function.of is not None:
            self._embed(function.of, rng)
        sample = self._raw(draw_sobol_samples(self.bounds, n=4096, q=1, seed=0).squeeze(1))
        self._unit, self._mean = float(sample.std()), float(sample.mean())
        self.maximiser = self._extended(maximiser(name, self._f))
        self.best = float(self.value(self.maximiser.unsqueeze(0)))

    def _embed(self, dim: int, rng: np.random.Generator) -> None:
        r"""Add coordinates on [0, 1] that do not matter, in places drawn at random."""
        self.used = np.sort(rng.permutation(dim)[: self.bounds.shape[-1]])
        bounds = unit_box(dim)
        bounds[:, self.used] = self.bounds
        self.bounds = bounds

    def _extended(self, x: Tensor) -> Tensor:
        extended = self.bounds.mean(0)
        extended[self.used] = x
        return extended

    def _raw(self, X: Tensor) -> Tensor:
        return self._f(X[:, self.used])

    def value(self, X: Tensor) -> Tensor:
        r"""Return the values without noise, for ``n x d`` inputs."""
        return (self._raw(X) - self._mean) / self._unit

    def noises(self, n: int, seed: int) -> Tensor:
        r"""Return the noise of the first ``n`` evaluations of a run, the same for all methods."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        return self.noise * torch.from_numpy(rng.standard_normal(n))


def unit_box(dim: int) -> Tensor:
    r"""Return the bounds of the unit cube."""
    return torch.tensor([[0.0] * dim, [1.0] * dim], dtype=torch.float64)


def stock(make: str, dim: int, **more: Any) -> Any:
    r"""Return a test function of BoTorch to maximise, in float64."""
    kind = getattr(test_functions, make)
    sized = {} if make in FIXED else {"dim": dim}
    return kind(negate=kind._is_minimization_by_default, **sized, **more).to(torch.float64)


def maximiser(name: str, f: Any) -> Tensor:
    r"""Return a known maximiser, a vector."""
    if name in MAXIMISERS:
        return torch.tensor(MAXIMISERS[name], dtype=torch.float64)
    return f.optimizers[0].to(torch.float64)


def moved(bounds: Tensor, best: Tensor, shift: Tensor) -> Tensor:
    r"""Move a box so that ``best`` is elsewhere in it by ``shift`` of its sides, but off them."""
    low, high = bounds.to(torch.float64)
    place = (best - low) / (high - low)
    shift = place - (place + shift).clamp(MARGIN, 1 - MARGIN)
    return torch.stack([low, high]) + shift * (high - low)
