r"""``ArmTable``: the DTC posterior at every arm, kept current in ``O(A m)`` a change.

A rebuild embeds all arms and costs ``O(A m^2)``. But from one batch to the next few things
change: some arms were pulled, some points left the dictionary, some joined. Each is a thin
matrix product. With coordinates ``z``, information ``A = I + Z_u' diag(c / lambda) Z_u`` over
the distinct inputs pulled ``c`` times, and

.. code-block:: text

    residual(x) = k(x,x) - |z(x)|^2,     quad(x) = z(x)' A^{-1} z(x),     var = residual + quad

a change is one of

.. code-block:: text

    observe   A' = A + U W U'            quad' = quad - |T^{-1} U' A^{-1} z|^2,
                                         T T' = W^{-1} + U' A^{-1} U
    drop      z' = H z without slots F   residual' = residual + |z_F|^2
                                         quad' = quad - |S^{-1/2} (z_F - A_FG A_GG^{-1} z_G)|^2
    append    z' = (z, zeta)             residual' = residual - |zeta|^2
                                         quad' = quad + |S^{-1/2} (zeta - a' A^{-1} z)|^2

where ``S`` is the Schur complement of the new (or leaving) block of ``A``, and the reflection
``H = I - Y T Y'`` turns what only the leaving points span into the slots ``F``. Any root of
``K_SS`` serves as well as another, so coordinates need not belong to points: a slot that becomes
free holds zeros until the next point takes it, and no column ever moves.

Reference:
    Calandriello et al.: Scaling parallel Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.belief import chunks, dictionary_root, kernel_diagonal, kernel_matrix
from botorch_bkb.linalg import gram, safe_cholesky, solve_rows

#: Changes after which the table is rebuilt against the drift of rounding errors.
CHANGES_BEFORE_REBUILD = 64
#: Rows that go through a change at a time.
CHUNK = 8192


def add_squares(total: Tensor, rows: Tensor, sign: float) -> None:
    r"""``total += sign * |row|^2`` in place, in one pass over the rows."""
    total.add_(torch.linalg.vector_norm(rows, dim=-1).double().square(), alpha=sign)


@dataclass(frozen=True)
class Drop:
    r"""Points leave: ``z -> H z`` and the freed slots are emptied."""

    reflector: Tensor  #: ``Y T``, ``slots x k``; ``H = I - Y T Y'``
    reflected: Tensor  #: ``Y'``, ``k x slots``
    thin: Tensor  #: ``slots x k``, ``|thin' z|^2`` is what ``quad`` loses
    freed: Tensor  #: ``k`` slots

    def apply(self, Z: Tensor, residual: Tensor, quad: Tensor) -> None:
        r"""Change a block of rows in place."""
        Z.addmm_(Z @ self.reflector, self.reflected, alpha=-1)
        add_squares(residual, Z[:, self.freed], 1)
        add_squares(quad, Z @ self.thin, -1)
        Z[:, self.freed] = 0


@dataclass(frozen=True)
class Append:
    r"""Points join: ``z -> (z, zeta)`` with ``zeta`` in free slots."""

    known: Tensor  #: ``slots x 2k``: coordinates of the new points, and ``A^{-1} a``
    tail: Tensor  #: ``k x k``, the factor of the new points' residual covariance
    schur: Tensor  #: ``k x k``, the factor of the Schur complement of their block of ``A``
    slots: Tensor  #: ``k`` slots

    def apply(self, Z: Tensor, residual: Tensor, quad: Tensor, prior: Tensor) -> None:
        r"""Change a block of rows in place; ``prior`` is their kernel with the new points."""
        seen, explained = (Z @ self.known).double().chunk(2, -1)
        new = solve_rows(self.tail, prior - seen)
        add_squares(residual, new, -1)
        add_squares(quad, solve_rows(self.schur, new - explained), 1)
        Z[:, self.slots] = new.to(Z)


class ArmTable:
    r"""Means and variances of all rows of a table of inputs.

    Args:
        X: ``A x d`` inputs. Their dtype is that of the coordinates; everything ``m x m`` and
            the moments are float64.
        kernel: The covariance module; its hyperparameters must not change.
        noise_var: ``lambda``.
        dictionary: Rows of ``X`` to start with.

    Attributes:
        dictionary: Rows of ``X`` that form the dictionary.
        counts: ``A`` numbers of pulls.
        sums: ``A`` sums of rewards.

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

    _Z: Tensor  # coordinates, A x slots
    _residual: Tensor
    _quad: Tensor
    _L: Tensor  # m x slots, the coordinates of the dictionary
    _free: Tensor  # slots that hold zeros
    _info: Tensor  # A, slots x slots, and its factor
    _info_root: Tensor

    @torch.no_grad()
    def __init__(self, X: Tensor, kernel: Kernel, noise_var: float, dictionary: Tensor) -> None:
        self.X, self.kernel, self.noise_var = X, kernel, noise_var
        self.counts, self.sums = X.new_zeros(2, len(X), dtype=torch.float64)
        self._prior = kernel_diagonal(kernel, X)
        self._rebuild(dictionary)

    # ------------------------------------------------------------------ what is asked

    def variance(self) -> Tensor:
        r"""Posterior variances, ``A``, float64."""
        return self._residual.clamp_min(0) + self._quad.clamp_min(0)

    def scores(self) -> Tensor:
        r"""Leverage scores ``tau = var / lambda``, ``A``."""
        return self.variance() / self.noise_var

    @torch.no_grad()
    def mean(self) -> Tensor:
        r"""Posterior means, ``A``, float64: one pass over the coordinates."""
        pulled = self.pulled
        rhs = self._Z[pulled].double().mT @ (self.sums[pulled] / self.noise_var)
        return (self._Z @ self.solve_information(rhs).to(self._Z)).double()

    @property
    def effective_dimension(self) -> Tensor:
        r"""``sum_s tau(x_s)`` over the pulls."""
        return (self.counts * self.scores()).sum()

    @property
    def coordinates(self) -> Tensor:
        r"""``z`` of every row, ``A x slots``; unused slots hold zeros."""
        return self._Z

    @property
    def information_root(self) -> Tensor:
        r"""The lower factor of ``A``, ``slots x slots``."""
        return self._info_root

    def solve_information(self, z: Tensor) -> Tensor:
        r"""``A^{-1} z`` for one vector of coordinates."""
        return torch.cholesky_solve(z.unsqueeze(-1), self._info_root).squeeze(-1)

    @property
    def pulled(self) -> Tensor:
        r"""Rows pulled at least once."""
        return torch.nonzero(self.counts).squeeze(-1)

    # ------------------------------------------------------------------ what changes

    @torch.no_grad()
    def observe(self, rows: Tensor, rewards: Tensor) -> None:
        r"""Pulls of some rows, repetitions allowed; the dictionary stays.

        Args:
            rows: ``b`` row numbers.
            rewards: ``b`` rewards.
        """
        distinct, pulls = rows.unique(return_counts=True)
        pulls = pulls.double()
        self.counts = self.counts.index_add(0, distinct, pulls)
        self.sums = self.sums.index_add(0, rows, rewards.double())
        U = self._Z[distinct].double()
        Y = torch.cholesky_solve(U.mT, self._info_root)
        T = psd_safe_cholesky(torch.diag(self.noise_var / pulls) + U @ Y)
        thin = solve_rows(T, Y).to(self._Z)
        for block in chunks(len(self.X), CHUNK):
            add_squares(self._quad[block], self._Z[block] @ thin, -1)
        self._set_info(self._info + gram(U, self.noise_var / pulls))

    @torch.no_grad()
    def set_dictionary(self, dictionary: Tensor) -> None:
        r"""Exchange the dictionary, by thin products or, where that is cheaper, by a rebuild.

        Args:
            dictionary: Rows of ``X``, without repetition.
        """
        leaving = torch.nonzero(~torch.isin(self.dictionary, dictionary)).squeeze(-1)
        joining = dictionary[~torch.isin(dictionary, self.dictionary)]
        # Leaving takes three thin products, joining two; a rebuild two of size m and a kernel.
        thin = 3 * len(leaving) + 2 * len(joining)
        due = self._changes >= CHANGES_BEFORE_REBUILD or len(leaving) == len(self.dictionary)
        if due or thin > 2 * len(dictionary):
            self._rebuild(dictionary)
            return
        self._reserve(len(joining) - len(leaving))
        drop = self._plan_drop(leaving) if len(leaving) else None
        append = self._plan_append(joining, drop) if len(joining) else None
        for block in chunks(len(self.X), CHUNK):
            state = (self._Z[block], self._residual[block], self._quad[block])
            if drop is not None:
                drop.apply(*state)
            if append is not None:
                append.apply(*state, kernel_matrix(self.kernel, self.X[block], self.X[joining]))
        self._changes += 1

    @torch.no_grad()
    def _rebuild(self, dictionary: Tensor) -> None:
        r"""Embed every row: ``A m`` kernel values and two products with ``m x m`` matrices."""
        self.dictionary = dictionary
        points = self.X[dictionary]
        self._L = dictionary_root(self.kernel, points)
        self._free = torch.empty(0, dtype=torch.long, device=self.X.device)
        self._Z = self.X.new_empty(len(self.X), len(dictionary))
        self._residual, self._quad = self._prior.clone(), torch.zeros_like(self._prior)
        for block in chunks(len(self.X), CHUNK):
            Z = solve_rows(self._L, kernel_matrix(self.kernel, self.X[block], points))
            add_squares(self._residual[block], Z, -1)
            self._Z[block] = Z.to(self._Z)
        pulled = self.pulled
        noise = self.noise_var / self.counts[pulled]
        eye = torch.eye(len(dictionary), dtype=torch.float64, device=self.X.device)
        self._set_info(gram(self._Z[pulled].double(), noise) + eye)
        for block in chunks(len(self.X), CHUNK):
            add_squares(self._quad[block], solve_rows(self._info_root, self._Z[block].double()), 1)
        self._changes = 0

    def _plan_drop(self, leaving: Tensor) -> Drop:
        r"""Points at positions ``leaving`` of the dictionary go; their span moves to slots."""
        k, slots = len(leaving), self._L.shape[-1]
        used = self._used()
        # L v is zero at the staying points only for v in the span of these columns.
        span = torch.linalg.solve(self._L[:, used], _unit_columns(len(self.dictionary), leaving))
        packed, tau = torch.geqrf(span)
        reflectors = packed.tril(-1)
        reflectors.diagonal().fill_(1)
        inverse = (reflectors.mT @ reflectors).triu(1) + torch.diag(1 / tau)
        Y = span.new_zeros(slots, k)
        Y[used] = reflectors
        YT = torch.linalg.solve_triangular(inverse, Y, upper=True, left=False)
        freed = used[:k]

        def reflect(M: Tensor) -> Tensor:
            return M - (M @ YT) @ Y.mT

        # Columns of (H'AH)^{-1} = H' A^{-1} H; their block is the inverse of the Schur complement.
        columns = _unit_columns(slots, freed) - YT @ Y[freed].mT
        columns = reflect(torch.cholesky_solve(columns, self._info_root).mT).mT
        thin = solve_rows(psd_safe_cholesky(columns[freed]), columns)
        info = reflect(reflect(self._info).mT)
        info[freed], info[:, freed] = 0, 0
        info[freed, freed] = 1
        self._set_info(info)
        stays = torch.ones(len(self.dictionary), dtype=torch.bool, device=self.X.device)
        stays[leaving] = False
        self._L = reflect(self._L[stays])
        self._L[:, freed] = 0
        self.dictionary = self.dictionary[stays]
        self._free = torch.cat([self._free, freed])
        return Drop(YT.to(self._Z), Y.mT.to(self._Z), thin.to(self._Z), freed)

    def _plan_append(self, joining: Tensor, drop: Drop | None) -> Append:
        r"""Rows ``joining`` become dictionary points, each with a slot of its own.

        The table has not been through ``drop`` yet: the few rows needed here go first.
        """
        k, m, pulled = len(joining), len(self.dictionary), self.pulled
        slots, self._free = self._free[:k], self._free[k:]
        rows = torch.cat([joining, pulled])
        Z = self._Z[rows]
        if drop is not None:
            drop.apply(Z, self._residual[rows], self._quad[rows])  # of copies
        Z = Z.double()
        own = kernel_matrix(self.kernel, self.X[joining])
        tail = safe_cholesky(own - Z[:k] @ Z[:k].mT, prior=own)
        cross = kernel_matrix(self.kernel, self.X[pulled], self.X[joining])
        new = solve_rows(tail, cross - Z[k:] @ Z[:k].mT)
        weighted = new * (self.counts[pulled] / self.noise_var).unsqueeze(-1)
        border, corner = Z[k:].mT @ weighted, new.mT @ weighted
        corner = corner + torch.eye(k, dtype=corner.dtype, device=corner.device)
        columns = torch.cholesky_solve(border, self._info_root)
        schur = psd_safe_cholesky(corner - border.mT @ columns)
        info = self._info.clone()
        info[:, slots], info[slots] = border, border.mT
        info[slots.unsqueeze(-1), slots] = corner
        self._set_info(info)
        self._L = torch.cat([self._L, Z[:k]])
        self._L[m:, slots] = tail
        self.dictionary = torch.cat([self.dictionary, joining])
        return Append(torch.cat([Z[:k].mT, columns], -1).to(self._Z), tail, schur, slots)

    # ------------------------------------------------------------------ pieces

    def _used(self) -> Tensor:
        used = torch.ones(self._L.shape[-1], dtype=torch.bool, device=self.X.device)
        used[self._free] = False
        return torch.nonzero(used).squeeze(-1)

    def _reserve(self, k: int) -> None:
        r"""At least ``k`` free slots; room grows by a quarter at a time."""
        if len(self._free) >= k:
            return
        slots = self._L.shape[-1]
        more = max(k - len(self._free), slots // 4)
        self._Z = torch.nn.functional.pad(self._Z, (0, more))
        self._L = torch.nn.functional.pad(self._L, (0, more))
        info = torch.eye(slots + more, dtype=self._info.dtype, device=self.X.device)
        info[:slots, :slots] = self._info
        added = torch.arange(slots, slots + more, device=self.X.device)
        self._free = torch.cat([self._free, added])
        self._set_info(info)

    def _set_info(self, info: Tensor) -> None:
        self._info, self._info_root = info, psd_safe_cholesky(info)


def _unit_columns(n: int, positions: Tensor) -> Tensor:
    r"""The columns ``positions`` of the identity, ``n x k``."""
    columns = torch.zeros(n, len(positions), dtype=torch.float64, device=positions.device)
    return columns.scatter(0, positions.unsqueeze(0), 1.0)
