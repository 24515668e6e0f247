r"""``History``: everything observed that the posterior needs, one entry per distinct input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from botorch_bkb.rows import appended
from botorch_bkb.units import RewardUnits

#: The least weight. Smaller ones teach nothing, and those of zero would have no mean.
LEAST_WEIGHT = 1e-200


#: The fields with one entry per distinct row.
PER_ROW = ("rows", "counts", "weights", "means", "deviations")


@dataclass(frozen=True)
class History:
    r"""Counts, means and spreads of the rewards of each distinct row, in units of the rewards.

    Sums of squares are kept as deviations from means (Chan, Golub and LeVeque's update), so that
    rewards of 1e12 with a spread of one lose nothing.

    Attributes:
        rows: ``n`` sorted row numbers.
        counts: ``n`` numbers of pulls.
        weights: ``n`` sums of ``lambda / v`` over pulls with noise variance ``v``; the counts,
            where every pull has the noise variance of the model.
        means: ``n`` weighted means of the rewards.
        deviations: ``n`` weighted sums of squared deviations from the means.
        forgotten: The number of pulls that were dropped, since their weights are negligible.
        lost: The sum of their weights, which decay like all others.
    """

    rows: Tensor
    counts: Tensor
    weights: Tensor
    means: Tensor
    deviations: Tensor
    forgotten: int = 0
    lost: float = 0.0

    @classmethod
    def empty(cls, device: torch.device) -> History:
        r"""Return a history in which nothing was observed yet."""
        rows = torch.empty(0, dtype=torch.long, device=device)
        return cls(rows, *torch.empty(4, 0, dtype=torch.float64, device=device))

    @cached_property
    def num_observations(self) -> int:
        r"""The number of pulls so far."""
        return int(self.counts.sum()) + self.forgotten

    def with_pulls(self, rows: Tensor, rewards: Tensor, weights: Tensor) -> History:
        r"""Return the history with ``b`` more pulls; rows may repeat."""
        distinct, group = rows.unique(return_inverse=True)

        def total(values: Tensor) -> Tensor:
            return values.new_zeros(len(distinct)).index_add(0, group, values)

        weight = total(weights)
        means = total(weights * rewards) / weight
        deviations = total(weights * (rewards - means[group]).square())
        new = History(distinct, total(torch.ones_like(weights)), weight, means, deviations)
        if not len(self.rows) or bool(distinct[0] > self.rows[-1]):
            return self._followed_by(new)
        return self._merged(new)

    def _followed_by(self, new: History) -> History:
        r"""Return this history and that of later rows, at the cost of these."""
        rows, counts, weights, means, deviations = (
            appended(getattr(self, name), getattr(new, name)) for name in PER_ROW
        )
        both = History(rows, counts, weights, means, deviations, self.forgotten, self.lost)
        # Counts are whole. So the number need not be summed again.
        both.__dict__["num_observations"] = self.num_observations + new.num_observations
        return both

    def _merged(self, new: History) -> History:
        rows = torch.cat([self.rows, new.rows]).unique()
        old, new = self._at(rows), new._at(rows)
        weights = old.weights + new.weights
        share = new.weights / weights
        gap = new.means - old.means
        deviations = old.deviations + new.deviations + old.weights * share * gap.square()
        counts, means = old.counts + new.counts, old.means + share * gap
        return History(rows, counts, weights, means, deviations, self.forgotten, self.lost)

    def _at(self, rows: Tensor) -> History:
        r"""Return the same history on more rows, with zeros where nothing was observed."""
        place = torch.searchsorted(rows, self.rows)
        values = torch.stack([self.counts, self.weights, self.means, self.deviations])
        wide = values.new_zeros(4, len(rows))
        wide[:, place] = values
        return History(rows, *wide)

    def renumbered(self, rows: Tensor) -> History:
        r"""Return the same history with new row numbers, given in the order of ``self.rows``."""
        rows, order = rows.sort()
        return replace(self._some(order), rows=rows)

    def _some(self, some: Tensor) -> History:
        r"""Return some of the rows, by positions or booleans."""
        return replace(
            self,
            rows=self.rows[some],
            counts=self.counts[some],
            weights=self.weights[some],
            means=self.means[some],
            deviations=self.deviations[some],
        )

    def decayed(self, factor: float) -> History:
        r"""Return the history with all weights multiplied by a factor; counts and means stay."""
        return replace(
            self,
            weights=(factor * self.weights).clamp_min(LEAST_WEIGHT),
            deviations=factor * self.deviations,
            lost=factor * self.lost,
        )

    def negligible(self, most: float) -> Tensor:
        r"""Return which rows may be dropped: ``n`` booleans.

        Args:
            most: The largest sum of the weights of all rows that are dropped, earlier ones
                included.
        """
        weights, order = self.weights.sort()
        is_negligible = torch.zeros_like(self.rows, dtype=torch.bool)
        is_negligible[order] = self.lost + weights.cumsum(0) <= most
        return is_negligible

    def without(self, dropped: Tensor) -> History:
        r"""Return the history without some rows, whose pulls are still counted.

        Args:
            dropped: ``n`` booleans.
        """
        return replace(
            self._some(~dropped),
            forgotten=self.forgotten + int(self.counts[dropped].sum()),
            lost=self.lost + float(self.weights[dropped].sum()),
        )

    def combined(self, other: History, noise_var: float) -> History:
        r"""Return the pulls of this history and those of another with variances of their own.

        Args:
            other: A history with the weights ``1 / v`` of its pulls.
            noise_var: ``lambda``, in units of the rewards.
        """
        return self._merged(other.relative_to(noise_var))

    def relative_to(self, noise_var: float) -> History:
        r"""Return a history with weights ``1 / v`` as one with weights ``lambda / v``."""
        return replace(
            self, weights=noise_var * self.weights, deviations=noise_var * self.deviations
        )

    def unweighted(self) -> History:
        r"""Return the history in which every pull counts the same."""
        deviations = self.deviations * self.counts / self.weights
        return replace(self, weights=self.counts, deviations=deviations)

    def beside(self, other: History) -> History:
        r"""Return the entries of two histories one after another; rows may occur twice."""
        return replace(
            self,
            rows=torch.cat([self.rows, other.rows]),
            counts=torch.cat([self.counts, other.counts]),
            weights=torch.cat([self.weights, other.weights]),
            means=torch.cat([self.means, other.means]),
            deviations=torch.cat([self.deviations, other.deviations]),
        )

    def standardisation(self) -> RewardUnits:
        r"""Return the units in which rewards have mean zero and variance one.

        The scale is one where rewards are constant.
        """
        total = self.weights.sum()
        if self.num_observations < 2:
            return RewardUnits(float(self.means[0]) if len(self.rows) else 0.0)
        mean = (self.weights * self.means).sum() / total
        between = (self.weights * (self.means - mean).square()).sum()
        scale = ((self.deviations.sum() + between) / total).sqrt()
        negligible = 1e-14 * abs(float(mean))  # what rounding leaves of constant rewards
        return RewardUnits(float(mean), float(scale) if float(scale) > negligible else 1.0)
