r"""``ConditionedBatch``: upper confidence bounds conditioned exactly, for batches of a given size.

Means stay and variances only fall, so that a bound computed earlier is still a bound. An arm is
examined again only when its bound comes to the top. At first, all bounds may be about equal, and
nearly all arms come to the top. So they are examined in groups that double, but no more than can
be the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.conditioning import Conditioning
from botorch_bkb.batches.rule import BatchRule

#: The number of outdated arms that are examined first for a pick.
GROUP = 64


class ConditionedBatch(Batch):
    r"""A batch that picks ``argmax mean + width sd`` and conditions on each pick exactly.

    The picks are those of :class:`~botorch_bkb.batches.ExactBatch`. That one computes the
    covariances of each pick with all arms, this one those with the arms near the top.

    Args:
        table: The table of arms, which must not change while the batch is picked.
        rule: The rule that decides when the batch is complete.
        width: The width of the bounds in posterior standard deviations.
        kwargs: As for :class:`~botorch_bkb.batches.batch.Batch`.

    Attributes:
        examined: The number of arms examined so far, those examined again included.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import ConditionedBatch, OneAtATime
        >>> X = torch.linspace(0, 8, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> batch = ConditionedBatch(table, OneAtATime(), 2.0)
        >>> [batch.pick() for _ in range(3)], batch.complete
        ([0, 5, 8], True)

    Reference:
        Desautels, Krause, Burdick, JMLR 2014. (GP-BUCB.)
    """

    # Covariances with all arms would cost more than the picks. What bounds the fall everywhere
    # needs only those of the picks with each other.
    everywhere = True

    @torch.no_grad()
    def __init__(self, table: ArmTable, rule: BatchRule, width: float, **kwargs: Any) -> None:
        super().__init__(table, rule, **{**kwargs, "joins": True})
        self.width, self.examined = width, 0
        mean, var = (t[: self.num_arms] for t in table.moments())
        self._mean = self._means(mean)
        self._upper = self._mean + self.width * var.sqrt()
        if self.candidates is not None:
            self._upper = self.candidates.among(self._upper)
        self._conditioning = Conditioning(table)
        self._conditioning.follow((*self.stragglers, *self.given_up))
        self._seen = torch.zeros_like(self._upper, dtype=torch.long)  # picks that a bound includes

    def _means(self, mean: Tensor) -> Tensor:
        r"""Return the means that the bounds are about."""
        return mean

    @property
    def _num_conditions(self) -> int:
        return len(self._conditioning.rows)

    def _choose(self) -> int:
        size = GROUP
        while True:
            row = int(self._upper.argmax())
            if int(self._seen[row]) == self._num_conditions:
                return row
            self._examine(self._stale(size))
            size *= 2

    def _stale(self, size: int) -> Tensor:
        r"""Return outdated arms among the ``size`` highest bounds that can be the highest."""
        is_stale = self._seen < self._num_conditions
        fresh = self._upper.masked_fill(is_stale, -torch.inf).max()
        can_be_highest = is_stale & (self._upper >= fresh) & (self._upper > -torch.inf)
        rows = torch.nonzero(can_be_highest).squeeze(-1)
        return rows if len(rows) <= size else rows[self._upper[rows].topk(size).indices]

    def _examine(self, rows: Tensor) -> None:
        deviation = self._conditioning.variances(rows).sqrt()
        self._upper[rows] = self._mean[rows] + self.width * deviation
        self._seen[rows] = self._num_conditions
        self.examined += len(rows)

    def _hallucinate(self, row: int) -> None:
        var = self._conditioning.pick(row)
        self._upper[row] = self._mean[row] + self.width * var**0.5
        self._seen[row] = self._num_conditions

    def _leave_out(self, row: int) -> None:
        self._upper[row] = -torch.inf
        self._seen[row] = torch.iinfo(torch.long).max

    def _score_now(self, row: int) -> float:
        var = self._conditioning.variances(self._conditioning.rows.new_tensor([row]))
        return float(var) / self.table.noise_var


class ArmsDesign(ConditionedBatch):
    r"""The arms of an initial design, which fill the space.

    Each is the arm of highest variance, given those before it. This needs no result.

    Args:
        table: The table of arms.
        rule: The rule of the batches that follow.
        size: The number of arms.
        kwargs: As for :class:`~botorch_bkb.batches.batch.Batch`.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import ArmsDesign, OneAtATime
        >>> X = torch.linspace(0, 8, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> design = ArmsDesign(table, OneAtATime(), 3, first=4)
        >>> while not design.complete:
        ...     row = design.pick()
        >>> design.picks
        [4, 0, 8]
    """

    def __init__(self, table: ArmTable, rule: BatchRule, size: int, **kwargs: Any) -> None:
        super().__init__(table, rule, 1.0, **kwargs)
        self._size = size

    def _means(self, mean: Tensor) -> Tensor:
        return torch.zeros_like(mean)

    @property
    def is_design(self) -> bool:
        r"""Whether the picks are those of an initial design."""
        return True

    @property
    def complete(self) -> bool:
        r"""Whether all arms of the design were asked."""
        return self.exhausted

    @property
    def exhausted(self) -> bool:
        r"""Whether all arms of the design were asked."""
        return super().exhausted or len(self.picks) >= self._size

    def _spend(self, picks: Sequence[tuple[int, float]]) -> None:
        return  # a design is asked as a whole, whatever the rule says

    def _score_now(self, row: int) -> float:
        return float("inf")  # a design is evaluated, whatever it teaches
