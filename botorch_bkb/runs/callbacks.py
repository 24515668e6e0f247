r"""Callbacks, which observe a run and can stop it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from botorch_bkb.journal import Outcome
from botorch_bkb.validation import check_between

if TYPE_CHECKING:
    from botorch_bkb.runs.loop import Loop
    from botorch_bkb.runs.points import Point

logger = logging.getLogger("botorch_bkb")


class Callback:
    r"""A base class for callbacks of a run; override the methods you need.

    The argument ``loop`` has these attributes: ``optimizer``, the number of points asked
    (``num_asked``) and finished (``num_done``), and the best reward (``best_reward``). Its method
    ``stop(reason)`` ends the run.

    Example:
        >>> from botorch_bkb import Callback
        >>> class Patience(Callback):
        ...     def on_batch(self, loop):
        ...         if loop.num_done > 500 and loop.best_reward < 0:
        ...             loop.stop("nothing found")
    """

    def on_start(self, loop: Loop) -> None:
        r"""Called when a run is started or resumed."""

    def on_ask(self, loop: Loop, points: Sequence[Point]) -> None:
        r"""Called when points were suggested and recorded, before they are evaluated."""

    def on_tell(self, loop: Loop, outcomes: Sequence[Outcome]) -> None:
        r"""Called when outcomes have arrived and were written to the journal."""

    def on_batch(self, loop: Loop) -> None:
        r"""Called when the optimizer was told results and its belief is up to date."""

    def on_stop(self, loop: Loop) -> None:
        r"""Called when the run has ended; ``loop.stopped`` gives the reason."""


class StopAtTarget(Callback):
    r"""A callback that stops the run when the posterior mean of the best point reaches a target.

    Args:
        target: The target, in units of the rewards.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import BKB, StopAtTarget, run
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = BKB(arms, covar_module=RBFKernel(), noise_var=0.01, width=2.0, seed=0)
        >>> stop = StopAtTarget(-0.05)
        >>> f = lambda X: -(X - 0.3).norm(dim=-1)
        >>> run(optimizer, f, 100, callbacks=[stop], progress=False).stopped
        'target -0.05 reached'
    """

    def __init__(self, target: float) -> None:
        self.target = target

    def on_batch(self, loop: Loop) -> None:
        r"""Stop the run if the target is reached."""
        if loop.optimizer.num_observations and loop.optimizer.best().mean >= self.target:
            loop.stop(f"target {self.target:g} reached")


class StopAtGap(Callback):
    r"""A callback that stops the run when no point can exceed the best one by more than a gap.

    The confidence bounds of the optimizer decide this. The statement holds with probability
    ``1 - delta`` if the width of the bounds has a guarantee (see
    :meth:`~botorch_bkb.optimizers.Optimizer.gap`).

    Args:
        gap: The gap, in units of the rewards.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import BKB, StopAtGap, run
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = BKB(arms, covar_module=RBFKernel(), noise_var=0.01, width=2.0, seed=0)
        >>> stop = StopAtGap(0.2)
        >>> f = lambda X: -(X - 0.3).norm(dim=-1)
        >>> run(optimizer, f, 100, callbacks=[stop], progress=False).stopped
        'gap below 0.2'
    """

    def __init__(self, gap: float) -> None:
        check_between("gap", gap, 0, float("inf"))
        self.gap = gap

    def on_batch(self, loop: Loop) -> None:
        r"""Stop the run if the gap is small enough."""
        if loop.optimizer.num_observations and loop.optimizer.gap() <= self.gap:
            loop.stop(f"gap below {self.gap:g}")


class StopAfter(Callback):
    r"""A callback that stops the run after some time, when the running evaluations have finished.

    Args:
        seconds: The time limit, counted from when the run was started or resumed.

    Example:
        >>> import time
        >>> import torch
        >>> from botorch_bkb import BKB, StopAfter, run
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), seed=0)
        >>> def slow(X):
        ...     time.sleep(0.02)
        ...     return X.sum(-1)
        >>> run(optimizer, slow, 100, callbacks=[StopAfter(0.01)], progress=False).stopped
        'time limit of 0.01 seconds reached'
    """

    def __init__(self, seconds: float) -> None:
        check_between("seconds", seconds, 0, float("inf"))
        self.seconds = seconds
        self._start = time.monotonic()

    def on_start(self, loop: Loop) -> None:
        r"""Start the clock."""
        self._start = time.monotonic()

    def on_ask(self, loop: Loop, points: Sequence[Point]) -> None:
        r"""Stop the run if the time is over."""
        if time.monotonic() - self._start > self.seconds:
            loop.stop(f"time limit of {self.seconds:g} seconds reached")

    def on_tell(self, loop: Loop, outcomes: Sequence[Outcome]) -> None:
        r"""Stop the run if the time is over."""
        self.on_ask(loop, ())


class ProgressBar(Callback):
    r"""A progress bar of tqdm, shown only if standard error is a terminal.

    Args:
        total: The number of points of the run.
        done: The number of points that are finished already.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            logger.info("The progress bar needs tqdm: pip install 'botorch-bkb[progress]'.")
            self._bar = None
            return
        self._bar = tqdm(total=total, initial=done, disable=None, unit="pull")

    def on_ask(self, loop: Loop, points: Sequence[Point]) -> None:
        r"""Advance the bar by skipped points."""
        self._move(loop)

    def on_tell(self, loop: Loop, outcomes: Sequence[Outcome]) -> None:
        r"""Advance the bar by finished points."""
        self._move(loop)

    def on_batch(self, loop: Loop) -> None:
        r"""Show the best reward and the size of the dictionary."""
        if self._bar is not None and not self._bar.disable:
            dictionary = len(loop.optimizer.dictionary)
            self._bar.set_postfix(best=f"{loop.best_reward:.4g}", dictionary=dictionary)

    def _move(self, loop: Loop) -> None:
        if self._bar is not None and not self._bar.disable:
            self._bar.update(loop.num_done - self._bar.n)

    def on_stop(self, loop: Loop) -> None:
        r"""Close the bar."""
        if self._bar is not None:
            self._bar.close()
