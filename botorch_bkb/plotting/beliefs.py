r"""Plots of beliefs: posteriors, trees and calibration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models.model import Model
from botorch.sampling.pathwise.utils import get_train_inputs, get_train_targets
from torch import Tensor

from botorch_bkb.domains import Tree
from botorch_bkb.models.sparse import SparseGP
from botorch_bkb.optimizers import Optimizer
from botorch_bkb.plotting.axes import axes_of, new_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _box(bounds: Tensor | None, X: Tensor) -> Tensor:
    r"""Return the bounds, or by default the ranges of ``X`` with a margin, ``2 x d``."""
    if bounds is not None:
        return torch.as_tensor(bounds).to(X)
    side = X.amax(0) - X.amin(0)
    margin = torch.where(side > 0, 0.05 * side, 1.0)
    return torch.stack([X.amin(0) - margin, X.amax(0) + margin])


@torch.no_grad()
def _moments(model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return ``n`` posterior means and standard deviations at ``n x d`` inputs."""
    posterior: Any = model.posterior(X.unsqueeze(-2))
    return posterior.mean.flatten(), posterior.variance.flatten().sqrt()


def plot_belief(
    belief: Optimizer | Model,
    ax: Axes | None = None,
    *,
    bounds: Tensor | None = None,
    width: float | None = None,
    f: Callable[[Tensor], Tensor] | None = None,
    resolution: int = 201,
) -> Axes:
    r"""Plot the posterior of a function of one or two inputs, with observations and dictionary.

    In one dimension, the plot shows the mean and the confidence interval. In two dimensions, it
    shows the mean as colours and the standard deviation as contours.

    Args:
        belief: An optimizer, or any BoTorch model with one output.
        ax: The axes to draw on; by default new ones.
        bounds: ``2 x d`` bounds of the plot; by default the domain of an optimizer, or the range of
            the observations of a model.
        width: Half-width of the confidence interval in standard deviations; by default that of the
            optimizer, or 2 for a model.
        f: The true function from ``n x d`` to ``n``, if known; drawn in one dimension only.
        resolution: The number of grid points per dimension.

    Returns:
        The axes.

    Example:
        >>> import torch
        >>> from botorch_bkb import DTCGP
        >>> from botorch_bkb.plotting import plot_belief
        >>> X = torch.rand(20, 1, dtype=torch.float64)
        >>> plot_belief(DTCGP(X, X.sin())).get_xlabel()
        'x'
    """
    ax = axes_of(ax)
    if isinstance(belief, Optimizer):
        width = belief.width_now if width is None else width
        if bounds is None:
            extent = belief.domain.extent  # all arms, or the corners of the box
            bounds = torch.stack([extent.amin(0), extent.amax(0)])
    model = belief.model if isinstance(belief, Optimizer) else belief
    if model.num_outputs != 1:
        raise UnsupportedError(
            f"Models with 1 outcome can be drawn, got {model.num_outputs}: pass "
            "model.subset_output([0])."
        )
    (X,), y = get_train_inputs(model), get_train_targets(model).flatten()
    d = X.shape[-1]
    if d > 2:
        raise UnsupportedError(
            f"Models with 1 or 2 inputs can be drawn, got {d}: fix the other inputs and pass a "
            "model of two inputs."
        )
    lower, upper = _box(bounds, X)
    sides = [
        torch.linspace(float(a), float(b), resolution).to(X)
        for a, b in zip(lower, upper, strict=True)
    ]
    grid = torch.cartesian_prod(*sides).reshape(-1, d)
    mean, sd = (values.cpu() for values in _moments(model, grid))
    marks = X[model.dictionary_indices].cpu() if isinstance(model, SparseGP) else None
    if d == 1:
        width = 2.0 if width is None else width
        half, x = width * sd, grid.squeeze(-1).cpu()
        ax.fill_between(x, mean - half, mean + half, alpha=0.2, lw=0)
        ax.plot(x, mean, label=f"mean ± {width:.3g} sd")
        if f is not None:
            ax.plot(x, f(grid).flatten().cpu(), color="k", ls="--", lw=1, label="function")
        ax.plot(X.cpu(), y.cpu(), ".", color="0.3", ms=3, zorder=3, label="observations")
        if marks is not None:
            foot = torch.full(
                (len(marks),), 0.02
            )  # fraction of the height of the axes, near the bottom
            across = ax.get_xaxis_transform()
            ax.plot(marks, foot, "^", color="C3", ms=4, transform=across, label="dictionary")
        ax.set(xlabel="x", ylabel="reward")
    else:
        shape = (resolution, resolution)
        a, b = (side.cpu().numpy() for side in sides)
        colours = ax.pcolormesh(
            a, b, mean.reshape(shape).mT.numpy(), shading="auto", rasterized=True
        )
        ax.figure.colorbar(colours, ax=ax, label="mean (lines: standard deviation)")
        lines = ax.contour(a, b, sd.reshape(shape).mT.numpy(), colors="w", linewidths=0.6)
        ax.clabel(lines, fontsize=6, fmt="%.2g")
        ax.plot(*X.cpu().mT, ".", color="k", ms=3, label="observations")
        if marks is not None:
            ax.plot(*marks.mT, "o", mfc="none", mec="C3", label="dictionary")
        ax.set(xlabel="$x_1$", ylabel="$x_2$")
    ax.legend(fontsize=8)
    return ax


