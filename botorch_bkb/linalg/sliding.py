r"""The ``m x m`` algebra of a DTC posterior whose dictionary changes step by step.

Points leave the dictionary, return to it and join it. The coordinates ``z(x)`` of a row refer to
an orthonormal system. It spans every point that is *or was* in the dictionary. ``N`` is an
orthonormal basis of what only former points span. ``W`` holds counts over noise. ``Q`` is the
inverse of the information ``I + Z_u' W Z_u`` on the span of the dictionary, so ``QN = 0``. Then

.. code-block:: text

    residual(x) = k(x,x) - |z(x)|^2 + |N'z(x)|^2,   quad(x) = z(x)'Q z(x),   var = residual + quad
    mean(x) = z(x)'Q r,                             r = Z_u' W y_u

No coordinates are rotated when points leave, and no kernel is evaluated when they return. The
caller keeps the coordinates and multiplies them by thin matrices at each change. This module
computes the thin matrices, in ``O(m^2)`` per point that changes. It keeps the sums ``G = Z_u' W
Z_u`` and ``r``, so that only points that were never in the dictionary need a pass over the
observations:

.. code-block:: text

    observe U   T = Q U' C^{-T},     CC' = W_U^{-1} + U Q U'
                quad' = quad - |T'z|^2,                                   Q' = Q - TT'
    drop        D = basis of what only the leaving points span
                T = Q D C^{-T},      CC' = D'Q D
                residual' = residual + |D'z|^2,  quad' = quad - |T'z|^2,  Q' = Q - TT'
    bring back  D = basis of what the points span beyond the dictionary
                T = (B - D) C^{-T},  CC' = I + D'GD - (GD)'B,    B = Q G D
                residual' = residual - |D'z|^2,  quad' = quad + |T'z|^2,  Q' = Q + TT'
    extend s    z' = (z, zeta),      zeta = C^{-1} (k_s - Z_s z),         CC' = K_ss - Z_s Z_s'
                G has the new columns Z_u' W zeta_u

A point that was never in the dictionary joins in two steps. Extending the system makes it a
former point, and then it is brought back. If rounding makes a matrix indefinite, its factorisation
raises ``LinAlgError`` in torch. The factor must then be rebuilt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.linalg.cholesky import safe_cholesky, solve_rows
from botorch_bkb.linalg.factor import DTCFactor, gram

#: Number of refinement steps of the mean.
REFINEMENTS = 2
#: A point closer than this to the dictionary's span, relative to its norm, counts as inside.
NEARLY_DEPENDENT = 1e-6


class Extension(NamedTuple):
    r"""The map from a row to its ``k`` new coordinates ``zeta = tail^{-1} (k_s - known' z)``."""

    known: Tensor  #: ``slots x k``, old coordinates of the new points
    tail: Tensor  #: ``k x k``, the lower factor ``C``

    @classmethod
    def of(cls, own: Tensor, z: Tensor, precision: torch.dtype) -> Extension:
        r"""Return the extension by ``k`` points.

        Args:
            own: ``k x k`` kernel matrix of the new points.
            z: ``k x slots`` coordinates of the new points.
            precision: The dtype in which the kernel was computed.
        """
        return cls(z.mT, safe_cholesky(own - z @ z.mT, precision=precision, prior=own))

    def coordinates(self, cross: Tensor, explained: Tensor) -> Tensor:
        r"""Return the new coordinates of ``n`` rows, ``n x k``.

        Args:
            cross: ``n x k`` kernel matrix of the rows and the new points.
            explained: ``n x k`` products of the rows' coordinates with ``known``.
        """
        return solve_rows(self.tail, cross - explained)


@dataclass
class SlidingFactor:
    r"""The coordinates of a dictionary and its information, updated in place.

    Attributes:
        points: ``slots x slots``, lower triangular, one row for each point that is or was in the
            dictionary: ``k(x, point) = row z(x)``.
        active: The ``m`` positions in ``points`` of the dictionary, whose rows ``L`` have
            ``LN = 0``.
        M: ``m x slots``, the transposed right inverse of ``L``: ``L M' = I``, ``MN = 0``. So the
            part of ``z(x)`` that the dictionary spans is ``M' k_S(x)``.
        N: ``slots x (slots - m)``, orthonormal basis of what only former points span.
        Q: ``slots x slots``, the inverse information.
        gram: ``slots x slots``, the sum ``G`` over the observations.
        rhs: The vector ``r``, of length ``slots``, a sum over the observations, too.
        log_determinant: ``log det`` of the information.

    Example:
        The dictionary has two points, and the second is observed later:

        >>> import torch
        >>> from botorch_bkb.linalg import SlidingFactor, information, safe_cholesky
        >>> K = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
        >>> y, noise = torch.tensor([1.0, 2.0]).double(), torch.full((2,), 0.5).double()
        >>> Z = safe_cholesky(K)
        >>> factor, _ = SlidingFactor.build(Z, *information(Z[:1], y[:1], noise[:1]))
        >>> thin = factor.observe(Z[1:], noise[1:], y[1:])
        >>> Z @ factor.coefficients()
        tensor([0.8750, 1.3750], dtype=torch.float64)
        >>> K @ torch.linalg.solve(K + noise.diag(), y)
        tensor([0.8750, 1.3750], dtype=torch.float64)

    Reference:
        The posterior is that of DTC (:class:`~botorch_bkb.linalg.DTCFactor`). The updates follow
        from the matrix inversion lemma. They are this package's own.
    """

    points: Tensor
    active: Tensor
    M: Tensor
    N: Tensor
    Q: Tensor
    gram: Tensor
    rhs: Tensor
    log_determinant: float

    @classmethod
    def build(cls, L: Tensor, gram: Tensor, rhs: Tensor) -> tuple[SlidingFactor, Tensor]:
        r"""Build the sliding factor.

        Args:
            L: The factor of ``K_SS``.
            gram: ``G``, a sum over the observed rows; see :func:`~botorch_bkb.linalg.information`.
            rhs: ``r``, likewise.

        Returns:
            The sliding factor, and the lower factor of the information.
        """
        eye = torch.eye(len(L), dtype=L.dtype, device=L.device)
        root = psd_safe_cholesky(gram + eye)
        factor = cls(
            points=L,
            active=torch.arange(len(L), device=L.device),
            M=torch.linalg.solve_triangular(L, eye, upper=False).mT.contiguous(),
            N=eye[:, :0],
            Q=torch.cholesky_inverse(root),
            gram=gram,
            rhs=rhs,
            log_determinant=_log_det(root),
        )
        return factor, root

    @classmethod
    def of_features(cls, gram: Tensor, rhs: Tensor) -> tuple[SlidingFactor, Tensor]:
        r"""Build the sliding factor of features: coordinates that refer to no points.

        Args:
            gram: ``G``, a sum over the features of the observed rows.
            rhs: ``r``, likewise.

        Returns:
            The sliding factor, and the lower factor of the information.
        """
        factor, root = cls.build(
            torch.eye(len(gram), dtype=gram.dtype, device=gram.device), gram, rhs
        )
        factor.active, factor.M = factor.active[:0], factor.M[:0]
        return factor, root

    @property
    def slots(self) -> int:
        r"""The number of coordinates of a row."""
        return len(self.Q)

    @property
    def L(self) -> Tensor:
        r"""The rows of ``points`` that form the dictionary, ``m x slots``."""
        return self.points[self.active]

    @property
    def explained_dimension(self) -> float:
        r"""``sum_s quad(x_s) / lambda`` over the observations, without a pass over these.

        It is the trace of ``QG``, and ``Q(I + G)`` is the projection onto what ``N`` does not span.
        """
        return self.slots - self.N.shape[-1] - float(self.Q.trace())

    def coefficients(self) -> Tensor:
        r"""Compute ``Q r``, where the mean is ``z(x)'Q r``.

        The result is refined with the sums over the observations. ``r`` grows with counts over
        noise, and so does the effect of rounding errors in ``Q`` on the mean.
        """
        coef = self.Q @ self.rhs
        for _ in range(REFINEMENTS):
            rest = self.rhs - coef - self.gram @ coef
            coef = coef + self.Q @ (rest - self.N @ (self.N.mT @ rest))
        return coef

    def observe(self, U: Tensor, noise: Tensor, rewards: Tensor) -> Tensor:
        r"""Add observations of ``b`` rows ``U`` with noise variances, and return ``T``."""
        self.rhs = self.rhs + U.mT @ (rewards / noise)
        self.gram = self.gram + gram(U, noise)
        if len(U) > self.slots:  # ``slots`` rows carry the same information
            U = torch.linalg.qr(U / noise.sqrt().unsqueeze(-1)).R
            noise = torch.ones_like(U[:, 0])
        Y = self.Q @ U.mT
        C = torch.linalg.cholesky(torch.diag(noise) + U @ Y)
        self.log_determinant += _log_det(C) - float(noise.log().sum())
        thin = solve_rows(C, Y)
        self.Q = torch.addmm(self.Q, thin, thin.mT, alpha=-1)
        return thin

    def drop(self, leaving: Tensor) -> tuple[Tensor, Tensor]:
        r"""Remove dictionary points at positions ``leaving``, and return ``D`` and ``T``."""
        L = self.L
        stays = torch.ones(len(L), dtype=torch.bool, device=leaving.device)
        stays[leaving] = False
        # L v is zero at the remaining points exactly for v in the span of these rows of M. One
        # refinement step keeps them accurate for any condition number of L.
        unit = self.M.new_zeros(len(L), len(leaving))
        unit[leaving, torch.arange(len(leaving), device=leaving.device)] = 1
        own = self.M[leaving].mT
        own = own + self.M.mT @ (unit - L @ own)
        own = own - self.N @ (self.N.mT @ own)
        D = torch.linalg.qr(own / torch.linalg.vector_norm(own, dim=0)).Q
        Y = self.Q @ D
        C = torch.linalg.cholesky(D.mT @ Y)
        self.log_determinant += _log_det(C)
        self.active, M = self.active[stays], self.M[stays]
        self.M = torch.addmm(M, M @ D, D.mT, alpha=-1)
        self.N = torch.cat([self.N, D], -1)
        thin = solve_rows(C, Y)
        self.Q = torch.addmm(self.Q, thin, thin.mT, alpha=-1)
        return D, thin

    def can_return(self, positions: Tensor) -> bool:
        r"""Return whether the points at ``positions`` lie well outside the dictionary's span."""
        points = self.points[positions]
        if len(positions) > self.N.shape[-1]:
            return False
        beyond = torch.linalg.qr(self.N.mT @ points.mT).R.diagonal().abs()
        return bool((beyond > NEARLY_DEPENDENT * points.norm(dim=-1)).all())

    def bring_back(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        r"""Bring former points back into the dictionary.

        Args:
            positions: ``k`` positions in ``points``.

        Returns:
            ``D`` and ``T``.
        """
        k, points = len(positions), self.points[positions]
        # Reflect N so that its first k columns D span the points' part in N: points = p + R'D'.
        # The other columns are the new N.
        packed, tau = torch.geqrf(self.N.mT @ points.mT)
        reflected = torch.ormqr(packed, tau, self.N, left=False)
        D, self.N = reflected[:, :k], reflected[:, k:].contiguous()
        p = points - (points @ D) @ D.mT
        corner = packed[:k].triu().mT
        inverse = torch.linalg.solve_triangular(corner, D, upper=False, left=False)
        M = torch.addmm(self.M, self.M @ p.mT, inverse.mT, alpha=-1)
        self.M = torch.cat([M, inverse.mT])
        self.active = torch.cat([self.active, positions])
        border = self.gram @ D
        explained = self.Q @ border
        eye = torch.eye(k, dtype=D.dtype, device=D.device)
        schur = torch.linalg.cholesky(D.mT @ border + eye - border.mT @ explained)
        self.log_determinant += _log_det(schur)
        thin = solve_rows(schur, explained - D)
        self.Q = torch.addmm(self.Q, thin, thin.mT)
        return D, thin

    def extend(self, extension: Extension, border: Tensor, corner: Tensor, rhs: Tensor) -> None:
        r"""Extend the system by ``k`` points, as if they had been in the dictionary before.

        Args:
            extension: The new points.
            border: ``Z_u' W zeta_u``, ``slots x k``.
            corner: ``zeta_u' W zeta_u``, ``k x k``.
            rhs: ``zeta_u' W y_u``, ``k``.
        """
        (known, tail), k = extension, len(rhs)
        eye = torch.eye(k, dtype=rhs.dtype, device=rhs.device)
        pad = torch.nn.functional.pad
        self.points = torch.cat([pad(self.points, (0, k)), torch.cat([known.mT, tail], -1)])
        self.M = pad(self.M, (0, k))
        self.N = torch.block_diag(self.N, eye)
        self.Q = pad(self.Q, (0, k, 0, k))
        left = torch.cat([self.gram, border.mT])
        self.gram = torch.cat([left, torch.cat([border, corner])], -1)
        self.rhs = torch.cat([self.rhs, rhs])

    def widening(self, k: int) -> Tensor:
        r"""Return ``T``, for which an extension adds ``|T'z|^2`` to ``z'A^{-1}z``.

        Here ``A = I + G`` is the information of all coordinates, and ``z_old`` and ``A_old`` lack
        the last ``k``. For any dictionary, ``quad(x) <= z'A^{-1}z``.

        Args:
            k: The number of points of the last extension.
        """
        eye = torch.eye(self.slots, dtype=self.gram.dtype, device=self.gram.device)
        A, old = self.gram + eye, self.slots - k
        explained = torch.cholesky_solve(A[:old, old:], torch.linalg.cholesky(A[:old, :old]))
        schur = torch.linalg.cholesky(A[old:, old:] - A[old:, :old] @ explained)
        return solve_rows(schur, torch.cat([explained, -eye[old:, old:]]))

    def refresh(self) -> None:
        r"""Compute everything anew from ``points`` and the sums, which have no rounding errors.

        This takes ``O(m^3)`` and no pass over the rows. It may choose another basis ``N``.
        """
        m = len(self.active)
        basis, R = torch.linalg.qr(self.L.mT, mode="complete")
        own, self.N = basis[:, :m], basis[:, m:].contiguous()
        self.M = torch.linalg.solve_triangular(R[:m], own.mT, upper=True)
        eye = torch.eye(m, dtype=own.dtype, device=own.device)
        root = torch.linalg.cholesky(own.mT @ self.gram @ own + eye)
        half = solve_rows(root, own)
        self.Q = half @ half.mT
        self.log_determinant = _log_det(root)

    def information_root(self) -> Tensor:
        r"""Compute the lower factor ``R`` with ``RR' = (Q + NN')^{-1}``.

        The data carry no information on what ``N`` spans.
        """
        root = torch.linalg.cholesky(self.Q + self.N @ self.N.mT)
        return torch.linalg.cholesky(torch.cholesky_inverse(root))

    def as_dtc(self, coefficients: Tensor) -> DTCFactor:
        r"""Return the same posterior as a :class:`DTCFactor` on present and former points.

        With ``w = R^{-1} z``, ``|w|^2 = |N'z|^2 + z'Qz``. So what only former points explain counts
        as unexplained.

        Args:
            coefficients: The result of :meth:`coefficients`.
        """
        root = self.information_root()
        return DTCFactor(self.points, root, root.mT @ coefficients)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        r"""Draw ``n`` samples of ``theta ~ N(0, Q)``, ``slots x n``."""
        root = psd_safe_cholesky(self.Q + self.N @ self.N.mT)
        shape = (len(root), n)
        noise = torch.randn(shape, generator=generator, dtype=root.dtype, device=generator.device)
        theta = root @ noise.to(root.device)
        return theta - self.N @ (self.N.mT @ theta)


def _log_det(root: Tensor) -> float:
    r"""Compute ``log det(root root')``."""
    return 2 * float(root.diagonal().log().sum())
