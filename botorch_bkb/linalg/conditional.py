r"""The exact conditional of the DTC process on further observations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bkb.linalg.cholesky import block_triangular, safe_cholesky, solve_rows, solve_vector
from botorch_bkb.linalg.factor import Embedding


@dataclass(frozen=True)
class Conditional:
    r"""The exact conditional of the DTC process on ``q`` further observations.

    The process with the DTC mean and covariance is a Gaussian process like any other.
    Conditioned on ``(X_q, y_q)`` with ``M = cov(X_q, X_q) + Lam_q = T T'``:

    .. code-block:: text

        mean(x | q)   = mean(x) + cov(x, X_q) M^{-1} (y_q - mean(X_q))
        cov(x,x' | q) = cov(x, x') - cov(x, X_q) M^{-1} cov(X_q, x')

    A fixed-dictionary update could not do this: it leaves the residual variance off the
    dictionary's span where it was. ``O(m^2 q + q^3)``, whatever the number of observations.

    Attributes:
        embedding: Of the ``q`` points.
        root: ``... x q x q``, the lower factor ``T``.
        coef: ``... x q``, ``T^{-1}(y_q - mean(X_q))``; may have more batch dimensions (one
            for each fantasy of the outcomes) than ``root``.

    Example:
        The first point is observed and the dictionary, the second is conditioned on:

        >>> import torch
        >>> from botorch_bkb.linalg import Conditional, DTCFactor
        >>> K = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
        >>> y, noise = torch.tensor([1.0, 2.0]).double(), torch.full((2,), 0.5).double()
        >>> factor = DTCFactor.build(K[:1, :1], K[:1, :1], y[:1], noise[:1])
        >>> both, second = factor.embed(K[:, :1]), factor.embed(K[1:, :1])
        >>> given = Conditional.build(second, K[1:, 1:], y[1:] - factor.mean(second), noise[1:])
        >>> factor.mean(both) + given.project(both, K[:, 1:]) @ given.coef
        tensor([0.8750, 1.3750], dtype=torch.float64)
        >>> K @ torch.linalg.solve(K + noise.diag(), y)
        tensor([0.8750, 1.3750], dtype=torch.float64)

    Reference:
        Conditioning of a Gaussian process, exact for the one with the DTC moments; that process is
        Quiñonero-Candela and Rasmussen's (JMLR 2005).
    """

    embedding: Embedding
    root: Tensor
    coef: Tensor

    @classmethod
    def build(
        cls,
        e: Embedding,
        prior: Tensor,
        residual: Tensor,
        noise: Tensor,
        precision: torch.dtype | None = None,
    ) -> Conditional:
        r"""Condition on points with kernel matrix ``prior``.

        Args:
            e: Embedding of the points, ``... x q x m``.
            prior: Their kernel matrix, ``... x q x q``.
            residual: ``y_q - mean(X_q)``, ``... x q``.
            noise: Noise variances, ``... x q``.
            precision: The dtype in which the kernel was computed, if coarser.
        """
        covar = e.covariance(prior) + torch.diag_embed(noise)
        root = safe_cholesky(covar, precision, prior)
        return cls(e, root, solve_vector(root, residual))

    def extend(
        self,
        e: Embedding,
        prior: Tensor,
        cross: Tensor,
        residual: Tensor,
        noise: Tensor,
        precision: torch.dtype | None = None,
    ) -> Conditional:
        r"""Condition further: sequential conditioning equals joint conditioning.

        Args:
            e: Embedding of the ``k`` new points.
            prior: Their kernel matrix, ``... x k x k``.
            cross: Kernel between new and earlier points, ``... x k x q``.
            residual: ``y_k - mean(X_k)`` under the DTC posterior, ``... x k``.
            noise: Noise variances, ``... x k``.
            precision: The dtype in which the kernel was computed, if coarser.
        """
        left = solve_rows(self.root, e.posterior_covariance(self.embedding, cross))
        corner = e.covariance(prior) + torch.diag_embed(noise)
        tail = safe_cholesky(corner - left @ left.mT, precision, prior)
        residual = residual - (left @ self.coef.unsqueeze(-1)).squeeze(-1)
        new = solve_vector(tail, residual)
        return Conditional(
            Embedding(*(cat_rows(a, b) for a, b in zip(self.embedding, e, strict=True))),
            block_triangular(self.root, left, tail),
            cat_rows(self.coef.unsqueeze(-1), new.unsqueeze(-1)).squeeze(-1),
        )

    def project(self, e: Embedding, cross: Tensor) -> Tensor:
        r"""``cov(x, X_q) T^{-T}``, ``... x p x q``, for points with kernel ``cross``."""
        return solve_rows(self.root, e.posterior_covariance(self.embedding, cross))


def cat_rows(first: Tensor, second: Tensor) -> Tensor:
    r"""Concatenate along the second last dimension, broadcasting the batch."""
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return torch.cat([t.expand(*batch, *t.shape[-2:]) for t in (first, second)], -2)
