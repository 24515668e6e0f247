r"""``TreeBatch``: picks centres of leaves, with cells split on the way (Ada-BKB).

The leaf of highest index is split while the uncertainty at its centre is no larger than the cell,
``width sd <= V``, and evaluated otherwise. Nothing is evaluated when a cell is split; its new
centres are embedded in ``O(m^2)`` each. Indices are those of :mod:`botorch_bkb.batches.leaves`.
Only leaves that come to the top are examined again within a batch.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_bkb.batches.box import out_of_points
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.leaves import BatchOverTree, Cell
from botorch_bkb.batches.ranking import Ranking
from botorch_bkb.domains import Tree
from botorch_bkb.rows import GrowingRows, RowIndex

#: The most cells split for one pick. Then the best cell is evaluated, however small its
#: uncertainty. A radius that hardly shrinks would otherwise split cells for ever. All indices stay
#: bounds.
MOST_SPLITS = 1000
#: The most cells whose children are computed at a time.
MOST_AHEAD = 256
#: The least: the children of a few cells take hardly longer than those of one.
LEAST_AHEAD = 8
#: The number of leaves that are examined one by one before many bounds are lowered at once.
EXAMINED_SINGLY = 16


class Children(NamedTuple):
    r"""The ``N`` cells into which a leaf would be split."""

    lower: Tensor  #: ``N x d`` lower corners
    upper: Tensor  #: ``N x d`` upper corners
    rows: Tensor  #: rows of their centres in the table
    radii: Tensor
    numbers: list[tuple[int, float, float, float]]  #: row, mean, deviation and ``V`` of each


class TreeBatch(BatchOverTree):
    r"""Picks centres of leaves, splitting cells on the way.

    Cells are split one by one, in the order of their indices. The children of several cells are
    computed at a time: of those that are likely to be split next, four times as many as were needed
    of the last ones. Children that are not needed wait in the table. Which cells are likely is
    decided by what was known when the batch began, and every pick begins anew. So the table has the
    same rows to the last bit, on which ties depend, however the picks of a batch are asked for and
    wherever a run was interrupted.

    Args:
        domain: The tree's domain.
        context: What the batch is picked from.
    """

    @torch.no_grad()
    def __init__(self, domain: Tree, context: BatchContext) -> None:
        super().__init__(domain, context)
        self._first = self.index.clone()  # as if nothing had been picked
        self._growing = GrowingRows()
        self._ahead: dict[int, Children] = {}
        self._splits: list[tuple[int, Children]] = []  # not in ``cells`` yet
        self._wanted = 0  # how many of the children computed last were needed

    def _choose(self) -> int:
        self._forget_children()
        ranking, splits, examined = Ranking(self.index), 0, 0
        while True:
            _, number = ranking.pop()
            if not self._is_examined(number):
                ranking.push(self._examine(number), number)
                examined += 1
                if examined % EXAMINED_SINGLY == 0:
                    self._lower(ranking, 8 * examined)
                continue
            if splits >= MOST_SPLITS or not self._is_to_be_split(self._cell(number)):
                self._write()
                if self._cell(number).row not in self._taken:
                    return self._cell(number).row
                if not ranking:
                    raise out_of_points(1, 0)
                continue  # as small as cells may be
            if number not in self._ahead:
                self._write()
                self._look_ahead(number)
            for child in self._split(number):
                ranking.push(self._examine(child), child)
            splits += 1

    def _lower(self, ranking: Ranking, most: int) -> None:
        r"""Lower the bounds of many leaves at once, from the top: fewer are examined singly then.

        A leaf that comes to the top is examined all the same.
        """
        old: dict[int, float] = {}
        while ranking and len(old) < most:
            value, number = ranking.pop()
            if self._is_examined(number):  # none below it needs to be looked at
                ranking.push(value, number)
                break
            old[number] = value
        if not old:
            return
        index, _ = self._examine_all(torch.tensor(list(old), device=self.rows.device))
        for (number, value), lower in zip(old.items(), index.tolist(), strict=True):
            ranking.push(min(value, lower), number)

    def _is_to_be_split(self, cell: Cell) -> bool:
        is_small = self.width * self._deviation(cell) <= cell.varies
        # A centre that was asked for already is not asked for again, but one of its children.
        is_small = is_small or cell.row in self._taken
        return is_small and cell.depth < self.domain.depth_limit

    def _split(self, number: int) -> range:
        r"""Split a cell, and return the numbers of its children."""
        children, depth = self._ahead.pop(number), self._cell(number).depth + 1
        N = self.domain.num_children
        first = len(self.cells) + N * len(self._splits)
        for i, (row, mean, deviation, varies) in enumerate(children.numbers):
            self._numbers[first + i] = Cell(row, number, depth, mean, deviation, varies)
        self._splits.append((number, children))
        self._examined[number] = -math.inf
        self._wanted += 1
        return range(first, first + N)

    def _write(self) -> None:
        r"""Write splits and indices into the tensors."""
        if self._splits:
            self._write_splits()
        if self._examined:
            ids = torch.tensor(list(self._examined), device=self.rows.device)
            values = torch.tensor(
                list(self._examined.values()), dtype=self.index.dtype, device=ids.device
            )
            self.index[ids] = values
        self._splits, self._examined = [], {}

    def _write_splits(self) -> None:
        n, device = len(self.cells), self.rows.device
        parents = torch.tensor([number for number, _ in self._splits], device=device)
        lower = torch.stack([children.lower for _, children in self._splits])
        upper = torch.stack([children.upper for _, children in self._splits])
        self.cells = self.cells.with_children(parents, lower, upper, self._growing)
        rows = torch.cat([children.rows for _, children in self._splits])
        radii = torch.cat([children.radii for _, children in self._splits])
        self.rows = self._growing.append("rows", self.rows, rows)
        self._radii = self._growing.append("radii", self._radii, radii)
        start = self._index_of(torch.arange(n, len(self.cells), device=device))
        self.index = self._growing.append("index", self.index, start)
        self._first = self._growing.append("start", self._first, start)
        self._first[parents] = -torch.inf

    # ------------------------------------------------------------------ children

    def _forget_children(self) -> None:
        r"""Forget the children that the last pick has computed and not needed."""
        if self._ahead:
            self._ahead = {}
            self.__dict__.pop("_told", None)
        self._wanted = 0

    def _look_ahead(self, number: int) -> None:
        r"""Compute the children of a cell, and of those that are likely to be split next."""
        ids = self._likely(number, min(MOST_AHEAD, max(LEAST_AHEAD, 4 * self._wanted)))
        lower, upper, radii, new = self.variation.children(self.cells, ids)
        rows = self._rows_of(new.centres().reshape(lower.shape), self.rows[ids])
        self._mean, self._var = self.table.moments()
        columns = rows, self._mean[rows], self._var[rows].sqrt(), self._norm * radii
        numbers = [
            list(zip(*cell, strict=True)) for cell in zip(*map(Tensor.tolist, columns), strict=True)
        ]
        found = map(Children, lower, upper, rows, radii, numbers)
        self._ahead.update(zip(ids.tolist(), found, strict=True))
        self._wanted = 0

    def _likely(self, number: int, most: int) -> Tensor:
        r"""Return a cell and others of high index that would be split if they came to the top.

        They are sought among leaves whose indices were high when the batch began. So the choice is
        the same whichever leaves were examined since.
        """
        cell, n = torch.tensor([number], device=self.rows.device), len(self._first)
        if self._hallucination.picked == 0:
            index, ids = self._first.topk(min(most, n))
            deviation = self._var[self.rows[ids]].sqrt()
        else:
            ids = self._first.topk(min(4 * most, n)).indices
            index, deviation = self._examine_all(ids)
        likely = self._first[ids] > -torch.inf
        likely &= self.width * deviation <= self._norm * self._radii[ids]
        likely &= self.cells.depth[ids] < self.domain.depth_limit
        ids = ids[likely][index[likely].argsort(descending=True, stable=True)[:most]]
        others = [i for i in ids.tolist() if i != number and i not in self._ahead]
        return torch.cat([cell, cell.new_tensor(others)])

    @cached_property
    def _told(self) -> tuple[RowIndex, Tensor] | None:
        r"""Rows that are not centres, with an index to find them.

        They are unsolicited points, and children that earlier picks computed and did not need.
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
