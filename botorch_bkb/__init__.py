r"""Gaussian-process optimisation that scales, for the BoTorch ecosystem."""

from botorch_bkb._version import __version__
from botorch_bkb.acquisition import BudgetedUCB, select_baseline
from botorch_bkb.dictionaries import (
    AllPoints,
    Automatic,
    FromAllocator,
    InformationThreshold,
    RidgeLeverageSampling,
    epsilon_for_horizon,
)
from botorch_bkb.models import DTCGP, CompressedGP
from botorch_bkb.optimizers import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    AdaBBKB,
    AdaBKB,
    BatchCompleteError,
    CompressedEI,
    CompressedMPI,
    CompressedUCB,
    Compression,
    ConvergedError,
    EpsilonGreedy,
    MiniGPUCB,
    Suggestion,
)

__all__ = [
    "BBKB",
    "BKB",
    "DTCGP",
    "GPBUCB",
    "GPUCB",
    "AdaBBKB",
    "AdaBKB",
    "AllPoints",
    "Automatic",
    "BatchCompleteError",
    "BudgetedUCB",
    "CompressedEI",
    "CompressedGP",
    "CompressedMPI",
    "CompressedUCB",
    "Compression",
    "ConvergedError",
    "EpsilonGreedy",
    "FromAllocator",
    "InformationThreshold",
    "MiniGPUCB",
    "RidgeLeverageSampling",
    "Suggestion",
    "__version__",
    "epsilon_for_horizon",
    "select_baseline",
]
