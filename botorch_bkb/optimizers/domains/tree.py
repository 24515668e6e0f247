r"""A box, searched through the cells of a partition tree (Ada-BKB).

Every cell stands for its centre, a row of the table. With ``u`` the upper confidence bound of a
centre and ``V`` how much the function may vary within a cell,

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
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.batches import Batch
from botorch_bkb.batches.hallucination import Hallucination
from botorch_bkb.confidence import HEURISTIC
from botorch_bkb.optimizers.domains.box import Box
from botorch_bkb.optimizers.domains.box_batches import BoxRows
from botorch_bkb.optimizers.domains.domain import Situation, Strategy
from botorch_bkb.optimizers.state import State
from botorch_bkb.partition import Metric, PartitionTree, kernel_metric
from botorch_bkb.rows import Room, RowIndex
from botorch_bkb.validation import check_positive_integer

#: Cells split for one pick; then the best is evaluated, small as its uncertainty may be. A radius
#: that hardly shrinks would have an ask split cells for ever. All indices stay bounds.
MOST_SPLITS = 1000
#: Cells of which it is found at a time what they are cut into.
MOST_AHEAD = 256
#: Points at which a kernel is tried.
SAMPLE = 64
#: How far a function of norm one varies within the cells ``ids`` of a tree, some of which may only
#: be looked at: it depends on corners and depths, not on the numbers of cells.
Radius = Callable[[PartitionTree, Tensor, Metric], Tensor]


def kernel_radius(tree: PartitionTree, ids: Tensor, metric: Metric) -> Tensor:
    r"""``d_k(centre, farthest corner)``: valid for every function, and slow to shrink."""
    return tree.radii(ids, metric)


def geometric_radius(v1: float, rho: float) -> Radius:
    r"""The paper's ``g(v1 rho^h)`` at depth ``h``, with ``g(r)`` the kernel's metric at distance r.

    Args:
        v1: Radius of the whole box, in the units the kernel sees.
        rho: Factor from a depth to the next, in (0, 1).
    """
    if not (0 < v1 < math.inf and 0 < rho < 1):
        raise InputDataError(
            f"radius must be (v1, rho) with v1 positive and rho in (0, 1), got ({v1}, {rho})."
        )

    def radius(tree: PartitionTree, ids: Tensor, metric: Metric) -> Tensor:
        depths, group = tree.depth[ids].unique(return_inverse=True)
        d = tree.lower.shape[-1]
        steps = torch.eye(d, dtype=tree.lower.dtype, device=tree.lower.device)
        origin = torch.zeros_like(steps)
        far = [metric(origin, v1 * rho ** int(h) * steps).max() for h in depths]
        return torch.stack(far)[group]

    return radius


def as_radius(radius: str | tuple[float, float] | Radius) -> tuple[Radius, bool]:
    r"""The radius a user asked for, and whether its metric takes inputs as the user knows them."""
    if radius == "kernel":
        return kernel_radius, True
    if isinstance(radius, tuple) and len(radius) == 2:
        if all(isinstance(value, (int, float)) for value in radius):
            return geometric_radius(*radius), False
    elif callable(radius):
        return radius, True
    raise InputDataError(
        f'radius must be "kernel", a pair (v1, rho) or a function of a tree, got {radius!r}.'
    )


class Tree(Box):
    r"""The cells of a partition of a box.

    Args:
        bounds: ``2 x d``.
        num_children: Into how many a cell is split.
        max_depth: Cells of this depth are not split; by default a side may be split eight times.
        radius: How far a function of norm one varies within a cell.
    """

    heuristic_width = HEURISTIC

    def __init__(
        self,
        bounds: Tensor,
        num_children: int,
        max_depth: int | None,
        radius: str | tuple[float, float] | Radius,
    ) -> None:
        super().__init__(bounds)
        check_positive_integer("num_children", num_children)
        check_positive_integer("max_depth", max_depth)
        if num_children is None or num_children < 2:
            raise InputDataError(
                f"num_children must be at least 2, got {num_children}: a cell is split into as "
                "many."
            )
        self.num_children = num_children
        self.max_depth = max_depth or 8 * self.dim
        self.radius, self.in_users_units = as_radius(radius)

    def tree(self, state: State) -> tuple[PartitionTree, Tensor]:
        r"""The tree of a state, and the row of the table for each of its cells."""
        if state.tree is None or state.cells is None:
            root = PartitionTree.over(self.bounds)
            return root, torch.zeros_like(root.parent)
        return state.tree, state.cells

    def begin(self, strategy: Strategy, situation: Situation) -> Batch:
        r"""A new batch."""
        batch = TreeBatch(self, strategy, situation)
        if self.radius is kernel_radius and situation.state.tree is None:
            batch.check_corners()
        return batch

    def remember(self, state: State, batch: Batch) -> State:
        r"""The cells that were split for the picks."""
        assert isinstance(batch, TreeBatch)
        return replace(state, tree=batch.tree, cells=batch.cells)

    def highest_bound(self, strategy: Strategy, situation: Situation) -> float:
        r"""The highest index: a bound of the function over the whole box."""
        return float(TreeBatch(self, strategy, situation).index.max())


class Children(NamedTuple):
    r"""The cells a leaf would be cut into, ``N`` of them."""

    lower: Tensor  #: ``N x d`` corners
    upper: Tensor
    rows: Tensor  #: of their centres in the table
    varies: Tensor  #: ``V``


class TreeBatch(BoxRows):
    r"""Picks centres of leaves, splitting cells on the way.

    Cells are split one by one, in the order of their indices. What they are cut into is found for
    several at a time, those that are likely to be next: twice as many as turned out to be wanted
    of the last ones. What was found in vain waits in the table until it is wanted. Every pick
    begins with one, so that the table has the same rows to the last bit, on which ties depend,
    however the picks of a batch are asked for and wherever a run was interrupted.

    Args:
        domain: The box.
        strategy: How picks are made.
        situation: What the batch is made from.

    Attributes:
        tree: The cells.
        cells: Their rows in the table.
        index: ``I`` of every cell, as far as it was examined; -inf for those that are no leaves,
            or below the best lower bound.
    """

    @torch.no_grad()
    def __init__(self, domain: Tree, strategy: Strategy, situation: Situation) -> None:
        self._mean, self._var = situation.table.moments()
        super().__init__(domain.search, strategy, situation)
        self.domain, self.width = domain, situation.record.width
        self.tree, self.cells = domain.tree(situation.state)
        self._hallucination = Hallucination(self.table)
        every = torch.arange(len(self.tree), device=self.cells.device)
        self._varies = self._variation(self.tree, every)
        self.index = self._start_index()
        self._seen = torch.zeros_like(self.cells)
        self._room = Room()
        self._ahead: dict[int, Children] = {}
        self._wanted = 0  # of what was last found ahead
        for row in self.stragglers:
            self._hallucination.pick(row)
        for row in self.lost:
            self._hallucination.lose(row)

    # ------------------------------------------------------------------ bounds

    def check_corners(self) -> None:
        r"""Raise unless corners are farthest from the centre in the kernel's metric."""
        search, metric = self.domain.search, self._metric
        centre, corner = self.tree.centres(), self.tree.upper
        for shrunk in (1.0, 0.3, 0.1):
            X = centre + shrunk * (search.design(0, SAMPLE, 0) - centre)
            end = centre + shrunk * (corner - centre)
            if (metric(centre.expand(len(X), -1), X) > 1.001 * metric(centre, end)).any():
                raise InputDataError(
                    "The kernel must fall with the distance in each coordinate: with this one some "
                    "point is farther from a cell's centre than its corners, and indices would be "
                    'no bounds. Use another kernel, or a radius of your own instead of "kernel".'
                )

    @cached_property
    def _kernel_metric(self) -> Metric:
        return kernel_metric(self.situation.state.hyper.kernel)

    def _metric(self, a: Tensor, b: Tensor) -> Tensor:
        r"""The kernel's, of inputs as the user knows them."""
        inputs = self.situation.tables.tuning.inputs
        return self._kernel_metric(inputs(a), inputs(b))

    def _variation(self, tree: PartitionTree, ids: Tensor) -> Tensor:
        r"""``V`` of some cells."""
        metric = self._metric if self.domain.in_users_units else self._kernel_metric
        radii = self.domain.radius(tree, ids, metric)
        if radii.shape != ids.shape or not (radii.isfinite() & (radii >= 0)).all():
            raise InputDataError(
                f"A radius must give each of {len(ids)} cells a finite number that is not "
                f"negative, got {radii.flatten()[:5].tolist()} of shape {tuple(radii.shape)}."
            )
        return self.situation.state.norm_bound * radii

    def _start_index(self) -> Tensor:
        half = self.width * self._var.sqrt()
        known = max(1, self.situation.record.cells)  # when the batch began
        upper, lower = self._mean + half, (self._mean - half)[self.cells[:known]].max()
        above = upper[self.cells[self.tree.parent]] + self._varies[self.tree.parent]
        above = torch.where(self.tree.depth == 0, torch.inf, above)
        index = torch.minimum(upper[self.cells], above) + self._varies
        alive = self.tree.is_leaf & (index >= lower)
        alive[known:] = self.tree.is_leaf[known:]  # split by the batch itself, which goes on
        if not alive.any():  # the norm or the radius is too small: these are no bounds
            alive = self.tree.is_leaf
        return torch.where(alive, index, -torch.inf)

    def _upper(self, cell: int) -> float:
        row = int(self.cells[cell])
        return float(self._mean[row]) + self.width * self._deviation(row)

    def _deviation(self, row: int) -> float:
        if self._hallucination.picked == 0:
            return math.sqrt(float(self._var[row]))
        return math.sqrt(self._hallucination.variance(row))

    def _refresh(self, cell: int) -> None:
        parent, bound = int(self.tree.parent[cell]), self._upper(cell)
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
            row = int(self.cells[cell])
            too_small = self.width * self._deviation(row) <= float(self._varies[cell])
            at_limit = int(self.tree.depth[cell]) >= self.domain.max_depth
            if not too_small or at_limit or splits >= MOST_SPLITS:
                return row
            if cell not in self._ahead:
                self._look_ahead(cell)
            self._split(cell)
            splits += 1

    def _split(self, cell: int) -> None:
        children, n = self._ahead.pop(cell), len(self.tree)
        self._wanted += 1
        parent = torch.tensor([cell], device=self.cells.device)
        corners = children.lower.unsqueeze(0), children.upper.unsqueeze(0)
        self.tree = self.tree.with_children(parent, *corners, self._room)
        zeros = torch.zeros_like(children.rows)
        for name, more in (
            ("cells", children.rows), ("_varies", children.varies), ("index", zeros),
            ("_seen", zeros),
        ):  # fmt: skip
            setattr(self, name, self._room.append(name, getattr(self, name), more))
        self.index[cell] = -torch.inf
        for child in range(n, len(self.tree)):
            self._refresh(child)

    def _look_ahead(self, cell: int) -> None:
        r"""Find what a cell is cut into, and those that are likely to be split next."""
        ids = self._likely(cell, min(MOST_AHEAD, 2 * self._wanted))
        n, N = len(self.tree), self.domain.num_children
        lower, upper = self.tree.slices(ids, self.tree.longest_sides(ids, self._metric), N)
        tree = self.tree.with_children(ids, lower, upper)
        new = torch.arange(n, len(tree), device=ids.device)
        varies = self._variation(tree, new).reshape(len(ids), N)
        rows = self._rows_of(tree.centres(new).reshape(lower.shape), self.cells[ids])
        self._mean, self._var = self.table.moments()
        found = map(Children, lower, upper, rows, varies)
        self._ahead.update(zip(ids.tolist(), found, strict=True))
        self._wanted = 0

    def _likely(self, cell: int, most: int) -> Tensor:
        r"""Ids of a cell and of others of high index that would be split if they came to the top.

        Deviations are those at the start of the batch: they have only fallen since.
        """
        ids = self.index.topk(min(most, len(self.index))).indices
        is_leaf, depth = self.tree.is_leaf[ids], self.tree.depth[ids]
        too_small = self.width * self._var[self.cells[ids]].sqrt() <= self._varies[ids]
        ids = ids[is_leaf & too_small & (depth < self.domain.max_depth)]
        others = [i for i in ids.tolist() if i != cell and i not in self._ahead]
        return torch.tensor([cell, *others], device=self.cells.device)

    @cached_property
    def _told(self) -> tuple[RowIndex, Tensor] | None:
        r"""Rows that are no centres, with what finds them.

        They are points nobody asked for, and centres found in vain by earlier batches.
        """
        is_centre = torch.zeros(len(self.inputs), dtype=torch.bool, device=self.cells.device)
        is_centre[self.cells] = True
        rows = torch.nonzero(~is_centre).squeeze(-1)
        return (RowIndex(self.inputs[rows]), rows) if len(rows) else None

    def _rows_of(self, centres: Tensor, parents: Tensor) -> Tensor:
        r"""Rows of the centres of new cells; that in the middle is the parent's.

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
            self.inputs = self._room.append("inputs", self.inputs, X)
        return rows

    def _score_at_start(self, row: int) -> float:
        return float(self._var[row]) / self.table.noise_var

    def _score_now(self, row: int) -> float:
        return self._deviation(row) ** 2 / self.table.noise_var

    def _hallucinate(self, row: int) -> None:
        self._hallucination.pick(row)
