r"""``Variation``: how far a function varies within cells, in the metric of the kernel."""

from __future__ import annotations

import torch
from botorch.exceptions.errors import InputDataError
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from botorch_bkb.domains import PartitionTree, Tree, kernel_metric
from botorch_bkb.domains.tree import as_radius
from botorch_bkb.features import approximated
from botorch_bkb.state.components import ModelState

#: The number of points at which a kernel is tried.
SAMPLE = 64


class Variation:
    r"""The radii of cells and the lengths of their sides under present hyperparameters.

    Args:
        domain: The tree's domain.
        model: The hyperparameters.
    """

    def __init__(self, domain: Tree, model: ModelState) -> None:
        self.domain, self._inputs = domain, model.inputs
        self._radius, self._takes_user_inputs = as_radius(domain.radius)
        self._kernel_metric = kernel_metric(approximated(model.hyper.kernel))

    def metric(self, a: Tensor, b: Tensor) -> Tensor:
        r"""Return distances in the kernel's metric, of inputs as the user knows them."""
        return self._kernel_metric(self._inputs(a), self._inputs(b))

    def radii(self, tree: PartitionTree, ids: Tensor) -> Tensor:
        r"""Return how far a function of norm one varies within some cells.

        Args:
            tree: Any cells, with corners and depths.
            ids: ``q`` ids of cells.
        """
        metric = self.metric if self._takes_user_inputs else self._kernel_metric
        radii = self._radius(tree, ids, metric)
        if radii.shape != ids.shape or not (radii.isfinite() & (radii >= 0)).all():
            raise InputDataError(
                f"A radius must give each of {len(ids)} cells a finite number that is not "
                f"negative, got {radii.flatten()[:5].tolist()} of shape {tuple(radii.shape)}."
            )
        return radii.double()

    def check_corners(self) -> None:
        r"""Raise unless corners are farthest from the centre in the kernel's metric."""
        bounds = self.domain.bounds
        centre, corner = bounds.mean(0, keepdim=True), bounds[1:]
        sample = draw_sobol_samples(bounds, n=SAMPLE, q=1, seed=0).squeeze(-2)
        for shrunk in (1.0, 0.3, 0.1):
            X = centre + shrunk * (sample - centre)
            end = centre + shrunk * (corner - centre)
            farthest = self.metric(centre, end)
            if (self.metric(centre.expand(len(X), -1), X) > 1.001 * farthest).any():
                raise InputDataError(
                    "The kernel must fall with the distance in each coordinate: with this one some "
                    "point is farther from a cell's centre than its corners, and indices would be "
                    'no bounds. Use another kernel, or a radius of your own instead of "kernel".'
                )

    def children(
        self, tree: PartitionTree, ids: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, PartitionTree]:
        r"""Return the cells into which others would be split, along their longest sides.

        Args:
            tree: The cells.
            ids: ``q`` ids of cells.

        Returns:
            Their lower and upper corners, ``q x N x d``, their ``q x N`` radii, and a tree of these
            children alone.
        """
        N = self.domain.num_children
        lower, upper = tree.slices(ids, tree.longest_sides(ids, self.metric), N)
        corners = lower.flatten(0, 1), upper.flatten(0, 1)
        parent, depth = (t.repeat_interleave(N) for t in (ids, tree.depth[ids] + 1))
        new = PartitionTree.of_leaves(*corners, parent, depth)
        every = torch.arange(len(new), device=ids.device)
        return lower, upper, self.radii(new, every).reshape(-1, N), new
