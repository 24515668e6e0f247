r"""``run`` and ``resume``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from botorch.exceptions.errors import InputDataError

from botorch_bkb._version import __version__
from botorch_bkb.journal import Journal, JournalError
from botorch_bkb.optimizers import Optimizer
from botorch_bkb.runs.callbacks import Callback, ProgressBar
from botorch_bkb.runs.evaluation import Evaluator, InOneCall, Objective
from botorch_bkb.runs.executors import OnExecutor
from botorch_bkb.runs.loop import Loop, Past
from botorch_bkb.runs.replay import replayed
from botorch_bkb.runs.result import Result
from botorch_bkb.runs.settings import constructed, described
from botorch_bkb.validation import check_between, check_positive_integer

AnyExecutor = Executor | Callable[[], Executor]


def run(
    optimizer: Optimizer,
    objective: Objective,
    budget: int,
    *,
    executor: AnyExecutor | None = None,
    journal: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    asynchronous: bool = False,
    workers: int | None = None,
    retries: int = 0,
    timeout: float | None = None,
    by_index: bool = False,
) -> Result:
    r"""Ask, evaluate and tell until a budget is spent.

    Without an executor ``objective`` is called with whole batches, a ``q x d`` tensor, and returns
    ``q`` rewards. With one it is called with one point, a ``d`` tensor, and returns a number. In
    place of rewards it may return a pair: rewards and their noise variances.

    Outcomes are written to the journal as they arrive. The optimizer is told a batch's results
    together, in the order they were asked: it could not use them earlier, and the run does not
    depend on which worker was faster. With ``asynchronous=True`` it is told them as they arrive,
    and free workers get new points, chosen with those still out counted as picked, as far as the
    batch rule allows: BKB's allows none, BBKB's and GP-BUCB's as many as their threshold says.

    An evaluation that raises, returns anything but a finite number, or takes longer than
    ``timeout`` is repeated ``retries`` times, then left out; the run goes on.

    Args:
        optimizer: Any of the optimizers, new or not. Points it has pending are evaluated first.
        objective: What is to be maximised.
        budget: How many points, skipped and failed ones included.
        executor: Any ``concurrent.futures.Executor``: threads, processes,
            ``dask.distributed.Client.get_executor()``, ``mpi4py.futures.MPIPoolExecutor``; or a
            function that makes one, called again when its workers have died.
        journal: A file to be written, from which :func:`resume` goes on.
        callbacks: See :class:`~botorch_bkb.Callback`.
        progress: Whether to show a progress bar; there is none where output is no terminal.
        asynchronous: Whether stragglers keep others waiting.
        workers: How many points are evaluated at a time on the executor; what it says itself by
            default.
        retries: How often a failed evaluation is repeated.
        timeout: Seconds an evaluation on an executor may take.
        by_index: Whether ``objective`` takes rows of the arms (a ``q`` tensor, or one int) in place
            of inputs.

    Returns:
        Points, rewards, the recommended point and the history. After Ctrl-C, what there is so far.

    Example:
        >>> import torch
        >>> from botorch_bkb import BBKB, run
        >>> arms = torch.rand(200, 2, dtype=torch.float64)
        >>> result = run(BBKB(arms, seed=0), lambda X: -(X - 0.5).norm(dim=-1), budget=50)
        >>> result.Y.shape, result.stopped
        (torch.Size([50]), 'budget spent')
    """
    options = {
        "budget": budget,
        "asynchronous": asynchronous,
        "retries": retries,
        "timeout": timeout,
        "by_index": by_index,
    }
    check_options(options, optimizer, executor, workers, callbacks)
    with ExitStack() as cleanup:
        book = None
        if journal is not None:
            settings = {
                "library": __version__,
                "optimizer": described(optimizer),
                "dtype": str(optimizer.tables.arms.dtype).removeprefix("torch."),
                "run": options,
            }
            book = cleanup.enter_context(Journal.create(journal, settings))
            book.snapshot(optimizer.state_dict())
        return _run(
            optimizer, objective, options, executor, workers, book, callbacks, progress, Past()
        )


def resume(
    journal: str | Path,
    objective: Objective,
    *,
    optimizer: Optimizer | None = None,
    budget: int | None = None,
    executor: AnyExecutor | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    workers: int | None = None,
) -> Result:
    r"""Go on with a run from its journal, as if it had never stopped.

    Points that were asked and have no outcome are evaluated again; no outcome in the journal is
    asked for twice. On the machine that began it, the run is the same, to the last bit, as one that
    was not interrupted (with ``asynchronous=True``, up to the order in which results arrive).

    Args:
        journal: The file.
        objective: As for :func:`run`.
        optimizer: Needed where the journal could not keep an argument, such as a function; to be
            constructed as it was for the run.
        budget: A new budget for the whole run; what it was by default.
        executor: As for :func:`run`.
        callbacks: As for :func:`run`.
        progress: As for :func:`run`.
        workers: As for :func:`run`.

    Returns:
        As :func:`run`, for the whole run.

    Raises:
        JournalError: The file is damaged, in use, or not a journal.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import torch
        >>> from botorch_bkb import BKB, resume, run
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), seed=0)
        >>> f = lambda X: X[:, 0]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "run.journal"
        ...     begun = run(optimizer, f, budget=3, journal=path, progress=False)
        ...     result = resume(path, f, budget=5, progress=False)
        >>> torch.equal(result.X[:3], begun.X), len(result.Y)
        (True, 5)
    """
    with Journal.append(journal) as book:
        book.check()
        settings = book.settings
        missing = {"run", "optimizer"} - set(settings)
        if optimizer is None:
            if missing:
                raise JournalError(
                    f"{journal} has lost its settings: pass `optimizer`, constructed as it was, "
                    "and `budget`."
                )
            optimizer = constructed(settings["optimizer"])
        options = {"budget": budget, "asynchronous": False, "retries": 0, "timeout": None}
        options |= {"by_index": False, **settings.get("run", {})}
        if budget is not None:
            options["budget"] = budget
        check_options(options, optimizer, executor, workers, callbacks)
        past = replayed(book, optimizer)
        if options != settings.get("run"):
            book.set("run", options)
        return _run(
            optimizer, objective, options, executor, workers, book, callbacks, progress, past
        )


def _run(
    optimizer: Optimizer,
    objective: Objective,
    options: dict[str, Any],
    executor: AnyExecutor | None,
    workers: int | None,
    journal: Journal | None,
    callbacks: Sequence[Callback],
    progress: bool,
    past: Past,
) -> Result:
    evaluator: Evaluator
    if executor is None:
        evaluator = InOneCall(objective, options["by_index"])
    else:
        evaluator = OnExecutor(
            objective, options["by_index"], executor, workers, options["timeout"]
        )
    budget = options["budget"]
    done = len(past.points) - len(past.open)
    shown = [ProgressBar(budget, done)] if progress else []
    loop = Loop(
        optimizer,
        evaluator,
        budget,
        journal=journal,
        callbacks=[*shown, *callbacks],
        asynchronous=options["asynchronous"],
        retries=options["retries"],
        past=past,
    )
    try:
        return loop.run()
    finally:
        with suppress(Exception):
            evaluator.close()


def check_options(
    options: dict[str, Any],
    optimizer: Optimizer,
    executor: AnyExecutor | None,
    workers: int | None,
    callbacks: Sequence[Callback],
) -> None:
    r"""Raise where arguments of a run make no sense."""
    if not isinstance(optimizer, Optimizer):
        raise InputDataError(
            f"run needs one of the optimizers, such as BBKB(arms), got {type(optimizer).__name__}."
        )
    if options["budget"] is None:
        raise InputDataError("budget must be given: the journal does not know it.")
    check_positive_integer("budget", options["budget"])
    check_positive_integer("workers", workers)
    retries = options["retries"]
    if not isinstance(retries, int) or retries < 0:
        raise InputDataError(f"retries must be a whole number, 0 or more, got {retries!r}.")
    check_between("timeout", options["timeout"], 0, float("inf"))
    if not isinstance(callbacks, Sequence) or not all(isinstance(c, Callback) for c in callbacks):
        raise InputDataError(
            "callbacks must be a list of objects of classes derived from Callback, such as "
            f"[StopAfter(60)], got {callbacks!r}."
        )
    if executor is None:
        for name, value in {**options, "workers": workers}.items():
            if name in ("timeout", "asynchronous", "workers") and value:
                raise InputDataError(
                    f"{name} needs an executor: evaluations are made in one call without."
                )
    elif not (hasattr(executor, "submit") or callable(executor)):
        raise InputDataError(
            "executor must be a concurrent.futures.Executor or a function that makes one, got "
            f"{type(executor).__name__}."
        )
    if options["by_index"] and not optimizer.domain.num_arms:
        raise InputDataError("by_index=True needs an optimizer over arms: a box has no rows.")
