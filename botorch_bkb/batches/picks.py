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

#: Number of columns of covariances that are computed at a time. Tables that keep no coordinates
#: keep as many columns for rows that are picked again; others as many as they have coordinates.
COLUMNS = 32


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
        self._waiting: dict[int, int] = {}  # counts of picks that ``_fall`` does not include
        self._since = 0.0  # the sum of their scores
        self._fall = 0.0
        self._columns: dict[int, Tensor] = {}  # squares of covariances, for rows picked again

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
        z = table.coordinates(rows).double()
        explained = z @ table.inverse_information @ z.mT
        return (explained + table.residual(rows).diag()) / table.noise_var

    @torch.no_grad()
    def covariances_with(self, row: int) -> Tensor:
        r"""Return ``c`` of all rows of the table with one row, ``A``, float64."""
        return self._covariances([row]).squeeze(-1)

    def _covariances(self, rows: list[int]) -> Tensor:
        table = self.table
        if self.joins:
            columns = torch.stack([table.covariance_with(row) for row in rows], -1)
            return columns / table.noise_var
        index = torch.tensor(rows, dtype=torch.long, device=table.X.device)
        thin = (table.inverse_information @ table.coordinates(index).double().mT).to(table.X)
        blocks = chunks(len(table.X), CHUNK)
        columns = torch.cat([(table.coordinates(block) @ thin).double() for block in blocks])
        columns[index, torch.arange(len(rows), device=index.device)] += table.residual(index)
        return columns / table.noise_var

    # ------------------------------------------------------------------ the local bound

    def largest_fall(self, limit: float = 0.0) -> float:
        r"""Return ``max_x sum_s c_s(x)^2 / tau(x)``, over all ``x`` that may be picked.

        One plus this number bounds the factor by which variances have fallen
        (:class:`~botorch_bkb.batches.LocalRule`). The maximum is over all rows of the table. If
        other points may be picked as well, it is the largest eigenvalue of the covariance matrix
        of the picks, which bounds the fall everywhere.

        Args:
            limit: The number that matters. Every pick adds at most its score. While the last
                maximum and the scores since then are at most ``limit`` together, their sum is
                returned instead, which costs nothing.
        """
        bound = self._fall + self._since
        if bound > limit:
            fall = self._largest_eigenvalue() if self.everywhere else self._largest_over_rows()
            self._fall = bound = min(bound, fall)  # larger only by rounding, or not a number
            self._since, self._waiting = 0.0, {}
        return bound

    @torch.no_grad()
    def _largest_eigenvalue(self) -> float:
        root = self.counts.sqrt()
        return float(torch.linalg.eigvalsh(root.unsqueeze(-1) * self.covariance() * root)[-1])

    @torch.no_grad()
    def _largest_over_rows(self) -> float:
        known = [row for row in self._waiting if row in self._columns]
        new = [row for row in self._waiting if row not in self._columns]
        for row in known:
            self._squares.add_(self._columns[row], alpha=self._waiting[row])
        for start in range(0, len(new), COLUMNS):
            self._add_columns(new[start : start + COLUMNS])
        return float((self._squares * self._inverse_scores).max())

    def _add_columns(self, rows: list[int]) -> None:
        columns = self._covariances(rows).square_()
        counts = columns.new_tensor([float(self._waiting[row]) for row in rows])
        self._squares.add_(columns @ counts)
        for row, column in zip(rows, columns.unbind(-1), strict=True):
            if len(self._columns) < self._room:
                self._columns[row] = column.clone()

    @cached_property
    def _squares(self) -> Tensor:
        r"""``sum_s c_s(x)^2`` of all rows."""
        return torch.zeros_like(self.arm_scores)

    @cached_property
    def _inverse_scores(self) -> Tensor:
        r"""``1 / tau`` of all rows, zero where there is nothing left to fall."""
        tau = self.arm_scores
        return torch.where(tau > torch.finfo(tau.dtype).tiny, tau.reciprocal(), 0.0)

    @property
    def _room(self) -> int:
        return max(COLUMNS, len(self.table.inverse_information) if self.table.keep else 0)
