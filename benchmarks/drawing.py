r"""Curves over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np


def band(ax: Any, values: np.ndarray, label: str, color: str, x: np.ndarray | None = None) -> None:
    r"""The median over runs, and their middle three fifths.

    Args:
        ax: Axes.
        values: ``runs x T``; a place where a run has none is left out.
        label: For the legend.
        color: Of line and band.
        x: ``T``, by default ``1`` to ``T``.
    """
    x = np.arange(1, values.shape[-1] + 1) if x is None else x
    drawn = np.isfinite(values).all(0)
    low, median, high = np.quantile(values[:, drawn], [0.2, 0.5, 0.8], axis=0)
    ax.plot(x[drawn], median, color=color, label=label)
    ax.fill_between(x[drawn], low, high, color=color, alpha=0.12, lw=0)
