r"""What may look on while a run goes on, and stop it."""

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
    r"""Derive from it and override what you need.

    ``loop`` has the ``optimizer``, how many points were asked (``num_asked``) and came back
    (``num_done``), the best reward (``best_reward``), and ``stop(reason)``.

    Example:
        >>> from botorch_bkb import Callback
        >>> class Patience(Callback):
        ...     def on_batch(self, loop):
        ...         if loop.num_done > 500 and loop.best_reward < 0:
        ...             loop.stop("nothing found")
    """

    def on_start(self, loop: Loop) -> None:
        r"""The run, or the resumed run, begins."""

    def on_ask(self, loop: Loop, points: Sequence[Point]) -> None:
        r"""Points were suggested and are recorded; they are evaluated next."""

    def on_tell(self, loop: Loop, outcomes: Sequence[Outcome]) -> None:
        r"""Outcomes have arrived and are safe in the journal."""

    def on_batch(self, loop: Loop) -> None:
        r"""The optimizer has been told, and its belief is up to date."""

    def on_stop(self, loop: Loop) -> None:
        r"""The run is over; ``loop.stopped`` says why."""


class StopAtTarget(Callback):
    r"""Stop when the posterior mean of the best point reaches a target.

    Args:
        target: In units of the rewards.

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
        r"""Compare."""
        if loop.optimizer.num_observations and loop.optimizer.best().mean >= self.target:
            loop.stop(f"target {self.target:g} reached")


class StopAtGap(Callback):
    r"""Stop when nothing can be better than the best point by more than this.

    By the confidence bounds of the optimizer: with probability ``1 - delta`` where its width has a
    guarantee (see :meth:`~botorch_bkb.optimizers.Optimizer.gap`).

    Args:
        gap: In units of the rewards.

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
        r"""Compare."""
        if loop.optimizer.num_observations and loop.optimizer.gap() <= self.gap:
            loop.stop(f"gap below {self.gap:g}")


class StopAfter(Callback):
    r"""Stop after some time; evaluations that have begun are waited for.

    Args:
        seconds: Since the run, or the resumed run, began.

    Example:
        >>> import time
        >>> import torch
        >>> from botorch_bkb import BKB, StopAfter, run
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), seed=0)
        >>> def slow(X):
        ...     time.sleep(0.02)
        ...     return X.sum(-1)
        >>> run(optimizer, slow, 100, callbacks=[StopAfter(0.01)], progress=False).stopped
        '0.01 seconds are over'
    """

    def __init__(self, seconds: float) -> None:
        check_between("seconds", seconds, 0, float("inf"))
        self.seconds = seconds
        self._start = time.monotonic()

    def on_start(self, loop: Loop) -> None:
        r"""Start the clock."""
        self._start = time.monotonic()

    def on_ask(self, loop: Loop, points: Sequence[Point]) -> None:
        r"""Look at the clock."""
        if time.monotonic() - self._start > self.seconds:
            loop.stop(f"{self.seconds:g} seconds are over")

    def on_tell(self, loop: Loop, outcomes: Sequence[Outcome]) -> None:
        r"""Look at the clock."""
        self.on_ask(loop, ())


class ProgressBar(Callback):
    r"""A line of tqdm's; quiet where standard error is no terminal."""

    def __init__(self, total: int, done: int = 0) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            logger.info("No progress bar without tqdm: pip install 'botorch-bkb[progress]'.")
            self._bar = None
            return
        self._bar = tqdm(total=total, initial=done, disable=None, unit="pull")

    def on_ask(self, loop: Loop, points: Sequence[Point]) -> None:
        r"""Skipped points are over at once."""
        self._move(loop)

    def on_tell(self, loop: Loop, outcomes: Sequence[Outcome]) -> None:
        r"""Move on."""
        self._move(loop)

    def on_batch(self, loop: Loop) -> None:
        r"""Show the state of the belief."""
        if self._bar is not None and not self._bar.disable:
            dictionary = len(loop.optimizer.dictionary)
            self._bar.set_postfix(best=f"{loop.best_reward:.4g}", dictionary=dictionary)

    def _move(self, loop: Loop) -> None:
        if self._bar is not None and not self._bar.disable:
            self._bar.update(loop.num_done - self._bar.n)

    def on_stop(self, loop: Loop) -> None:
        r"""Leave the line as it is."""
        if self._bar is not None:
            self._bar.close()
