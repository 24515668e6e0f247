r"""``Conditioning``: variances conditioned exactly on picks, for the rows that need them.

The DTC process is conditioned as a whole, with what the dictionary does not explain. Let ``s`` be
the picks, in order, and ``C`` covariances at the start of the batch. With ``LL' = C_ss + lambda I``

.. code-block:: text

    var_b(x) = var_0(x) - |L^{-1} C_s(x)|^2

For the picks one after another this is ``cov'(x, x') = cov(x, x') - cov(x, s) cov(s, x') / (cov(s,
s) + lambda)``. So variances fall also where the dictionary explains nothing, and no arm is picked
again and again. The cost is ``b`` covariances and ``O(b^2)`` per row and update.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from botorch_bkb.arms.table import ArmTable, squares
from botorch_bkb.belief import chunks
from botorch_bkb.linalg import solve_rows

#: The number of inputs, times their dimension, that are looked at at a time: they fit a cache.
ENTRIES = 2**19


class Conditioning:
    r"""The variances of a table, conditioned exactly on picks; the means stay.

    Args:
        table: The table of arms, which must not change.

    Attributes:
        rows: The picks so far. They may repeat.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import Conditioning
        >>> X = 100 * torch.arange(3, dtype=torch.float64).unsqueeze(-1)
        >>> conditioning = Conditioning(ArmTable(X, RBFKernel().double(), 1.0, torch.tensor([0])))
        >>> conditioning.pick(1), conditioning.variances(torch.tensor([0, 1]))
        (0.5, tensor([1.0000, 0.5000], dtype=torch.float64))

    Reference:
        Desautels, Krause, Burdick, JMLR 2014. (Hallucinated observations.)
    """

    def __init__(self, table: ArmTable) -> None:
        self.table, self.rows = table, torch.empty(0, dtype=torch.long, device=table.X.device)
        self._start = table.variance()
        self._directions = self._start.new_empty(0, 0)
        self._root = self._start.new_empty(0, 0)

    def pick(self, row: int) -> float:
        r"""Condition on a row, and return its variance afterwards."""
        noise, chosen = self.table.noise_var, self.rows.new_tensor([row])
        known = self._known(chosen).squeeze(0)
        var = float((self._start[row] - squares(known)).clamp_min(0))
        diagonal = known.new_tensor([var + noise]).sqrt()
        wide = torch.nn.functional.pad(self._root, (0, 1))
        self._root = torch.cat([wide, torch.cat([known, diagonal]).unsqueeze(0)])
        direction = self.table.directions(chosen)
        self._directions = torch.cat([self._directions.reshape(-1, direction.shape[-1]), direction])
        self.rows = torch.cat([self.rows, chosen])
        return var * noise / (var + noise)

    def follow(self, rows: Sequence[int]) -> None:
        r"""Condition on several rows, one after another."""
        for row in rows:
            self.pick(row)

    def variances(self, rows: Tensor) -> Tensor:
        r"""Return the variances of ``q`` rows after all picks."""
        size = max(64, ENTRIES // (self.table.X.shape[-1] + len(self.rows) + 1))
        parts = [rows[block] for block in chunks(len(rows), size)]
        falls = torch.cat([squares(self._known(part)) for part in parts])
        return (self._start[rows] - falls).clamp_min(0)

    def _known(self, rows: Tensor) -> Tensor:
        r"""Return ``L^{-1} C_s(x)`` of ``q`` rows, ``q x b``."""
        if not len(self.rows):
            return self._start.new_empty(len(rows), 0)
        C = self.table.covariance_between(rows, self.rows, self._directions)
        return solve_rows(self._root, C)
