r"""``ExactBatch``: picks by means and variances, conditioned exactly on the earlier picks.

GP-BUCB conditions on everything observed *and* hallucinated. A pick outside the dictionary also
lowers variances through its own residual, so its covariance with all arms is needed. Let ``c(x)``
be the covariances with the ``D`` distinct picks at the start of the batch, pulled ``n`` times. Then

.. code-block:: text

    var_b(x) = var_0(x) - c(x)' P c(x),     P = (diag(lambda / n) + C_DD)^{-1}

Each pick changes ``P`` by rank one. The cost is ``O(A D)`` per pick, and ``O(A m)`` per new
distinct pick.

Reference:
    Desautels, Krause, Burdick: Parallelizing exploration-exploitation tradeoffs in Gaussian
    process bandit optimization. JMLR 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.rule import BatchRule

#: A function from the means and variances of arms to the values that are maximised.
Criterion = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class UpperBound:
    r"""The upper confidence bound ``mean + width sd`` as a criterion.

    A call maps ``A`` means and ``A`` variances to ``A`` bounds.

    Args:
        width: The width in posterior standard deviations.

    Example:
        >>> import torch
        >>> from botorch_bkb.batches import UpperBound
        >>> UpperBound(2.0)(torch.tensor([0.0, 1.0]), torch.tensor([4.0, 0.25]))
        tensor([4., 2.])

    Reference:
        Srinivas et al., ICML 2010. (GP-UCB.)
    """

    width: float

    def __call__(self, mean: Tensor, var: Tensor) -> Tensor:
        r"""Return the upper bounds."""
        return mean + self.width * var.sqrt()


class ExactBatch(Batch):
    r"""A batch that picks the best arm by a criterion and conditions on each pick exactly.

    Means stay fixed within a batch. Variances fall with every pick.

    Args:
        table: The table of arms, which must not change while the batch is picked.
        rule: The rule that decides when the batch is complete.
        criterion: :class:`UpperBound` or another function of means and variances.
        kwargs: As for :class:`~botorch_bkb.batches.batch.Batch`.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import ExactBatch, ProductRule, UpperBound
        >>> X = torch.linspace(0, 8, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> batch = ExactBatch(table, ProductRule(30.0), UpperBound(2.0))
        >>> [batch.pick() for _ in range(3)]
        [0, 5, 8]

    Reference:
        Desautels, Krause, Burdick, JMLR 2014. (GP-BUCB.)
    """

    @torch.no_grad()
    def __init__(
        self, table: ArmTable, rule: BatchRule, criterion: Criterion, **kwargs: Any
    ) -> None:
        super().__init__(table, rule, **{**kwargs, "joins": True})
        self.criterion = criterion
        mean, self._var = table.moments()
        self._mean = mean[: self.num_arms]
        self._places: dict[int, int] = {}  # row of a distinct pick -> its index in C and P
        self._pulls: list[int] = []
        self._C = self._var.new_empty(len(self._var), 0)
        self._P = self._var.new_empty(0, 0)
        for row in (*self.stragglers, *self.given_up):
            self._hallucinate(row)

    def _choose(self) -> int:
        values = self.criterion(self._mean, self._var[: self.num_arms])
        return int((values if self.candidates is None else self.candidates.among(values)).argmax())

    def _score_now(self, row: int) -> float:
        return float(self._var[row]) / self.table.noise_var

    def _hallucinate(self, row: int) -> None:
        fall = self._pull_again(self._places[row]) if row in self._places else self._pull_new(row)
        self._var = (self._var - fall).clamp_min(0)

    def _pull_again(self, i: int) -> Tensor:
        r"""Pull a distinct pick once more and return by how much all variances fall."""
        n = self._pulls[i]
        self._pulls[i] += 1
        gap = self.table.noise_var / n - self.table.noise_var / (n + 1)
        p = self._P[i]
        scale = gap / (1 - gap * p[i])
        self._P = self._P + scale * torch.outer(p, p)
        return scale * (self._C @ p).square()

    def _pull_new(self, row: int) -> Tensor:
        r"""Pull a new pick for the first time and return by how much all variances fall."""
        column = self.table.covariance_with(row)
        c = self._C[row]
        p = self._P @ c
        schur = self.table.noise_var + column[row].clamp_min(0) - c @ p
        corner = torch.cat([-p, torch.ones_like(column[:1])])
        padded = torch.nn.functional.pad(self._P, (0, 1, 0, 1))
        self._P = padded + torch.outer(corner, corner) / schur
        fall = (column - self._C @ p).square() / schur
        self._places[row] = len(self._pulls)
        self._pulls.append(1)
        self._C = torch.cat([self._C, column.unsqueeze(-1)], -1)
        return fall
