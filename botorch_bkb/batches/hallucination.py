r"""``Hallucination``: variances as if picks had been observed, for the rows that need them.

After picks ``x_1 .. x_b`` (BBKB, Algorithm 1; ``Q`` is the table's inverse information)

.. code-block:: text

    var_b(x) = var_0(x) - sum_s (z(x)'g_s)^2,    g_s = v_s / sqrt(lambda + z_s'v_s),
    v_s = Q z_s - sum_{r<s} g_r (g_r'z_s)

The cost is ``O(m)`` per row and per pick since the row was last updated. From time to time the
``g`` are folded into ``Q <- Q - sum g g'``. So late picks of a batch cost as much as early ones.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from botorch_bkb.arms.table import ArmTable, squares, squares_in

#: Number of picks that are folded into ``Q`` at a time.
FOLD = 64


class Hallucination:
    r"""The variances of a table after hallucinated picks; the means stay fixed.

    Args:
        table: The table of arms. Rows may be added to it, but nothing else may change.

    Attributes:
        picked: The number of picks so far.
    """

    def __init__(self, table: ArmTable) -> None:
        self.table, self.picked = table, 0
        self._Q = table.inverse_information
        self._G = torch.zeros(FOLD, len(self._Q), dtype=torch.float64, device=self._Q.device)
        self._folded = 0
        self._coordinates: dict[int, Tensor] = {}
        self._directions: dict[int, Tensor] = {}  # Q z of rows picked since the last fold
        self._given_up: dict[int, float] = {}  # falls of the residuals of these rows

    @cached_property
    def _residual(self) -> Tensor:
        return self.table.residual()

    def _residual_of(self, row: int) -> float:
        is_new = row >= len(self._residual)
        residual = self.table.residual(row) if is_new else self._residual[row]
        return float(residual) - self._given_up.get(row, 0.0)

    def _z(self, row: int) -> Tensor:
        if row not in self._coordinates:
            self._coordinates[row] = self.table.coordinates(row).double()
        return self._coordinates[row]

    def pick(self, row: int) -> tuple[float, Tensor]:
        r"""Lower the variances as if ``row`` had been observed, and return ``z'Q z`` and ``g``."""
        z = self._z(row)
        if row not in self._directions:
            self._directions[row] = self._Q @ z
        b = self.picked - self._folded
        G = self._G[:b]
        v = self._directions[row] - G.mT @ (G @ z)
        gain = max(0.0, float(z @ v))
        torch.div(v, math.sqrt(self.table.noise_var + gain), out=self._G[b])
        g = self._G[b].clone()
        self.picked += 1
        if b + 1 == FOLD:
            self._Q = self._Q - self._G.mT @ self._G
            self._folded, self._directions = self.picked, {}
        return gain, g

    def give_up(self, row: int) -> tuple[float, Tensor]:
        r"""Lower the variances for a row that will never be observed.

        The row's residual falls as well. Otherwise a row that the dictionary does not explain would
        be picked again and again.

        Returns:
            The fall of the row's residual, and ``g``.
        """
        residual = max(0.0, self._residual_of(row))
        fall = residual**2 / (self.table.noise_var + residual)
        self._given_up[row] = self._given_up.get(row, 0.0) + fall
        return fall, self.pick(row)[1]

    def variance(self, row: int, var: float | None = None, seen: int = 0) -> float:
        r"""Return the variance of a row after all picks.

        Args:
            row: A row of the table.
            var: An earlier variance of the row.
            seen: The number of picks that ``var`` includes.
        """
        z = self._z(row)
        if var is None or seen < self._folded:  # later picks are folded into Q
            seen = self._folded
            var = self._residual_of(row) + float((self._Q @ z) @ z)
        falls = self._G[seen - self._folded : self.picked - self._folded] @ z
        return max(0.0, var - float(falls @ falls))

    def variances(self, rows: Tensor) -> Tensor:
        r"""Return the variances of many rows after all picks."""
        z = self.table.coordinates(rows).double()
        # From scratch: one product is cheaper than looking up which picks each row includes.
        var = self.table.residual(rows) + squares_in(self._Q, z)
        for row, fall in self._given_up.items():
            var[rows == row] -= fall
        return (var - squares(z @ self._G[: self.picked - self._folded].mT)).clamp_min(0)
