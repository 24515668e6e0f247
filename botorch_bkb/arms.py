r"""``ArmTable``: the DTC posterior at every arm, kept current in ``O(A m)`` a change.

A rebuild embeds all arms and costs ``O(A m^2)``. But from one batch to the next few things
change: some arms were pulled, some points left the dictionary, some joined. With coordinates
``z`` and the inverse information ``Q`` (of ``I + Z_u' diag(c / lambda) Z_u`` over the distinct
inputs pulled ``c`` times)

.. code-block:: text

    residual(x) = k(x,x) - |z(x)|^2,   quad(x) = z(x)'Q z(x),   var = residual + quad
    mean(x) = z(x)'Q r,                r = Z_u' (sums / lambda)

and each change is a thin product with the coordinates:

.. code-block:: text

    observe U      T = Q U' C^{-T},   CC' = diag(lambda / c) + U Q U'
                   quad' = quad - |T'z|^2,   Q' = Q - TT'
    drop           N = orthonormal basis of what only the leaving points span
                   T = Q N C^{-T},    CC' = N'Q N
                   residual' = residual + |N'z|^2,   quad' = quad - |T'z|^2,   Q' = Q - TT'
    append s       zeta = C^{-1} (k_s - p z),   CC' = K_ss - pp',   z' = (z, zeta)
                   residual' = residual - |zeta|^2
                   quad' = quad + |S^{-1/2} (zeta - B'z)|^2,   B = Q Z_u' W zeta_u

``S`` is the Schur complement of the new block of the information. Nothing is rotated when points
leave: their directions linger in the coordinates, where ``QN = 0`` makes them count for nothing,
until the next rebuild. So all changes at once are *one* product of the coordinates with a thin
matrix, and the only columns written are those of new points. All that is ``m x m`` costs
``O(m^2)`` for each point that changes.

Reference:
    Calandriello et al.: Scaling parallel Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.belief import chunks, dictionary_root, kernel_diagonal, kernel_matrix
from botorch_bkb.linalg import gram, safe_cholesky, solve_rows

#: Changes of the dictionary after which the table is rebuilt against the drift of rounding errors.
CHANGES_BEFORE_REBUILD = 64
#: Room for points that join before the next rebuild, as a share of the dictionary.
SPARE = 0.5
#: Rows that go through a change at a time.
CHUNK = 4096


def squares(rows: Tensor) -> Tensor:
    r"""``|row|^2`` of each row."""
    return rows.square().sum(-1)


class Append(NamedTuple):
    r"""Points that join, as the rows of the table see them."""

    points: Tensor  #: ``k x d`` inputs
    known: Tensor  #: ``slots x k``: coordinates ``p'`` of the new points
    explained: Tensor  #: ``slots x k``: ``B``
    tail: Tensor  #: ``k x k``: ``C``
    schur: Tensor  #: ``k x k``: the factor of ``S``


class ArmTable:
    r"""Means and variances of all rows of a table of inputs.

    Args:
        X: ``A x d`` inputs. Their dtype is that of the coordinates; everything ``m x m`` and
            the moments are float64.
        kernel: The covariance module; its hyperparameters must not change.
        noise_var: ``lambda``.
        dictionary: Rows of ``X`` to start with.
        counts: ``A`` numbers of pulls so far, not necessarily whole: a pull with noise variance
            ``v`` counts ``lambda / v``. None by default.
        sums: ``A`` sums of rewards, weighted like the counts.
        keep: Whether the ``A x m`` coordinates are kept. Without them every change embeds all
            arms anew, by chunks, in ``O(A m^2)`` time and ``O(A)`` memory.

    Attributes:
        dictionary: Rows of ``X`` that form the dictionary.
        rebuilt: Whether the last change of the dictionary was a rebuild.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> X = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.1, torch.tensor([0]))
        >>> table.observe(torch.tensor([0, 4, 4]), torch.tensor([1.0, 2.0, 2.2]))
        >>> table.set_dictionary(torch.tensor([0, 4]))
        >>> table.mean().argmax().item()
        4
    """

    _Z: Tensor | None  # coordinates, A x capacity, of which ``slots`` columns are in use
    _residual: Tensor
    _quad: Tensor
    _mean: Tensor
    _L: Tensor  # m x slots, coordinates of the dictionary
    _M: Tensor  # slots x m, its inverse: L M = I
    _N: Tensor  # slots x lingering, orthonormal: the directions of points that left
    _Q: Tensor  # slots x slots
    _rhs: Tensor  # slots: r
    _waiting: list[Tensor]  # T of what was observed and not yet taken off ``quad``
    _read: tuple[Tensor, Tensor] | None  # mean and variance, computed for a reader

    @torch.no_grad()
    def __init__(
        self,
        X: Tensor,
        kernel: Kernel,
        noise_var: float,
        dictionary: Tensor,
        counts: Tensor | None = None,
        sums: Tensor | None = None,
        *,
        keep: bool = True,
    ) -> None:
        self.X, self.kernel, self.noise_var, self.keep = X, kernel, noise_var, keep
        zeros = X.new_zeros(len(X), dtype=torch.float64)
        self.counts = zeros if counts is None else zeros + counts
        self.sums = zeros.clone() if sums is None else zeros + sums
        self._prior = kernel_diagonal(kernel, X)
        self._rebuild(dictionary)

    # ------------------------------------------------------------------ what is asked

    def moments(self) -> tuple[Tensor, Tensor]:
        r"""Posterior means and variances of all rows, ``A`` each, float64."""
        if self._read is None:
            if self._waiting:
                self._read = self._moments_with_waiting()
            else:
                self._read = self._mean, self._variance()
        return self._read

    def mean(self) -> Tensor:
        r"""Posterior means, ``A``, float64."""
        return self.moments()[0]

    def variance(self) -> Tensor:
        r"""Posterior variances, ``A``, float64."""
        return self.moments()[1]

    def residual(self) -> Tensor:
        r"""What the dictionary does not explain, ``k(x,x) - |z(x)|^2``, ``A``."""
        return self._residual.clamp_min(0)

    def scores(self) -> Tensor:
        r"""Leverage scores ``tau = var / lambda``, ``A``."""
        return self.variance() / self.noise_var

    @property
    def effective_dimension(self) -> Tensor:
        r"""``sum_s tau(x_s)`` over the pulls."""
        return (self.counts * self.scores()).sum()

    @property
    def log_determinant(self) -> Tensor:
        r"""``log det(I + Z_u' diag(c / lambda) Z_u)``, with all points in the dictionary twice
        the information gain."""
        return self._log_determinant

    def coordinates(self, rows: Tensor | slice) -> Tensor:
        r"""``z`` of some rows, ``... x slots``, in the dtype of ``X``."""
        if self._Z is not None:
            return self._Z[rows, : len(self._Q)]
        points = self.X[self.dictionary]
        return solve_rows(self._L, kernel_matrix(self.kernel, self.X[rows], points)).to(self.X)

    @property
    def inverse_information(self) -> Tensor:
        r"""``Q``, ``slots x slots``."""
        return self._Q

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        r"""``n`` draws of the coefficients ``theta`` around the mean, ``slots x n``.

        ``z(x)'theta`` has covariance ``z(x)'Q z(x')``: exactly what the dictionary explains.
        """
        root = psd_safe_cholesky(self._Q + self._N @ self._N.mT)
        shape = (len(root), n)
        noise = torch.randn(shape, generator=generator, dtype=root.dtype, device=generator.device)
        theta = root @ noise.to(root.device)
        return theta - self._N @ (self._N.mT @ theta)

    @property
    def pulled(self) -> Tensor:
        r"""Rows pulled at least once."""
        return torch.nonzero(self.counts).squeeze(-1)

    # ------------------------------------------------------------------ what changes

    @torch.no_grad()
    def observe(self, rows: Tensor, rewards: Tensor, weights: Tensor | None = None) -> None:
        r"""Pulls of some rows, repetitions allowed; the dictionary stays.

        The ``A`` variances are brought up to date when somebody asks, or with the next change of
        the dictionary: ``O(m^2)`` for each distinct row until then.

        Args:
            rows: ``b`` row numbers.
            rewards: ``b`` rewards.
            weights: ``b`` numbers ``lambda / v`` where a pull has noise variance ``v``.
        """
        rewards = rewards.double()
        weights = torch.ones_like(rewards) if weights is None else weights.double()
        distinct, group = rows.unique(return_inverse=True)
        pulls = torch.zeros_like(distinct, dtype=torch.float64).index_add(0, group, weights)
        self.counts.index_add_(0, distinct, pulls)
        self.sums.index_add_(0, rows, rewards * weights)
        self._read = None
        U = self.coordinates(distinct).double()
        sums = torch.zeros_like(pulls).index_add(0, group, rewards * weights)
        self._rhs = self._rhs + U.mT @ (sums / self.noise_var)
        Y = self._Q @ U.mT
        C = psd_safe_cholesky(torch.diag(self.noise_var / pulls) + U @ Y)
        log_weights = (pulls / self.noise_var).log().sum()
        self._log_determinant = self._log_determinant + _log_det(C) + log_weights
        self._subtract(solve_rows(C, Y))
        if sum(thin.shape[-1] for thin in self._waiting) > len(self._Q):
            self._sweep()

    @torch.no_grad()
    def set_dictionary(self, dictionary: Tensor) -> None:
        r"""Exchange the dictionary, by thin products or, where that is cheaper, by a rebuild.

        Args:
            dictionary: Rows of ``X``, without repetition.
        """
        leaving = torch.nonzero(~torch.isin(self.dictionary, dictionary)).squeeze(-1)
        joining = dictionary[~torch.isin(dictionary, self.dictionary)]
        self._read = None
        self.rebuilt = self._rebuild_is_better(len(leaving), len(joining))
        if self.rebuilt:
            self._rebuild(dictionary)
            return
        gone = self._drop(leaving) if len(leaving) else None
        append = self._append(joining) if len(joining) else None
        self._sweep(gone, append)
        self._changes += 1

    def _rebuild_is_better(self, leaving: int, joining: int) -> bool:
        m, slots = len(self.dictionary), len(self._Q)
        if self._Z is None or self._changes >= CHANGES_BEFORE_REBUILD or leaving == m:
            return True
        # A rebuild is two triangular solves; each point that changes takes two columns.
        waiting = sum(thin.shape[-1] for thin in self._waiting)
        thin = (waiting + 2 * leaving + 2 * joining) * slots
        return slots + joining > self._Z.shape[-1] or thin > (m + joining - leaving) ** 2

    # ------------------------------------------------------------------ one pass over the rows

    def _moments_with_waiting(self) -> tuple[Tensor, Tensor]:
        r"""What a reader sees; nothing stored changes, so that readers leave no trace."""
        stored = self._residual, self._quad, self._mean
        self._residual, self._quad, self._mean = (t.clone() for t in stored)
        waiting = list(self._waiting)
        try:
            self._sweep()
            return self._mean, self._variance()
        finally:
            self._waiting = waiting
            self._residual, self._quad, self._mean = stored

    def _sweep(self, gone: Tensor | None = None, append: Append | None = None) -> None:
        r"""Bring every row up to date with all changes, in one product with the coordinates."""
        if self._Z is None:
            self._embed_all()
            return
        old = len(self._Q) - (0 if append is None else len(append.points))
        coef = self._Q @ self._rhs
        none = coef.new_empty(old, 0)
        parts = [torch.cat([none, *self._waiting], -1)]
        parts.append(none if gone is None else gone)
        parts += [none, none] if append is None else [append.known, append.explained]
        parts.append(coef[:old].unsqueeze(-1))
        widths = [part.shape[-1] for part in parts]
        thin = torch.cat(parts, -1).to(self._Z)
        for block in chunks(len(self.X), CHUNK):
            product = (self._Z[block, :old] @ thin).double()
            observed, lost, seen, explained, mean = product.split(widths, -1)
            mean = mean.squeeze(-1)
            residual, quad = self._residual[block], self._quad[block]
            quad -= squares(observed)
            residual += squares(lost)
            if append is not None:
                prior = kernel_matrix(self.kernel, self.X[block], append.points)
                new = solve_rows(append.tail, prior - seen)
                residual -= squares(new)
                quad += squares(solve_rows(append.schur, new - explained))
                self._Z[block, old : len(self._Q)] = new.to(self._Z)
                mean = mean + new @ coef[old:]
            self._mean[block] = mean
        self._waiting = []

    def _variance(self) -> Tensor:
        return self._residual.clamp_min(0) + self._quad.clamp_min(0)

    # ------------------------------------------------------------------ the m x m side

    def _subtract(self, thin: Tensor) -> None:
        self._Q = self._Q - thin @ thin.mT
        self._waiting.append(thin)

    def _drop(self, leaving: Tensor) -> Tensor:
        r"""Points at positions ``leaving`` of the dictionary go; returns the directions ``N``."""
        stays = torch.ones(len(self.dictionary), dtype=torch.bool, device=self.X.device)
        stays[leaving] = False
        # L v is zero at the staying points exactly for v in the span of these columns of M. One
        # step of refinement keeps M accurate whatever the condition of L.
        own = self._M[:, leaving]
        unit = own.new_zeros(len(self.dictionary), len(leaving))
        unit[leaving, torch.arange(len(leaving), device=leaving.device)] = 1
        own = own + self._M @ (unit - self._L @ own)
        own = own - self._N @ (self._N.mT @ own)
        N = torch.linalg.qr(own / torch.linalg.vector_norm(own, dim=0)).Q
        Y = self._Q @ N
        C = psd_safe_cholesky(N.mT @ Y)
        self._log_determinant = self._log_determinant + _log_det(C)
        self._subtract(solve_rows(C, Y))
        self.dictionary, self._L = self.dictionary[stays], self._L[stays]
        M = self._M[:, stays]
        self._M = M - N @ (N.mT @ M)
        self._N = torch.cat([self._N, N], -1)
        return N

    def _append(self, joining: Tensor) -> Append:
        r"""Rows ``joining`` become dictionary points, each with a new slot."""
        k, points = len(joining), self.X[joining]
        p = self.coordinates(joining).double()
        p = p - (p @ self._N) @ self._N.mT
        own = kernel_matrix(self.kernel, points)
        tail = safe_cholesky(own - p @ p.mT, precision=self.X.dtype, prior=own)
        pulled = self.pulled
        Z = self.coordinates(pulled).double()
        new = solve_rows(tail, kernel_matrix(self.kernel, self.X[pulled], points) - Z @ p.mT)
        weighted = new * (self.counts[pulled] / self.noise_var).unsqueeze(-1)
        border = Z.mT @ weighted
        explained = self._Q @ border
        eye = torch.eye(k, dtype=torch.float64, device=self.X.device)
        schur = psd_safe_cholesky(new.mT @ weighted + eye - border.mT @ explained)
        self._log_determinant = self._log_determinant + _log_det(schur)
        half = solve_rows(schur, torch.cat([explained, -eye]))
        self._Q = _padded(_padded(self._Q, len(half)).mT, len(half)) + half @ half.mT
        self._rhs = torch.cat([self._rhs, new.mT @ (self.sums[pulled] / self.noise_var)])
        self._L = torch.cat([_padded(self._L.mT, len(half)).mT, torch.cat([p, tail], -1)])
        below = torch.linalg.solve_triangular(tail, torch.cat([-p @ self._M, eye], -1), upper=False)
        self._M = torch.cat([torch.nn.functional.pad(self._M, (0, k)), below])
        self._N = _padded(self._N, len(half))
        self.dictionary = torch.cat([self.dictionary, joining])
        return Append(points, p.mT, explained, tail, schur)

    # ------------------------------------------------------------------ from scratch

    @torch.no_grad()
    def _rebuild(self, dictionary: Tensor) -> None:
        r"""Embed every row: ``A m`` kernel values and two products with ``m x m`` matrices."""
        self.dictionary, m = dictionary, len(dictionary)
        points, pulled = self.X[dictionary], self.pulled
        eye = torch.eye(m, dtype=torch.float64, device=self.X.device)
        self._L = dictionary_root(self.kernel, points)
        self._M = torch.linalg.solve_triangular(self._L, eye, upper=False)
        self._N = eye[:, :0]
        Z = solve_rows(self._L, kernel_matrix(self.kernel, self.X[pulled], points))
        self._rhs = Z.mT @ (self.sums[pulled] / self.noise_var)
        root = psd_safe_cholesky(gram(Z, self.noise_var / self.counts[pulled]) + eye)
        self._Q = torch.cholesky_inverse(root)
        self._log_determinant = _log_det(root)
        self._Z = None
        if self.keep:
            self._Z = self.X.new_empty(len(self.X), m + int(SPARE * m) + 16)
        self._embed_all(root)
        self._changes, self.rebuilt = 0, True

    def _embed_all(self, root: Tensor | None = None) -> None:
        r"""``root`` is the factor of the information; by default that of the inverse of ``Q``."""
        if root is None:
            root = psd_safe_cholesky(torch.linalg.inv(self._Q))
        self._residual, self._quad = self._prior.clone(), torch.empty_like(self._prior)
        self._mean = torch.empty_like(self._prior)
        points, coef = self.X[self.dictionary], self._Q @ self._rhs
        for block in chunks(len(self.X), CHUNK):
            Z = solve_rows(self._L, kernel_matrix(self.kernel, self.X[block], points))
            self._residual[block] -= squares(Z)
            self._quad[block] = squares(solve_rows(root, Z))
            self._mean[block] = Z @ coef
            if self._Z is not None:
                self._Z[block, : len(self._Q)] = Z.to(self._Z)
        self._waiting, self._read = [], None


def _padded(matrix: Tensor, rows: int) -> Tensor:
    r"""Zero rows below, ``rows`` in all."""
    return torch.nn.functional.pad(matrix, (0, 0, 0, rows - len(matrix)))


def _log_det(root: Tensor) -> Tensor:
    r"""``log det(root root')``."""
    return 2 * root.diagonal().log().sum()
