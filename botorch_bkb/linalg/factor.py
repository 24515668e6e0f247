r"""The DTC posterior as an immutable object, factorised once and applied often."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.linalg.cholesky import (
    block_triangular,
    extend_cholesky,
    information_root,
    rank_one_root,
    rank_one_solve,
    safe_cholesky,
    solve_rows,
    solve_vector,
)


class Embedding(NamedTuple):
    r"""Coordinates of points under a :class:`DTCFactor`: ``z`` and ``w = R^{-1} z``."""

    z: Tensor  #: ``... x q x m``
    w: Tensor  #: ``... x q x m``

    def posterior_covariance(self, other: Embedding, prior: Tensor) -> Tensor:
        r"""Compute the DTC covariance of two sets of points from their kernel matrix ``prior``."""
        return prior - self.z @ other.z.mT + self.w @ other.w.mT

    def covariance(self, prior: Tensor) -> Tensor:
        r"""Compute the joint DTC covariance, ``... x q x q``, with diagonal at least ``|w|^2``."""
        residual = prior - self.z @ self.z.mT
        lift = residual.diagonal(dim1=-2, dim2=-1).clamp_max(0).neg()
        return residual + torch.diag_embed(lift) + self.w @ self.w.mT

    def variance(self, prior: Tensor, negligible: Tensor | None = None) -> Tensor:
        r"""Compute DTC variances, ``... x q``, from the prior variances ``k(x,x)``.

        Args:
            prior: ``k(x,x)``, ``... x q``.
            negligible: ``... x 1``, up to which an unexplained rest counts as zero.
        """
        # A norm takes one pass over memory. A sum of squares takes two passes and a copy.
        z, w = (torch.linalg.vector_norm(t, dim=-1).square() for t in self)
        rest = (prior - z).clamp_min(0)
        if negligible is not None:
            rest = rest.masked_fill(rest <= negligible, 0.0)
        return rest + w


def gram(Z: Tensor, noise: Tensor, counts: Tensor | None = None) -> Tensor:
    r"""Compute ``Z' Lam^{-1} Z``, ``batch x m x m``; see :func:`information`."""
    weight = noise.reciprocal() if counts is None else counts / noise
    return (Z * weight.unsqueeze(-1)).mT @ Z


