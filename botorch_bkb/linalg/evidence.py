r"""The log evidence of Gaussian observations and its derivatives, as sums over the data.

In the sparse case ``y ~ N(0, Z Z' + Lam)`` with ``Z = K_XS L^{-T}``, ``K_SS = L L'``,
``Lam = diag(noise)`` and ``A = I + Z' Lam^{-1} Z``. With ``u = A^{-1} Z' Lam^{-1} y`` and
``a = Lam^{-1} (y - Z u)``

.. code-block:: text

    log p(y) = -1/2 [ y'Lam^{-1}y - y'Lam^{-1}Z u + log det A + log det Lam + n log 2 pi ]
    d log p  = <G_XS, dK_XS> + <G_SS, dK_SS> + 1/2 sum_i M_ii dnoise_i - a'dy
    G_XS     = a u'L^{-1} - Lam^{-1} Z A^{-1} L^{-1}
    G_SS     = -1/2 L^{-T} (u u' - I + A^{-1}) L^{-1}
    M_ii     = a_i^2 - 1 / noise_i + z_i'A^{-1} z_i / noise_i^2

Titsias' trace term adds ``1/2 sum_i |z_i|^2 / noise_i`` here; its other part, ``k(x,x)``, is the
caller's. It replaces ``A^{-1}`` by ``A^{-1} - I`` in ``G_XS``, and by ``A^{-1} + Z'Lam^{-1}Z`` in
``G_SS``.

In the exact case ``y ~ N(0, Sigma)``. With ``a = Sigma^{-1} y`` the derivative is
``d log p = 1/2 <aa' - Sigma^{-1}, dSigma> - a'dy``.

Reference:
    Titsias: Variational learning of inducing variables in sparse Gaussian processes. AISTATS 2009.
    (The trace term.) The derivatives follow from the matrix inversion lemma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.linalg.cholesky import information_root, solve_rows, solve_vector
from botorch_bkb.linalg.factor import information

LOG_2_PI = math.log(2 * math.pi)
#: Number of columns of a Gram matrix that are computed at a time, without those above them.
COLUMNS = 128


class RowGradients(NamedTuple):
    r"""The derivatives of the log evidence with respect to a block of rows."""

    kernel: Tensor  #: ``batch x n x m``, ``G_XS``; the next block may overwrite it
    targets: Tensor  #: ``batch x n``
    noise: Tensor  #: ``batch x n``


class ExactGradients(NamedTuple):
    r"""The log evidence of the exact case and its derivatives."""

    value: Tensor
    covariance: Tensor  #: ``n x n``, with respect to ``Sigma``
    targets: Tensor  #: ``n``


def exact_evidence(covariance: Tensor, targets: Tensor) -> ExactGradients:
    r"""Compute the log density of ``y ~ N(0, Sigma)`` and its derivatives.

    Args:
        covariance: ``Sigma``, ``n x n``.
        targets: ``y``, of length ``n``.

    Example:
        >>> import torch
        >>> y = torch.ones(1, dtype=torch.float64)
        >>> value, _, slope = exact_evidence(2 * torch.eye(1, dtype=torch.float64), y)
        >>> torch.distributions.Normal(0.0, 2.0**0.5).log_prob(y), value, slope
        (tensor([-1.5155], dtype=torch.float64), tensor(-1.5155, dtype=torch.float64), tensor([-0.5000], dtype=torch.float64))
    """  # noqa: E501
    root, info = torch.linalg.cholesky_ex(covariance)
    if info:
        root = psd_safe_cholesky(covariance)
    a = torch.cholesky_solve(targets.unsqueeze(-1), root).squeeze(-1)
    total = torch.dot(targets, a) + 2 * root.diagonal().log().sum() + len(targets) * LOG_2_PI
    inverse = torch.cholesky_inverse(root).mT  # symmetric, and stored by columns
    gradient = torch.addr(inverse, a, a, beta=-0.5, alpha=0.5)
    return ExactGradients(-0.5 * total, gradient, -a)


@dataclass
class SparseEvidence:
    r"""The log evidence of the sparse case, gathered over blocks of rows.

    Args:
        root: ``L``, ``batch x m x m``; None if the coordinates are features, which need none.
        trace_term: Whether to add the part of the trace term that depends on ``Z``.

    Example:
        >>> import torch
        >>> root, y = torch.eye(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        >>> evidence = SparseEvidence(root)
        >>> evidence.add(root, y, y)
        >>> evidence.value()
        tensor(-1.5155, dtype=torch.float64)
    """

    root: Tensor | None
    trace_term: bool = False

    def __post_init__(self) -> None:
        self.gram: Tensor | None = None
        self.num_rows = 0
        self._memory: Tensor | None = None  # of the derivatives of a block

    def add(self, Z: Tensor, targets: Tensor, noise: Tensor) -> None:
        r"""Add a block of rows.

        Args:
            Z: ``batch x n x m`` coordinates.
            targets: ``batch x n``.
            noise: ``batch x n``.
        """
        scalar = torch.linalg.vecdot(targets / noise, targets) + noise.log().sum(-1)
        self.num_rows += Z.shape[-2]
        if self.gram is None:
            m = Z.shape[-1]
            self.gram, self.rhs = (
                Z.new_zeros(*targets.shape[:-1], *size) for size in ((m, m), (m,))
            )
            self.scalar = torch.zeros_like(scalar)
        self.scalar = self.scalar + scalar
        if _is_common(noise):  # no weighted copy of ``Z`` is needed
            weight = 1 / float(noise[0])
            add_lower_gram(self.gram, Z, weight)
            self.rhs.addmv_(Z.mT, targets, alpha=weight)
            return
        gram, rhs = information(Z, targets, noise)
        self.gram.add_(gram)
        self.rhs.add_(rhs)

    def value(self) -> Tensor:
        r"""Return the log evidence of all rows, ``batch``."""
        assert self.gram is not None
        self.gram = self.gram.tril() + self.gram.tril(-1).mT
        self._info_root = information_root(self.gram)
        half = solve_vector(self._info_root, self.rhs)
        logdet = 2 * self._info_root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        total = self.scalar - half.square().sum(-1) + logdet + self.num_rows * LOG_2_PI
        if self.trace_term:
            total = total - self.gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        return -0.5 * total

    def _eye(self) -> Tensor:
        assert self.gram is not None
        return _identity(self.gram)

    def prepare(self) -> None:
        r"""Compute the ``m x m`` matrices that the derivatives need, after :meth:`value`."""
        self._inverse = torch.cholesky_inverse(self._info_root)
        self._u = (self._inverse @ self.rhs.unsqueeze(-1)).squeeze(-1)
        self._middle = self._inverse - self._eye() if self.trace_term else self._inverse
        self._slope = self._pulled(self._middle)
        self._weights = self._pulled(self._u.unsqueeze(-2))

    def _pulled(self, rows: Tensor) -> Tensor:
        r"""Return ``rows L^{-1}``."""
        if self.root is None:
            return rows
        return torch.linalg.solve_triangular(self.root, rows, upper=False, left=False)

    def rows(self, Z: Tensor, K: Tensor, targets: Tensor, noise: Tensor) -> RowGradients:
        r"""Return the derivatives with respect to a block of rows, after :meth:`prepare`.

        The derivative with respect to the noise lacks ``k(x,x)`` of the trace term. If all rows
        have one noise variance (a tensor expanded to ``n``), only the sum over all rows has a
        meaning, and a part of it is spread evenly.

        Args:
            Z: ``batch x n x m`` coordinates.
            K: ``K_XS``, ``batch x n x m``; the coordinates if they are features.
            targets: ``batch x n``.
            noise: ``batch x n``.
        """
        a = (targets - (Z @ self._u.unsqueeze(-1)).squeeze(-1)) / noise
        if _is_common(noise):
            return self._rows_of_common_noise(Z, a, noise)
        spread = Z @ self._slope
        explained = torch.linalg.vecdot(spread, K) / noise.square()  # z'A^{-1}z / noise^2
        slope = 0.5 * (a.square() - noise.reciprocal() + explained)
        spread.mul_(-noise.reciprocal().unsqueeze(-1))
        return RowGradients(spread.addcmul_(a.unsqueeze(-1), self._weights), -a, slope)

    def _rows_of_common_noise(self, Z: Tensor, a: Tensor, noise: Tensor) -> RowGradients:
        r"""Return the derivatives without a pass over the rows for the noise.

        ``sum_i z_i'A^{-1}z_i`` is the trace of ``A^{-1} Z'Z``.
        """
        assert self.gram is not None
        weight = 1 / float(noise[0])
        explained = weight * (self._middle * self.gram).sum() / self.num_rows
        slope = 0.5 * (a.square() - weight + explained)
        if self._memory is None or self._memory.shape != Z.shape:
            self._memory = Z.new_empty(Z.shape)  # not transposed, as Z is
        torch.mm(Z, -weight * self._slope, out=self._memory)
        return RowGradients(self._memory.addr_(a, self._weights.squeeze(-2)), -a, slope)

    def dictionary(self) -> Tensor:
        r"""Return the derivative with respect to ``K_SS``, ``batch x m x m``."""
        assert self.gram is not None
        middle = self._u.unsqueeze(-1) * self._u.unsqueeze(-2) - self._eye() + self._inverse
        if self.trace_term:
            middle = middle + self.gram
        return -0.5 * self._pulled(self._pulled(middle).mT)


def embed(root: Tensor | None, K: Tensor) -> Tensor:
    r"""Return the coordinates ``K L^{-T}`` of rows, or ``K`` itself without a factor.

    Args:
        root: ``L``, ``batch x m x m``, or None.
        K: ``batch x n x m``.

    Example:
        >>> import torch
        >>> root = torch.tensor([[2.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> embed(root, root @ root.mT)
        tensor([[2., 0.],
                [1., 1.]], dtype=torch.float64)
    """
    return K if root is None else solve_rows(root, K)


def add_lower_gram(total: Tensor, Z: Tensor, weight: float) -> None:
    r"""Add the lower triangle of ``weight Z'Z`` to a matrix in place; its upper one is undefined.

    Blocks of columns leave out nearly half of the product.

    Args:
        total: ``m x m``.
        Z: ``n x m``.
        weight: The factor.
    """
    for start in range(0, Z.shape[-1], COLUMNS):
        block = slice(start, start + COLUMNS)
        total[start:, block].addmm_(Z[:, start:].mT, Z[:, block], alpha=weight)


def _is_common(noise: Tensor) -> bool:
    r"""Return whether all rows have one noise variance."""
    return noise.dim() == 1 and noise.stride(-1) == 0


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
