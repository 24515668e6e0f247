r"""``BatchOverTree``: the cells of a tree during a batch, and the bounds over them.

Every cell is represented by its centre, a row of the table. With ``u`` the upper confidence bound
of a centre and ``V`` how much the function may vary within a cell,

.. code-block:: text

    I(leaf) = min( u(leaf), u(parent) + V(parent) ) + V(leaf)

is a bound of the function over the leaf. A leaf whose index is below the lower bound of some centre
when a batch begins is pruned: while bounds hold the maximum is not in it. It is pruned for good,
until the hyperparameters or the norm change. Then all leaves are looked at again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_bkb.batches.box import BatchOverBox
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.hallucination import Hallucination
from botorch_bkb.batches.variation import Variation
from botorch_bkb.domains import Tree
from botorch_bkb.state.components import TreeState

#: What is added to variances that are computed for many rows at once, relative to the prior's, so
#: that they are no smaller than those computed one by one.
SLACK = 1e-11


class Cell(NamedTuple):
    r"""A cell in plain numbers, which are read many times faster than entries of tensors."""

    row: int
    parent: int
    depth: int
    mean: float  #: of its centre
    deviation: float  #: of its centre, when the batch began
    varies: float  #: ``V``


class BatchOverTree(BatchOverBox):
    r"""Base class of batches over a tree, which knows its cells and their indices.

    Inside a batch means stay and variances fall, so that an index computed earlier is still a
    bound.

    Args:
        domain: The tree's domain.
        context: What the batch is picked from.

    Attributes:
        cells: The cells.
        rows: Their rows in the table.
        index: ``I`` of every cell, as far as it was examined; -inf for cells that are not leaves
            or were pruned.
        variation: The radii of cells.
    """

    @torch.no_grad()
    def __init__(self, domain: Tree, context: BatchContext) -> None:
        self._mean, self._var = context.table.moments()
        super().__init__(context)
        self.domain, self.width = domain, context.record.width
        self.variation = Variation(domain, context.state.model)
        start = context.state.tree or TreeState.over(domain.bounds)
        self.cells, self.rows, radii = start.tree, start.rows, start.radii
        if radii is None:
            every = torch.arange(len(self.cells), device=self.rows.device)
            radii = self.variation.radii(self.cells, every)
        self._radii, self._norm = radii, context.state.confidence.norm_bound
        self.index = self._start_index()
        self._hallucination = Hallucination(self.table)
        self._numbers: dict[int, Cell] = {}
        self._deviations: dict[int, float] = {}  # of rows, after the last pick
        self._seen: dict[int, int] = {}  # the number of picks that an index includes
        self._examined: dict[int, float] = {}  # indices that are not in ``index`` yet
        for row in self.stragglers:
            self._hallucination.pick(row)
        for row in self.given_up:
            self._hallucination.give_up(row)

    @property
    def tree(self) -> TreeState:
        r"""The cells after the picks."""
        return TreeState(self.cells, self.rows, self._radii)

    # ------------------------------------------------------------------ indices when it begins

    def _start_index(self) -> Tensor:
        r"""Return the indices when the batch begins, of leaves that are kept."""
        record, leaves = self.context.record, self.cells.leaves
        index = self._index_of(leaves)
        if not record.picks and len(self.cells) == max(1, record.cells):  # it begins now
            kept = self._kept(leaves, index)
            if len(kept) < len(leaves) or not torch.equal(kept, leaves):
                self.cells = self.cells.pruned_to(kept)
                leaves, index = kept, self._index_of(kept)
        whole = torch.full_like(self._radii, -torch.inf)
        return whole.index_copy(0, leaves, index)

    def _kept(self, leaves: Tensor, index: Tensor) -> Tensor:
        r"""Return the leaves whose indices are not below the best lower bound of a centre."""
        lower = (self._mean - self.width * self._var.sqrt())[self.rows].max()
        kept = leaves[index >= lower]
        if not len(kept):  # bounds did not hold, since the norm or the radius is too small
            leaves = torch.nonzero(self.cells.is_leaf).squeeze(-1)
            kept = leaves[self._index_of(leaves) >= lower]
        return kept if len(kept) else leaves

    def _index_of(self, ids: Tensor) -> Tensor:
        r"""Return the indices of some cells when the batch begins."""
        rows = self.rows[torch.cat([ids, self.cells.parent[ids]])]
        own, above = (self._mean[rows] + self.width * self._var[rows].sqrt()).chunk(2)
        return self._index(ids, own, above)

    def _index(self, ids: Tensor, upper: Tensor, of_parents: Tensor) -> Tensor:
        r"""Return indices, for given upper bounds of the centres of cells and of their parents."""
        parents = self.cells.parent[ids]
        above = of_parents + self._norm * self._radii[parents]
        above = torch.where(parents == ids, torch.inf, above)  # the root has no parent
        return torch.minimum(upper, above) + self._norm * self._radii[ids]

    # ------------------------------------------------------------------ indices after picks

    def _cell(self, cell: int) -> Cell:
        if cell not in self._numbers:
            row, tree = int(self.rows[cell]), self.cells
            self._numbers[cell] = Cell(
                row=row,
                parent=int(tree.parent[cell]),
                depth=int(tree.depth[cell]),
                mean=float(self._mean[row]),
                deviation=math.sqrt(float(self._var[row])),
                varies=self._norm * float(self._radii[cell]),
            )
        return self._numbers[cell]

    def _deviation(self, cell: Cell) -> float:
        if self._hallucination.picked == 0:
            return cell.deviation
        if cell.row not in self._deviations:
            self._deviations[cell.row] = math.sqrt(self._hallucination.variance(cell.row))
        return self._deviations[cell.row]

    def _examine(self, number: int) -> float:
        r"""Compute the index of a cell after all picks."""
        cell = self._cell(number)
        bound = cell.mean + self.width * self._deviation(cell)
        if cell.parent != number:
            parent = self._cell(cell.parent)
            upper = parent.mean + self.width * self._deviation(parent)
            bound = min(bound, upper + parent.varies)
        self._seen[number] = self._hallucination.picked
        self._examined[number] = bound + cell.varies
        return self._examined[number]

    def _examine_all(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        r"""Compute the indices of many cells after all picks, and the deviations of their centres.

        They depend on how many cells there are, by rounding, and are a little too large.
        """
        rows = self.rows[torch.cat([ids, self.cells.parent[ids]])]
        rows, group = rows.unique(return_inverse=True)
        var = self._hallucination.variances(rows) + SLACK * self.table.kernel_bound
        deviation = var.sqrt()
        own, above = (self._mean[rows] + self.width * deviation)[group].chunk(2)
        return self._index(ids, own, above), deviation[group[: len(ids)]]

    def _is_examined(self, number: int) -> bool:
        return self._seen.get(number, 0) == self._hallucination.picked

    # ------------------------------------------------------------------ scores

    def _score_at_start(self, row: int) -> float:
        return float(self._var[row]) / self.table.noise_var

    def _score_now(self, row: int) -> float:
        if self._hallucination.picked == 0:
            return self._score_at_start(row)
        return self._hallucination.variance(row) / self.table.noise_var

    def _hallucinate(self, row: int) -> None:
        self._hallucination.pick(row)
        self._deviations = {}
