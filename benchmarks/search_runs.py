r"""Runs of the study ``search``: how a method plays a problem, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from benchmarks.machine import CPUClock
from benchmarks.peers.stock import fitted
from benchmarks.problems.search import SearchProblem
from botorch_bkb.optimizers import Optimizer

#: Numbers of evaluations after which results are reported.
MARKS = (50, 100, 200)


class Trace(NamedTuple):
    r"""What is kept of a run. All regrets are in standard deviations of the function."""

    regret: np.ndarray  #: regret of each evaluation
    recommended: np.ndarray  #: regret of the method's recommendation after each evaluation
    common: np.ndarray  #: regret at each mark of the recommendation by the rule common to all
    seconds: np.ndarray  #: CPU seconds of the method up to each evaluation


class Run:
    r"""One run of a method: it evaluates, and records evaluations, recommendations and CPU time.

    Args:
        problem: Problem to maximise.
        seed: Seed of the initial design and of the noise, which are the same for all methods.
        budget: Number of evaluations.

    Attributes:
        clock: Clock that runs while the method works, as in ``with run.clock:``.
        X: Inputs so far, ``n x d``.
        Y: Their noisy values.
    """

    def __init__(self, problem: SearchProblem, seed: int, budget: int) -> None:
        self.problem, self.seed, self.budget = problem, seed, budget
        self.bounds, self.clock = problem.bounds, CPUClock()
        self.X, self.Y = problem.bounds[:0], problem.bounds.new_empty(0)
        self._seconds: list[float] = []
        self._recommended: list[float] = []
        self._last: Tensor | None = None

    @property
    def left(self) -> int:
        r"""The number of evaluations that are left."""
        return max(0, self.budget - len(self.X))

    def design(self) -> Tensor:
        r"""Return the initial design, ``2 d + 2`` scrambled Sobol points at most."""
        n = 2 * self.bounds.shape[-1] + 2
        X = draw_sobol_samples(self.bounds, n=n, q=1, seed=self.seed).squeeze(1)
        return X[: self.budget]

    def observe(self, X: Tensor) -> Tensor:
        r"""Evaluate ``n x d`` inputs. Those beyond the budget leave no trace.

        The recommendation stays what it was, or is the best observation if there never was one.
        """
        start = len(self.X)
        X = X.clamp(*self.bounds)  # roundings may have left the box
        noise = self.problem.noises(start + len(X), self.seed)[start:]
        Y = self.problem.value(X) + noise
        self.X, self.Y = torch.cat([self.X, X]), torch.cat([self.Y, Y])
        for i in range(start, len(self.X)):
            self._seconds.append(self.clock.seconds)
            last = self._last
            best = self.X[self.Y[: i + 1].argmax()] if last is None else last
            self._recommended.append(self._regret(best))
        return Y

    def recommend(self, x: Tensor) -> None:
        r"""Record the recommendation after all evaluations so far."""
        self._last = x
        self._recommended[-1] = self._regret(x)

    def _regret(self, x: Tensor) -> float:
        return self.problem.best - float(self.problem.value(x.reshape(1, -1)))

    def trace(self) -> Trace:
        r"""Return what is kept, with the recommendations of the common rule."""
        X, Y = self.X[: self.budget], self.Y[: self.budget]
        regret = self.problem.best - self.problem.value(X)
        marks = [mark for mark in MARKS if mark <= len(X)] or [len(X)]
        common = [self._regret(best_by_model(X[:n], Y[:n], self.bounds)) for n in marks]
        figures = (self._recommended[: self.budget], common, self._seconds[: self.budget])
        return Trace(regret.numpy(), *map(np.array, figures))


def best_by_model(X: Tensor, Y: Tensor, bounds: Tensor) -> Tensor:
    r"""Return the evaluated point with the highest posterior mean of ``SingleTaskGP``."""
    model = fitted(X, Y, bounds)
    with torch.no_grad():
        return X[model.posterior(X).mean.argmax()]


#: A method plays a problem with a seed and a number of evaluations.
Method = Callable[[SearchProblem, int, int], Trace]


def method(play: Callable[[Run], None]) -> Method:
    r"""Return the method that plays a :class:`Run` in this way."""

    def whole(problem: SearchProblem, seed: int, budget: int) -> Trace:
        run = Run(problem, seed, budget)
        play(run)
        return run.trace()

    return whole


def with_optimizer(
    make: Callable[[Tensor, int], Optimizer], at_once: int | None = 1, designed: bool = True
) -> Method:
    r"""Return the method that plays an optimizer of ours by asking and telling.

    Args:
        make: Function from bounds and a seed to an optimizer.
        at_once: Points of a batch; None for the optimizer's own batches.
        designed: Whether it begins with the design that all methods share, or with its own points.

    Example:
        >>> from benchmarks.problems.search import SearchProblem
        >>> from benchmarks.search_runs import with_optimizer
        >>> from botorch_bkb import BKB
        >>> variant = with_optimizer(lambda bounds, seed: BKB(bounds=bounds, seed=seed, width=2.0))
        >>> trace = variant(SearchProblem("Branin2"), seed=0, budget=8)
        >>> trace.regret.shape
        (8,)
    """

    def play(run: Run) -> None:
        with run.clock:
            optimizer = make(run.bounds, run.seed)
        if designed:
            X = run.design()
            Y = run.observe(X)
            with run.clock:
                optimizer.tell(X, Y)
        while run.left:
            with run.clock:
                suggestion = optimizer.ask(at_once) if at_once else optimizer.ask()
            Y = run.observe(suggestion.X)
            with run.clock:
                optimizer.tell(suggestion, Y)
            run.recommend(optimizer.best().X)

    return method(play)


def simple_regret(trace: Trace, n: int, rule: str) -> float:
    r"""Return the simple regret after ``n`` evaluations.

    Args:
        trace: A run.
        n: Number of evaluations.
        rule: ``"recommended"`` for the method's own recommendation, ``"common"`` for that of the
            rule that is common to all, ``"evaluated"`` for the best evaluated point.
    """
    if rule == "evaluated":
        return float(trace.regret[:n].min())
    if rule == "common":
        marks = [mark for mark in MARKS if mark <= len(trace.regret)] or [len(trace.regret)]
        return float(trace.common[marks.index(n)]) if n in marks else math.nan
    return float(trace.recommended[n - 1])
