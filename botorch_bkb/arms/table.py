r"""``ArmTable``: the DTC posterior at every arm, updated in ``O(A m)`` per change.

A rebuild embeds all arms and costs ``O(A m^2)``. But little changes from one batch to the next.
Some arms are pulled, some points leave the dictionary and some join it. All these changes together
are *one* product of the coordinates with a thin matrix. The algebra is in
:mod:`botorch_bkb.linalg.sliding`. Only the columns of new points are written. Directions of points
that left stay in the coordinates until the spare columns are used up. Then the table is rebuilt,
which also removes accumulated rounding errors.

Reference:
    Calandriello et al.: Near-linear time Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.arms.log import DictionaryExchanged, PullsObserved, RowsAdded, TableLog
from botorch_bkb.belief import (
    Belief,
    chunks,
    coordinates,
    dictionary_root,
    kernel_diagonal,
    kernel_matrix,
)
from botorch_bkb.features import has_features
from botorch_bkb.linalg import Extension, SlidingFactor, information, negligible, solve_rows
from botorch_bkb.rows import GrowingRows

#: Dictionary changes after which the table is rebuilt to remove accumulated rounding errors.
CHANGES_BEFORE_REBUILD = 64
#: Spare columns for points that join before the next rebuild, as a share of the dictionary.
SPARE = 0.5
#: Largest ``k(x,x)`` times counts over noise for which rounding errors of thin products are small.
LARGEST_PRECISION = 1e6
#: Number of rows that are updated at a time.
CHUNK = 8192
#: Number of rows over which sums are formed at a time.
BLOCK = 2048


def squares(rows: Tensor) -> Tensor:
    r"""Return ``|row|^2`` of each row."""
    return rows.square().sum(-1)


class LowRankUpdate(NamedTuple):
    r"""Columns whose squared products with the coordinates are summed."""

    columns: Tensor  #: ``slots x k``
    residual: int = 0  #: sign with which the sum enters ``residual``
    quad: int = 0  #: sign with which the sum enters ``quad``

    @property
    def signs(self) -> Tensor:
        r"""The signs of the columns for residual and quad, ``2 x k``."""
        signs = self.columns.new_tensor([[self.residual], [self.quad]])
        return signs.expand(2, self.columns.shape[-1])


class KernelForm(NamedTuple):
    r"""Means and variances of single points in terms of the kernel at a dictionary.

    .. code-block:: text

        mean(x) = k_S(x)'weights,     var(x) = k(x,x) - |y|^2 + y'Q y,     y = M'k_S(x)
    """

    rows: Tensor  #: the ``m`` rows of the dictionary
    weights: Tensor  #: ``m``
    M: Tensor  #: ``m x slots``
    Q: Tensor  #: ``slots x slots``


class ArmTable:
    r"""A table of inputs with the posterior means and variances of all its rows.

    Args:
        X: ``A x d`` inputs. The coordinates have the same dtype. All ``m x m`` matrices and the
            moments are float64.
        kernel: The covariance module; its hyperparameters must not change.
        noise_var: The noise variance ``lambda``.
        dictionary: Rows of ``X`` that form the first dictionary. A kernel with features has none,
            and rows are ignored.
        counts: ``A`` numbers of pulls so far, by default zero. They need not be whole: a pull with
            noise variance ``v`` counts ``lambda / v``.
        sums: ``A`` sums of rewards, weighted like the counts.
        keep: Whether the ``A x m`` coordinates are kept. Otherwise every change embeds all arms
            again, in chunks, with ``O(A m^2)`` time and ``O(A)`` memory.

    Attributes:
        log: The log that reproduces the table, an immutable value replaced with every change.
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

    Reference:
        The posterior of Calandriello et al., COLT 2019 (BKB, eq. 4) and ICML 2020 (BBKB, eq. 1-2),
        through :mod:`botorch_bkb.linalg.sliding`.
    """

    _Z: Tensor | None  # coordinates, A x capacity, with ``slots`` columns in use
    _residual: Tensor
    _quad: Tensor
    _mean: Tensor
    _factor: SlidingFactor
    _spanned: Tensor  # rows that were in the dictionary since the last rebuild
    _waiting: list[Tensor]  # observations not yet subtracted from ``quad``
    _read: tuple[Tensor, Tensor] | None  # cached means and variances
    _coef: Tensor | None  # cached coefficients of the means
    _changes: int  # number of dictionary changes since the last rebuild
    _settled: Tensor | None  # variances when the dictionary was set, if changed since

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
        self._start_log(self.dictionary)

    def _start_log(self, dictionary: Tensor) -> None:
        rows = self.pulled
        self.log = TableLog(len(self.X), dictionary, rows, self.counts[rows], self.sums[rows])

    @classmethod
    def from_log(
        cls, X: Tensor, kernel: Kernel, noise_var: float, log: TableLog, *, keep: bool = True
    ) -> ArmTable:
        r"""Rebuild a table by replaying its log, exact to the last bit.

        Args:
            X: The ``log.num_rows x d`` inputs with which the table started.
            kernel: The covariance module.
            noise_var: ``lambda``.
            log: The log of the table.
            keep: Whether the table keeps the coordinates of all rows.
        """
        counts, sums = torch.zeros(2, len(X), dtype=torch.float64, device=X.device)
        counts[log.rows], sums[log.rows] = log.counts, log.sums
        table = cls(X, kernel, noise_var, log.start, counts, sums, keep=keep)
        for change in log.changes:
            if isinstance(change, RowsAdded):
                table.extend(change.X)
            elif isinstance(change, PullsObserved):
                table.observe(*change)
            else:
                table.slide(change.dictionary)
        table.log = log
        return table

    # ------------------------------------------------------------------ queries

    def moments(self) -> tuple[Tensor, Tensor]:
        r"""Return the posterior means and variances of all rows, ``A`` each, float64."""
        if self._read is None:
            self._read = self._moments_with_waiting() if self._waiting else self._moments()
        return self._read

    def mean(self) -> Tensor:
        r"""Return the posterior means of all rows, ``A``, float64."""
        return self.moments()[0]

    def variance(self) -> Tensor:
        r"""Return the posterior variances of all rows, ``A``, float64."""
        return self.moments()[1]

    def highest_mean(self, rows: Tensor) -> int:
        r"""Return the row of highest posterior mean among some rows."""
        return int(rows[self.mean()[rows].argmax()])

    def scores(self) -> Tensor:
        r"""Return the leverage scores ``tau = var / lambda`` of all rows, ``A``."""
        return self.variance() / self.noise_var

    def residual(self, rows: Tensor | slice | int = slice(None)) -> Tensor:
        r"""Return the prior variance not explained by the dictionary, ``k(x,x) - |z(x)|^2``."""
        return self._residual[rows].clamp_min(0)

    def moments_at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return the means and variances of a few rows without updating all rows."""
        z = self.coordinates(rows).double()
        quad = squares_in(self._factor.Q, z)
        return z @ self._coefficients(), self.residual(rows) + quad

    def settled_variance(self, rows: Tensor) -> Tensor:
        r"""Return the variances of rows when the dictionary was set; the next is drawn by them."""
        return (self.variance() if self._settled is None else self._settled)[rows]

    @property
    def kernel_bound(self) -> float:
        r"""``kappa^2``, the largest ``k(x,x)`` of all rows."""
        return float(self._prior.max())

    @property
    def is_finite(self) -> bool:
        r"""Whether the belief consists of numbers of the dtype of the inputs: nothing overflows."""
        parts = self._coefficients(), self._factor.Q
        return all(bool(part.to(self.X.dtype).isfinite().all()) for part in parts)

    @property
    def effective_dimension(self) -> float:
        r"""The effective dimension, ``sum_s tau(x_s)`` over the pulls.

        The dictionary explains its own points, and others up to rounding
        (:func:`~botorch_bkb.linalg.negligible`). So with all points in the dictionary it is at most
        the number of distinct ones, for any noise. :attr:`unexplained`, which widths with a
        guarantee use, counts what the jitter of the factor leaves of them, too.
        """
        rows = self.pulled
        matters = self.residual(rows) > negligible(self.X.dtype) * self.kernel_bound
        matters &= ~torch.isin(rows, self.dictionary)
        return self._factor.explained_dimension + float(self.unexplained[matters].sum())

    @property
    def log_determinant(self) -> float:
        r"""The log-determinant ``log det(I + Z_u' diag(c / lambda) Z_u)``.

        It is twice the information gain if all observed points are in the dictionary.
        """
        return self._factor.log_determinant

    @property
    def unexplained(self) -> Tensor:
        r"""The prior variance of the pulled rows that the dictionary leaves unexplained.

        For each of :attr:`pulled` it is ``c r / lambda``, with ``c`` pulls and the residual ``r``.
        """
        rows = self.pulled
        return self.counts[rows] * self.residual(rows) / self.noise_var

    @property
    def misfit(self) -> float:
        r"""The misfit ``lambda y'(Q + lambda I)^-1 y`` of the mean rewards of distinct rows."""
        rows = self.pulled
        sums = self.sums[rows]
        gaps = sums / self.counts[rows] - self.mean()[rows]
        return max(0.0, float(sums @ gaps))

    def coordinates(self, rows: Tensor | slice | int) -> Tensor:
        r"""Return the coordinates ``z`` of some rows, ``... x slots``, in the dtype of ``X``."""
        if self._Z is not None:
            return self._Z[rows, : self._factor.slots]
        X = self.X[rows]
        flat = self._embed(X.reshape(-1, X.shape[-1])).to(X)
        return flat.reshape(*X.shape[:-1], self._factor.slots)

    @torch.no_grad()
    def covariance_with(self, row: int) -> Tensor:
        r"""Return the posterior covariances of all rows with one row, ``A``, float64."""
        factor, z = self._factor, self.coordinates(row).double()
        explained = z - factor.N @ (factor.N.mT @ z) - factor.Q @ z
        if self._has_features:
            column, explained = torch.zeros_like(self._prior), -(factor.Q @ z)
        else:
            column = kernel_matrix(self.kernel, self.X, self.X[row : row + 1]).squeeze(-1)
            column = column.contiguous()  # constant kernels return one number, expanded
        for block in chunks(len(self.X), CHUNK):
            column[block] -= (self.coordinates(block) @ explained.to(self.X)).double()
        return column

    @torch.no_grad()
    def covariance(self, rows: Tensor) -> Tensor:
        r"""Return the joint posterior covariance of ``q`` rows, ``q x q``, float64.

        Rows may repeat.
        """
        factor, z = self._factor, self.coordinates(rows).double()
        if self._has_features:
            return z @ factor.Q @ z.mT
        explained = z - z @ factor.N @ factor.N.mT - z @ factor.Q
        return kernel_matrix(self.kernel, self.X[rows]) - z @ explained.mT

    @torch.no_grad()
    def directions(self, rows: Tensor) -> Tensor:
        r"""Return ``e`` of ``q`` rows: ``cov(x, s) = k(x, s) - z(x)'e_s``, ``q x slots``.

        For a kernel with features, ``cov(x, s) = -z(x)'e_s``.
        """
        factor, z = self._factor, self.coordinates(rows).double()
        explained = -(z @ factor.Q)
        return explained if self._has_features else z - z @ factor.N @ factor.N.mT + explained

    @torch.no_grad()
    def covariance_between(self, rows: Tensor, others: Tensor, directions: Tensor) -> Tensor:
        r"""Return the posterior covariances of ``q`` rows with ``p`` others, ``q x p``, float64.

        Args:
            rows: ``q`` rows.
            others: ``p`` rows.
            directions: The result of :meth:`directions` for the other rows.
        """
        explained = self.coordinates(rows).double() @ directions.mT
        if self._has_features:
            return -explained
        return kernel_matrix(self.kernel, self.X[rows], self.X[others]) - explained

    @torch.no_grad()
    def belief(self) -> Belief | None:
        r"""Return the posterior at any input, in ``O(m^3)`` whatever the number of rows.

        Its points include former dictionary points. What only these explain counts as unexplained.
        The result is None if rounding errors prevent the factorisation.
        """
        try:
            factor = self._factor.as_dtc(self._coefficients())
        except torch.linalg.LinAlgError:
            return None
        return Belief(self.X[self._spanned], factor)

    @torch.no_grad()
    def kernel_form(self) -> KernelForm:
        r"""Return the posterior of single points in terms of the kernel, without further work.

        :meth:`belief` takes ``O(m^3)``. A kernel with features has no such form.
        """
        factor = self._factor
        return KernelForm(self.dictionary, factor.M @ self._coefficients(), factor.M, factor.Q)

    @property
    def inverse_information(self) -> Tensor:
        r"""The inverse information ``Q``, ``slots x slots``."""
        return self._factor.Q

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        r"""Draw ``n`` samples of coefficients ``theta`` around the mean, ``slots x n``.

        ``z(x)'theta`` has covariance ``z(x)'Q z(x')``, exactly what the dictionary explains.
        """
        return self._factor.draw(n, generator)

    @property
    def dictionary(self) -> Tensor:
        r"""The rows of ``X`` that form the dictionary."""
        return self._spanned[self._factor.active]

    @property
    def pulled(self) -> Tensor:
        r"""The rows that were pulled at least once."""
        return torch.nonzero(self.counts).squeeze(-1)

    # ------------------------------------------------------------------ changes

    @torch.no_grad()
    def observe(self, rows: Tensor, rewards: Tensor, weights: Tensor | None = None) -> None:
        r"""Add pulls of some rows without changing the dictionary.

        The ``A`` variances are updated when they are read or when the dictionary changes. Until
        then the cost is ``O(m^2)`` per distinct row.

        Args:
            rows: ``b`` row numbers, which may repeat.
            rewards: ``b`` rewards.
            weights: ``b`` numbers ``lambda / v`` where a pull has noise variance ``v``.
        """
        if len(rows) == 0:
            return
        self._settle()
        rewards = rewards.double()
        weights = torch.ones_like(rewards) if weights is None else weights.double()
        self.log = self.log.followed_by(PullsObserved(rows, rewards, weights))
        distinct, group = rows.unique(return_inverse=True)
        pulls = weights.new_zeros(len(distinct)).index_add(0, group, weights)
        sums = weights.new_zeros(len(distinct)).index_add(0, group, rewards * weights)
        self.counts.index_add_(0, distinct, pulls)
        self.sums.index_add_(0, distinct, sums)
        U = self.coordinates(distinct).double()
        self._read = self._coef = None
        try:
            self._waiting.append(self._factor.observe(U, self.noise_var / pulls, sums / pulls))
        except torch.linalg.LinAlgError:  # rounding errors: rebuild from exact values
            settled = self._settled
            self._rebuild(self.dictionary)
            self._settled = settled
        self._limit_waiting()

    def _settle(self) -> None:
        r"""Keep the variances before observations, by which the next dictionary is drawn."""
        if self._settled is None and not self._has_features:  # with features nothing is drawn
            self._settled = self.variance()

    def _limit_waiting(self) -> None:
        r"""Subtract waiting observations from all rows once they have many columns."""
        if sum(thin.shape[-1] for thin in self._waiting) > self._factor.slots:
            self._sweep(self._waiting_changes())

    @torch.no_grad()
    def set_dictionary(self, dictionary: Tensor) -> None:
        r"""Replace the dictionary, by thin products or, where that is cheaper, by a rebuild.

        Args:
            dictionary: Rows of ``X``, without repetition.
        """
        if not self.rebuild_is_better(dictionary):
            self.slide(dictionary)
            return
        self._rebuild(dictionary)
        self._start_log(self.dictionary)

    @torch.no_grad()
    def slide(self, dictionary: Tensor) -> None:
        r"""Replace the dictionary by thin products.

        Args:
            dictionary: Rows of ``X``, without repetition, for which :meth:`rebuild_is_better` is
                False.
        """
        dictionary = self._points_among(dictionary)
        self.log = self.log.followed_by(DictionaryExchanged(dictionary))
        try:
            self._slide(dictionary)
        except torch.linalg.LinAlgError:  # rounding errors: rebuild from exact values
            self._rebuild(dictionary)

    def _slide(self, dictionary: Tensor) -> None:
        leaving, joining = self._exchanged(dictionary)
        changes = self._waiting_changes()
        extension = None
        if len(leaving):
            D, thin = self._factor.drop(leaving)
            changes += [LowRankUpdate(D, residual=1), LowRankUpdate(thin, quad=-1)]
        if len(joining):
            positions, extension = self._former(joining)
            D, thin = self._factor.bring_back(positions)
            changes += [LowRankUpdate(D, residual=-1), LowRankUpdate(thin, quad=1)]
        self._sweep(changes, extension)
        self._read, self._settled, self.rebuilt = None, None, False
        self._changes += 1

    @torch.no_grad()
    def extend(self, X: Tensor) -> None:
        r"""Add ``h x d`` rows at the end, in ``O(m^2)`` per row whatever the size of the table."""
        self.log = self.log.followed_by(RowsAdded(X))
        prior, z = kernel_diagonal(self.kernel, X), self._embed(X)
        residual = self._unexplained(prior, z) + squares(z @ self._factor.N)
        quad, mean = squares_in(self._factor.Q, z), z @ self._coefficients()
        variance = residual.clamp_min(0) + quad
        if self._read is not None:
            self._read = (
                self._growing.append("mean read", self._read[0], mean),
                self._growing.append("variance read", self._read[1], variance),
            )
        more = {"X": X, "_prior": prior, "_residual": residual, "_mean": mean}
        more["counts"] = more["sums"] = torch.zeros_like(prior)
        if self._settled is not None:
            more["_settled"] = variance
        if self._Z is not None:
            unused = self._Z.shape[-1] - z.shape[-1]
            more["_Z"] = torch.nn.functional.pad(z, (0, unused))
        # The waiting observations will be subtracted from these rows too.
        for thin in self._waiting:
            quad = quad + squares(z @ thin)
        for name, values in {**more, "_quad": quad}.items():
            setattr(self, name, self._growing.append(name, getattr(self, name), values))

    def _exchanged(self, dictionary: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return the positions in the current dictionary that leave, and the rows that join."""
        leaving = torch.nonzero(~torch.isin(self.dictionary, dictionary)).squeeze(-1)
        return leaving, dictionary[~torch.isin(dictionary, self.dictionary)]

    def rebuild_is_better(self, dictionary: Tensor) -> bool:
        r"""Return whether a rebuild is cheaper than thin products, or due."""
        if self._Z is None:
            return True
        if self.kernel_bound * float(self.counts.max()) > LARGEST_PRECISION * self.noise_var:
            return True
        if self._has_features:  # nothing leaves or joins
            return False
        leaving, joining = map(len, self._exchanged(dictionary))
        m, slots = len(self.dictionary), self._factor.slots
        if self._is_worn or leaving == m:
            return True
        # A rebuild takes two triangular solves, and each point that changes two columns.
        waiting = sum(thin.shape[-1] for thin in self._waiting)
        thin = (waiting + 2 * leaving + 2 * joining) * slots
        new = int((~torch.isin(dictionary, self._spanned)).sum())
        return slots + new > self._Z.shape[-1] or thin > len(dictionary) ** 2

    @property
    def _is_worn(self) -> bool:
        r"""Whether a rebuild is due to remove rounding errors."""
        return self._changes >= CHANGES_BEFORE_REBUILD

    def _former(self, joining: Tensor) -> tuple[Tensor, Extension | None]:
        r"""Make all of ``joining`` former points, and return their positions among these."""
        known = (self._spanned == joining.unsqueeze(-1)).any(-1)
        if known.any() and not self._factor.can_return(self._positions(joining[known])):
            known = torch.zeros_like(known)  # all join as new points, with jitter
        new, extension = joining[~known], None
        if len(new):
            points = self.X[new]
            own, z = kernel_matrix(self.kernel, points), self.coordinates(new).double()
            extension = Extension.of(own, z, self.X.dtype)
            self._factor.extend(extension, *self._sums(extension, points))
            self._spanned = torch.cat([self._spanned, new])
        return self._positions(joining), extension

    def _sums(self, extension: Extension, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""Return the sums over the pulled rows that an extension by points needs."""
        slots, k = extension.known.shape
        border, rhs = extension.known.new_zeros(slots + k, k), extension.known.new_zeros(k)
        for rows in self._pulled_blocks():
            Z = self.coordinates(rows).double()
            cross = kernel_matrix(self.kernel, self.X[rows], points)
            new = extension.coordinates(cross, Z @ extension.known)
            weighted = new * (self.counts[rows] / self.noise_var).unsqueeze(-1)
            border[:slots] += Z.mT @ weighted
            border[slots:] += new.mT @ weighted
            rhs += new.mT @ (self.sums[rows] / self.noise_var)
            self._take_coordinates(rows, new)
        return border[:slots], border[slots:], rhs

    def _take_coordinates(self, rows: Tensor | slice, new: Tensor) -> None:
        r"""Take notice of new coordinates of some rows. Here a sweep will compute them again."""

    def _pulled_blocks(self) -> Iterator[Tensor | slice]:
        r"""Yield rows that include all pulled ones: those only, or all rows, without copies."""
        pulled = self.pulled
        if 2 * len(pulled) > len(self.X):
            yield from chunks(len(self.X), BLOCK)
        else:
            yield from (pulled[block] for block in chunks(len(pulled), BLOCK))

    def _positions(self, rows: Tensor) -> Tensor:
        r"""Return the positions of rows among present and former points, the last of equals."""
        return (self._spanned == rows.unsqueeze(-1)).long().cumsum(-1).argmax(-1)

    def _coefficients(self) -> Tensor:
        r"""Return ``coef`` with ``mean(x) = z(x)'coef``, cached until the next change."""
        if self._coef is None:
            self._coef = self._factor.coefficients()
        return self._coef

    # ------------------------------------------------------------------ one pass over the rows

    def _waiting_changes(self) -> list[LowRankUpdate]:
        return [LowRankUpdate(thin, quad=-1) for thin in self._waiting]

    def _sweep(
        self,
        changes: list[LowRankUpdate],
        extension: Extension | None = None,
    ) -> None:
        r"""Update every row with all changes, in one product with the coordinates."""
        self._waiting = []
        if self._Z is None:
            self._coef = None
            self._embed_all()
            return
        coef = self._coef = self._factor.coefficients()
        slots = len(coef)
        old = slots if extension is None else slots - len(extension.tail)
        # Columns whose squared products are summed with signs, and one column for the mean.
        signs = torch.cat([coef.new_empty(2, 0), *(change.signs for change in changes)], -1).mT
        parts = [padded(change.columns, slots) for change in changes] + [coef.unsqueeze(-1)]
        thin = torch.cat(parts, -1)
        first = thin[:old]
        if extension is not None:
            first = torch.cat([first, extension.known], -1)
            points = self.X[self._spanned[-len(extension.tail) :]]
        first = first.to(self._Z)
        for block in chunks(len(self.X), CHUNK):
            product = (self._Z[block, :old] @ first).double()
            if extension is not None:
                seen = product[:, thin.shape[-1] :]
                cross = kernel_matrix(self.kernel, self.X[block], points)
                new = extension.coordinates(cross, seen)
                self._Z[block, old:slots] = new.to(self._Z)
                product = torch.addmm(product[:, : thin.shape[-1]], new, thin[old:])
            self._mean[block] = product[:, -1]
            change = product[:, :-1].square_() @ signs
            self._residual[block] += change[:, 0]
            self._quad[block] += change[:, 1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        return self._mean, self._residual.clamp_min(0) + self._quad.clamp_min(0)

    def _moments_with_waiting(self) -> tuple[Tensor, Tensor]:
        r"""Return the moments after waiting observations, without changing what is stored."""
        stored = self._residual, self._quad, self._mean, self._waiting
        self._residual, self._quad, self._mean = (t.clone() for t in stored[:3])
        try:
            self._sweep(self._waiting_changes())
            return self._moments()
        finally:
            self._residual, self._quad, self._mean, self._waiting = stored

    # ------------------------------------------------------------------ rebuilds

    @torch.no_grad()
    def _rebuild(self, dictionary: Tensor) -> None:
        r"""Embed every row, with ``A m`` kernel values and two products with ``m x m`` matrices."""
        dictionary = self._points_among(dictionary)
        points = self.X[dictionary]
        L = dictionary_root(self.kernel, points)
        self._growing, self._Z = GrowingRows(), None  # freed before the new ones are allocated
        spare = 0 if self._has_features else int(SPARE * len(L)) + 16
        if self.keep:
            self._Z = self.X.new_empty(len(self.X), len(L) + spare)
        gram, rhs, stored = torch.zeros_like(L), torch.zeros_like(L[0]), self._Z is not None
        for rows in self._pulled_blocks():
            Z = coordinates(self.kernel, self.X[rows], points, L)
            stored &= isinstance(rows, slice) and Z.dtype == self.X.dtype
            if stored and self._Z is not None:
                self._Z[rows, : len(L)] = Z
            noise = torch.full_like(Z[:, 0], self.noise_var)
            more = information(Z, self.sums[rows], noise, self.counts[rows])
            gram, rhs = gram + more[0], rhs + more[1]
        if self._has_features:
            self._factor, root = SlidingFactor.of_features(gram, rhs)
        else:
            self._factor, root = SlidingFactor.build(L, gram, rhs)
        self._spanned = dictionary
        self._embed_all(root, stored)
        self._read, self._coef, self._settled, self.rebuilt = None, None, None, True
        self._changes = 0

    def _embed(self, X: Tensor) -> Tensor:
        r"""Return the coordinates of ``h x d`` inputs, float64."""
        return coordinates(self.kernel, X, self.X[self._spanned], self._factor.points)

    @property
    def _has_features(self) -> bool:
        return has_features(self.kernel)

    def _points_among(self, dictionary: Tensor) -> Tensor:
        r"""Return the rows of a dictionary that are used: none where features take its place."""
        return dictionary[:0] if self._has_features else dictionary

    def _unexplained(self, prior: Tensor, Z: Tensor) -> Tensor:
        r"""Return ``k(x,x) - |z(x)|^2``, without rounding errors where features explain all."""
        return torch.zeros_like(prior) if self._has_features else prior - squares(Z)

    def _embed_all(self, root: Tensor | None = None, stored: bool = False) -> None:
        r"""Embed every row.

        Args:
            root: The lower factor of the information, if it is known.
            stored: Whether the coordinates are stored already.
        """
        if root is None:
            root = self._factor.information_root()
        empty = torch.empty_like
        self._residual, self._quad = empty(self._prior), empty(self._prior)
        self._mean = empty(self._prior)
        coef = self._factor.coefficients()
        for block in chunks(len(self.X), CHUNK):
            Z = self.coordinates(block) if stored else self._embed(self.X[block])
            self._residual[block] = self._unexplained(self._prior[block], Z)
            self._quad[block] = squares(solve_rows(root, Z))
            self._mean[block] = Z @ coef
            if self._Z is not None and not stored:
                self._Z[block, : len(coef)] = Z.to(self._Z)
        self._waiting = []


def squares_in(Q: Tensor, z: Tensor) -> Tensor:
    r"""Return ``z'Qz`` of each row, not negative."""
    return ((z @ Q) * z).sum(-1).clamp_min(0)


def padded(matrix: Tensor, rows: int) -> Tensor:
    r"""Append zero rows to a matrix, for ``rows`` rows in all."""
    more = rows - len(matrix)
    return torch.nn.functional.pad(matrix, (0, 0, 0, more)) if more else matrix
