r"""Units: inputs of the user, of the model and of the unit cube, and rewards.

Every conversion between them is made here. A user's inputs lie in a box. The model sees them as
they are, or scaled to the unit cube. Searches run in the unit cube. Rewards are as the user knows
them, or standardised for the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

#: A tensor or a number.
Values = TypeVar("Values", Tensor, float)


@dataclass(frozen=True, eq=False)
class UnitCube:
    r"""The map from a box to the unit cube, and back.

    Args:
        bounds: A ``2 x d`` tensor: the lower and the upper corner of the box.

    Example:
        >>> import torch
        >>> cube = UnitCube(torch.tensor([[0.0, 1.0], [2.0, 5.0]]))
        >>> cube.to_unit(torch.tensor([[1.0, 5.0]]))
        tensor([[0.5000, 1.0000]])
        >>> cube.from_unit(torch.tensor([[0.5, 1.0]]))
        tensor([[1., 5.]])
    """

    bounds: Tensor

    @classmethod
    def around(cls, X: Tensor) -> UnitCube:
        r"""Return the smallest box around ``n x d`` points; constant columns get a side of one."""
        lower, upper = X.amin(0), X.amax(0)
        return cls(torch.stack([lower, torch.where(upper > lower, upper, lower + 1)]))

    def to_unit(self, X: Tensor) -> Tensor:
        r"""Map points of the box to the unit cube."""
        lower, upper = self.bounds
        return (X - lower) / (upper - lower)

    def from_unit(self, X: Tensor) -> Tensor:
        r"""Map points of the unit cube to the box, never beyond it."""
        lower, upper = self.bounds
        return (lower + X.to(lower) * (upper - lower)).clamp(lower, upper)

    def value_to_unit(self, i: int, value: float) -> float:
        r"""Map one value of coordinate ``i`` to the unit interval."""
        low, high = self.bounds[:, i].tolist()
        return (value - low) / (high - low)

    def values_to_unit(self, i: int, values: Tensor) -> list[float]:
        r"""Map several values of coordinate ``i`` to the unit interval."""
        low, high = self.bounds[:, i]
        return ((values - low) / (high - low)).tolist()

    def constraint_to_unit(
        self, indices: Tensor, coefficients: Tensor, bound: float
    ) -> tuple[Tensor, Tensor, float]:
        r"""Map a linear constraint, ``sum_i c_i x_i >= bound`` or ``==``, to the unit cube."""
        lower, upper = self.bounds[:, indices.to(self.bounds.device)]
        coefficients = coefficients.to(lower)
        return indices, coefficients * (upper - lower), bound - float(coefficients @ lower)


@dataclass(frozen=True)
class RewardUnits:
    r"""The affine map between rewards and the model's standardised outcomes.

    Args:
        offset: The reward at which the model's outcome is zero.
        scale: The reward units in one unit of the model.

    Example:
        >>> units = RewardUnits(offset=10.0, scale=2.0)
        >>> units.to_model(14.0), units.to_rewards(2.0), units.variance_to_model(8.0)
        (2.0, 14.0, 2.0)
    """

    offset: float = 0.0
    scale: float = 1.0

    def to_model(self, rewards: Values) -> Values:
        r"""Standardise rewards."""
        return (rewards - self.offset) / self.scale

    def to_rewards(self, values: Values) -> Values:
        r"""Map outcomes of the model to rewards."""
        return self.offset + self.scale * values

    def variance_to_model(self, variance: float) -> float:
        r"""Map a variance of rewards to the model's units."""
        return variance / self.scale**2

    def variance_to_rewards(self, variance: Values) -> Values:
        r"""Map a variance in the model's units to units of the rewards."""
        return variance * self.scale**2

    def deviation_to_rewards(self, deviation: float) -> float:
        r"""Map a standard deviation or a difference to units of the rewards."""
        return deviation * self.scale

    def deviation_to_model(self, deviation: float) -> float:
        r"""Map a standard deviation of rewards to the model's units."""
        return deviation / self.scale
