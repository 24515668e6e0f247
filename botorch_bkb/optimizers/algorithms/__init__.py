r"""The algorithms: named configurations of one optimizer."""

from botorch_bkb.optimizers.algorithms.ada import AdaBBKB, AdaBKB
from botorch_bkb.optimizers.algorithms.bandits import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    EpsilonGreedy,
    MiniGPUCB,
)
from botorch_bkb.optimizers.algorithms.compressed import (
    CompressedEI,
    CompressedMPI,
    CompressedUCB,
)

__all__ = [
    "BBKB",
    "BKB",
    "GPBUCB",
    "GPUCB",
    "AdaBBKB",
    "AdaBKB",
    "CompressedEI",
    "CompressedMPI",
    "CompressedUCB",
    "EpsilonGreedy",
    "MiniGPUCB",
]
