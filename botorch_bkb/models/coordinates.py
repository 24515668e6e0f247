r"""Hyperparameters as the coordinates of an optimizer: logarithms of those that are positive.

BoTorch optimises length-scales and noise variances as they are stored. Their logarithms are better
coordinates: L-BFGS-B then needs about a third of the evaluations, and its bounds stay bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.module import Module
from scipy.optimize import minimize
from torch import Tensor

from botorch_bkb.models.densities import Array, Density

#: Values at the ends of an open interval have no finite stored parameter.
MARGIN = 1e-8
#: Supports of priors are half open, and stored parameters may be float32.
MARGIN_OF_PRIOR = 1e-6
#: The improvement of the log posterior per observation, in nats, below which a fit ends. SciPy's
#: default takes two more evaluations of many observations for less than a thousandth of a nat.
ENOUGH = 2e-7


@dataclass
class Hyperparameter:
    r"""One hyperparameter of a model, possibly with several entries.

    Attributes:
        module: The module that has it.
        name: Its name, such as ``lengthscale``.
        raw: The parameter that is stored.
        constraint: The constraint, or None.
        density: The log density of the prior and its gradient, or None.
        support: The least and the largest value of the prior.
    """

    module: Module
    name: str
    raw: Tensor
    constraint: Interval | None
    density: Density | None = None
    support: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def of(cls, module: Module, name: str) -> Hyperparameter:
        r"""Return the hyperparameter of a module."""
        constraint = getattr(module, f"raw_{name}_constraint", None)
        return cls(module, name, getattr(module, f"raw_{name}"), constraint)

    @property
    def value(self) -> Tensor:
        r"""The value, after the constraint."""
        return getattr(self.module, self.name)

    @property
    def array(self) -> Array:
        r"""The value as a float64 array."""
        return self.value.detach().double().cpu().numpy()

    def set(self, value: Array) -> None:
        r"""Set the value."""
        setattr(self.module, self.name, torch.as_tensor(value).to(self.raw))

    def pull(self, slope: Array) -> Tensor:
        r"""Turn the gradient of the value into that of the stored parameter."""
        gradient = torch.as_tensor(slope).to(self.raw).reshape(self.raw.shape)
        if self.constraint is None or not self.constraint.enforced:
            return gradient
        with torch.enable_grad():
            raw = self.raw.detach().requires_grad_()
            return torch.autograd.grad(self.constraint.transform(raw), raw, gradient)[0]

    @property
    def is_logarithmic(self) -> bool:
        r"""Whether the coordinate is the logarithm, because the value must be positive."""
        return self.constraint is not None and float(self.constraint.lower_bound.max()) >= 0

    @property
    def ends(self) -> tuple[float, float]:
        r"""The least and the largest coordinate, by the constraint and the prior."""
        (low, high), (first, last) = self._constrained, self.support
        if self.is_logarithmic:
            first, last = (math.log(v) if v > 0 else -math.inf for v in (first, last))
        return max(low, first + MARGIN_OF_PRIOR), min(high, last - MARGIN_OF_PRIOR)

    @property
    def _constrained(self) -> tuple[float, float]:
        if self.constraint is None:
            return -math.inf, math.inf
        low, high = (
            float(self.constraint.lower_bound.max()),
            float(self.constraint.upper_bound.min()),
        )
        if self.is_logarithmic:
            low, high = (math.log(v) if v > 0 else -math.inf for v in (low, high))
        margin = MARGIN if self.constraint.enforced else 0.0
        return low + margin, high - margin


#: A negative log posterior per observation and its gradients, as a function of the values of the
#: hyperparameters.
Objective = Callable[[list[Array]], tuple[float, list[Array]]]


class LogCoordinates:
    r"""All hyperparameters of a model as one vector.

    Args:
        hyperparameters: The hyperparameters. Those whose stored parameter requires no gradient stay
            as they are.
        objective: What is minimised.
    """

    def __init__(self, hyperparameters: list[Hyperparameter], objective: Objective) -> None:
        self.hyperparameters, self.objective = hyperparameters, objective
        self._free = [h.raw.requires_grad for h in hyperparameters]
        self._logarithmic = [h.is_logarithmic for h in hyperparameters]
        self._fixed = [h.array for h in hyperparameters]
        sizes = [f * v.size for f, v in zip(self._free, self._fixed, strict=True)]
        self._cuts = np.cumsum(sizes)[:-1]
        ends = [
            end for h, size in zip(hyperparameters, sizes, strict=True) for end in size * [h.ends]
        ]
        self.bounds = np.array(ends).reshape(-1, 2)

    def position(self) -> Array:
        r"""Return the coordinates of the present values."""
        return self.at([h.array for h in self.hyperparameters])

    def at(self, values: list[Array]) -> Array:
        r"""Return the coordinates of values of all hyperparameters."""
        parts = [
            (np.log(value) if logarithmic else value).ravel()
            for value, (_, logarithmic, free) in zip(values, self._each(), strict=True)
            if free
        ]
        return np.concatenate(parts)

    def _each(self) -> zip[tuple[Hyperparameter, bool, bool]]:
        return zip(self.hyperparameters, self._logarithmic, self._free, strict=True)

    def values(self, position: Array) -> list[Array]:
        r"""Return the values of all hyperparameters at a position."""
        found = []
        parts = np.split(position, self._cuts)
        for (_, logarithmic, free), part, fixed in zip(
            self._each(), parts, self._fixed, strict=True
        ):
            value = (np.exp(part) if logarithmic else part).reshape(fixed.shape) if free else fixed
            found.append(value)
        return found

    def loss(self, position: Array) -> tuple[float, Array]:
        r"""Compute the objective and its gradient at a position."""
        values = self.values(position)
        total, gradients = self.objective(values)
        slopes = [
            (np.reshape(slope, value.shape) * (value if logarithmic else 1.0)).ravel()
            for (_, logarithmic, free), value, slope in zip(
                self._each(), values, gradients, strict=True
            )
            if free
        ]
        return float(total), np.concatenate(slopes)

    def minimise(
        self, position: Array, first_step: float = 1.0, **options: Any
    ) -> tuple[Array, float]:
        r"""Return the position of a local minimum and the objective there.

        Args:
            position: Where to begin.
            first_step: The length of the first step. L-BFGS-B knows no curvature then.
            options: Options of L-BFGS-B.
        """
        found = minimize(
            self.in_units_of(first_step),
            position / first_step,
            jac=True,
            method="L-BFGS-B",
            bounds=self.bounds / first_step,
            options=options,
        )
        return first_step * found.x, float(found.fun)

    def in_units_of(self, unit: float) -> Callable[[Array], tuple[float, Array]]:
        r"""Return :meth:`loss` as a function of the position in some unit."""

        def scaled(position: Array) -> tuple[float, Array]:
            value, slope = self.loss(unit * position)
            return value, unit * slope

        return scaled

    def store(self, position: Array) -> None:
        r"""Give the hyperparameters their values at a position."""
        for (h, _, free), value in zip(self._each(), self.values(position), strict=True):
            if free:
                h.set(value)
