r"""Plots of runs, beliefs and trees.

They need matplotlib: ``pip install 'botorch-bkb[plotting]'``. Every function draws on the given
axes, or on new ones, and returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models.model import Model
from botorch.sampling.pathwise.utils import get_train_inputs, get_train_targets
from torch import Tensor

from botorch_bkb.models.sparse import SparseGP
from botorch_bkb.optimizers import AdaBKB, Optimizer
from botorch_bkb.runs import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A table of plain columns that describes a run, or its result.
History = Mapping[str, Sequence[Any]] | Result


def _axes(ax: Axes | None) -> Axes:
    r"""Return the given axes, or new ones."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Plotting needs matplotlib: pip install 'botorch-bkb[plotting]'"
        ) from error
    return plt.subplots(layout="constrained")[1]


def _new_label(ax: Axes, label: str) -> str | None:
    r"""Return ``label``, or None if the legend of the axes has it already."""
    return None if label in ax.get_legend_handles_labels()[1] else label


def _mark(n: int) -> str | None:
    r"""Return the marker for a line of ``n`` points: one point is invisible without a marker."""
    return "o" if n == 1 else None


def plot_regret(
    regret: Tensor,
    ax: Axes | None = None,
    *,
    label: str | None = None,
    uniform: float | None = None,
    bound: Callable[[int], float] | None = None,
    **style: Any,
) -> Axes:
    r"""Plot the cumulative regret against the number of evaluations.

    Args:
        regret: ``T`` or ``runs x T`` regrets, one per evaluation. For several runs, the plot shows
            their median and a band with the middle three fifths of them.
        ax: The axes to draw on; by default new ones.
        label: The label in the legend.
        uniform: The mean regret per evaluation of the uniform policy; drawn as a line.
        bound: A theoretical bound as a function of the number of evaluations, for instance from
            :func:`~botorch_bkb.confidence.bbkb_regret`; drawn as a line.
        style: Keyword arguments for ``ax.plot``.

    Returns:
        The axes.

    Example:
        >>> import torch
        >>> from botorch_bkb.plotting import plot_regret
        >>> ax = plot_regret(torch.rand(5, 100), label="BBKB", uniform=0.5)
        >>> ax.get_ylabel()
        'cumulative regret'
    """
    ax = _axes(ax)
    if isinstance(regret, Result):
        raise InputDataError(
            "regret must be a tensor of regrets, got a Result, which does not contain them: pass "
            "optimum - f(result.X), or call plot_rewards(result)."
        )
    regret = torch.as_tensor(regret).detach().cpu().double()
    if regret.ndim not in (1, 2) or not regret.numel():
        raise InputDataError(
            f"regret must be T or runs x T, got {tuple(regret.shape)}: pass the regret of each "
            "evaluation, with one row per run."
        )
    total = regret.reshape(-1, regret.shape[-1]).cumsum(-1)
    t = torch.arange(1, total.shape[-1] + 1)
    levels = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    low, middle, high = torch.quantile(total, levels, dim=0)
    (line,) = ax.plot(t, middle, label=label, **{"marker": _mark(len(t)), **style})
    if len(total) > 1:
        ax.fill_between(t, low, high, color=line.get_color(), alpha=0.15, lw=0)
    if uniform is not None:
        ax.plot(
            t,
            uniform * t,
            color="0.5",
            ls="--",
            lw=1,
            marker=_mark(len(t)),
            label=_new_label(ax, "uniform policy"),
        )
    if bound is not None:
        values = [bound(int(step)) for step in t]
        ax.plot(
            t,
            values,
            color="k",
            ls=":",
            lw=1,
            marker=_mark(len(t)),
            label=_new_label(ax, "theoretical bound"),
        )
    ax.set(xlabel="evaluations", ylabel="cumulative regret")
    if ax.get_legend_handles_labels()[0]:
        ax.legend()
    return ax


def _columns(history: History, *names: str) -> list[Sequence[Any]]:
    r"""Return the named columns of a history, without the rows in which a value is missing."""
    table = history.history if isinstance(history, Result) else history
    missing = [name for name in names if name not in table]
    if missing:
        raise InputDataError(
            f"The history has no column {missing[0]!r}, only {', '.join(table)}: pass a Result, "
            "its history, or a table of read_journal."
        )
    # The table of a journal also has points that failed, were skipped or are pending.
    rows = [row for row in zip(*(table[name] for name in names), strict=True) if None not in row]
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]


