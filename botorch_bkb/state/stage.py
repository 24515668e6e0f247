r"""``Stage``: how far an elimination in fixed batches has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from botorch_bkb.state.observations import Results


@dataclass(frozen=True, eq=False)
class Stage:
    r"""The arms that are left, and what was asked and told in the present batch.

    Attributes:
        index: The number of batches that are complete.
        alive: ``A`` booleans: the arms that were not eliminated.
        lower: ``A`` lower bounds, the best of all complete batches, in units of the rewards.
        upper: ``A`` upper bounds.
        asked: Rows asked in the present batch.
        rows: Rows of the results of the present batch. Unsolicited results are not among them.
        rewards: These results.
        weights: ``lambda / v`` for a result with noise variance ``v``.
    """

    index: int
    alive: Tensor
    lower: Tensor
    upper: Tensor
    asked: tuple[int, ...]
    rows: Tensor
    rewards: Tensor
    weights: Tensor

    @classmethod
    def first(cls, num_arms: int, device: torch.device) -> Stage:
        r"""Return the stage before the first batch, in which all arms are alive."""
        alive = torch.ones(num_arms, dtype=torch.bool, device=device)
        upper = torch.full((num_arms,), torch.inf, dtype=torch.float64, device=device)
        rows = torch.empty(0, dtype=torch.long, device=device)
        return cls(0, alive, -upper, upper, (), rows, upper[:0], upper[:0])

    def with_asked(self, rows: Sequence[int]) -> Stage:
        r"""Return the stage with more rows asked."""
        return replace(self, asked=(*self.asked, *rows))

    def with_results(self, results: Results) -> Stage:
        r"""Return the stage with more results; those that were not asked for are left out."""
        asked = torch.tensor(
            [id_ is not None for id_ in results.ids], dtype=torch.bool, device=self.rows.device
        )
        return replace(
            self,
            rows=torch.cat([self.rows, results.rows[asked]]),
            rewards=torch.cat([self.rewards, results.rewards[asked]]),
            weights=torch.cat([self.weights, results.weights[asked]]),
        )

    def completed(self, lower: Tensor, upper: Tensor) -> Stage:
        r"""Return the next stage: arms whose upper bound is below the best lower one are gone.

        Args:
            lower: ``A`` lower bounds by the results of this batch, in units of the rewards.
            upper: ``A`` upper bounds.
        """
        lower, upper = torch.maximum(self.lower, lower), torch.minimum(self.upper, upper)
        among = torch.where(self.alive, lower, -torch.inf)
        alive = self.alive & (upper >= among.max())
        # Where bounds contradict each other, they do not hold. Some arm must be left.
        alive[among.argmax()] |= not alive.any()
        none = self.rows[:0], self.rewards[:0], self.weights[:0]
        return Stage(self.index + 1, alive, lower, upper, (), *none)
