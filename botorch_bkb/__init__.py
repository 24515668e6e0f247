r"""Gaussian-process optimisation that scales, for the BoTorch ecosystem.

- :class:`DTCGP` stands where ``SingleTaskGP`` does, and its posterior costs the same for any number
  of observations.
- :class:`BBKB` over a table of candidates or over a box, ``BBKB(arms)`` or ``BBKB(bounds=bounds)``:
  ``ask()`` for points, ``tell(points, rewards)``, ``best()``; rewards are maximised. Its relatives
  (``help(botorch_bkb.optimizers.Optimizer)`` lists them) are used in the same way.
- :func:`run` does it all, on any executor and with a journal; :func:`resume` goes on.
- ``botorch_bkb.plotting``, ``botorch_bkb.ax`` and ``botorch_bkb.optuna`` need the extras of these
  names.
"""

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
from botorch_bkb.journal import JournalError
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
from botorch_bkb.runs import (
    Callback,
    Result,
    StopAfter,
    StopAtGap,
    StopAtTarget,
    read_journal,
    resume,
    run,
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
    "Callback",
    "CompressedEI",
    "CompressedGP",
    "CompressedMPI",
    "CompressedUCB",
    "Compression",
    "ConvergedError",
    "EpsilonGreedy",
    "FromAllocator",
    "InformationThreshold",
    "JournalError",
    "MiniGPUCB",
    "Result",
    "RidgeLeverageSampling",
    "StopAfter",
    "StopAtGap",
    "StopAtTarget",
    "Suggestion",
    "__version__",
    "epsilon_for_horizon",
    "read_journal",
    "resume",
    "run",
    "select_baseline",
]
