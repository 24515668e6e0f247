r"""``LazyBatch``: upper confidence bounds, refreshed only at the top.

Inside a batch the means stay and variances only fall, so an upper bound computed earlier is
still an upper bound: an arm is examined again only when it comes to the top.

Reference:
    Calandriello et al.: Near-linear time Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from botorch_bkb.arms import CHUNK, ArmTable, squares
from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.hallucination import Hallucination
from botorch_bkb.batches.rules import BatchRule
from botorch_bkb.belief import chunks

#: Arms that stand for election at first; four times as many when the best of them falls below the
#: rest, whose bounds are those of the beginning of the batch.
POOL = 64
#: As many may stand; beyond, all arms are brought up to date and the election starts again.
MOST = 1024
#: Stale arms brought up to date one by one for a pick, before they are taken many at a time.
SINGLES = 4
#: How many at a time.
REFRESH = 16


@dataclass
class Arm:
    r"""What is known of an arm of the pool."""

    mean: float
    var: float
    seen: int  #: how many picks that takes account of


class LazyBatch(Batch):
    r"""Picks ``argmax mean + width sd`` one after another, hallucinating each.

    Args:
        table: The arms; it must not change while the batch is picked.
        rule: When the batch is complete.
        width: Width of the bounds in posterior standard deviations.
        kwargs: As for :class:`~botorch_bkb.batches.batch.Batch`.

    Attributes:
        refreshed: How many arms were examined again so far.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import LazyBatch, SumRule
        >>> X = torch.linspace(0, 4, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> table.observe(torch.tensor([0]), torch.tensor([1.0]))
        >>> batch = LazyBatch(table, SumRule(4.0), width=2.0)
        >>> while not batch.complete:
        ...     row = batch.pick()
        >>> len(batch.picks)
        2

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Algorithm 1.)
    """

    @torch.no_grad()
    def __init__(self, table: ArmTable, rule: BatchRule, width: float, **kwargs: Any) -> None:
        super().__init__(table, rule, **kwargs)
        self.width, self.refreshed = width, 0
        mean, var = table.moments()
        self._mean, self._var = mean[: self.num_arms], var[: self.num_arms]
        self._hallucination = Hallucination(table)
        self._pool: dict[int, Arm] = {}
        self._heap: list[tuple[float, int]] = []
        self._since = 0  # how many picks all arms have seen
        self._unseen: list[Tensor] = []  # the others, ``g`` of each
        for row in self.stragglers:
            self._fall(row)
        self._lose()
        self._begin()

    def _lose(self) -> None:
        if self.lost:
            self._var = self._var.clone()
        for row in self.lost:
            fall, g = self._hallucination.lose(row)
            self._unseen.append(g)
            if row < self.num_arms:
                self._var[row] -= fall

    def _choose(self) -> int:
        singles = 0
        while True:
            negative, row = self._heap[0]
            arm = self._pool[row]
            # Among equal bounds the first row wins, and it may be outside, but for the very first.
            first = row == self._first and arm.seen == self._since
            if -negative <= self._outside and not first:
                self._look_further(tied=-negative == self._outside)
                continue
            if arm.seen == self._hallucination.picked:
                break
            if singles < SINGLES:
                singles += 1
                self._refresh(row, arm)
            else:
                self._refresh_many()
        return row

    def _hallucinate(self, row: int) -> None:
        gain, arm = self._fall(row), self._pool[row]  # the pick itself needs no refreshing
        self._update(arm, arm.var - gain**2 / (self.table.noise_var + gain))
        heapq.heapreplace(self._heap, self._entry(row, arm))

    def _score_now(self, row: int) -> float:
        return self._pool[row].var / self.table.noise_var  # just examined, to be picked

    # ------------------------------------------------------------------ the pool

    def _begin(self) -> None:
        self._upper = self._mean + self.width * self._var.sqrt()
        self._first = int(self._upper.argmax())
        self._pool, self._heap = {}, []
        self._elect(POOL)

    def _look_further(self, tied: bool) -> None:
        r"""Let more arms stand, or bring all up to date where these would be too many."""
        size = 4 * len(self._pool)
        if not self._unseen or not (tied or size > MOST):
            self._elect(size)
            return
        thin = torch.stack(self._unseen, -1).to(self.table.X)
        var = self._var.clone()
        for block in chunks(self.num_arms, CHUNK):
            var[block] -= squares((self.table.coordinates(block) @ thin).double())
        self._var, self._unseen, self._since = var.clamp_min(0), [], self._hallucination.picked
        self._begin()

    def _elect(self, size: int) -> None:
        r"""Let the ``size`` highest bounds stand, and remember how high the others may be."""
        size, self._outside = min(size, self.num_arms), -math.inf
        rows = torch.arange(size, device=self._upper.device)
        if size < self.num_arms:
            top = self._upper.topk(size)
            self._outside, rows = float(top.values[-1]), top.indices
        columns = (rows, self._mean[rows], self._var[rows])
        for row, mean, var in zip(*(column.tolist() for column in columns), strict=True):
            self._admit(row, mean, var)
        self._admit(self._first, float(self._mean[self._first]), float(self._var[self._first]))

    def _admit(self, row: int, mean: float, var: float) -> None:
        if row not in self._pool:
            self._pool[row] = arm = Arm(mean, var, self._since)
            heapq.heappush(self._heap, self._entry(row, arm))

    def _entry(self, row: int, arm: Arm) -> tuple[float, int]:
        return -(arm.mean + self.width * math.sqrt(arm.var)), row

    def _update(self, arm: Arm, var: float) -> None:
        arm.var, arm.seen = max(0.0, var), self._hallucination.picked

    def _refresh(self, row: int, arm: Arm) -> None:
        r"""Bring the arm at the top up to date with all picks."""
        self._update(arm, self._hallucination.variance(row, arm.var, arm.seen))
        heapq.heapreplace(self._heap, self._entry(row, arm))
        self.refreshed += 1

    def _refresh_many(self) -> None:
        r"""The same for those nearest to the top."""
        stale: list[int] = []
        while self._heap and len(stale) < REFRESH:
            row = self._heap[0][1]
            if self._pool[row].seen == self._hallucination.picked:
                break
            stale.append(heapq.heappop(self._heap)[1])
        rows = torch.tensor(stale, device=self._upper.device)
        for row, value in zip(stale, self._hallucination.variances(rows).tolist(), strict=True):
            arm = self._pool[row]
            self._update(arm, value)
            heapq.heappush(self._heap, self._entry(row, arm))
        self.refreshed += len(stale)

    def _fall(self, row: int) -> float:
        gain, g = self._hallucination.pick(row)
        self._unseen.append(g)
        return gain
