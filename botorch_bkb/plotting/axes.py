r"""What all plots need of matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_of(ax: Axes | None) -> Axes:
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


def new_label(ax: Axes, label: str) -> str | None:
    r"""Return ``label``, or None if the legend of the axes has it already."""
    return None if label in ax.get_legend_handles_labels()[1] else label


def marker(n: int) -> str | None:
    r"""Return the marker for a line of ``n`` points: one point is invisible without a marker."""
    return "o" if n == 1 else None
