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

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.belief import chunks, dictionary_root, kernel_diagonal, kernel_matrix
from botorch_bkb.linalg import safe_cholesky, solve_rows

#: Updates after which the table is rebuilt against the drift of rounding errors.
UPDATES_BEFORE_REBUILD = 64


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
        pulled = self._pulled()
        rhs = self._Z[pulled].double().mT @ (self.sums[pulled] / self.noise_var)
        theta = torch.cholesky_solve(rhs.unsqueeze(-1), self._info_root)
        return (self._Z @ theta.to(self._Z)).squeeze(-1).double()

    @property
    def effective_dimension(self) -> Tensor:
        r"""``sum_s tau(x_s)`` over the pulls."""
        return (self.counts * self.scores()).sum()

    # ------------------------------------------------------------------ what changes

    @torch.no_grad()
    def observe(self, rows: Tensor, rewards: Tensor) -> None:
        r"""Pulls of some rows, repetitions allowed; the dictionary stays.

        Args:
            rows: ``b`` row numbers.
            rewards: ``b`` rewards.
        """
        distinct, inverse = rows.unique(return_inverse=True)
        new = torch.zeros(len(distinct), dtype=torch.float64, device=self.X.device)
        pulls = new.index_add(0, inverse, torch.ones_like(rewards, dtype=torch.float64))
        rewards = rewards.double()
        self.counts = self.counts.index_add(0, distinct, pulls)
        self.sums = self.sums.index_add(0, rows, rewards)
        U = self._Z[distinct].double()
        Y = torch.cholesky_solve(U.mT, self._info_root)
        T = psd_safe_cholesky(torch.diag(self.noise_var / pulls) + U @ Y)
        self._quad = self._quad - self._squares(Y, T)
        self._refactor()

    @torch.no_grad()
    def set_dictionary(self, dictionary: Tensor) -> None:
        r"""Exchange the dictionary, by thin products or, where that is cheaper, by a rebuild.

        Args:
            dictionary: Rows of ``X``, without repetition.
        """
        leaving = torch.nonzero(~torch.isin(self.dictionary, dictionary)).squeeze(-1)
        joining = dictionary[~torch.isin(dictionary, self.dictionary)]
        # Leaving costs four thin products, joining two; a rebuild two of size m and a kernel.
        thin = 4 * len(leaving) + 2 * len(joining)
        due = self._updates >= UPDATES_BEFORE_REBUILD or len(leaving) == len(self.dictionary)
        if due or thin > 2 * len(dictionary):
            self._rebuild(dictionary)
            return
        if len(leaving):
            self._drop(leaving)
        if len(joining):
            self._append(joining)
        self._updates += 1

    @torch.no_grad()
    def _rebuild(self, dictionary: Tensor) -> None:
        r"""Embed every row: ``A m`` kernel values and two products with ``m x m`` matrices."""
        self.dictionary = dictionary
        points = self.X[dictionary]
        self._L = dictionary_root(self.kernel, points)
        m = len(dictionary)
        self._Z = self.X.new_zeros(len(self.X), m)
        self._residual = self._prior.clone()
        for rows in chunks(len(self.X)):
            Z = solve_rows(self._L, kernel_matrix(self.kernel, self.X[rows], points))
            self._residual[rows] -= Z.square().sum(-1)
            self._Z[rows] = Z.to(self._Z)
        self._free = torch.empty(0, dtype=torch.long, device=self.X.device)
        self._refactor()
        self._quad = torch.empty_like(self._residual)
        for rows in chunks(len(self.X)):
            W = solve_rows(self._info_root, self._Z[rows].double())
            self._quad[rows] = W.square().sum(-1)
        self._updates = 0

    def _drop(self, leaving: Tensor) -> None:
        r"""Points at positions ``leaving`` of the dictionary go; their span moves to slots."""
        k, slots = len(leaving), self._L.shape[-1]
        used = self._used()
        keep = torch.ones(len(self.dictionary), dtype=torch.bool, device=self.X.device)
        keep[leaving] = False
        # L v is nonzero at the leaving points only for v in the span of these columns.
        unit = torch.zeros(len(self.dictionary), k, dtype=self._L.dtype, device=self.X.device)
        unit[leaving, torch.arange(k, device=self.X.device)] = 1
        span = torch.linalg.solve(self._L[:, used], unit)
        packed, tau = torch.geqrf(span)
        reflectors = packed.tril(-1)
        reflectors.diagonal().fill_(1)
        inverse = (reflectors.mT @ reflectors).triu(1) + torch.diag(1 / tau)
        Y = torch.zeros(slots, k, dtype=self._L.dtype, device=self.X.device)
        Y[used] = reflectors
        YT = torch.linalg.solve_triangular(inverse, Y, upper=True, left=False)
        freed = used[:k]

        def reflect(M: Tensor) -> Tensor:
            return M - (M @ YT.to(M)) @ Y.mT.to(M)

        self._L = reflect(self._L[keep])
        info = reflect(reflect(self._info).mT)
        self._Z.addmm_(self._Z @ YT.to(self._Z), Y.mT.to(self._Z), alpha=-1)

        leaving_block = self._Z[:, freed].double()
        self._residual = self._residual + leaving_block.square().sum(-1)
        # Schur complement of the freed slots: the inverse of that block of A^{-1}.
        unit = torch.zeros(slots, k, dtype=info.dtype, device=self.X.device)
        unit[freed, torch.arange(k, device=self.X.device)] = 1
        columns = torch.cholesky_solve(unit, psd_safe_cholesky(info))
        root = psd_safe_cholesky(columns[freed])
        self._quad = self._quad - self._squares(columns, root)
        self._Z[:, freed] = 0
        self._L[:, freed] = 0
        self.dictionary = self.dictionary[keep]
        self._free = torch.cat([self._free, freed])
        self._refactor()

    def _append(self, joining: Tensor) -> None:
        r"""Rows ``joining`` become dictionary points, each with a slot of its own."""
        k, m = len(joining), len(self.dictionary)
        self._reserve(k)
        slots, self._free = self._free[:k], self._free[k:]
        Zs = self._Z[joining].double()
        tail = safe_cholesky(
            (own := kernel_matrix(self.kernel, self.X[joining])) - Zs @ Zs.mT, prior=own
        )
        new = torch.empty(len(self.X), k, dtype=torch.float64, device=self.X.device)
        for rows in chunks(len(self.X)):
            cross = kernel_matrix(self.kernel, self.X[rows], self.X[joining])
            cross = cross - (self._Z[rows] @ Zs.mT.to(self._Z)).double()
            new[rows] = solve_rows(tail, cross)
        self._residual = self._residual - new.square().sum(-1)
        root = self._info_root
        self._Z[:, slots] = new.to(self._Z)
        self._L = torch.cat([self._L, Zs])
        self._L[m:, slots] = tail
        self.dictionary = torch.cat([self.dictionary, joining])
        self._refactor()
        cross = self._info[:, slots].clone()
        cross[slots] = 0
        columns = torch.cholesky_solve(cross, root)  # A^{-1} a, zero in the new slots
        schur = psd_safe_cholesky(self._info[slots][:, slots] - cross.mT @ columns)
        for rows in chunks(len(self.X)):
            gap = new[rows] - (self._Z[rows] @ columns.to(self._Z)).double()
            self._quad[rows] += solve_rows(schur, gap).square().sum(-1)

    # ------------------------------------------------------------------ pieces

    def _pulled(self) -> Tensor:
        return torch.nonzero(self.counts).squeeze(-1)

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
        added = torch.arange(slots, slots + more, device=self.X.device)
        self._free = torch.cat([self._free, added])
        self._refactor()

    def _refactor(self) -> None:
        r"""``A`` and its factor, from the pulled rows: ``O(n_u m^2 + m^3)``, free of drift."""
        pulled = self._pulled()
        Z = self._Z[pulled].double()
        weighted = Z * (self.counts[pulled] / self.noise_var).unsqueeze(-1)
        eye = torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device)
        self._info = weighted.mT @ Z + eye
        self._info_root = psd_safe_cholesky(self._info)

    def _squares(self, columns: Tensor, root: Tensor) -> Tensor:
        r"""``|root^{-1} columns' z|^2`` for every row ``z``, ``A``."""
        thin = solve_rows(root, columns).to(self._Z)
        return torch.cat(
            [(self._Z[rows] @ thin).double().square().sum(-1) for rows in chunks(len(self._Z))]
        )
