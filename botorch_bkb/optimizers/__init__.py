r"""Optimizers: ask, tell and best, and the algorithms as combinations of parts."""

from botorch_bkb.batches import OutOfCandidatesError
from botorch_bkb.domains import Suggestion
from botorch_bkb.optimizers.algorithms import (
    ALGORITHMS,
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    AdaBBKB,
    AdaBKB,
    AdaGPUCB,
    BatchedElimination,
    CompressedEI,
    CompressedMPI,
    CompressedUCB,
    EpsilonGreedy,
    MiniGPUCB,
)
from botorch_bkb.optimizers.optimizer import Optimizer
from botorch_bkb.optimizers.parts import Parts
from botorch_bkb.optimizers.results import (
    BatchCompleteError,
    Best,
    ConvergedError,
    Convergence,
    FinishedError,
)

__all__ = [
    "ALGORITHMS",
    "BBKB",
    "BKB",
    "GPBUCB",
    "GPUCB",
    "AdaBBKB",
    "AdaBKB",
    "AdaGPUCB",
    "BatchCompleteError",
    "BatchedElimination",
    "Best",
    "CompressedEI",
    "CompressedMPI",
    "CompressedUCB",
    "ConvergedError",
    "Convergence",
    "EpsilonGreedy",
    "FinishedError",
    "MiniGPUCB",
    "Optimizer",
    "OutOfCandidatesError",
    "Parts",
    "Suggestion",
]
