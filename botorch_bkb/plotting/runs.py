r"""Plots of runs: regret, rewards, dictionaries and batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.plotting.axes import axes_of, marker, new_label
from botorch_bkb.runs import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A table of plain columns that describes a run, or its result.
History = Mapping[str, Sequence[Any]] | Result

#: A theoretical bound as a function of the number of evaluations and of the effective dimension.
Bound = Callable[[int, float], float]


def _draw_bound(ax: Axes, t: Sequence[int], values: Sequence[float]) -> None:
    r"""Draw a theoretical bound as a dotted line."""
    ax.plot(
        t,
        values,
        color="k",
        ls=":",
        lw=1,
        marker=marker(len(t)),
        label=new_label(ax, "theoretical bound"),
    )


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
    ax = axes_of(ax)
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
    (line,) = ax.plot(t, middle, label=label, **{"marker": marker(len(t)), **style})
    if len(total) > 1:
        ax.fill_between(t, low, high, color=line.get_color(), alpha=0.15, lw=0)
    if uniform is not None:
        ax.plot(
            t,
            uniform * t,
            color="0.5",
            ls="--",
            lw=1,
            marker=marker(len(t)),
            label=new_label(ax, "uniform policy"),
        )
    if bound is not None:
        _draw_bound(ax, t.tolist(), [bound(step) for step in t.tolist()])
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
    ax = axes_of(ax)
    t, rewards = _columns(history, "t", "reward")
    ax.plot(t, rewards, ".", markersize=3, alpha=0.5, label="reward")
    ax.plot(t, list(accumulate(rewards, max)), marker=marker(len(t)), label="best so far")
    ax.set(xlabel="evaluations", ylabel="reward")
    ax.legend()
    return ax


def plot_dictionary(
    history: History, ax: Axes | None = None, *, bound: Bound | None = None
) -> Axes:
    r"""Plot the dictionary size and the effective dimension against the number of evaluations.

    Args:
        history: A :class:`~botorch_bkb.Result`, its history, or a table of ``read_journal``.
        ax: The axes to draw on; by default new ones.
        bound: A theoretical bound on the size, as a function of the number of evaluations and of
            the effective dimension after them; drawn as a line, on a logarithmic axis. It may use
            :func:`~botorch_bkb.confidence.bkb_dictionary_size` or
            :func:`~botorch_bkb.confidence.bbkb_dictionary_size`.

    Returns:
        The axes.

    Example:
        >>> from botorch_bkb.confidence import bkb_dictionary_size
        >>> from botorch_bkb.plotting import plot_dictionary
        >>> history = {"t": [0, 1], "dictionary": [1, 2], "dimension": [0.9, 1.5]}
        >>> def bound(t, dimension):
        ...     return bkb_dictionary_size(dimension, 8.0, noise_var=1.0)
        >>> plot_dictionary(history, bound=bound).get_xlabel()
        'evaluations'
    """
    ax = axes_of(ax)
    t, dictionary, dimension = _columns(history, "t", "dictionary", "dimension")
    ax.plot(
        t,
        dictionary,
        drawstyle="steps-post",
        marker=marker(len(t)),
        label="points in the dictionary",
    )
    ax.plot(
        t, dimension, drawstyle="steps-post", marker=marker(len(t)), label="effective dimension"
    )
    ax.set(xlabel="evaluations", ylabel="size")
    if bound is not None:
        _draw_bound(ax, t, [bound(s + 1, d) for s, d in zip(t, dimension, strict=True)])
        ax.set_yscale("log")
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
    ax = axes_of(ax)
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


def plot_batch_count(
    history: History, ax: Axes | None = None, *, bound: Bound | None = None
) -> Axes:
    r"""Plot the number of batches so far against the number of evaluations.

    Every batch waits for feedback once, so this is also the number of rounds of feedback.

    Args:
        history: A :class:`~botorch_bkb.Result`, its history, or a table of ``read_journal``.
        ax: The axes to draw on; by default new ones.
        bound: A theoretical bound on the number of complete batches, as a function of the number of
            evaluations and of the effective dimension after them; drawn as a line. It may use
            :func:`~botorch_bkb.confidence.bbkb_batches`.

    Returns:
        The axes.

    Example:
        >>> from botorch_bkb.confidence import bbkb_batches
        >>> from botorch_bkb.plotting import plot_batch_count
        >>> history = {"t": [0, 1, 2], "batch": [0, 1, 1], "dimension": [0.5, 0.9, 0.9]}
        >>> def bound(t, dimension):
        ...     return bbkb_batches(dimension, t, noise_var=1.0, batch_threshold=2.0)
        >>> ax = plot_batch_count(history, bound=bound)
        >>> ax.lines[0].get_ydata().tolist()
        [1, 2, 2]
    """
    ax = axes_of(ax)
    t, batch = _columns(history, "t", "batch")
    seen: set[Any] = set()
    counts = []
    for number in batch:
        seen.add(number)
        counts.append(len(seen))
    ax.plot(t, counts, drawstyle="steps-post", marker=marker(len(t)), label="batches")
    if bound is not None:
        t, dimension = _columns(history, "t", "dimension")
        _draw_bound(ax, t, [bound(s + 1, d) for s, d in zip(t, dimension, strict=True)])
    ax.set(xlabel="evaluations", ylabel="number of batches")
    ax.legend()
    return ax
