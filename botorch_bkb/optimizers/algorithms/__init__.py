r"""The algorithms of the papers: each names its parts."""

from botorch_bkb.optimizers.algorithms.ada_bbkb import AdaBBKB
from botorch_bkb.optimizers.algorithms.ada_bkb import AdaBKB
from botorch_bkb.optimizers.algorithms.ada_gp_ucb import AdaGPUCB
from botorch_bkb.optimizers.algorithms.batched_elimination import BatchedElimination
from botorch_bkb.optimizers.algorithms.bbkb import BBKB
from botorch_bkb.optimizers.algorithms.bkb import BKB
from botorch_bkb.optimizers.algorithms.compressed_ei import CompressedEI
from botorch_bkb.optimizers.algorithms.compressed_mpi import CompressedMPI
from botorch_bkb.optimizers.algorithms.compressed_ucb import CompressedUCB
from botorch_bkb.optimizers.algorithms.epsilon_greedy import EpsilonGreedy
from botorch_bkb.optimizers.algorithms.gp_bucb import GPBUCB
from botorch_bkb.optimizers.algorithms.gp_ucb import GPUCB
from botorch_bkb.optimizers.algorithms.mini_gp_ucb import MiniGPUCB
from botorch_bkb.optimizers.optimizer import Optimizer

#: The algorithms by name.
ALGORITHMS: dict[str, type[Optimizer]] = {
    kind.__name__: kind
    for kind in (
        BBKB, BKB, GPBUCB, GPUCB, AdaBBKB, AdaBKB, AdaGPUCB, BatchedElimination, CompressedEI,
        CompressedMPI, CompressedUCB, EpsilonGreedy, MiniGPUCB,
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
    "AdaGPUCB",
    "BatchedElimination",
    "CompressedEI",
    "CompressedMPI",
    "CompressedUCB",
    "EpsilonGreedy",
    "MiniGPUCB",
]
