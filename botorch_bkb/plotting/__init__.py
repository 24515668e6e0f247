r"""Plots of runs, beliefs and trees.

They need matplotlib: ``pip install 'botorch-bkb[plotting]'``. Every function draws on the given
axes, or on new ones, and returns them.
"""

from botorch_bkb.plotting.beliefs import plot_belief, plot_calibration, plot_tree
from botorch_bkb.plotting.runs import (
    plot_batch_count,
    plot_batches,
    plot_dictionary,
    plot_regret,
    plot_rewards,
)

__all__ = [
    "plot_batch_count",
    "plot_batches",
    "plot_belief",
    "plot_calibration",
    "plot_dictionary",
    "plot_regret",
    "plot_rewards",
    "plot_tree",
]
