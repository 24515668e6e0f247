r"""Randomly pivoted Cholesky as a race of exponential clocks, in blocks."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.belief import chunks, kernel_diagonal, kernel_matrix
from botorch_bkb.dictionaries.rule import largest_over_batch
from botorch_bkb.linalg import solve_rows

#: Number of inputs that race at a time, before all others are updated.
BLOCK = 128
#: Share of the prior variance below which a residual is a rounding error, by dtype of the inputs.
EXHAUSTED = {torch.float32: 1e-5, torch.float64: 1e-10}


class Heat(NamedTuple):
    r"""The inputs that joined in one block."""

    joined: list[int]  #: positions in the block
    waits: list[float]  #: times between them
    root: Tensor  #: ``batch x a x a`` Cholesky factor of their residual covariance


class Race:
    r"""Exponential clocks of distinct inputs, each as fast as its weighted residual is large.

    The input whose clock runs out first joins the dictionary. This lowers the residuals
    ``k(x,x) - |z(x)|^2`` of the others. Exponential numbers have no memory. So at any time the next
    input to join is ``i`` with probability proportional to ``w_i`` times its residual.

    A clock only slows down, so its time under old residuals is a bound from below. The inputs with
    the least bounds race against each other, exactly, until another input may be first. Then all
    residuals are brought up to date, by matrix products.

    Args:
        X: ``batch x n x d`` inputs, no two of which are equal.
        kernel: The covariance module.
        weights: ``batch x n`` weights of the residuals.
        clocks: ``n`` exponential numbers: what an input's weighted residual, integrated over time,
            reaches when it joins.

    Reference:
        Chen, Epperly, Tropp, Webber: Randomly pivoted Cholesky: practical approximation of a kernel
        matrix with few entry evaluations. Communications on Pure and Applied Mathematics, 2025.
    """

    def __init__(self, X: Tensor, kernel: Kernel, weights: Tensor, clocks: Tensor) -> None:
        self.X, self.kernel, self.weights = X, kernel, weights
        self.left = clocks.clone()
        self.residual = kernel_diagonal(kernel, X).detach().clone()
        share = EXHAUSTED.get(X.dtype, EXHAUSTED[torch.float32])
        self.least = share * self.residual
        self.columns: list[Tensor] = []  # batch x n x a each: z(x), a block of coordinates each

    @torch.no_grad()
    def run(self, size: int) -> Tensor:
        r"""Return the sorted positions of the first ``size`` inputs to join, at least one."""
        drawn = torch.empty(0, dtype=torch.long, device=self.X.device)
        while len(drawn) < size:
            block, end = self._next_block()
            heat = self._among(block, end, size - len(drawn))
            if not heat.joined:
                break
            new = block[heat.joined]
            self._catch_up(new, heat)
            drawn = torch.cat([drawn, new])
        return drawn.sort().values if len(drawn) else torch.zeros_like(self.left[:1]).long()

    def _rates(self, residual: Tensor, rows: Tensor | slice) -> Tensor:
        r"""Return the speeds of clocks, the largest weighted residual over the batches."""
        residual = torch.where(residual > self.least[..., rows], residual, 0.0)
        return largest_over_batch(self.weights[..., rows] * residual)

    def _next_block(self) -> tuple[Tensor, float]:
        r"""Return the inputs that may join next, and the time when another one may."""
        times = _times(self.left, self._rates(self.residual, slice(None)))
        times, order = times.topk(min(BLOCK + 1, len(times)), largest=False)
        end = float(times[BLOCK]) if len(times) > BLOCK else math.inf
        return order[:BLOCK][times[:BLOCK].isfinite()], end

    def _among(self, block: Tensor, end: float, size: int) -> Heat:
        r"""Run the race among the inputs of a block until the time ``end``."""
        covariance = self._unexplained(self.X[..., block, :], block, block)
        left = self.left[block]
        joined: list[int] = []
        waits: list[float] = []
        root = torch.zeros_like(covariance)
        while len(joined) < min(size, len(block)):
            residual = covariance.diagonal(dim1=-2, dim2=-1)
            rates = self._rates(residual, block)
            rates[joined] = 0.0
            wait, first = _times(left, rates).min(0)
            if not wait.isfinite() or sum(waits) + float(wait) > end:
                break
            left = (left - rates * wait).clamp_min(0.0)
            root[..., len(joined)] = column = self._column(covariance, block, int(first))
            covariance = covariance - column.unsqueeze(-1) * column.unsqueeze(-2)
            joined.append(int(first))
            waits.append(float(wait))
        root = root[..., joined, : len(joined)].tril()
        # A batch that had nothing left to explain at a point has a column of zeros there.
        unused = torch.diag_embed((root.diagonal(dim1=-2, dim2=-1) == 0).to(root))
        return Heat(joined, waits, root + unused)

    def _column(self, covariance: Tensor, block: Tensor, first: int) -> Tensor:
        r"""Return the column of the Cholesky factor that belongs to one input of a block."""
        pivot = covariance[..., first, first].unsqueeze(-1)
        is_used = pivot > self.least[..., block[first]].unsqueeze(-1)
        root = torch.where(is_used, pivot, 1.0).sqrt()
        return torch.where(is_used, covariance[..., first] / root, 0.0)

    def _unexplained(self, x: Tensor, rows: Tensor | slice, new: Tensor) -> Tensor:
        r"""Return the residual covariance of the inputs ``x`` in ``rows`` with the ``new`` ones."""
        covariance = kernel_matrix(self.kernel, x, self.X[..., new, :])
        for column in self.columns:
            covariance = covariance - column[..., rows, :] @ column[..., new, :].mT
        return covariance

    def _catch_up(self, new: Tensor, heat: Heat) -> None:
        r"""Run all clocks until the last input of a block joined, and lower all residuals."""
        columns = []
        for rows in chunks(self.X.shape[-2]):
            column = solve_rows(heat.root, self._unexplained(self.X[..., rows, :], rows, new))
            residual = self.residual[..., rows]
            for wait, square in zip(heat.waits, column.square().unbind(-1), strict=True):
                self.left[rows] -= wait * self._rates(residual, rows)
                residual = residual - square
            self.residual[..., rows] = residual
            columns.append(column)
        self.columns.append(torch.cat(columns, -2))
        self.left = self.left.clamp_min(0.0)
        self.left[new] = math.inf


def _times(left: Tensor, rates: Tensor) -> Tensor:
    r"""Return when clocks run out that have ``left`` to go and keep their speeds."""
    return torch.where(rates > 0, left / rates, math.inf)
