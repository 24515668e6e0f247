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
from botorch_bkb.optimizers.optimizer import Optimizer

#: By name.
ALGORITHMS: dict[str, type[Optimizer]] = {
    kind.__name__: kind
    for kind in (
        BBKB, BKB, GPBUCB, GPUCB, AdaBBKB, AdaBKB, CompressedEI, CompressedMPI, CompressedUCB,
        EpsilonGreedy, MiniGPUCB,
    )
}  # fmt: skip

__all__ = [
    "ALGORITHMS",
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