def plot_rewards(history: History, ax: Axes | None = None) -> Axes:
    r"""Plot the rewards and the best reward so far against the number of evaluations.

    Args:
        history: A :class:`~botorch_bkb.Result`, its history, or a table of ``read_journal``.
        ax: The axes to draw on; by default new ones.

    Returns:
        The axes.

    Example:
        >>> from botorch_bkb.plotting import plot_rewards
        >>> ax = plot_rewards({"t": [0, 1, 2], "reward": [0.3, 0.1, 0.5]})
        >>> ax.lines[1].get_ydata().tolist()
        [0.3, 0.3, 0.5]
    """
    ax = _axes(ax)
    t, rewards = _columns(history, "t", "reward")
    ax.plot(t, rewards, ".", markersize=3, alpha=0.5, label="reward")
    ax.plot(t, list(accumulate(rewards, max)), marker=_mark(len(t)), label="best so far")
    ax.set(xlabel="evaluations", ylabel="reward")
    ax.legend()
    return ax


def plot_dictionary(history: History, ax: Axes | None = None) -> Axes:
    r"""Plot the dictionary size and the effective dimension against the number of evaluations.

    Args:
        history: A :class:`~botorch_bkb.Result`, its history, or a table of ``read_journal``.
        ax: The axes to draw on; by default new ones.

    Returns:
        The axes.

    Example:
        >>> from botorch_bkb.plotting import plot_dictionary
        >>> history = {"t": [0, 1], "dictionary": [1, 2], "dimension": [0.9, 1.5]}
        >>> plot_dictionary(history).get_xlabel()
        'evaluations'
    """
    ax = _axes(ax)
    t, dictionary, dimension = _columns(history, "t", "dictionary", "dimension")
    ax.plot(
        t,
        dictionary,
        drawstyle="steps-post",
        marker=_mark(len(t)),
        label="points in the dictionary",
    )
    ax.plot(t, dimension, drawstyle="steps-post", marker=_mark(len(t)), label="effective dimension")
    ax.set(xlabel="evaluations", ylabel="size")
    ax.legend()
    return ax


def plot_batches(history: History, ax: Axes | None = None) -> Axes:
    r"""Plot the size of each batch against the number of evaluations before it.

    Args:
        history: A :class:`~botorch_bkb.Result`, its history, or a table of ``read_journal``.
        ax: The axes to draw on; by default new ones.

    Returns:
        The axes.

    Example:
        >>> from botorch_bkb.plotting import plot_batches
        >>> ax = plot_batches({"t": [0, 1, 2], "batch": [0, 1, 1]})
        >>> ax.collections[0].get_offsets().tolist()
        [[0.0, 1.0], [1.0, 2.0]]
    """
    ax = _axes(ax)
    t, batch = _columns(history, "t", "batch")
    first: dict[Any, int] = {}
    size: dict[Any, int] = {}
    for place, number in zip(t, batch, strict=True):
        first[number] = min(place, first.get(number, place))
        size[number] = size.get(number, 0) + 1
    ax.scatter(list(first.values()), list(size.values()), s=12)
    ax.set(xlabel="evaluations before the batch", ylabel="batch size")
    if size and max(size.values()) > 20:
        ax.set_yscale("log")
    return ax


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
    ax = _axes(ax)
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


def plot_tree(optimizer: AdaBKB, ax: Axes | None = None, *, depth: bool = True) -> Axes:
    r"""Plot the cells of a tree over two inputs, and the evaluated centres.

    Args:
        optimizer: An :class:`~botorch_bkb.AdaBKB` or :class:`~botorch_bkb.AdaBBKB`.
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
    ax = _axes(ax)
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    if not isinstance(optimizer, AdaBKB):
        raise UnsupportedError(
            f"{type(optimizer).__name__} has no tree: pass an AdaBKB or AdaBBKB."
        )

    tree = optimizer.tree
    if tree.lower.shape[-1] != 2:
        raise UnsupportedError(
            f"Trees over 2 inputs can be drawn, got {tree.lower.shape[-1]}: use plot_regret or "
            "plot_dictionary, which work in any dimension."
        )
    leaves = tree.leaves
    lower, upper = tree.lower[leaves].cpu(), tree.upper[leaves].cpu()
    cells = [
        Rectangle(corner, *size)
        for corner, size in zip(lower.tolist(), (upper - lower).tolist(), strict=True)
    ]
    patches = PatchCollection(
        cells, edgecolor="0.3", linewidth=min(0.4, 200 / len(cells)), cmap="Blues"
    )
    if depth:
        patches.set_array(tree.depth[leaves].cpu().numpy())
        patches.set_clim(0, max(1, int(tree.depth.max())))
        patches.set_alpha(0.7)
        ax.figure.colorbar(patches, ax=ax, label="depth", ticks=MaxNLocator(integer=True))
    else:
        patches.set_facecolor("none")
    ax.add_collection(patches)
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
    ax = _axes(ax)
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
    ax.plot([0, 1], [0, 1], color="0.5", ls="--", lw=1, label=_new_label(ax, "nominal"))
    ax.plot(nominal, inside, **style)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="nominal share", ylabel="share inside")
    ax.legend()
    return ax
