r"""The ``m x m`` side of a DTC posterior whose dictionary slides: observe, drop, append.

Rows ``z`` of coordinates are kept by the caller, who has one product with a thin matrix to do
for each change; this is where the thin matrices come from. With ``Q`` the inverse of the
information ``I + Z_u' W Z_u`` on the span of the dictionary (``W`` are counts over noise)

.. code-block:: text

    residual(x) = k(x,x) - |z(x)|^2,   quad(x) = z(x)'Q z(x),   var = residual + quad
    mean(x) = z(x)'Q r,                r = Z_u' W y_u

    observe U      T = Q U' C^{-T},   CC' = W_U^{-1} + U Q U'
                   quad' = quad - |T'z|^2,   Q' = Q - TT'
    drop           N = orthonormal basis of what only the leaving points span
                   T = Q N C^{-T},    CC' = N'Q N
                   residual' = residual + |N'z|^2,   quad' = quad - |T'z|^2,   Q' = Q - TT'
    append s       zeta = C^{-1} (k_s - p z),   CC' = K_ss - pp',   z' = (z, zeta)
                   residual' = residual - |zeta|^2
                   quad' = quad + |S^{-1/2} (zeta - B'z)|^2,   B = Q Z_u' W zeta_u

``S`` is the Schur complement of the new block of the information. Nothing is rotated when points
leave: their directions linger in the coordinates, where ``QN = 0`` makes them count for nothing.
Everything costs ``O(m^2)`` for each point that changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.linalg.cholesky import safe_cholesky, solve_rows
from botorch_bkb.linalg.factor import gram


class Appended(NamedTuple):
    r"""Points that join, as rows of coordinates see them."""

    known: Tensor  #: ``slots x k``: coordinates ``p'`` of the new points
    explained: Tensor  #: ``slots x k``: ``B``
    tail: Tensor  #: ``k x k``: ``C``
    schur: Tensor  #: ``k x k``: the factor of ``S``


@dataclass
class SlidingFactor:
    r"""A dictionary's coordinates and the information it carries; changed in place.

    Attributes:
        L: ``m x slots``, coordinates of the dictionary, orthogonal to ``N``.
        M: ``slots x m``, the inverse: ``L M = I``.
        N: ``slots x lingering``, orthonormal: the directions of points that left.
        Q: ``slots x slots``, the inverse information, ``QN = 0``.
        rhs: ``slots``: ``r``.
        log_determinant: ``log det`` of the information.
    """

    L: Tensor
    M: Tensor
    N: Tensor
    Q: Tensor
    rhs: Tensor
    log_determinant: float

    @classmethod
    def build(cls, L: Tensor, Z: Tensor, noise: Tensor, rewards: Tensor):
        r"""From the factor of ``K_SS``, and the observed rows with their noise and rewards.

        Returns:
            The sliding factor, and the lower factor of the information.
        """
        eye = torch.eye(len(L), dtype=L.dtype, device=L.device)
        root = psd_safe_cholesky(gram(Z, noise) + eye)
        M = torch.linalg.solve_triangular(L, eye, upper=False)
        Q = torch.cholesky_inverse(root)
        return cls(L, M, eye[:, :0], Q, Z.mT @ (rewards / noise), _log_det(root)), root

    @property
    def slots(self) -> int:
        r"""How many coordinates a row has."""
        return len(self.Q)

    @property
    def coefficients(self) -> Tensor:
        r"""``Q r``: the mean is ``z(x)'Q r``."""
        return self.Q @ self.rhs

    def coordinates(self, prior: Tensor) -> Tensor:
        r"""``z`` of rows from their kernel with the dictionary, ``h x m -> h x slots``."""
        z = prior @ self.M.mT
        return z + (prior - z @ self.L.mT) @ self.M.mT  # refined, whatever the condition of L

    def observe(self, U: Tensor, noise: Tensor, rewards: Tensor) -> Tensor:
        r"""``b`` rows are observed, with noise variances; returns ``T``."""
        self.rhs = self.rhs + U.mT @ (rewards / noise)
        Y = self.Q @ U.mT
        C = psd_safe_cholesky(torch.diag(noise) + U @ Y)
        self.log_determinant += _log_det(C) - float(noise.log().sum())
        return self._subtract(solve_rows(C, Y))

    def drop(self, leaving: Tensor) -> tuple[Tensor, Tensor]:
        r"""Points at positions ``leaving`` go, ``keeping`` is the rest; returns ``N`` and ``T``."""
        stays = torch.ones(len(self.L), dtype=torch.bool, device=leaving.device)
        stays[leaving] = False
        # L v is zero at the staying points exactly for v in the span of these columns of M.
        unit = self.M.new_zeros(len(self.L), len(leaving))
        unit[leaving, torch.arange(len(leaving), device=leaving.device)] = 1
        own = self.M[:, leaving]
        own = own + self.M @ (unit - self.L @ own)
        own = own - self.N @ (self.N.mT @ own)
        N = torch.linalg.qr(own / torch.linalg.vector_norm(own, dim=0)).Q
        Y = self.Q @ N
        C = psd_safe_cholesky(N.mT @ Y)
        self.log_determinant += _log_det(C)
        self.L, M = self.L[stays], self.M[:, stays]
        self.M = M - N @ (N.mT @ M)
        self.N = torch.cat([self.N, N], -1)
        return N, self._subtract(solve_rows(C, Y))

    def append(
        self,
        own: Tensor,
        z: Tensor,
        Z: Tensor,
        cross: Tensor,
        noise: Tensor,
        rewards: Tensor,
        precision: torch.dtype,
    ) -> Appended:
        r"""``k`` points join, each with a new slot.

        Args:
            own: ``k x k`` kernel of the new points.
            z: ``k x slots`` coordinates of the new points.
            Z: ``n x slots`` coordinates of all observed rows.
            cross: ``n x k`` kernel of these with the new points.
            noise: ``n`` noise variances of their mean rewards.
            rewards: ``n`` mean rewards.
            precision: The dtype the kernel was computed in.
        """
        k = len(own)
        p = z - (z @ self.N) @ self.N.mT
        tail = safe_cholesky(own - p @ p.mT, precision=precision, prior=own)
        new = solve_rows(tail, cross - Z @ p.mT)
        weighted = new / noise.unsqueeze(-1)
        border = Z.mT @ weighted
        explained = self.Q @ border
        eye = torch.eye(k, dtype=own.dtype, device=own.device)
        schur = psd_safe_cholesky(new.mT @ weighted + eye - border.mT @ explained)
        self.log_determinant += _log_det(schur)
        half = solve_rows(schur, torch.cat([explained, -eye]))
        pad = torch.nn.functional.pad
        self.Q = torch.addmm(pad(self.Q, (0, k, 0, k)), half, half.mT)
        self.rhs = torch.cat([self.rhs, new.mT @ (rewards / noise)])
        below = torch.linalg.solve_triangular(tail, torch.cat([-p @ self.M, eye], -1), upper=False)
        self.L = torch.cat([pad(self.L, (0, k)), torch.cat([p, tail], -1)])
        self.M = torch.cat([pad(self.M, (0, k)), below])
        self.N = pad(self.N, (0, 0, 0, k))
        return Appended(p.mT, explained, tail, schur)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        r"""``n`` draws of ``theta ~ N(0, Q)``, ``slots x n``."""
        root = psd_safe_cholesky(self.Q + self.N @ self.N.mT)
        shape = (len(root), n)
        noise = torch.randn(shape, generator=generator, dtype=root.dtype, device=generator.device)
        theta = root @ noise.to(root.device)
        return theta - self.N @ (self.N.mT @ theta)

    def _subtract(self, thin: Tensor) -> Tensor:
        self.Q = torch.addmm(self.Q, thin, thin.mT, alpha=-1)
        return thin


def _log_det(root: Tensor) -> float:
    r"""``log det(root root')``."""
    return 2 * float(root.diagonal().log().sum())
