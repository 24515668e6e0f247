r"""Batches over a tree: centres of leaves, with cells split on the way (Ada-BKB).

Every cell is represented by its centre, a row of the table. With ``u`` the upper confidence bound
of a centre and ``V`` how much the function may vary within a cell,

.. code-block:: text

    I(leaf) = min( u(leaf), u(parent) + V(parent) ) + V(leaf)

is a bound of the function over the leaf. The leaf of highest index is split while the uncertainty
at its centre is no larger than the cell, ``width sd <= V``, and evaluated otherwise. Nothing is
evaluated when a cell is split; its new centres are embedded in ``O(m^2)`` each.

Inside a batch means stay and variances fall, so that an index computed earlier is still a bound:
only leaves that come to the top are examined again.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from botorch.exceptions.errors import InputDataError
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from botorch_bkb.batches.box import BatchOverBox
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.hallucination import Hallucination
from botorch_bkb.domains import PartitionTree, Tree, kernel_metric
from botorch_bkb.domains.partition import Metric
from botorch_bkb.domains.tree import as_radius
from botorch_bkb.features import approximated
from botorch_bkb.rows import GrowingRows, RowIndex
from botorch_bkb.state.components import TreeState

#: The most cells split for one pick. Then the best cell is evaluated, however small its
#: uncertainty. A radius that hardly shrinks would otherwise split cells for ever. All indices stay
#: bounds.
MOST_SPLITS = 1000
#: The most cells whose children are computed at a time.
MOST_AHEAD = 256
#: The number of points at which a kernel is tried.
SAMPLE = 64


class Children(NamedTuple):
    r"""The ``N`` cells into which a leaf would be split."""

    lower: Tensor  #: ``N x d`` lower corners
    upper: Tensor  #: ``N x d`` upper corners
    rows: Tensor  #: rows of their centres in the table
    varies: Tensor  #: ``V``


class TreeBatch(BatchOverBox):
    r"""Picks centres of leaves, splitting cells on the way.

    Cells are split one by one, in the order of their indices. The children of several cells are
    computed at a time: of those that are likely to be split next, twice as many as were needed of
    the last ones. Children that are not needed wait in the table. Every pick begins with a single
    cell. So the table has the same rows to the last bit, on which ties depend, however the picks of
    a batch are asked for and wherever a run was interrupted.

    Args:
        domain: The tree's domain.
        context: What the batch is picked from.

    Attributes:
        cells: The cells.
        rows: Their rows in the table.
        index: ``I`` of every cell, as far as it was examined; -inf for cells that are not leaves
            or lie below the best lower bound.
    """

    @torch.no_grad()
    def __init__(self, domain: Tree, context: BatchContext) -> None:
        self._mean, self._var = context.table.moments()
        super().__init__(context)
        self.domain, self.width = domain, context.record.width
        start = context.state.tree or TreeState.over(domain.bounds)
        self.cells, self.rows = start.tree, start.rows
        self._hallucination = Hallucination(self.table)
        self._radius, self._takes_user_inputs = as_radius(domain.radius)
        every = torch.arange(len(self.cells), device=self.rows.device)
        self._varies = self._variation(self.cells, every)
        self.index = self._start_index()
        self._seen = torch.zeros_like(self.rows)
        self._growing = GrowingRows()
        self._ahead: dict[int, Children] = {}
        self._wanted = 0  # how many of the children computed last were needed
        for row in self.stragglers:
            self._hallucination.pick(row)
        for row in self.given_up:
            self._hallucination.give_up(row)

    @property
    def tree(self) -> TreeState:
        r"""The cells after the picks."""
        return TreeState(self.cells, self.rows)

    # ------------------------------------------------------------------ bounds

    def check_corners(self) -> None:
        r"""Raise unless corners are farthest from the centre in the kernel's metric."""
        metric, centre, corner = self._metric, self.cells.centres(), self.cells.upper
        sample = draw_sobol_samples(self.domain.bounds, n=SAMPLE, q=1, seed=0).squeeze(-2)
        for shrunk in (1.0, 0.3, 0.1):
            X = centre + shrunk * (sample - centre)
            end = centre + shrunk * (corner - centre)
            if (metric(centre.expand(len(X), -1), X) > 1.001 * metric(centre, end)).any():
                raise InputDataError(
                    "The kernel must fall with the distance in each coordinate: with this one some "
                    "point is farther from a cell's centre than its corners, and indices would be "
                    'no bounds. Use another kernel, or a radius of your own instead of "kernel".'
                )

    @cached_property
    def _kernel_metric(self) -> Metric:
        return kernel_metric(approximated(self.context.state.hyper.kernel))

    def _metric(self, a: Tensor, b: Tensor) -> Tensor:
        r"""Return distances in the kernel's metric, of inputs as the user knows them."""
        inputs = self.context.state.model.inputs
        return self._kernel_metric(inputs(a), inputs(b))

    def _variation(self, tree: PartitionTree, ids: Tensor) -> Tensor:
        r"""Return ``V`` of some cells."""
        metric = self._metric if self._takes_user_inputs else self._kernel_metric
        radii = self._radius(tree, ids, metric)
        if radii.shape != ids.shape or not (radii.isfinite() & (radii >= 0)).all():
            raise InputDataError(
                f"A radius must give each of {len(ids)} cells a finite number that is not "
                f"negative, got {radii.flatten()[:5].tolist()} of shape {tuple(radii.shape)}."
            )
        return self.context.state.confidence.norm_bound * radii

    def _start_index(self) -> Tensor:
        half = self.width * self._var.sqrt()
        known = max(1, self.context.record.cells)  # when the batch began
        upper, lower = self._mean + half, (self._mean - half)[self.rows[:known]].max()
        above = upper[self.rows[self.cells.parent]] + self._varies[self.cells.parent]
        above = torch.where(self.cells.depth == 0, torch.inf, above)
        index = torch.minimum(upper[self.rows], above) + self._varies
        alive = self.cells.is_leaf & (index >= lower)
        alive[known:] = self.cells.is_leaf[known:]  # split by the batch itself, which goes on
        if not alive.any():  # the norm or the radius is too small: these are no bounds
            alive = self.cells.is_leaf
        return torch.where(alive, index, -torch.inf)

    def _upper(self, cell: int) -> float:
        row = int(self.rows[cell])
        return float(self._mean[row]) + self.width * self._deviation(row)

    def _deviation(self, row: int) -> float:
        if self._hallucination.picked == 0:
            return math.sqrt(float(self._var[row]))
        return math.sqrt(self._hallucination.variance(row))

    def _refresh(self, cell: int) -> None:
        parent, bound = int(self.cells.parent[cell]), self._upper(cell)
        if parent != cell:
            bound = min(bound, self._upper(parent) + float(self._varies[parent]))
        self.index[cell] = bound + self._varies[cell]
        self._seen[cell] = self._hallucination.picked

    # ------------------------------------------------------------------ picks

    def _choose(self) -> int:
        splits = self._wanted = 0
        while True:
            cell = int(self.index.argmax())
            if int(self._seen[cell]) < self._hallucination.picked:
                self._refresh(cell)
                continue
            row = int(self.rows[cell])
            too_small = self.width * self._deviation(row) <= float(self._varies[cell])
            at_limit = int(self.cells.depth[cell]) >= self.domain.depth_limit
            if not too_small or at_limit or splits >= MOST_SPLITS:
                return row
            if cell not in self._ahead:
                self._look_ahead(cell)
            self._split(cell)
            splits += 1

    def _split(self, cell: int) -> None:
        children, n = self._ahead.pop(cell), len(self.cells)
        self._wanted += 1
        parent = torch.tensor([cell], device=self.rows.device)
        corners = children.lower.unsqueeze(0), children.upper.unsqueeze(0)
        self.cells = self.cells.with_children(parent, *corners, self._growing)
        zeros = torch.zeros_like(children.rows)
        for name, more in (
            ("rows", children.rows), ("_varies", children.varies), ("index", zeros),
            ("_seen", zeros),
        ):  # fmt: skip
            setattr(self, name, self._growing.append(name, getattr(self, name), more))
        self.index[cell] = -torch.inf
        for child in range(n, len(self.cells)):
            self._refresh(child)

    def _look_ahead(self, cell: int) -> None:
        r"""Compute the children of a cell, and of those that are likely to be split next."""
        ids = self._likely(cell, min(MOST_AHEAD, 2 * self._wanted))
        n, N = len(self.cells), self.domain.num_children
        lower, upper = self.cells.slices(ids, self.cells.longest_sides(ids, self._metric), N)
        tree = self.cells.with_children(ids, lower, upper)
        new = torch.arange(n, len(tree), device=ids.device)
        varies = self._variation(tree, new).reshape(len(ids), N)
        rows = self._rows_of(tree.centres(new).reshape(lower.shape), self.rows[ids])
        self._mean, self._var = self.table.moments()
        found = map(Children, lower, upper, rows, varies)
        self._ahead.update(zip(ids.tolist(), found, strict=True))
        self._wanted = 0

    def _likely(self, cell: int, most: int) -> Tensor:
        r"""Return a cell and others of high index that would be split if they came to the top.

        Deviations are those at the start of the batch: they have only fallen since.
        """
        ids = self.index.topk(min(most, len(self.index))).indices
        is_leaf, depth = self.cells.is_leaf[ids], self.cells.depth[ids]
        too_small = self.width * self._var[self.rows[ids]].sqrt() <= self._varies[ids]
        ids = ids[is_leaf & too_small & (depth < self.domain.depth_limit)]
        others = [i for i in ids.tolist() if i != cell and i not in self._ahead]
        return torch.tensor([cell, *others], device=self.rows.device)

    @cached_property
    def _told(self) -> tuple[RowIndex, Tensor] | None:
        r"""Rows that are not centres, with an index to find them.

        They are unsolicited points, and children that earlier batches computed and did not need.
        """
        is_centre = torch.zeros(len(self.inputs), dtype=torch.bool, device=self.rows.device)
        is_centre[self.rows] = True
        rows = torch.nonzero(~is_centre).squeeze(-1)
        return (RowIndex(self.inputs[rows]), rows) if len(rows) else None

    def _rows_of(self, centres: Tensor, parents: Tensor) -> Tensor:
        r"""Return the rows of the centres of new cells; the one in the middle is the parent's.

        Args:
            centres: ``q x N x d``.
            parents: ``q`` rows.

        Returns:
            ``q x N`` rows.
        """
        rows = torch.full(centres.shape[:-1], -1, device=centres.device)
        if self.domain.num_children % 2:
            rows[:, self.domain.num_children // 2] = parents
        if self._told is not None:  # centres of other cells cannot be equal
            index, told = self._told
            found = index.find(centres.flatten(0, 1)).reshape(rows.shape)
            rows = torch.where((rows < 0) & (found >= 0), told[found], rows)
        new = rows < 0
        if new.any():
            X, start = centres[new], len(self.inputs)
            rows[new] = torch.arange(start, start + len(X), device=rows.device)
            self._add(X)
            self.inputs = self._growing.append("inputs", self.inputs, X)
        return rows

    def _score_at_start(self, row: int) -> float:
        return float(self._var[row]) / self.table.noise_var

    def _score_now(self, row: int) -> float:
        return self._deviation(row) ** 2 / self.table.noise_var

    def _hallucinate(self, row: int) -> None:
        self._hallucination.pick(row)
