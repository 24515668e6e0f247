r"""``Picks``: the picks of a batch as a batch rule sees them, with their covariances.

All values are those of the model at the start of the batch, over the noise variance ``lambda``.
``tau(x)`` is the score of a row ``x``, and ``c_s(x)`` its covariance with the pick ``x_s``. Two
beliefs differ in what a pick teaches, and so in ``c``:

.. code-block:: text

    picks join the dictionary:    c_s(x) = cov(x, x_s) / lambda
    the dictionary stays fixed:   c_s(x) = (z(x)'Q z_s + residual(x) [x = x_s]) / lambda

With a fixed dictionary, a pick lowers only what the dictionary explains, ``z'Q z``. The residual of
the pick itself is counted nevertheless, as if it fell at this one row. A rule would otherwise be
blind to picks that the dictionary does not explain, and one row could be pulled for ever.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from botorch_bkb.arms.table import CHUNK, ArmTable
from botorch_bkb.belief import chunks

#: Number of distinct picks whose covariances with a block of rows are computed at a time. With more
#: picks since the last pass, all rows are passed again.
COLUMNS = 64
#: Largest share of the rows that are examined without a pass over all of them.
NEAR = 1 / 16


class Picks:
    r"""The picks of a batch that count, with scores and covariances at the start of the batch.

    Rows may be picked several times. Results that are outstanding from earlier batches count as
    picks. A pick that a rule holds counts once.

    Args:
        table: The table of arms. Rows may be added to it, but nothing else may change.
        joins: Whether picks join the dictionary, so that they also lower its residual.
        everywhere: Whether points may be picked that are not rows of the table yet.

    Attributes:
        rows: The distinct rows, in the order of their first picks.
        scores: ``tau`` of these rows.
        spent: The sum of what the single picks have spent.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import Picks
        >>> X = 100 * torch.arange(3, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> picks = Picks(table)
        >>> for row in (2, 0, 2):
        ...     picks.add(row, score=2.0, spent=2.0)
        >>> picks.rows, picks.counts.tolist(), picks.spent
        ([2, 0], [2.0, 1.0], 6.0)
        >>> picks.covariance()
        tensor([[2., 0.],
                [0., 2.]], dtype=torch.float64)
        >>> picks.covariances_with(2)
        tensor([0., 0., 2.], dtype=torch.float64)
        >>> picks.largest_fall()
        4.0
    """

    def __init__(self, table: ArmTable, *, joins: bool = False, everywhere: bool = False) -> None:
        self.table, self.joins, self.everywhere = table, joins, everywhere
        self.rows: list[int] = []
        self.scores: list[float] = []
        self.spent = 0.0
        self._counts: dict[int, int] = {}
        self._bound = 0.0  # at least the largest local bound
        # Picks since the last pass over all rows, and the sum of their scores.
        self._waiting: dict[int, int] = {}
        self._since = 0.0
        self._directions: dict[int, Tensor] = {}  # Q z of picks, or their columns

    def __len__(self) -> int:
        return sum(self._counts.values())

    def add(self, row: int, score: float, spent: float) -> None:
        r"""Count a pick.

        Args:
            row: Its row in the table.
            score: Its ``tau``.
            spent: How much it spends alone.
        """
        if row not in self._counts:
            self.rows.append(row)
            self.scores.append(score)
        self._counts[row] = self._counts.get(row, 0) + 1
        self._waiting[row] = self._waiting.get(row, 0) + 1
        self._bound += score
        self._since += score
        self.spent += spent

    # ------------------------------------------------------------------ what a rule may use

    @property
    def counts(self) -> Tensor:
        r"""How often each of the distinct rows was picked, float64."""
        counts = [float(self._counts[row]) for row in self.rows]
        return torch.tensor(counts, dtype=torch.float64, device=self.table.X.device)

    @property
    def arm_scores(self) -> Tensor:
        r"""``tau`` of all rows of the table at the start of the batch, ``A``."""
        return self.table.scores()

    @torch.no_grad()
    def covariance(self) -> Tensor:
        r"""Return ``c`` of the distinct picks with each other, ``D x D``, float64."""
        table = self.table
        rows = torch.tensor(self.rows, dtype=torch.long, device=table.X.device)
        if self.joins:
            return table.covariance(rows) / table.noise_var
        return self._covariances(self.rows, rows)

    @torch.no_grad()
    def covariances_with(self, row: int) -> Tensor:
        r"""Return ``c`` of all rows of the table with one row, ``A``, float64."""
        blocks = chunks(len(self.table.X), CHUNK)
        return torch.cat([self._covariances([row], block) for block in blocks]).squeeze(-1)

    def _covariances(self, picks: list[int], at: Tensor | slice) -> Tensor:
        r"""Return ``c`` of the rows ``at`` with some picks, one column each."""
        table = self.table
        thin = torch.stack([self._direction(row) for row in picks], -1)
        if self.joins:
            return thin[at] / table.noise_var
        columns = (table.coordinates(at) @ thin.to(table.X)).double()
        index = torch.tensor(picks, dtype=torch.long, device=table.X.device)
        rows = torch.arange(len(table.X), device=index.device)[at] if isinstance(at, slice) else at
        columns += (rows.unsqueeze(-1) == index) * table.residual(index)
        return columns / table.noise_var

    def _direction(self, row: int) -> Tensor:
        r"""Return the covariances of all rows with a pick, or the vector that they follow from."""
        table, known = self.table, self._directions.get(row)
        if self.joins:
            if known is None or len(known) < len(table.X):
                known = table.covariance_with(row)
        elif known is None:
            known = table.inverse_information @ table.coordinates(row).double()
        self._directions[row] = known
        return known

    # ------------------------------------------------------------------ the local bound

    @torch.no_grad()
    def largest_fall(self, limit: float = 0.0) -> float:
        r"""Return ``max_x sum_s c_s(x)^2 / tau(x)``, over all ``x`` that may be picked.

        One plus this number bounds the factor by which variances have fallen
        (:class:`~botorch_bkb.batches.LocalRule`). The maximum is over all rows of the table. If
        other points may be picked as well, it is the largest eigenvalue of the covariance matrix
        of the picks, which bounds the fall everywhere.

        A pick adds at most its score at any row. So most rows need not be examined after most
        picks: those whose last value and the scores since then are at most ``limit`` together. And
        the eigenvalue is a bound for all rows.

        Args:
            limit: The number that matters. Only the answer to whether the maximum exceeds it is
                exact. With the default of zero the maximum is exact, too.
        """
        if self._bound <= limit:
            return self._bound
        # Larger only by rounding. The minimum of a number and nan is the number.
        fall = min(self._bound, self._examined(limit))
        if fall <= limit:
            self._bound = fall
        return fall

    def _examined(self, limit: float) -> float:
        r"""Return a number that exceeds ``limit`` just if the maximum does, by the cheapest way."""
        if self.everywhere:
            return self._largest_eigenvalue(self.covariance())
        near = torch.nonzero(self._falls > limit - self._since).squeeze(-1)
        if 0 < len(near) <= NEAR * len(self._falls) and len(self._waiting) <= COLUMNS:
            return max(float((self._falls[near] + self._more(near)).max()), limit)
        if limit > 0 and len(self.rows) <= COLUMNS:
            fall = self._fall_at_picks(limit)
            if fall is not None:
                return fall
        for block in chunks(len(self._falls), CHUNK):
            self._falls[block] += self._more(block)
        self._since, self._waiting = 0.0, {}
        return float(self._falls.max())

    def _fall_at_picks(self, limit: float) -> float | None:
        r"""Return the largest bound at the picks if it exceeds ``limit``, or one within it."""
        C, rows = self.covariance(), torch.tensor(self.rows, device=self.table.X.device)
        fall = float((C.square() @ self.counts * self._inverse_scores[rows]).max())
        if fall > limit:
            return fall
        bound = self._largest_eigenvalue(C)
        return bound if bound <= limit else None

    def _largest_eigenvalue(self, C: Tensor) -> float:
        root = self.counts.sqrt()
        return float(torch.linalg.eigvalsh(root.unsqueeze(-1) * C * root)[-1])

    def _more(self, at: Tensor | slice) -> Tensor:
        r"""Return what the waiting picks add to the bounds of the rows ``at``."""
        scale, waiting = self._inverse_scores[at], list(self._waiting.items())
        squares = torch.zeros_like(scale)
        for start in range(0, len(waiting), COLUMNS):
            rows, counts = zip(*waiting[start : start + COLUMNS], strict=True)
            columns = self._covariances(list(rows), at).square_()
            squares += columns @ columns.new_tensor(counts)
        return squares * scale

    @cached_property
    def _falls(self) -> Tensor:
        r"""``sum_s c_s(x)^2 / tau(x)`` of all rows at the last pass."""
        return torch.zeros_like(self.arm_scores)

    @cached_property
    def _inverse_scores(self) -> Tensor:
        r"""``1 / tau`` of all rows, zero where there is nothing left to fall."""
        tau = self.arm_scores
        return torch.where(tau > torch.finfo(tau.dtype).tiny, tau.reciprocal(), 0.0)
