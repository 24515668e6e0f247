r"""Acquisition functions over arms, from their means and variances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from torch import Tensor

from botorch_bkb.acquisition import Acquisition, AcquisitionContext
from botorch_bkb.acquisition.moments import ANALYTIC, FixedMoments
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.exact import UpperBound
from botorch_bkb.units import RewardUnits


@dataclass(frozen=True, eq=False)
class ArmsContext(AcquisitionContext):
    r"""The belief at all arms, for one pick.

    Attributes:
        mean: ``A`` posterior means, in the model's units.
        var: ``A`` posterior variances.
        width: The width of the confidence bounds.
        reward: The best reward in the belief, in the model's units.
        deviation: A standard deviation of the prior, in the model's units.
        units: The units of the rewards.
        seed: The seed of the pick.
    """

    mean: Tensor
    var: Tensor
    width: float
    reward: float
    deviation: float
    units: RewardUnits
    seed: int

    @cached_property
    def marginals(self) -> Model:
        r"""The arms, in units of the prior standard deviation."""
        return FixedMoments(self.mean / self.deviation, self.var / self.deviation**2)

    @property
    def best_reward(self) -> float:
        r"""The best reward in the belief, in units of the prior standard deviation."""
        return self.reward / self.deviation

    @property
    def best_mean(self) -> float:
        r"""The highest posterior mean, in units of the prior standard deviation."""
        return float((self.mean / self.deviation).max())

    @cached_property
    def model(self) -> Model:
        r"""The arms, in units of the rewards."""
        return FixedMoments(
            self.units.to_rewards(self.mean), self.units.variance_to_rewards(self.var)
        )

    @property
    def observed(self) -> Tensor:
        r"""Raise: there are only means and variances of the arms."""
        raise UnsupportedError(ANALYTIC)

    def sample_path(self) -> Model:
        r"""Raise: there is no joint distribution of the arms to draw from."""
        raise UnsupportedError(ANALYTIC)


@dataclass(frozen=True, eq=False)
class AcquisitionCriterion:
    r"""An acquisition rule as a function of the means and variances of arms.

    Args:
        acquisition: The acquisition rule.
        context: What the batch is picked from.
    """

    acquisition: Acquisition
    context: BatchContext

    def __call__(self, mean: Tensor, var: Tensor) -> Tensor:
        r"""Return ``A`` values, to be maximised."""
        context = self.context
        if not math.isfinite(context.best_reward):  # nothing to improve on yet
            return UpperBound(1.0)(mean, var)
        arms = ArmsContext(
            mean,
            var,
            context.record.width,
            context.best_reward,
            context.prior_deviation,
            context.state.hyper.units,
            context.record.seed,
        )
        function = self.acquisition.function(arms)
        try:
            return function(mean.new_zeros(len(mean), 1, 1))
        except NotImplementedError as error:
            raise UnsupportedError(ANALYTIC) from error
