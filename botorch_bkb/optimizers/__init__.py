r"""Ask and tell: the algorithms as named configurations of one optimizer."""

from botorch_bkb.optimizers.algorithms import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    EpsilonGreedy,
    MiniGPUCB,
)
from botorch_bkb.optimizers.optimizer import ArmOptimizer
from botorch_bkb.optimizers.suggestion import BatchCompleteError, Best, Suggestion
from botorch_bkb.optimizers.width import Progress

__all__ = [
    "BBKB",
    "BKB",
    "GPBUCB",
    "GPUCB",
    "ArmOptimizer",
    "BatchCompleteError",
    "Best",
    "EpsilonGreedy",
    "MiniGPUCB",
    "Progress",
    "Suggestion",
]
