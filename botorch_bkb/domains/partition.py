r"""``PartitionTree``: a box cut recursively into cells, stored in tensors with integer ids.

Reference:
    Rando, Carratino, Villa, Rosasco: Ada-BKB: scalable Gaussian process optimization on continuous
    domains by adaptive discretization. AISTATS 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.belief import kernel_diagonal
from botorch_bkb.rows import GrowingRows

#: A function that returns distances of points, row by row: ``q x d, q x d -> q``.
Metric = Callable[[Tensor, Tensor], Tensor]


def kernel_metric(kernel: Kernel) -> Metric:
    r"""Return the distance between points that a kernel defines.

    The distance is ``d_k(x, x')^2 = k(x,x) + k(x',x') - 2 k(x,x')``, row by row. A function of norm
    ``F`` in the kernel's space varies by at most ``F d_k`` between two points.

    Args:
        kernel: The covariance module.

    Returns:
        A function from two ``q x d`` tensors to ``q`` distances.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.domains.partition import kernel_metric
        >>> far = torch.tensor([[0.0]]), torch.tensor([[100.0]])
        >>> round(float(kernel_metric(RBFKernel())(*far)) ** 2, 6)
        2.0

    Reference:
        Rando et al., AISTATS 2022. (Ada-BKB.)
    """

    @torch.no_grad()
    def distance(a: Tensor, b: Tensor) -> Tensor:
        cross = kernel(a, b, diag=True).double()
        square = kernel_diagonal(kernel, torch.cat([a, b])).reshape(2, -1).sum(0) - 2 * cross
        return square.clamp_min(0).sqrt()

    return distance


@dataclass(frozen=True)
class PartitionTree:
    r"""A tree of cells. Its leaves, those that were pruned included, tile a box.

    A tree is an immutable value. Splitting or pruning a cell returns a new tree.

    Attributes:
        lower: ``n x d`` lower corners, one row per cell. The first cell is the whole box.
        upper: ``n x d`` upper corners.
        parent: ``n`` ids of the parents. The root is its own parent.
        depth: ``n`` depths of the cells.
        is_leaf: ``n`` booleans that say whether a cell is a leaf, pruned or not.
        is_pruned: ``n`` booleans that say whether a cell is a leaf that was pruned.

    Example:
        >>> import torch
        >>> from botorch_bkb.domains.partition import PartitionTree
        >>> tree = PartitionTree.over(torch.tensor([[0.0, 0.0], [3.0, 1.0]]))
        >>> tree = tree.split(0, tree.longest_side(0, lambda a, b: (a - b).norm(dim=-1)), 3)
        >>> tree.centres(tree.leaves).tolist()
        [[0.5, 0.5], [1.5, 0.5], [2.5, 0.5]]

    Reference:
        Rando et al., AISTATS 2022. (Ada-BKB.)
    """

    lower: Tensor
    upper: Tensor
    parent: Tensor
    depth: Tensor
    is_leaf: Tensor
    is_pruned: Tensor

    @classmethod
    def over(cls, bounds: Tensor) -> PartitionTree:
        r"""Return a tree with a single cell, the box with ``2 x d`` bounds."""
        zero = torch.zeros(1, dtype=torch.long, device=bounds.device)
        return cls.of_leaves(bounds[:1], bounds[1:], zero, zero)

    @classmethod
    def of_leaves(
        cls, lower: Tensor, upper: Tensor, parent: Tensor, depth: Tensor
    ) -> PartitionTree:
        r"""Return a tree in which all cells are leaves, none of them pruned."""
        every = torch.ones_like(parent, dtype=torch.bool)
        return cls(lower, upper, parent, depth, every, ~every)

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def leaves(self) -> Tensor:
        r"""The ids of the leaves that were not pruned."""
        return torch.nonzero(self.is_leaf & ~self.is_pruned).squeeze(-1)

    @property
    def pruned(self) -> Tensor:
        r"""The ids of the leaves that were pruned."""
        return torch.nonzero(self.is_pruned).squeeze(-1)

    def pruned_to(self, ids: Tensor) -> PartitionTree:
        r"""Return the tree in which some leaves are kept, and all others pruned.

        Args:
            ids: Ids of the leaves that are kept, whether they were pruned before or not.
        """
        return replace(self, is_pruned=self.is_leaf.index_fill(0, ids, False))

    def restored(self) -> PartitionTree:
        r"""Return the tree in which no leaf is pruned."""
        return replace(self, is_pruned=torch.zeros_like(self.is_pruned))

    def centres(self, ids: Tensor | slice = slice(None)) -> Tensor:
        r"""Return the ``q x d`` centres of some cells."""
        return (self.lower[ids] + self.upper[ids]) / 2

    def radii(self, ids: Tensor, metric: Metric) -> Tensor:
        r"""Return the ``q`` distances from the centres of cells to their farthest points.

        These are the corners, all equally far, if the metric is that of a kernel that falls with
        the absolute distance in each coordinate.
        """
        return metric(self.centres(ids), self.upper[ids])

    def longest_side(self, cell: int, metric: Metric) -> int:
        r"""Return the coordinate along which the centres of opposite faces are farthest apart."""
        return int(self.longest_sides(torch.tensor([cell], device=self.parent.device), metric))

    def longest_sides(self, ids: Tensor, metric: Metric) -> Tensor:
        r"""Return the longest side of each of ``q`` cells, as :meth:`longest_side` does for one."""
        centres, d = self.centres(ids), self.lower.shape[-1]
        low, high = (centres.unsqueeze(-2).repeat(1, d, 1) for _ in range(2))
        low.diagonal(dim1=-2, dim2=-1).copy_(self.lower[ids])
        high.diagonal(dim1=-2, dim2=-1).copy_(self.upper[ids])
        return metric(low.flatten(0, 1), high.flatten(0, 1)).reshape(-1, d).argmax(-1)

    def split(self, cell: int, axis: int, num_children: int) -> PartitionTree:
        r"""Cut a leaf along one coordinate into equal slices, which tile it exactly.

        Args:
            cell: The id of the leaf.
            axis: The coordinate.
            num_children: The number of slices. They get the next free ids.
        """
        ids, axes = torch.tensor([[cell], [axis]], device=self.parent.device)
        return self.with_children(ids, *self.slices(ids, axes, num_children))

    def slices(self, ids: Tensor, axes: Tensor, num_children: int) -> tuple[Tensor, Tensor]:
        r"""Return the corners of the children of ``q`` cells, each ``q x num_children x d``.

        Args:
            ids: ``q`` ids of cells.
            axes: ``q`` coordinates along which the cells are cut.
            num_children: The number of slices per cell.

        Returns:
            The lower and the upper corners.
        """
        each = torch.arange(len(ids), device=ids.device)
        low, high = self.lower[ids, axes], self.upper[ids, axes]
        steps = torch.arange(num_children + 1, dtype=low.dtype, device=low.device) / num_children
        cuts = low.unsqueeze(-1) + steps * (high - low).unsqueeze(-1)
        cuts[:, -1] = high  # exact to the last bit
        lower, upper = (
            t[ids].unsqueeze(-2).repeat(1, num_children, 1) for t in (self.lower, self.upper)
        )
        lower[each, :, axes], upper[each, :, axes] = cuts[:, :-1], cuts[:, 1:]
        return lower, upper

    def with_children(
        self, ids: Tensor, lower: Tensor, upper: Tensor, growing: GrowingRows | None = None
    ) -> PartitionTree:
        r"""Return the tree in which ``q`` leaves have children, with the next free ids.

        Args:
            ids: Ids of the leaves, without repetition. A leaf may be a child of one before it.
            lower: ``q x num_children x d`` lower corners of the children.
            upper: ``q x num_children x d`` upper corners of the children.
            growing: Memory with spare rows, so that a tree that grows step by step is rarely
                copied.
        """
        n, N = len(self), lower.shape[-2]
        parent = ids.repeat_interleave(N)
        every = torch.ones_like(parent, dtype=torch.bool)
        is_leaf = torch.cat([self.is_leaf & ~self.is_pruned, every])
        first = n + N * torch.arange(len(ids), device=ids.device)  # the first child of each
        if (ids >= first).any() or not is_leaf[ids].all():
            raise InputDataError(
                f"Only leaves can be split, got cells {ids.tolist()}, not all of which are leaves: "
                "choose ids from `leaves`."
            )
        is_leaf[:n] = self.is_leaf
        is_leaf[ids] = False
        depths: list[int] = []
        for cell, depth in zip(
            ids.tolist(), self.depth[ids.clamp_max(n - 1)].tolist(), strict=True
        ):
            depths.append(1 + (depth if cell < n else depths[(cell - n) // N]))
        more = {"lower": lower.flatten(0, 1), "upper": upper.flatten(0, 1), "parent": parent}
        more["depth"] = ids.new_tensor(depths).repeat_interleave(N)
        more["is_pruned"] = ~every
        growing = GrowingRows() if growing is None else growing
        longer = {
            name: growing.append(name, getattr(self, name), rows) for name, rows in more.items()
        }
        return PartitionTree(is_leaf=is_leaf, **longer)

    def to_dict(self) -> dict[str, Any]:
        r"""Return the tensors by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
