r"""``Tree``: a box that is searched through the cells of a partition tree (Ada-BKB).

Every cell is represented by its centre. How much a function of norm one may vary within a cell is
its radius.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.domains.bounded import BoundedDomain
from botorch_bkb.domains.partition import Metric, PartitionTree
from botorch_bkb.validation import check_positive_integer

#: How far a function of norm one varies within the cells ``ids`` of a tree. It depends on corners
#: and depths, not on the numbers of cells: some cells are only looked at and never become part of
#: the tree.
Radius = Callable[[PartitionTree, Tensor, Metric], Tensor]


def kernel_radius(tree: PartitionTree, ids: Tensor, metric: Metric) -> Tensor:
    r"""Return ``d_k(centre, farthest corner)``: valid for every function, and slow to shrink."""
    return tree.radii(ids, metric)


def geometric_radius(v1: float, rho: float) -> Radius:
    r"""Return the paper's radius ``g(v1 rho^h)`` at depth ``h``.

    ``g(r)`` is the kernel's metric at distance ``r``.

    Args:
        v1: The radius of the whole box, in the units that the kernel sees.
        rho: The factor from one depth to the next, in (0, 1).
    """
    if not (0 < v1 < math.inf and 0 < rho < 1):
        raise InputDataError(
            f"radius must be (v1, rho) with v1 positive and rho in (0, 1), got ({v1}, {rho})."
        )

    def radius(tree: PartitionTree, ids: Tensor, metric: Metric) -> Tensor:
        depths, group = tree.depth[ids].unique(return_inverse=True)
        d = tree.lower.shape[-1]
        steps = torch.eye(d, dtype=tree.lower.dtype, device=tree.lower.device)
        sides = v1 * rho ** depths.to(steps)
        ends = (sides.reshape(-1, 1, 1) * steps).flatten(0, 1)
        return metric(torch.zeros_like(ends), ends).reshape(-1, d).amax(-1)[group]

    return radius


def as_radius(radius: str | tuple[float, float] | Radius) -> tuple[Radius, bool]:
    r"""Return the radius a user asked for, and whether its metric takes the user's inputs."""
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


@dataclass(frozen=True, eq=False)
class Tree(BoundedDomain):
    r"""A box that is cut into ever smaller cells.

    The depth limit ``h_max`` is a number that is fixed before a run. Confidence bounds with a
    guarantee hold at all points of the box at once, so that indices are bounds whatever the limit.
    The regret bound of Ada-BKB needs a limit that suits the horizon: a cell at the limit is
    evaluated even where its uncertainty is smaller than the cell, ``width sd <= V``. So ``V`` at
    the limit is what an evaluation may lose for ever, and what ``gap()`` does not fall below. The
    paper takes ``h_max`` of order ``log T``, for which this is of order ``1 / sqrt(T)``. By default
    the limit is ``8 d``: where all sides are cut equally often, each of them is then shorter by a
    factor of ``num_children^8``, 6,561 by default.

    Args:
        bounds: A ``2 x d`` tensor: the lower and the upper corner.
        num_children: ``N``, the number of cells into which a cell is split. With an odd number the
            cell in the middle keeps its parent's centre.
        max_depth: ``h_max``: cells of this depth are not split; ``8 d`` by default.
        radius: How far a function of norm one varies within a cell: ``"kernel"`` (``d_k`` from the
            centre to the farthest corner), ``(v1, rho)`` for the paper's ``g(v1 rho^h)``, or a
            function ``(tree, ids, metric)`` of the corners and depths of cells.
        keep_coordinates: Whether the coordinates of all centres are kept.

    Example:
        >>> import torch
        >>> from botorch_bkb.domains import Tree
        >>> from botorch_bkb.optimizers import Optimizer
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> Optimizer(Tree(bounds, num_children=2), seed=0).ask().X
        tensor([[0.5000]], dtype=torch.float64)
    """

    _: KW_ONLY
    num_children: int = 3
    max_depth: int | None = None
    radius: str | tuple[float, float] | Radius = "kernel"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive_integer("num_children", self.num_children)
        check_positive_integer("max_depth", self.max_depth)
        if self.num_children is None or self.num_children < 2:
            raise InputDataError(
                f"num_children must be at least 2, got {self.num_children}: a cell is split into "
                "as many."
            )
        as_radius(self.radius)

    @property
    def depth_limit(self) -> int:
        r"""``h_max``, the depth from which cells are not split, fixed for the whole run."""
        return self.max_depth or 8 * self.dim
