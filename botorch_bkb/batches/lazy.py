r"""``LazyBatch``: upper confidence bounds, refreshed only at the top.

Inside a batch the means stay and variances only fall, so an upper bound computed earlier is
still an upper bound: an arm is examined again only when it comes to the top. After picks
``x_1 .. x_b`` (BBKB, Algorithm 1; ``Q`` is the table's inverse information)

.. code-block:: text

    var_b(x) = var_0(x) - sum_s (z(x)'g_s)^2,    g_s = v_s / sqrt(lambda + z_s'v_s),
    v_s = Q z_s - sum_{r<s} g_r (g_r'z_s)

costs ``O(m)`` for each arm and pick it has not seen yet. Now and then the ``g`` are folded into
the batch's own ``Q <- Q - sum g g'``, so that a pick costs the same late in a batch as early.

Reference:
    Calandriello et al.: Scaling parallel Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable, squares_in
from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.rules import BatchRule

#: Arms that stand for election; the others are looked at when the best of these falls below them.
POOL = 512
#: Stale arms brought up to date at a time.
REFRESH = 16
#: Picks folded into ``Q`` at a time.
FOLD = 64


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
        >>> from botorch_bkb.arms import ArmTable, squares_in
        >>> from botorch_bkb.batches import LazyBatch, SumRule
        >>> X = torch.linspace(0, 4, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> table.observe(torch.tensor([0]), torch.tensor([1.0]))
        >>> batch = LazyBatch(table, SumRule(4.0), width=2.0)
        >>> while not batch.complete:
        ...     row = batch.pick()
        >>> len(batch.picks)
        2
    """

    # The pool: rows in order, and of each what the arrays over all arms had at the election.
    _pool: Tensor
    _pool_mean: Tensor
    _pool_var: Tensor
    _pool_upper: Tensor
    _pool_seen: Tensor

    @torch.no_grad()
    def __init__(self, table: ArmTable, rule: BatchRule, width: float, **kwargs: Any) -> None:
        super().__init__(table, rule, **kwargs)
        self.width, self.refreshed = width, 0
        mean, var = table.moments()
        # One entry an arm: what is known of it, and how many picks that takes account of.
        self._mean, self._var = mean[: self.num_arms], var[: self.num_arms].clone()
        self._upper = self._mean + width * self._var.sqrt()
        self._seen = torch.zeros(self.num_arms, dtype=torch.long, device=mean.device)
        self._Q = table.inverse_information
        self._G = torch.zeros(FOLD, len(self._Q), dtype=torch.float64, device=mean.device)
        self._picked = self._folded = 0
        self._directions: dict[int, tuple[Tensor, Tensor]] = {}
        for row in kwargs.get("stragglers", ()):
            self._hallucinate(row)
        self._elect()

    def _choose(self) -> int:
        while True:
            i = int(self._pool_upper.argmax())
            if float(self._pool_upper[i]) <= self._outside:
                i = self._elect()
            if int(self._pool_seen[i]) == self._picked:
                break
            self._refresh()
        self._hallucinate(int(self._pool[i]), i)
        return int(self._pool[i])

    # ------------------------------------------------------------------ the pool

    def _elect(self) -> int:
        r"""Fill the pool with the highest bounds; returns the place of the very highest.

        Kept in order of the rows, so that among equal bounds the first row wins.
        """
        if hasattr(self, "_pool"):
            self._upper[self._pool], self._var[self._pool] = self._pool_upper, self._pool_var
            self._seen[self._pool] = self._pool_seen
        best = int(self._upper.argmax())
        size = min(POOL, self.num_arms)
        self._outside = -math.inf
        if size < self.num_arms:
            top = self._upper.topk(size + 1)
            self._outside = float(top.values[-1])
            rows = top.indices[:size]
            if not (rows == best).any():  # equal bounds beyond the pool
                rows[-1] = best
        else:
            rows = torch.arange(size, device=self._upper.device)
        self._pool = rows.sort().values
        self._pool_mean, self._pool_var = self._mean[self._pool], self._var[self._pool]
        self._pool_upper, self._pool_seen = self._upper[self._pool], self._seen[self._pool]
        return int(torch.searchsorted(self._pool, best))

    def _refresh(self) -> None:
        r"""Bring the highest bounds of the pool up to date with all picks."""
        b, folded = self._picked, self._folded
        places = self._pool_upper.topk(min(REFRESH, len(self._pool))).indices
        places = places[self._pool_seen[places] < b]
        rows, seen = self._pool[places], self._pool_seen[places]
        z, var = self.table.coordinates(rows).double(), self._pool_var[places]
        if folded and int(seen.min()) < folded:
            # What they have not seen is in Q by now.
            whole = self.table.residual()[rows] + squares_in(self._Q, z)
            var = torch.where(seen < folded, whole, var)
            seen = seen.clamp_min(folded)
        first = int(seen.min())
        falls = (z @ self._G[first - folded : b - folded].mT).square()
        picks = torch.arange(first, b, device=rows.device)
        falls = torch.where(picks >= seen.unsqueeze(-1), falls, 0.0)
        var = (var - falls.sum(-1)).clamp_min(0)
        self._pool_var[places], self._pool_seen[places] = var, b
        self._pool_upper[places] = self._pool_mean[places] + self.width * var.sqrt()
        self.refreshed += len(rows)

    # ------------------------------------------------------------------ the picks

    def _hallucinate(self, row: int, place: int | None = None) -> None:
        r"""Let variances fall as if ``row`` had been observed."""
        if row not in self._directions:
            z = self.table.coordinates(row).double()
            self._directions[row] = z, self._Q @ z
        z, direction = self._directions[row]
        b = self._picked - self._folded
        G = self._G[:b]
        v = direction - G.mT @ (G @ z)
        gain = max(0.0, float(z @ v))
        noise = self.table.noise_var
        torch.div(v, math.sqrt(noise + gain), out=self._G[b])
        self._picked += 1
        if place is not None:  # the pick itself needs no refreshing
            var = max(0.0, float(self._pool_var[place]) - gain**2 / (noise + gain))
            self._pool_var[place], self._pool_seen[place] = var, self._picked
            self._pool_upper[place] = float(self._pool_mean[place]) + self.width * math.sqrt(var)
        if b + 1 == FOLD:
            self._Q = self._Q - self._G.mT @ self._G
            self._folded, self._directions = self._picked, {}
