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

    The DTC mean and covariance define an ordinary Gaussian process. Conditioned on ``(X_q, y_q)``
    with ``M = cov(X_q, X_q) + Lam_q = T T'``, it has the moments

    .. code-block:: text

        mean(x | q)   = mean(x) + cov(x, X_q) M^{-1} (y_q - mean(X_q))
        cov(x,x' | q) = cov(x, x') - cov(x, X_q) M^{-1} cov(X_q, x')

    An update with a fixed dictionary cannot do this, because it does not reduce the residual
    variance outside the dictionary's span. The cost is ``O(m^2 q + q^3)`` for any number of
    earlier observations.

    Attributes:
        embedding: Embedding of the ``q`` points.
        root: ``... x q x q``, the lower factor ``T``.
        coef: ``... x q``, ``T^{-1}(y_q - mean(X_q))``, possibly with more batch dimensions than
            ``root`` (for fantasies of the outcomes).

    Example:
        The first point is observed and forms the dictionary. The second is conditioned on:

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
        Quiñonero-Candela and Rasmussen (JMLR 2005) define the process with the DTC moments. Its
        conditioning is that of any Gaussian process, and is exact for this one.
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
        r"""Condition the DTC process on points with kernel matrix ``prior``.

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
        r"""Condition on ``k`` more points.

        Sequential conditioning equals joint conditioning.

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
        r"""Return ``cov(x, X_q) T^{-T}``, ``... x p x q``, for points with kernel ``cross``."""
        return solve_rows(self.root, e.posterior_covariance(self.embedding, cross))


def cat_rows(first: Tensor, second: Tensor) -> Tensor:
    r"""Concatenate along the second to last dimension, with broadcast batch dimensions."""
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return torch.cat([t.expand(*batch, *t.shape[-2:]) for t in (first, second)], -2)
