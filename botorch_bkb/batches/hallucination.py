r"""Variances as if picks had been observed, row by row as they are needed.

After picks ``x_1 .. x_b`` (BBKB, Algorithm 1; ``Q`` is the table's inverse information)

.. code-block:: text

    var_b(x) = var_0(x) - sum_s (z(x)'g_s)^2,    g_s = v_s / sqrt(lambda + z_s'v_s),
    v_s = Q z_s - sum_{r<s} g_r (g_r'z_s)

costs ``O(m)`` for each row and pick it has not seen yet. Now and then the ``g`` are folded into
an own ``Q <- Q - sum g g'``, so that a pick costs the same late in a batch as early.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable, squares, squares_in

#: Picks folded into ``Q`` at a time.
FOLD = 64


class Hallucination:
    r"""Picks on top of a table, whose means stay.

    Args:
        table: The arms; rows may be added to it, nothing else may change.

    Attributes:
        picked: How many picks there were.
    """

    def __init__(self, table: ArmTable) -> None:
        self.table, self.picked = table, 0
        self._Q = table.inverse_information
        self._G = torch.zeros(FOLD, len(self._Q), dtype=torch.float64, device=self._Q.device)
        self._folded = 0
        self._coordinates: dict[int, Tensor] = {}
        self._directions: dict[int, Tensor] = {}  # Q z of the rows picked since the last fold
        self._lost: dict[int, float] = {}  # what lost rows have lost of their residual

    @cached_property
    def _residual(self) -> Tensor:
        return self.table.residual()

    def _residual_of(self, row: int) -> float:
        is_new = row >= len(self._residual)
        residual = self.table.residual(row) if is_new else self._residual[row]
        return float(residual) - self._lost.get(row, 0.0)

    def _z(self, row: int) -> Tensor:
        if row not in self._coordinates:
            self._coordinates[row] = self.table.coordinates(row).double()
        return self._coordinates[row]

    def pick(self, row: int) -> tuple[float, Tensor]:
        r"""Let variances fall as if ``row`` had been observed; returns ``z'Q z`` and ``g``."""
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

    def lose(self, row: int) -> tuple[float, Tensor]:
        r"""The same for a row that nobody will observe; returns what it loses itself, and ``g``.

        The dictionary may not explain it, and it would be picked again and again otherwise.
        """
        residual = max(0.0, self._residual_of(row))
        fall = residual**2 / (self.table.noise_var + residual)
        self._lost[row] = self._lost.get(row, 0.0) + fall
        return fall, self.pick(row)[1]

    def variance(self, row: int, var: float | None = None, seen: int = 0) -> float:
        r"""The variance of a row after all picks.

        Args:
            row: The row.
            var: What it was.
            seen: After how many picks that was.
        """
        z = self._z(row)
        if var is None or seen < self._folded:  # what it has not seen is in Q by now
            seen = self._folded
            var = self._residual_of(row) + float((self._Q @ z) @ z)
        falls = self._G[seen - self._folded : self.picked - self._folded] @ z
        return max(0.0, var - float(falls @ falls))

    def variances(self, rows: Tensor) -> Tensor:
        r"""The same for many rows at a time."""
        z = self.table.coordinates(rows).double()
        # From the beginning: one product is cheaper than to find out what each has seen.
        var = self._residual[rows] + squares_in(self._Q, z)
        for row, fall in self._lost.items():
            var[rows == row] -= fall
        return (var - squares(z @ self._G[: self.picked - self._folded].mT)).clamp_min(0)