def information(
    Z: Tensor, targets: Tensor, noise: Tensor, counts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Compute the data's information on ``theta``: ``Z' Lam^{-1} Z`` and ``Z' Lam^{-1} y``.

    Both are sums over the data, so the results of blocks of rows can be added.

    Args:
        Z: ``batch x n x m`` embedded inputs.
        targets: ``batch x n`` observations, or sums of rewards if ``counts`` are given.
        noise: ``batch x n`` noise variance of a single observation.
        counts: ``n`` numbers of pulls, one per row.
    """
    rhs = Z.mT @ (targets / noise).unsqueeze(-1)
    return gram(Z, noise, counts), rhs.squeeze(-1)


def log_evidence(gram: Tensor, rhs: Tensor, targets: Tensor, noise: Tensor) -> Tensor:
    r"""Compute the log density of ``y ~ N(0, Z Z' + Lam)`` from sums over the data.

    .. code-block:: text

        -1/2 [ y'Lam^{-1}y - |c|^2 + log det A + log det Lam + n log 2 pi ]

    Args:
        gram: ``Z' Lam^{-1} Z``, ``batch x m x m``.
        rhs: ``Z' Lam^{-1} y``, ``batch x m``.
        targets: Observations ``y``, ``batch x n``.
        noise: Noise variances, ``batch x n``.
    """
    info_root = information_root(gram)
    coef = solve_vector(info_root, rhs)
    quadratic = (targets.square() / noise).sum(-1) - coef.square().sum(-1)
    logdet = 2 * info_root.diagonal(dim1=-2, dim2=-1).log().sum(-1) + noise.log().sum(-1)
    return -0.5 * (quadratic + logdet + targets.shape[-1] * math.log(2 * math.pi))


@dataclass(frozen=True)
class DTCFactor:
    r"""The DTC posterior, stored as three tensors.

    Attributes:
        root: ``batch x m x m``, the lower factor ``L`` of ``K_SS``.
        info_root: ``batch x m x m``, the lower factor ``R`` of ``A = I + Z' Lam^{-1} Z``.
        coef: ``batch x m``, ``c = R^{-1} Z' Lam^{-1} y``.

    Example:
        >>> import torch
        >>> from botorch_bkb.linalg import DTCFactor
        >>> K = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
        >>> y, noise = torch.ones(2, dtype=torch.float64), torch.full((2,), 0.5).double()
        >>> factor = DTCFactor.build(K, K, y, noise)
        >>> e = factor.embed(K)
        >>> exact = torch.linalg.solve(K + noise.diag(), K)
        >>> torch.allclose(factor.mean(e), exact.T @ y)
        True
        >>> torch.allclose(e.covariance(K), K - K @ exact)
        True

    Reference:
        Seeger, Williams, Lawrence: Fast forward selection to speed up sparse Gaussian process
        regression. AISTATS 2003.

        Quiñonero-Candela, Rasmussen: A unifying view of sparse approximate Gaussian process
        regression. JMLR 2005. (Section 5, DTC.)

        Calandriello et al., COLT 2019. (BKB, eq. 4.)
    """

    root: Tensor
    info_root: Tensor
    coef: Tensor

    @classmethod
    def build(
        cls,
        K_SS: Tensor,
        K_XS: Tensor,
        targets: Tensor,
        noise: Tensor,
        counts: Tensor | None = None,
    ) -> DTCFactor:
        r"""Compute the factor from kernel matrices; see :func:`information` for the data.

        Args:
            K_SS: Kernel matrix of the dictionary, ``batch x m x m``.
            K_XS: Kernel matrix of inputs and dictionary, ``batch x n x m``.
            targets: Observations or sums of rewards, ``batch x n``.
            noise: Noise variances, ``batch x n``.
            counts: ``n`` numbers of pulls.
        """
        root = safe_cholesky(K_SS)
        return cls.from_information(
            root, *information(solve_rows(root, K_XS), targets, noise, counts)
        )

    @classmethod
    def from_information(cls, root: Tensor, gram: Tensor, rhs: Tensor) -> DTCFactor:
        r"""Compute the factor from ``L``, ``Z' Lam^{-1} Z`` and ``Z' Lam^{-1} y``."""
        info_root = information_root(gram)
        return cls(root, info_root, solve_vector(info_root, rhs))

    def embed(self, K_xS: Tensor) -> Embedding:
        r"""Compute ``z`` and ``w`` of points with kernel values ``K_xS`` (``... x q x m``)."""
        return self.whitened(solve_rows(self.root, K_xS))

    def whitened(self, z: Tensor) -> Embedding:
        r"""Compute ``w`` of points with coordinates ``z`` (``... x q x m``)."""
        return Embedding(z, solve_rows(self.info_root, z))

    def mean(self, e: Embedding) -> Tensor:
        r"""Compute the posterior mean, ``... x q``."""
        return (e.w @ self.coef.unsqueeze(-1)).squeeze(-1)

    def observe(self, z: Tensor, target: Tensor, noise: Tensor) -> DTCFactor:
        r"""Add one observation at an embedded point, by a rank-one update in ``O(m^2)``.

        Args:
            z: Embedding of the point, ``batch x m``.
            target: The observation, ``batch``.
            noise: Its noise variance, ``batch``.
        """
        z, target = z * noise.rsqrt().unsqueeze(-1), target * noise.rsqrt()
        u = solve_vector(self.info_root, z)
        coef = (self.coef + u * target.unsqueeze(-1)).unsqueeze(-2)
        return replace(
            self,
            info_root=rank_one_root(self.info_root, u),
            coef=rank_one_solve(u, coef).squeeze(-2),
        )

    def append(
        self,
        Z: Tensor,
        K_sS: Tensor,
        K_ss: Tensor,
        K_Xs: Tensor,
        targets: Tensor,
        noise: Tensor,
        counts: Tensor | None = None,
        precision: torch.dtype | None = None,
    ) -> tuple[DTCFactor, Tensor]:
        r"""Add ``k`` dictionary points in ``O(n m k)``; each adds one coordinate.

        Args:
            Z: ``batch x n x m``, the embedded observations.
            K_sS: ``batch x k x m``, kernel of new and old dictionary points.
            K_ss: ``batch x k x k``, kernel of the new dictionary points.
            K_Xs: ``batch x n x k``, kernel of observed inputs and new dictionary points.
            targets: ``batch x n`` observations; see :func:`information`.
            noise: ``batch x n`` noise variances.
            counts: ``n`` numbers of pulls.
            precision: The dtype in which the kernel was computed, if coarser.

        Returns:
            The new factor, and the observations embedded in it (``batch x n x (m+k)``).
        """
        root = extend_cholesky(self.root, K_sS, K_ss, precision)
        m = self.root.shape[-1]
        left, tail = root[..., m:, :m], root[..., m:, m:]
        new = solve_rows(tail, K_Xs - Z @ left.mT)
        Z = torch.cat([Z, new], -1)
        weight = noise.reciprocal() if counts is None else counts / noise
        cross = (new * weight.unsqueeze(-1)).mT @ Z  # the new rows of Z' Lam^{-1} Z
        k = new.shape[-1]
        eye = torch.eye(k, dtype=Z.dtype, device=Z.device)
        left = solve_rows(self.info_root, cross[..., :m])
        tail = psd_safe_cholesky(cross[..., m:] + eye - left @ left.mT)
        rhs = new.mT @ (targets / noise).unsqueeze(-1) - left @ self.coef.unsqueeze(-1)
        extra = solve_vector(tail, rhs.squeeze(-1))
        batch = torch.broadcast_shapes(self.coef.shape[:-1], extra.shape[:-1])
        coef = torch.cat([t.expand(*batch, t.shape[-1]) for t in (self.coef, extra)], -1)
        return DTCFactor(root, block_triangular(self.info_root, left, tail), coef), Z

    def widen(self, K_sS: Tensor, K_ss: Tensor, precision: torch.dtype | None = None) -> DTCFactor:
        r"""Add ``k`` dictionary points without using the earlier data again, in ``O(m^2 k)``.

        Earlier observations stay embedded in the old dictionary. The new coordinates have the
        prior variance.

        Args:
            K_sS: ``batch x k x m``, kernel of new and old dictionary points.
            K_ss: ``batch x k x k``, kernel of the new dictionary points.
            precision: The dtype in which the kernel was computed, if coarser.
        """
        *batch, k, m = K_sS.shape
        none = K_sS.new_empty(*batch, 0)
        Z, K_Xs = K_sS.new_empty(*batch, 0, m), K_sS.new_empty(*batch, 0, k)
        return self.append(Z, K_sS, K_ss, K_Xs, none, none, precision=precision)[0]

    def drop(self, Z: Tensor, index: int) -> tuple[DTCFactor, Tensor]:
        r"""Remove one dictionary point, in ``O(n m + m^3)``.

        Deleting row ``j`` of ``L`` leaves a rank-one term in the block below it. With
        ``u = L_33^{-1} l_32`` the coordinates after ``j`` become ``D^{-1}(z_3 + u z_j)``
        (:func:`rank_one_solve`). The others stay. This is a rotation whose last coordinate is
        dropped.

        Args:
            Z: ``batch x n x m``, the embedded observations.
            index: The position of the point in the dictionary.

        Returns:
            The new factor, and the observations embedded in it (``batch x n x (m-1)``).
        """
        m = self.root.shape[-1]
        after = slice(index + 1, m)
        tail = self.root[..., after, after]
        u = solve_vector(tail, self.root[..., after, index])

        def rotate(rows: Tensor) -> Tensor:
            moved = rows[..., after] + rows[..., index, None] * u.unsqueeze(-2)
            return torch.cat([rows[..., :index], rank_one_solve(u, moved)], -1)

        root = block_triangular(
            self.root[..., :index, :index],
            self.root[..., after, :index],
            rank_one_root(tail, u),
        )
        # A is rotated on both sides, Z' Lam^{-1} y = R c on one side.
        gram = rotate(rotate(self.info_root @ self.info_root.mT).mT)
        rhs = rotate((self.info_root @ self.coef.unsqueeze(-1)).mT).squeeze(-2)
        info_root = psd_safe_cholesky(gram)
        return DTCFactor(root, info_root, solve_vector(info_root, rhs)), rotate(Z)
