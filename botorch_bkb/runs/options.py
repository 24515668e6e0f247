r"""The options of a run, checked before anything is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from botorch.exceptions.errors import InputDataError

from botorch_bkb.domains import Arms
from botorch_bkb.optimizers import Optimizer
from botorch_bkb.runs.callbacks import Callback
from botorch_bkb.validation import check_between, check_positive_integer

#: An executor, or a function that makes one.
AnyExecutor = Executor | Callable[[], Executor]


def check_options(
    options: dict[str, Any],
    optimizer: Optimizer,
    executor: AnyExecutor | None,
    workers: int | None,
    callbacks: Sequence[Callback],
) -> None:
    r"""Raise an ``InputDataError`` if the arguments of a run are invalid."""
    if not isinstance(optimizer, Optimizer):
        raise InputDataError(
            f"optimizer must be one of the optimizers, got {type(optimizer).__name__}: pass for "
            "example BBKB(arms)."
        )
    if options["budget"] is None:
        raise InputDataError(
            "budget must be given, got None, and the journal has lost it: pass `budget`."
        )
    check_positive_integer("budget", options["budget"])
    check_positive_integer("workers", workers)
    retries = options["retries"]
    if not isinstance(retries, int) or retries < 0:
        raise InputDataError(f"retries must be an integer of at least 0, got {retries!r}.")
    check_between("timeout", options["timeout"], 0, float("inf"))
    if not isinstance(callbacks, Sequence) or not all(isinstance(c, Callback) for c in callbacks):
        raise InputDataError(
            "callbacks must be a list of instances of Callback, such as [StopAfter(60)], got "
            f"{callbacks!r}."
        )
    if executor is None:
        for name, value in {**options, "workers": workers}.items():
            if name in ("timeout", "asynchronous", "workers") and value:
                raise InputDataError(
                    f"{name} needs an executor, got None: pass `executor`. Without an executor, "
                    "each batch is evaluated in one call."
                )
    elif not (hasattr(executor, "submit") or callable(executor)):
        raise InputDataError(
            "executor must be a concurrent.futures.Executor or a function that makes one, got "
            f"{type(executor).__name__}: pass for example ThreadPoolExecutor(4)."
        )
    if options["by_index"] and not isinstance(optimizer.domain, Arms):
        raise InputDataError(
            "by_index=True needs an optimizer over arms, got one over a box: a box has no rows."
        )
