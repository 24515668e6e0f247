r"""Ask and tell: the algorithms as named configurations of one optimizer."""

from botorch_bkb.optimizers.algorithms import (
    ALGORITHMS,
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    AdaBBKB,
    AdaBKB,
    CompressedEI,
    CompressedMPI,
    CompressedUCB,
    EpsilonGreedy,
    MiniGPUCB,
)
from botorch_bkb.optimizers.compression import Compression
from botorch_bkb.optimizers.known import Known
from botorch_bkb.optimizers.optimizer import Optimizer
from botorch_bkb.optimizers.suggestion import (
    BatchCompleteError,
    Best,
    ConvergedError,
    Convergence,
    Suggestion,
)
from botorch_bkb.optimizers.width import Progress

__all__ = [
    "ALGORITHMS",
    "BBKB",
    "BKB",
    "GPBUCB",
    "GPUCB",
    "AdaBBKB",
    "AdaBKB",
    "BatchCompleteError",
    "Best",
    "CompressedEI",
    "CompressedMPI",
    "CompressedUCB",
    "Compression",
    "ConvergedError",
    "Convergence",
    "EpsilonGreedy",
    "Known",
    "MiniGPUCB",
    "Optimizer",
    "Progress",
    "Suggestion",
]
