r"""``run`` and ``resume``: start a run, and continue one from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from botorch_bkb._version import __version__
from botorch_bkb.journal import Journal, JournalError
from botorch_bkb.optimizers import Optimizer
from botorch_bkb.runs.callbacks import Callback, ProgressBar
from botorch_bkb.runs.evaluation import Evaluator, InOneCall, Objective
from botorch_bkb.runs.executors import OnExecutor
from botorch_bkb.runs.loop import Loop
from botorch_bkb.runs.options import AnyExecutor, check_options
from botorch_bkb.runs.record import RunRecord
from botorch_bkb.runs.replay import replayed
from botorch_bkb.runs.result import Result
from botorch_bkb.runs.settings import constructed, described


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
    keep_busy: bool = True,
    workers: int | None = None,
    retries: int = 0,
    timeout: float | None = None,
    by_index: bool = False,
) -> Result:
    r"""Optimise an objective: ask, evaluate and tell until a budget is spent.

    Without an executor, ``objective`` is called with whole batches. It takes a ``q x d`` tensor and
    returns ``q`` rewards. With an executor, it is called with single points. It takes a ``d``
    tensor and returns a number. Instead of rewards it may return a pair: rewards and their noise
    variances.

    Outcomes are written to the journal as they arrive. The optimizer is told the results of a batch
    together, in the order they were asked. It could not use them earlier, and the run does not
    depend on the speed of the workers.

    With ``asynchronous=True`` the optimizer is told each result as it arrives, and free workers get
    new points. Points that are still being evaluated count as picked when new ones are chosen.

    Where the batch rule allows fewer points than there are workers, the others get points beyond
    the rule (:meth:`~botorch_bkb.optimizers.Optimizer.ask` with a number). Bounds with a guarantee
    lose it there. ``keep_busy=False`` leaves workers idle instead: BKB then has one point evaluated
    at a time, BBKB and GP-BUCB as many as their threshold permits. Algorithms that skip points
    which would teach too little, and those with fixed batches, never go beyond their rule.

    An evaluation fails if it raises, returns anything but a finite number, or takes longer than
    ``timeout``. It is repeated ``retries`` times and then left out, and the run continues.

    Args:
        optimizer: Any of the optimizers, new or used. Its pending points are evaluated first.
        objective: The function to maximise.
        budget: The number of points, including skipped and failed ones.
        executor: Any ``concurrent.futures.Executor``: threads, processes,
            ``dask.distributed.Client.get_executor()`` or ``mpi4py.futures.MPIPoolExecutor``. A
            function that makes one is also allowed, and called again whenever its workers died.
        journal: A new file for the journal, from which :func:`resume` can continue.
        callbacks: Callbacks, see :class:`~botorch_bkb.Callback`.
        progress: Whether to show a progress bar, if the output is a terminal.
        asynchronous: Whether to tell each result as it arrives instead of whole batches.
        keep_busy: Whether workers that the batch rule leaves idle get points beyond it.
        workers: The number of points evaluated at a time on the executor; by default the number of
            its workers.
        retries: How often a failed evaluation is repeated.
        timeout: Seconds an evaluation on an executor may take.
        by_index: Whether ``objective`` takes row indices of the arms (a ``q`` tensor, or one int)
            instead of inputs.

    Returns:
        Points, rewards, the recommended point and the history. After Ctrl-C, the results so far.

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
        "keep_busy": keep_busy,
        "retries": retries,
        "timeout": timeout,
        "by_index": by_index,
    }
    check_options(options, optimizer, executor, workers, callbacks)
    with ExitStack() as cleanup:
        opened = None
        if journal is not None:
            settings = {
                "library": __version__,
                "optimizer": described(optimizer),
                "dtype": str(optimizer.dtype).removeprefix("torch."),
                "run": options,
            }
            opened = cleanup.enter_context(Journal.create(journal, settings))
            opened.snapshot(optimizer.state_dict())
        return _run(
            optimizer,
            objective,
            options,
            executor,
            workers,
            opened,
            callbacks,
            progress,
            RunRecord(),
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
    r"""Continue a run from its journal, as if it had never stopped.

    Points that were asked and have no outcome are evaluated again. Points with an outcome in the
    journal are not. On the machine that started it, the run is the same, to the last bit, as one
    that was not interrupted (with ``asynchronous=True``, up to the order in which results arrive).

    Args:
        journal: The file of the journal.
        objective: As for :func:`run`.
        optimizer: An optimizer constructed as it was for the run. Needed only if the journal could
            not store one of its arguments, such as a function.
        budget: A new budget for the whole run; by default the previous one.
        executor: As for :func:`run`.
        callbacks: As for :func:`run`.
        progress: As for :func:`run`.
        workers: As for :func:`run`.

    Returns:
        The result of the whole run, as for :func:`run`.

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
    with Journal.append(journal) as opened:
        opened.check()
        settings = opened.settings
        missing = {"run", "optimizer"} - set(settings)
        if optimizer is None:
            if missing:
                raise JournalError(
                    f"{journal} has lost its settings: pass `optimizer`, constructed as it was for "
                    "the run, and `budget`."
                )
            optimizer = constructed(settings["optimizer"])
        options = {"budget": budget, "asynchronous": False, "retries": 0, "timeout": None}
        options |= {"by_index": False, "keep_busy": True, **settings.get("run", {})}
        if budget is not None:
            options["budget"] = budget
        check_options(options, optimizer, executor, workers, callbacks)
        record = replayed(opened, optimizer)
        if options != settings.get("run"):
            opened.set("run", options)
        return _run(
            optimizer, objective, options, executor, workers, opened, callbacks, progress, record
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
    record: RunRecord,
) -> Result:
    evaluator: Evaluator
    if executor is None:
        evaluator = InOneCall(objective, options["by_index"])
    else:
        evaluator = OnExecutor(
            objective, options["by_index"], executor, workers, options["timeout"]
        )
    budget = options["budget"]
    done = len(record.points) - len(record.open)
    shown = [ProgressBar(budget, done)] if progress else []
    loop = Loop(
        optimizer,
        evaluator,
        budget,
        journal=journal,
        callbacks=[*shown, *callbacks],
        asynchronous=options["asynchronous"],
        keep_busy=options["keep_busy"],
        retries=options["retries"],
        record=record,
    )
    try:
        return loop.run()
    finally:
        with suppress(Exception):
            evaluator.close()
