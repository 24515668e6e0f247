r"""Batches with random picks: Thompson sampling and epsilon-greedy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from botorch_bkb.arms.table import CHUNK, ArmTable
from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.rule import BatchRule
from botorch_bkb.belief import chunks

#: The largest number of posterior draws per pass over the coordinates.
DRAWS = 16


class ThompsonBatch(Batch):
    r"""A batch in which each pick is the best arm of a draw from the DTC posterior.

    .. code-block:: text

        f(x) = mean(x) + z(x)'theta + sqrt(residual(x)) eps(x),   theta ~ N(0, Q)

    The covariance ``z(x)'Q z(x')`` through the dictionary is exact, and so is every variance.
    The part that the dictionary does not explain, ``k(x,x') - z(x)'z(x')``, is drawn independently
    for each arm. A joint draw would need the ``A x A`` covariance. If all observed points are in
    the dictionary, the data contain no information about this part. No theorem is claimed.

    Args:
        table: The table of arms, which must not change while the batch is picked.
        rule: The rule that decides when the batch is complete.
        generator: The batch's own source of randomness.
        kwargs: As for :class:`~botorch_bkb.batches.batch.Batch`.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import SumRule, ThompsonBatch
        >>> X = torch.linspace(0, 4, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> batch = ThompsonBatch(table, SumRule(4.0), torch.Generator().manual_seed(0))
        >>> 0 <= batch.pick() < 9
        True

    Reference:
        Thompson: On the likelihood that one unknown probability exceeds another in view of the
        evidence of two samples. Biometrika 1933. No theorem is claimed for the DTC posterior.
    """

    def __init__(
        self, table: ArmTable, rule: BatchRule, generator: torch.Generator, **kwargs: Any
    ) -> None:
        super().__init__(table, rule, **kwargs)
        self._generator = generator
        self._drawn: list[int] = []
        self._size = 1

    def _choose(self) -> int:
        while True:
            if not self._drawn:
                self._drawn = self._maximisers(self._size).tolist()
                self._size = min(2 * self._size, DRAWS)
            row = self._drawn.pop(0)
            if self._may_pick(row):  # else it was picked since, and another draw takes its place
                return row

    def _maximisers(self, n: int) -> Tensor:
        r"""Return the best arms of ``n`` draws, found in one pass over the coordinates."""
        table, generator = self.table, self._generator
        theta = table.draw(n, generator).to(table.X)
        mean, residual = table.mean()[: self.num_arms], table.residual()
        if self.candidates is not None:
            mean = self.candidates.among(mean)
        best = torch.full((n,), -torch.inf, dtype=mean.dtype, device=mean.device)
        rows = torch.zeros(n, dtype=torch.long, device=mean.device)
        for block in chunks(self.num_arms, CHUNK):
            eps = torch.randn(
                block.stop - block.start, n, generator=generator, dtype=mean.dtype,
                device=generator.device,
            )  # fmt: skip
            values = (table.coordinates(block) @ theta).double() + mean[block].unsqueeze(-1)
            values += residual[block].sqrt().unsqueeze(-1) * eps.to(mean.device)
            top, arms = values.max(0)
            rows = torch.where(top > best, arms + block.start, rows)
            best = torch.maximum(best, top)
        return rows


class GreedyBatch(Batch):
    r"""A batch that picks the arm of highest mean or, with probability ``epsilon``, a random arm.

    Args:
        table: The table of arms, which must not change while the batch is picked.
        rule: The rule that decides when the batch is complete.
        epsilon: The probability of a random arm.
        generator: The batch's own source of randomness.
        kwargs: As for :class:`~botorch_bkb.batches.batch.Batch`.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import GreedyBatch, SumRule
        >>> X = torch.linspace(0, 4, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([3]))
        >>> table.observe(torch.tensor([3]), torch.tensor([1.0]))
        >>> seeded = torch.Generator().manual_seed(0)
        >>> GreedyBatch(table, SumRule(4.0), 0.0, seeded).pick()
        3

    Reference:
        The baseline in the experiments of Calandriello et al., ICML 2020 (BBKB). No theorem is
        claimed.
    """

    def __init__(
        self,
        table: ArmTable,
        rule: BatchRule,
        epsilon: float,
        generator: torch.Generator,
        **kwargs: Any,
    ) -> None:
        super().__init__(table, rule, **kwargs)
        self.epsilon, self._generator = epsilon, generator
        mean = table.mean()[: self.num_arms].clone()
        mean[[row for row in self.given_up if row < self.num_arms]] = -torch.inf
        self._values = mean if self.candidates is None else self.candidates.among(mean)
        self._best = int(self._values.argmax())

    def _choose(self) -> int:
        device = self._generator.device
        if float(torch.rand((), generator=self._generator, device=device)) >= self.epsilon:
            return self._best
        rows = None if self.candidates is None else torch.nonzero(self.candidates.is_open)
        high = self.num_arms if rows is None else len(rows)
        drawn = int(torch.randint(high, (), generator=self._generator, device=device))
        return drawn if rows is None else int(rows[drawn])

    def _leave_out(self, row: int) -> None:
        self._values[row] = -torch.inf
        self._best = int(self._values.argmax())
