r"""Plots of curves over several seeds."""

from __future__ import annotations

from typing import Any

import numpy as np


def band(ax: Any, values: np.ndarray, label: str, color: str, x: np.ndarray | None = None) -> None:
    r"""Plot the median over runs, and the band from the 20 % to the 80 % quantile.

    Args:
        ax: Axes to draw on.
        values: Values ``runs x T``. Columns in which a run has no finite value are left out.
        label: Label in the legend.
        color: Color of line and band.
        x: Positions of the ``T`` columns, by default ``1`` to ``T``.
    """
    x = np.arange(1, values.shape[-1] + 1) if x is None else x
    drawn = np.isfinite(values).all(0)
    low, median, high = np.quantile(values[:, drawn], [0.2, 0.5, 0.8], axis=0)
    ax.plot(x[drawn], median, color=color, label=label)
    ax.fill_between(x[drawn], low, high, color=color, alpha=0.12, lw=0)
