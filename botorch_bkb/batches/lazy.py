r"""``LazyBatch``: picks by upper confidence bounds, which are updated only near the top.

Within a batch the means stay fixed and the variances only fall. So an upper bound computed earlier
is still an upper bound, and an arm is updated only when its bound is the highest. The arms with the
highest bounds are kept in a pool, ordered by a heap.

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

from botorch_bkb.arms.table import CHUNK, ArmTable, squares
from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.hallucination import Hallucination
from botorch_bkb.batches.rule import BatchRule
from botorch_bkb.belief import chunks

#: Initial size of the pool. It grows fourfold when its highest bound falls below those of the other
#: arms, which are not updated.
POOL = 64
#: Largest size of the pool. Instead of exceeding it, all arms are updated and a new pool is filled.
MOST = 1024
#: Number of outdated arms that are updated one by one for a pick. Further arms follow in groups.
SINGLES = 4
#: Size of these groups.
REFRESH = 16


@dataclass
class Arm:
    r"""Mean and variance of an arm in the pool."""

    mean: float
    var: float
    seen: int  #: number of picks that the variance includes


class LazyBatch(Batch):
    r"""A batch that picks ``argmax mean + width sd`` and hallucinates each pick.

    Args:
        table: The table of arms, which must not change while the batch is picked.
        rule: The rule that decides when the batch is complete.
        width: The width of the bounds in posterior standard deviations.
        kwargs: As for :class:`~botorch_bkb.batches.batch.Batch`.

    Attributes:
        refreshed: The number of updates of single arms so far.

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
        if self.candidates is not None:
            self._mean = self.candidates.among(self._mean)
        self._hallucination = Hallucination(table)
        self._pool: dict[int, Arm] = {}
        self._heap: list[tuple[float, int]] = []
        self._included = 0  # number of picks that the variances of all arms include
        self._missing: list[Tensor] = []  # ``g`` of each later pick
        for row in self.stragglers:
            self._add_pick(row)
        self._add_given_up()
        self._new_pool()
        if self.first is not None:
            row = self.first
            self._add_to_pool(row, float(self._mean[row]), float(self._var[row]))

    def _add_given_up(self) -> None:
        if self.given_up:
            self._var = self._var.clone()
        for row in self.given_up:
            fall, g = self._hallucination.give_up(row)
            self._missing.append(g)
            if row < self.num_arms:
                self._var[row] -= fall

    def _choose(self) -> int:
        singles = 0
        while True:
            negative, row = self._heap[0]
            arm = self._pool[row]
            # Of equal bounds the first row wins, and it may be outside the pool. This row itself is
            # the first if it had the highest bound of all arms and has not been updated since.
            first = row == self._best and arm.seen == self._included
            if -negative <= self._bound_outside and not first:
                self._extend_pool(tied=-negative == self._bound_outside)
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
        gain, arm = self._add_pick(row), self._pool[row]  # the gain gives the pick's own variance
        self._update(arm, arm.var - gain**2 / (self.table.noise_var + gain))
        if self._heap[0][1] != row:  # the first pick, which need not be at the top
            self._heap = [self._entry(*item) for item in self._pool.items()]
            heapq.heapify(self._heap)
            return
        heapq.heapreplace(self._heap, self._entry(row, arm))

    def _leave_out(self, row: int) -> None:
        self._mean[row] = self._upper[row] = self._pool[row].mean = -math.inf
        self._heap = [self._entry(*item) for item in self._pool.items()]
        heapq.heapify(self._heap)

    def _score_now(self, row: int) -> float:
        return self._pool[row].var / self.table.noise_var  # up to date at the top of the heap

    # ------------------------------------------------------------------ the pool

    def _new_pool(self) -> None:
        self._upper = self._mean + self.width * self._var.sqrt()
        self._best = int(self._upper.argmax())
        self._pool, self._heap = {}, []
        self._fill_pool(POOL)

    def _extend_pool(self, tied: bool) -> None:
        r"""Extend the pool, or update all arms at a tie or if the pool would be too large."""
        size = 4 * len(self._pool)
        if not self._missing or not (tied or size > MOST):
            self._fill_pool(size)
            return
        thin = torch.stack(self._missing, -1).to(self.table.X)
        var = self._var.clone()
        for block in chunks(self.num_arms, CHUNK):
            var[block] -= squares((self.table.coordinates(block) @ thin).double())
        self._var, self._missing, self._included = var.clamp_min(0), [], self._hallucination.picked
        self._new_pool()

    def _fill_pool(self, size: int) -> None:
        r"""Add the arms with the ``size`` highest bounds, and store a bound on all others."""
        size, self._bound_outside = min(size, self.num_arms), -math.inf
        rows = torch.arange(size, device=self._upper.device)
        if size < self.num_arms:
            top = self._upper.topk(size)
            self._bound_outside, rows = float(top.values[-1]), top.indices
        columns = (rows, self._mean[rows], self._var[rows])
        for row, mean, var in zip(*(column.tolist() for column in columns), strict=True):
            self._add_to_pool(row, mean, var)
        self._add_to_pool(self._best, float(self._mean[self._best]), float(self._var[self._best]))

    def _add_to_pool(self, row: int, mean: float, var: float) -> None:
        if row not in self._pool:
            self._pool[row] = arm = Arm(mean, var, self._included)
            heapq.heappush(self._heap, self._entry(row, arm))

    def _entry(self, row: int, arm: Arm) -> tuple[float, int]:
        return -(arm.mean + self.width * math.sqrt(arm.var)), row

    def _update(self, arm: Arm, var: float) -> None:
        arm.var, arm.seen = max(0.0, var), self._hallucination.picked

    def _refresh(self, row: int, arm: Arm) -> None:
        r"""Update the arm at the top of the heap with all picks."""
        self._update(arm, self._hallucination.variance(row, arm.var, arm.seen))
        heapq.heapreplace(self._heap, self._entry(row, arm))
        self.refreshed += 1

    def _refresh_many(self) -> None:
        r"""Update a group of outdated arms at the top of the heap with all picks."""
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

    def _add_pick(self, row: int) -> float:
        gain, g = self._hallucination.pick(row)
        self._missing.append(g)
        return gain
