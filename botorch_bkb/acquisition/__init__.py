r"""Acquisition: what is maximised to pick the next point.

The rules (:class:`UCB`, :class:`EI`, ...) are parts of optimizers. :class:`BudgetedUCB`,
:class:`LogImprovement` and :func:`select_baseline` serve any BoTorch loop.
"""

from typing import TYPE_CHECKING, Any

from botorch_bkb.acquisition.acquisitions import (
    EI,
    MPI,
    PI,
    UCB,
    Acquisition,
    AcquisitionContext,
    FromBoTorch,
    Greedy,
    InTurn,
    NoisyEI,
    PureExploration,
    Thompson,
    as_acquisition,
)
from botorch_bkb.acquisition.baseline import select_baseline
from botorch_bkb.acquisition.scores import LogImprovement

if TYPE_CHECKING:
    from botorch_bkb.acquisition.budgeted_ucb import BudgetedUCB

__all__ = [
    "EI",
    "MPI",
    "PI",
    "UCB",
    "Acquisition",
    "AcquisitionContext",
    "BudgetedUCB",
    "FromBoTorch",
    "Greedy",
    "InTurn",
    "LogImprovement",
    "NoisyEI",
    "PureExploration",
    "Thompson",
    "as_acquisition",
    "select_baseline",
]


def __getattr__(name: str) -> Any:
    r"""Return ``BudgetedUCB``, registered with BoTorch's input constructors, on first use."""
    if name != "BudgetedUCB":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from botorch_bkb.acquisition.constructors import BudgetedUCB

    globals()[name] = BudgetedUCB
    return BudgetedUCB
