r"""``WatchedTable``: a table of which only those rows are kept current that may be drawn.

Over a box nobody reads the variances of all rows. They are needed to draw the next dictionary, and
for that bounds will do: a row whose upper bound does not put it into the dictionary stays out. Let
``S`` be a dictionary that contains a core ``C``, and let all its points be among the present and
former points ``V``. With ``A = I + G`` the information of all coordinates,

.. code-block:: text

    residual_S(x) <= residual_C(x)          fewer points explain less
    quad_S(x)     <= z(x)'A^{-1}z(x)        (A_SS)^{-1} is at most the part of A^{-1} on S
    var_S(x)      <= residual_C(x) + z(x)'A^{-1}z(x)

Observations only lower the second term. So the bounds of all rows stay as they are until a point
leaves the core or a new one extends ``V``. Points that leave and return, again and again, are not
in the core. Only then is there a pass over the rows, with few columns. Rows that were in a
dictionary since the last rebuild, and all later rows, are updated at each change.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from botorch_bkb.arms.log import RowsAdded
from botorch_bkb.arms.table import (
    BLOCK,
    CHANGES_BEFORE_REBUILD,
    CHUNK,
    ArmTable,
    LowRankUpdate,
    padded,
    squares,
    squares_in,
)
from botorch_bkb.belief import chunks, kernel_diagonal

#: What rounding may add to a variance, relative to it and to the prior variance.
ROUNDING = 1e-9
#: Number of rows with the highest means at a rebuild among which the highest mean is sought later.
LEADERS = 1024


class WatchedTable(ArmTable):
    r"""A table of inputs that keeps few rows current; it equals :class:`ArmTable` up to rounding.

    A change of the dictionary takes ``O(m^2)`` per point that leaves or joins, and a pass over the
    rows only where a point joins that was never in the dictionary, or leaves its core. Reading all
    variances takes ``O(A m^2)``.

    The arguments are those of :class:`ArmTable`; coordinates are kept, and the kernel has no
    features.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import WatchedTable
        >>> X = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        >>> table = WatchedTable(X, RBFKernel().double(), 0.1, torch.tensor([0]))
        >>> table.observe(torch.tensor([0, 4]), torch.tensor([1.0, 2.0]))
        >>> every = torch.arange(5)
        >>> bool((table.settled_variance(every) <= table.settled_bounds(every)).all())
        True
    """

    _beyond: Tensor  # ``k(x,x) - |z(x)|^2`` of all rows
    _ceiling: Tensor  # upper bounds of the variances of the rows at the last rebuild
    _is_watched: Tensor  # whether each of these rows is current; all later ones are
    _core: Tensor  # positions in ``points`` of those in all dictionaries since
    _late: Tensor  # variances of the rows that were added since the dictionary was set
    _means: Tensor | None  # cached means
    _is_leader: Tensor  # whether rows had one of the highest means at the last rebuild

    # ------------------------------------------------------------------ queries

    def mean(self) -> Tensor:
        r"""Return the posterior means of all rows, in one pass over the coordinates."""
        if self._means is None:
            coef = self._coefficients().to(self.X)
            blocks = (self.coordinates(block) @ coef for block in chunks(len(self.X), CHUNK))
            self._means = torch.cat(list(blocks)).double()
        return self._means

    def highest_mean(self, rows: Tensor) -> int:
        r"""Return the row of highest posterior mean among some rows, without a pass over all rows.

        Compared are those that had one of the 1,024 highest means at the last rebuild, and later
        rows: all of a small table.
        """
        last = len(self._is_leader) - 1
        among = rows[(rows > last) | self._is_leader[rows.clamp_max(last)]]
        if not len(among):
            return super().highest_mean(rows)
        means = self.coordinates(among) @ self._coefficients().to(self.X)
        return int(among[means.argmax()])

    def moments(self) -> tuple[Tensor, Tensor]:
        r"""Return the posterior means and variances of all rows; these take ``O(A m^2)``."""
        if self._read is None:
            blocks = (self._variance_at(block) for block in chunks(len(self.X), BLOCK))
            self._read = self.mean(), torch.cat(list(blocks))
        return self._read

    def residual(self, rows: Tensor | slice | int = slice(None)) -> Tensor:
        r"""Return the prior variance not explained by the dictionary, ``k(x,x) - |z(x)|^2``."""
        unspanned = squares(self.coordinates(rows).double() @ self._factor.N)
        return (self._beyond[rows] + unspanned).clamp_min(0)

    def _variance_at(self, rows: Tensor | slice) -> Tensor:
        quad = squares_in(self._factor.Q, self.coordinates(rows).double())
        return self.residual(rows) + quad

    def settled_variance(self, rows: Tensor) -> Tensor:
        r"""Return the variances of rows when the dictionary was set; the next is drawn by them."""
        out = self._residual[rows].clamp_min(0) + self._quad[rows].clamp_min(0)
        missing = torch.nonzero(~self._are_watched(rows)).squeeze(-1)
        if len(missing):
            Z = self.coordinates(rows[missing]).double()
            before = sum(
                (squares(Z @ thin) for thin in self._waiting), squares_in(self._factor.Q, Z)
            )
            out[missing] = self.residual(rows[missing]) + before
        return self._with_late(rows, out)

    def settled_bounds(self, rows: Tensor) -> Tensor:
        r"""Return upper bounds of :meth:`settled_variance`, in ``O(1)`` per row."""
        out = self._residual[rows].clamp_min(0) + self._quad[rows].clamp_min(0)
        old = torch.nonzero(~self._are_watched(rows)).squeeze(-1)
        out[old] = self._ceiling[rows[old]]
        return self._with_late(rows, out)

    def _with_late(self, rows: Tensor, values: Tensor) -> Tensor:
        first = len(self.X) - len(self._late)
        late = torch.nonzero(rows >= first).squeeze(-1)
        values[late] = self._late[rows[late] - first]
        return values

    def _are_watched(self, rows: Tensor) -> Tensor:
        r"""Return whether rows are kept current."""
        last = len(self._is_watched) - 1
        return (rows > last) | self._is_watched[rows.clamp_max(last)]

    @property
    def _watched(self) -> Tensor:
        r"""The rows that are kept current."""
        old = torch.nonzero(self._is_watched).squeeze(-1)
        return torch.cat([old, torch.arange(len(self._is_watched), len(self.X), device=old.device)])

    # ------------------------------------------------------------------ changes

    @torch.no_grad()
    def extend(self, X: Tensor) -> None:
        r"""Add ``h x d`` rows at the end, in ``O(m^2)`` per row whatever the size of the table."""
        self.log = self.log.followed_by(RowsAdded(X))
        prior, z = kernel_diagonal(self.kernel, X), self._embed(X)
        beyond = prior - squares(z)
        residual, quad = beyond + squares(z @ self._factor.N), squares_in(self._factor.Q, z)
        late = residual.clamp_min(0) + quad
        for thin in self._waiting:  # they will be subtracted from these rows, too
            quad = quad + squares(z @ thin)
        self._read = self._means = None
        none = torch.zeros_like(prior)
        more = {
            "X": X,
            "_prior": prior,
            "_beyond": beyond,
            "_residual": residual,
            "_quad": quad,
            "_late": late,
            "counts": none,
            "sums": none,
            "_Z": torch.nn.functional.pad(z, (0, self._capacity - z.shape[-1])),
        }
        for name, values in more.items():
            setattr(self, name, self._growing.append(name, getattr(self, name), values))

    @property
    def _capacity(self) -> int:
        assert self._Z is not None
        return self._Z.shape[-1]

    def _settle(self) -> None:
        self._means = None

    def _limit_waiting(self) -> None:
        return

    @property
    def _is_worn(self) -> bool:
        return False  # rounding errors are removed without a rebuild

    def _rebuild(self, dictionary: Tensor) -> None:
        super()._rebuild(dictionary)
        self._beyond = self._residual.clone()
        ceiling = self._residual.clamp_min(0) + self._quad
        self._ceiling = ceiling + ROUNDING * (ceiling + self._prior)
        self._is_watched = torch.zeros_like(self._prior, dtype=torch.bool)
        self._is_watched[self._spanned] = True
        self._core = torch.arange(len(self._spanned), device=self.X.device)
        self._late, self._means = self._prior[:0], None
        self._is_leader = torch.zeros_like(self._is_watched)
        self._is_leader[self._mean.topk(min(LEADERS, len(self._mean))).indices] = True

    def _slide(self, dictionary: Tensor) -> None:
        leaving, joining = self._exchanged(dictionary)
        factor, changes = self._factor, self._waiting_changes()
        raising: list[Tensor] = []
        gone = torch.isin(self._core, factor.active[leaving])
        if gone.any():
            raising.append(self._directions_of(gone))
            self._core = self._core[~gone]
        if len(leaving):
            D, thin = factor.drop(leaving)
            changes += [LowRankUpdate(D, residual=1), LowRankUpdate(thin, quad=-1)]
        if len(joining):
            positions, extension = self._former(joining)
            if extension is not None:
                raising.append(factor.widening(len(extension.tail)))
            D, thin = factor.bring_back(positions)
            changes += [LowRankUpdate(D, residual=-1), LowRankUpdate(thin, quad=1)]
        self._changes += 1
        if self._changes % CHANGES_BEFORE_REBUILD == 0:
            factor.refresh()
        self._update_watched(changes)
        self._raise_ceilings(raising)
        self._watch(dictionary)
        self._waiting, self._late = [], self._prior[:0]
        self._read = self._coef = self._means = None
        self.rebuilt = False

    def _update_watched(self, changes: list[LowRankUpdate]) -> None:
        r"""Update the rows that are kept current; from scratch where rounding is removed."""
        rows = self._watched
        if self._changes % CHANGES_BEFORE_REBUILD == 0:
            self._compute(rows)
        elif changes:
            slots = self._factor.slots
            columns = [padded(change.columns, slots) for change in changes]
            signs = torch.cat([change.signs for change in changes], -1).mT
            product = self.coordinates(rows).double() @ torch.cat(columns, -1)
            residual, quad = (product.square_() @ signs).unbind(-1)
            self._residual[rows] += residual
            self._quad[rows] += quad

    def _compute(self, rows: Tensor) -> None:
        r"""Compute the stored numbers of some rows from their coordinates."""
        Z = self.coordinates(rows).double()
        self._residual[rows] = self._beyond[rows] + squares(Z @ self._factor.N)
        self._quad[rows] = squares_in(self._factor.Q, Z)

    def _watch(self, dictionary: Tensor) -> None:
        r"""Keep the points of a dictionary current from now on."""
        new = dictionary[~self._are_watched(dictionary)]
        if len(new):
            self._compute(new)
            self._is_watched[new] = True

    # ------------------------------------------------------------------ bounds of all rows

    def _directions_of(self, gone: Tensor) -> Tensor:
        r"""Return a basis of what only the points that leave the core span, among its points."""
        core = self._factor.points[self._core]
        rest = torch.linalg.qr(core[~gone].mT).Q
        own = core[gone].mT
        own = own - rest @ (rest.mT @ own)
        own = own - rest @ (rest.mT @ own)
        return torch.linalg.qr(own / torch.linalg.vector_norm(own, dim=0)).Q

    def _raise_ceilings(self, raising: list[Tensor]) -> None:
        r"""Add the squared products of the coordinates with some columns to the bounds."""
        if not raising:
            return
        slots = self._factor.slots
        thin = torch.cat([padded(columns, slots) for columns in raising], -1).to(self.X)
        for block in chunks(len(self._ceiling), CHUNK):
            self._ceiling[block] += squares(self.coordinates(block) @ thin)

    def _pulled_blocks(self) -> Iterator[Tensor | slice]:
        yield from chunks(len(self.X), BLOCK)

    def _take_coordinates(self, rows: Tensor | slice, new: Tensor) -> None:
        assert self._Z is not None
        slots, k = self._factor.slots, new.shape[-1]
        self._Z[rows, slots : slots + k] = new.to(self._Z)
        self._beyond[rows] -= squares(new)