def plot_tree(optimizer: Optimizer, ax: Axes | None = None, *, depth: bool = True) -> Axes:
    r"""Plot the cells of a tree over two inputs, and the evaluated centres.

    Cells that were pruned are grey.

    Args:
        optimizer: An :class:`~botorch_bkb.AdaBKB`, or another optimizer over a tree.
        ax: The axes to draw on; by default new ones.
        depth: Whether to colour the cells by their depth.

    Returns:
        The axes.

    Example:
        >>> import torch
        >>> from botorch_bkb import AdaBKB
        >>> from botorch_bkb.plotting import plot_tree
        >>> optimizer = AdaBKB(bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(), seed=0)
        >>> optimizer.tell(optimizer.ask(), [1.0])
        >>> plot_tree(optimizer).get_ylabel()
        '$x_2$'
    """
    ax = axes_of(ax)
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    if not isinstance(optimizer.domain, Tree):
        raise UnsupportedError(
            f"{type(optimizer).__name__} has no tree: pass an AdaBKB or AdaBBKB."
        )

    tree = optimizer.tree
    if tree.lower.shape[-1] != 2:
        raise UnsupportedError(
            f"Trees over 2 inputs can be drawn, got {tree.lower.shape[-1]}: use plot_regret or "
            "plot_dictionary, which work in any dimension."
        )

    def cells(ids: Tensor) -> list[Rectangle]:
        corners, sizes = tree.lower[ids].tolist(), (tree.upper - tree.lower)[ids].tolist()
        return [Rectangle(corner, *size) for corner, size in zip(corners, sizes, strict=True)]

    leaves, thin = tree.leaves, min(0.4, 200 / int(tree.is_leaf.sum()))
    edges: dict[str, Any] = {"edgecolor": "0.3", "linewidth": thin}
    patches = PatchCollection(cells(leaves), cmap="Blues", **edges)
    if depth:
        patches.set_array(tree.depth[leaves].cpu().numpy())
        patches.set_clim(0, max(1, int(tree.depth.max())))
        patches.set_alpha(0.7)
        ax.figure.colorbar(patches, ax=ax, label="depth", ticks=MaxNLocator(integer=True))
    else:
        patches.set_facecolor("none")
    ax.add_collection(patches)
    ax.add_collection(PatchCollection(cells(tree.pruned), facecolor="0.9", **edges))
    if optimizer.num_observations:
        (X,) = get_train_inputs(optimizer.model)
        ax.plot(*X.cpu().mT, ".", color="C3", ms=4, label="evaluated")
        ax.legend(fontsize=8)
    (left, bottom), (right, top) = tree.lower[0].tolist(), tree.upper[0].tolist()
    ax.set(xlim=(left, right), ylim=(bottom, top), xlabel="$x_1$", ylabel="$x_2$")
    return ax


def plot_calibration(
    belief: Optimizer | Model, X: Tensor, f: Tensor, ax: Axes | None = None, **style: Any
) -> Axes:
    r"""Plot the share of points inside a confidence interval against its nominal level.

    On the diagonal the intervals have their nominal coverage. Above it they are too wide.

    Args:
        belief: An optimizer, or any BoTorch model with one output.
        X: ``n x d`` test points.
        f: ``n`` values of the function at these points, without noise.
        ax: The axes to draw on; by default new ones.
        style: Keyword arguments for ``ax.plot``.

    Returns:
        The axes.

    Example:
        >>> import torch
        >>> from botorch_bkb import DTCGP
        >>> from botorch_bkb.plotting import plot_calibration
        >>> X = torch.rand(20, 1, dtype=torch.float64)
        >>> plot_calibration(DTCGP(X, X.sin()), X, X.sin().squeeze(-1)).get_ylabel()
        'share inside'
    """
    ax = axes_of(ax)
    model = belief.model if isinstance(belief, Optimizer) else belief
    f = torch.as_tensor(f).flatten()
    if not len(f) or len(f) != len(X):
        raise InputDataError(
            f"f must be n > 0 values at n points, got {len(f)} at {len(X)}: pass one "
            "value per row of X."
        )
    mean, sd = _moments(model, X)
    away = ((f.to(mean) - mean).abs() / sd.clamp_min(torch.finfo(sd.dtype).tiny)).cpu()
    nominal = (
        torch.arange(100, dtype=torch.float64) / 100
    )  # without 1, where the interval is the whole line
    inside = (away <= torch.special.ndtri((1 + nominal) / 2).unsqueeze(-1)).double().mean(-1)
    ax.plot([0, 1], [0, 1], color="0.5", ls="--", lw=1, label=new_label(ax, "nominal"))
    ax.plot(nominal, inside, **style)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="nominal share", ylabel="share inside")
    ax.legend()
    return ax
