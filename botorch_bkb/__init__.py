r"""Gaussian-process optimisation that scales, for the BoTorch ecosystem.

- :class:`DTCGP` is a drop-in replacement for ``SingleTaskGP``. Its posterior costs the same for any
  number of observations. :class:`MixedDTCGP`, :class:`MultiTaskDTCGP` and
  :class:`MultiFidelityDTCGP` replace BoTorch's models of categories, tasks and fidelities.
- :class:`BBKB` optimises over a table of candidates, ``BBKB(arms)``, or over a box,
  ``BBKB(bounds=bounds)``: ``ask()`` for points, ``tell(points, rewards)``, ``best()``. Rewards are
  maximised. Its relatives are used in the same way; ``help(botorch_bkb.Optimizer)`` lists them.
- :func:`run` runs the whole loop, on any executor and with a journal. :func:`resume` continues a
run.
- ``botorch_bkb.plotting``, ``botorch_bkb.ax`` and ``botorch_bkb.optuna`` need the extras of these
  names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from botorch_bkb._version import __version__
from botorch_bkb.dictionaries import (
    AllPoints,
    Automatic,
    FromAllocator,
    InformationThreshold,
    QuadratureFeatures,
    RandomFeatures,
    RandomlyPivotedCholesky,
    RidgeLeverageSampling,
    epsilon_for_horizon,
)
from botorch_bkb.models import (
    DTCGP,
    CompressedGP,
    MixedDTCGP,
    MultiFidelityDTCGP,
    MultiTaskDTCGP,
    fit_progress,
)

if TYPE_CHECKING:
    from botorch_bkb.acquisition import BudgetedUCB, select_baseline
    from botorch_bkb.domains import Suggestion
    from botorch_bkb.journal import JournalError
    from botorch_bkb.optimizers import (
        BBKB,
        BKB,
        GPBUCB,
        GPUCB,
        AdaBBKB,
        AdaBKB,
        AdaGPUCB,
        BatchCompleteError,
        BatchedElimination,
        CompressedEI,
        CompressedMPI,
        CompressedUCB,
        ConvergedError,
        EpsilonGreedy,
        FinishedError,
        MiniGPUCB,
        Optimizer,
        OutOfCandidatesError,
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

#: Names that are imported on first use, by module: a user of the models does not pay for the rest.
LAZY: dict[str, tuple[str, ...]] = {
    "arms": (),
    "batches": (),
    "acquisition": ("BudgetedUCB", "select_baseline"),
    "domains": ("Suggestion",),
    "journal": ("JournalError",),
    "optimizers": (
        "BBKB", "BKB", "GPBUCB", "GPUCB", "AdaBBKB", "AdaBKB", "AdaGPUCB", "BatchCompleteError",
        "CompressedEI", "CompressedMPI", "CompressedUCB", "ConvergedError", "EpsilonGreedy",
        "MiniGPUCB", "Optimizer", "BatchedElimination", "FinishedError", "OutOfCandidatesError",
    ),
    "runs": (
        "Callback", "Result", "StopAfter", "StopAtGap", "StopAtTarget", "read_journal", "resume",
        "run",
    ),
}  # fmt: skip

__all__ = [
    "BBKB",
    "BKB",
    "DTCGP",
    "GPBUCB",
    "GPUCB",
    "AdaBBKB",
    "AdaBKB",
    "AdaGPUCB",
    "AllPoints",
    "Automatic",
    "BatchCompleteError",
    "BatchedElimination",
    "BudgetedUCB",
    "Callback",
    "CompressedEI",
    "CompressedGP",
    "CompressedMPI",
    "CompressedUCB",
    "ConvergedError",
    "EpsilonGreedy",
    "FinishedError",
    "FromAllocator",
    "InformationThreshold",
    "JournalError",
    "MiniGPUCB",
    "MixedDTCGP",
    "MultiFidelityDTCGP",
    "MultiTaskDTCGP",
    "Optimizer",
    "OutOfCandidatesError",
    "QuadratureFeatures",
    "RandomFeatures",
    "RandomlyPivotedCholesky",
    "Result",
    "RidgeLeverageSampling",
    "StopAfter",
    "StopAtGap",
    "StopAtTarget",
    "Suggestion",
    "__version__",
    "epsilon_for_horizon",
    "fit_progress",
    "read_journal",
    "resume",
    "run",
    "select_baseline",
]


def __getattr__(name: str) -> Any:
    r"""Import a module or a name of :data:`LAZY` on first use."""
    if name in LAZY:
        return import_module(f"{__name__}.{name}")
    for module, names in LAZY.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    r"""Return all names, those that are not imported yet included."""
    return sorted({*globals(), *__all__})
