r"""``LazyBatch``: the picks of one batch over a table of arms.

Inside a batch the means stay and variances only fall, so an upper bound computed earlier is
still an upper bound: an arm is examined again only when it comes to the top. After picks
``x_1 .. x_b`` (BBKB, Algorithm 1; rank-one updates of ``quad`` in :mod:`botorch_bkb.arms`)

.. code-block:: text

    var_b(x) = var_0(x) - sum_s (z(x)'g_s)^2,    g_s = v_s / sqrt(lambda + z_s'v_s),
    v_s = A^{-1} z_s - sum_{r<s} g_r (g_r'z_s)

costs ``O(m)`` for each arm and pick it has not seen yet. The batch is complete when
``1 + sum_s tau_0(x_s)`` exceeds the threshold ``C~``, the last pick included.

Reference:
    Calandriello et al.: Scaling parallel Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020. (Algorithm 1; Lemma 4 is why the sum is the right measure.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable

#: Stale arms brought up to date at a time.
REFRESH = 16
#: Picks after which an explicit inverse pays: it costs what some fifteen solves do, and then
#: each pick is a product of a matrix and a vector. It lives for one batch.
SOLVES_BEFORE_INVERSE = 16


class LazyBatch:
    r"""Picks ``argmax mean + width sd`` one after another, hallucinating each.

    Args:
        table: The arms; it must not change while the batch is picked.
        width: Width of the bounds in posterior standard deviations.
        threshold: The batch rule's ``C~``.

    Attributes:
        picks: Rows picked so far, in order; repetitions are legal.
        scores: ``tau_0`` of each pick under the model that chose it, to be logged.
        refreshed: How many arms were examined again so far.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> X = torch.linspace(0, 4, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> table.observe(torch.tensor([0]), torch.tensor([1.0]))
        >>> batch = LazyBatch(table, width=2.0, threshold=4.0)
        >>> while not batch.complete:
        ...     row = batch.pick()
        >>> len(batch.picks)
        2
    """

    @torch.no_grad()
    def __init__(self, table: ArmTable, width: float, threshold: float) -> None:
        self.table, self.width, self.threshold = table, width, threshold
        self.picks: list[int] = []
        self.scores: list[float] = []
        self.refreshed = 0
        self._mean, self._start = table.mean(), table.variance()
        self._var = self._start.clone()
        self._upper = self._mean + width * self._var.sqrt()
        self._seen = torch.zeros(len(self._var), dtype=torch.long, device=self._var.device)
        self._inverse: Tensor | None = None
        slots = table.coordinates.shape[-1]
        self._G = torch.zeros(64, slots, dtype=torch.float64, device=self._var.device)

    @property
    def complete(self) -> bool:
        r"""Whether the batch rule closes the batch."""
        return 1 + sum(self.scores) > self.threshold

    @torch.no_grad()
    def pick(self) -> int:
        r"""The next arm, as if the outcomes of the earlier ones were on their way."""
        b = len(self.picks)
        while True:
            row = int(self._upper.argmax())
            if int(self._seen[row]) == b:
                break
            self._refresh(b)
        self._hallucinate(row, b)
        self.picks.append(row)
        self.scores.append(float(self._start[row]) / self.table.noise_var)
        return row

    def _refresh(self, b: int) -> None:
        r"""Bring the highest bounds up to date with all ``b`` picks."""
        rows = self._upper.topk(min(REFRESH, len(self._upper))).indices
        rows = rows[self._seen[rows] < b]
        seen = self._seen[rows]
        first = int(seen.min())
        falls = (self.table.coordinates[rows].double() @ self._G[first:b].mT).square()
        picks = torch.arange(first, b, device=rows.device)
        falls = torch.where(picks >= seen.unsqueeze(-1), falls, 0.0)
        self._var[rows] = var = (self._var[rows] - falls.sum(-1)).clamp_min(0)
        self._upper[rows] = self._mean[rows] + self.width * var.sqrt()
        self._seen[rows] = b
        self.refreshed += len(rows)

    def _hallucinate(self, row: int, b: int) -> None:
        z = self.table.coordinates[row].double()
        if b == SOLVES_BEFORE_INVERSE:
            self._inverse = torch.cholesky_inverse(self.table.information_root)
        v = self.table.solve_information(z) if self._inverse is None else self._inverse @ z
        G = self._G[:b]
        v = v - G.mT @ (G @ z)
        gain = float(z @ v)
        if b == len(self._G):
            self._G = torch.cat([self._G, torch.zeros_like(self._G)])
        self._G[b] = v / math.sqrt(self.table.noise_var + gain)
        fall = gain**2 / (self.table.noise_var + gain)
        var = max(0.0, float(self._var[row]) - fall)
        self._var[row] = var
        self._upper[row] = float(self._mean[row]) + self.width * math.sqrt(var)
        self._seen[row] = b + 1
