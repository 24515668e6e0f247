r"""The loop: ask, write down, evaluate, write down, tell."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from botorch_bkb.journal import Asked, Journal, Measurement, Outcome
from botorch_bkb.optimizers import BatchCompleteError, ConvergedError, Optimizer
from botorch_bkb.runs.callbacks import Callback
from botorch_bkb.runs.evaluation import Answer, Evaluator, EvaluatorLost
from botorch_bkb.runs.points import Point, Reward, points_of, tell
from botorch_bkb.runs.result import Result, history_table, rewarded

logger = logging.getLogger("botorch_bkb")

#: Snapshots come after so many seconds of asking and telling, and cost a twentieth of them at most.
SNAPSHOT_SECONDS, SNAPSHOT_SHARE = 1.0, 0.05
#: Points of a batch are handed to workers while the next ones are chosen, so many seconds' worth.
PIECE_SECONDS = 0.05
#: Failures in a row, and rounds of them, after which something is wrong with the objective.
MOST_FAILURES, MOST_ROUNDS = 100, 5
#: The same if nothing has ever succeeded.
FIRST_FAILURES = 20


@dataclass(eq=False)
class Past:
    r"""What has happened in a run so far.

    Attributes:
        points: All points by number.
        outcomes: What came of them.
        told: The event in which each was told to the optimizer.
        measurements: What was measured after each event.
        attempts: How often points without an outcome have failed.
        next_number: The number of the next point.
        batch_is_whole: Whether all points of the present batch were asked.
    """

    points: dict[int, Point] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    measurements: dict[int, Measurement] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    next_number: int = 0
    batch_is_whole: bool = False

    @property
    def open(self) -> list[Point]:
        r"""Points whose outcome is awaited."""
        return [p for n, p in self.points.items() if p.id != -1 and n not in self.outcomes]

    @property
    def ready(self) -> list[int]:
        r"""Outcomes the optimizer does not know of."""
        return [number for number in self.outcomes if number not in self.told]


class Loop:
    r"""One run.

    Args:
        optimizer: The optimizer.
        evaluator: Where points are evaluated.
        budget: How many points in all, skipped and failed ones included.
        journal: Where everything is written down, if anywhere.
        callbacks: What looks on.
        asynchronous: Whether free workers get points while others are still out.
        retries: How often a failed evaluation is repeated.
        past: What has happened before.

    Attributes:
        num_asked: Points asked.
        num_done: Points that came back, failed, or were skipped.
        best_reward: The highest reward so far.
        stopped: Why the run has ended; empty while it goes on.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        evaluator: Evaluator,
        budget: int,
        *,
        journal: Journal | None = None,
        callbacks: Sequence[Callback] = (),
        asynchronous: bool = False,
        retries: int = 0,
        past: Past | None = None,
    ) -> None:
        self.optimizer, self.evaluator, self.budget = optimizer, evaluator, budget
        self.journal, self.callbacks, self.retries = journal, callbacks, retries
        self.asynchronous = asynchronous and evaluator.free is not None
        self.past = past or Past()
        self.stopped = ""
        rewards = [o.reward for o in self.past.outcomes.values() if o.reward is not None]
        self.best_reward = max(rewards, default=-math.inf)
        self.num_asked = len(self.past.points)
        self.num_done = self.num_asked - len(self.past.open)
        self._num_rewards = len(rewards)
        self._failures = self._rounds = 0
        self._attempts = dict(self.past.attempts)
        self._tells = len({*self.past.told.values()})
        self._events = journal.last_event if journal else self._tells
        self._ready = self.past.ready
        self._piece = evaluator.free  # points asked for at a time; None for all of a batch
        self._asking = self._waiting = 0.0
        self._unsaved, self._snapshot_cost = 0.0, 0.0

    def stop(self, reason: str) -> None:
        r"""Begin no more evaluations; those under way are waited for."""
        self.stopped = self.stopped or reason
        self.evaluator.withdraw()

    # ------------------------------------------------------------------ all of it

    def run(self) -> Result:
        r"""Until the budget is spent or something stops it."""
        start = time.perf_counter()
        try:
            self._go_on()
        except KeyboardInterrupt:
            self.stop("interrupted")
            logger.warning("Interrupted after %d of %d points.", self.num_done, self.budget)
        except EvaluatorLost as error:
            self.stop(str(error))
            logger.error("Stopped: %s", error)
        self._end()
        return self.result(time.perf_counter() - start)

    def _go_on(self) -> None:
        for callback in self.callbacks:
            callback.on_start(self)
        self._adopt_pending()
        self.evaluator.submit(self.past.open)
        if self._ready and not self.evaluator.busy:
            self._told([])
        while True:
            self._ask()
            if self.evaluator.busy or (self.evaluator.free == 0 and self._goes_on):
                self._collect()  # perhaps only workers that hang
            elif not self._goes_on:
                break
        self.stop("budget spent")

    @property
    def _goes_on(self) -> bool:
        return not self.stopped and self.num_asked < self.budget

    def _adopt_pending(self) -> None:
        r"""Points that were asked before the run are evaluated in it."""
        known = {point.id for point in self.past.points.values()}
        pending = self.optimizer.pending
        if set(pending.ids) - known:
            self._suggested(0, points_of(pending, self.past.next_number, self._tells))

    def _end(self) -> None:
        if self.journal is not None:
            if self._unsaved:
                self._snapshot()
        elif self._ready:  # nobody else remembers them
            self._told([], at_once=True)
        for callback in self.callbacks:
            callback.on_stop(self)

    def result(self, seconds: float) -> Result:
        r"""What has come of it so far."""
        past, optimizer = self.past, self.optimizer
        points = [past.points[number] for number in sorted(past.points)]
        X, Y, failures = rewarded(points, past.outcomes, optimizer.tables.arms)
        best = optimizer.best() if optimizer.num_observations else None
        history = history_table(points, past.outcomes, past.told, past.measurements)
        skipped = sum(point.id == -1 for point in points)
        return Result(X, Y, best, history, failures, skipped, self.stopped, seconds, optimizer)

    # ------------------------------------------------------------------ asking

    def _ask(self) -> None:
        if self.asynchronous:
            free = self.evaluator.free
            if free and self._goes_on:
                self._ask_for(min(free, self.budget - self.num_asked))
            return
        if not self.evaluator.busy:
            self.past.batch_is_whole = False
        while self._goes_on and not self.past.batch_is_whole:
            # The picks are the same as if all were asked for at once.
            left = self.budget - self.num_asked
            seconds = self._ask_for(min(left, self._piece or left))
            if self._piece and seconds < PIECE_SECONDS:
                self._piece *= 2

    def _ask_for(self, requested: int) -> float:
        r"""Ask for some points and have them evaluated; returns the seconds of asking."""
        with shielded():
            start = time.perf_counter()
            try:
                suggestion = self.optimizer.ask(requested)
                points = points_of(suggestion, self.past.next_number, self._tells)
            except BatchCompleteError:
                points = []
            except ConvergedError as error:
                self.stop(f"converged: {error}")
                return 0.0
            seconds = time.perf_counter() - start
            self._asking += seconds
            self._suggested(requested, points)
        if not (points or self.evaluator.busy):
            self.stop("the optimizer waits for results of points that are not under way")
        for callback in self.callbacks:
            callback.on_ask(self, points)
        if not self.stopped:
            self.evaluator.submit([point for point in points if point.id != -1])
        return seconds

    def _suggested(self, requested: int, points: list[Point]) -> None:
        if self.journal is not None:
            self.journal.ask(requested, [as_asked(point) for point in points])
            self._events = self.journal.last_event
        self.past.points |= {point.number: point for point in points}
        self.past.next_number += len(points)
        self.num_asked += len(points)
        self.num_done += sum(point.id == -1 for point in points)
        self.past.batch_is_whole = ends_batch(requested, points)

    # ------------------------------------------------------------------ results

    def _collect(self) -> None:
        start = time.perf_counter()
        answers = self.evaluator.collect()
        self._waiting += time.perf_counter() - start
        with shielded():
            outcomes = [outcome for answer in answers if (outcome := self._outcome(answer))]
            if outcomes:
                self._told(outcomes)
        self._look_at_failures(outcomes)

    def _look_at_failures(self, outcomes: list[Outcome]) -> None:
        failed = [outcome for outcome in outcomes if outcome.reward is None]
        if len(failed) < len(outcomes):
            self._failures, self._rounds = 0, 0
        elif failed:
            self._failures, self._rounds = self._failures + len(failed), self._rounds + 1
        if not failed:
            return
        error = failed[-1].error
        logger.warning("%d of %d points failed, the last by %s", len(failed), len(outcomes), error)
        too_many = self._failures >= MOST_FAILURES and self._rounds >= MOST_ROUNDS
        if too_many or (self._num_rewards == 0 and self._failures >= FIRST_FAILURES):
            self.stop(f"{self._failures} evaluations failed in a row, the last by {error}")

    def _outcome(self, answer: Answer) -> Outcome | None:
        r"""None if it will be tried again."""
        number = answer.point.number
        attempts = self._attempts.pop(number, 0) + 1
        if answer.reward is None:
            error = answer.error or ""
            if attempts <= self.retries:
                logger.info("Point %d is tried again after %s", number, error)
                self._attempts[number] = attempts
                if self.journal is not None:
                    self.journal.attempt_failed(number, error)
                if not self.stopped:
                    self.evaluator.submit([answer.point])
                return None
            return Outcome(number, None, None, error, attempts, answer.seconds, time.time())
        value, variance = answer.reward.value, answer.reward.variance
        return Outcome(number, value, variance, None, attempts, answer.seconds, time.time())

    def _told(self, outcomes: list[Outcome], at_once: bool = False) -> None:
        r"""Write outcomes down, and tell them when it is time."""
        arrived = self._ready + [outcome.suggestion for outcome in outcomes]
        # In the order they were asked, so that the run does not depend on who was faster.
        at_once = at_once or self.asynchronous or not self.evaluator.busy
        due = sorted(arrived) if at_once else []
        if self.journal is not None:
            self.journal.outcomes(outcomes, due)
            self._events = self.journal.last_event
        elif due:
            self._events += 1
        self._ready = [] if due else arrived
        for outcome in outcomes:
            self.past.outcomes[outcome.suggestion] = outcome
            self.num_done += 1
            if outcome.reward is not None:
                self.best_reward = max(self.best_reward, outcome.reward)
                self._num_rewards += 1
        if due:
            self._tell_optimizer(due)
        for callback in self.callbacks:
            callback.on_tell(self, outcomes)
        if due:
            for callback in self.callbacks:
                callback.on_batch(self)

    def _tell_optimizer(self, due: list[int]) -> None:
        start, optimizer, past = time.perf_counter(), self.optimizer, self.past
        tell(optimizer, [(past.points[number], as_reward(past.outcomes[number])) for number in due])
        telling = time.perf_counter() - start
        past.told |= dict.fromkeys(due, self._events)
        past.batch_is_whole = False
        self._tells += 1
        measurement = measured(optimizer, self._events, self._asking, telling, self._waiting)
        past.measurements[self._events] = measurement
        self._unsaved += self._asking + telling
        self._asking = self._waiting = 0.0
        if self.journal is not None:
            self.journal.measured(measurement)
            if self._unsaved > max(SNAPSHOT_SECONDS, self._snapshot_cost / SNAPSHOT_SHARE):
                self._snapshot()

    def _snapshot(self) -> None:
        assert self.journal is not None
        start = time.perf_counter()
        self.journal.snapshot(self.optimizer.state_dict())
        self._snapshot_cost, self._unsaved = time.perf_counter() - start, 0.0


def ends_batch(requested: int, points: Sequence[Point]) -> bool:
    r"""Whether a batch has no more points than these, of which ``requested`` were asked for.

    A point that is skipped ends it, and so does beginning with points somebody asked for before.
    """
    return len(points) < requested or not requested or points[-1].id == -1


def as_asked(point: Point) -> Asked:
    r"""A point as the journal has it."""
    x = point.x.detach().cpu().contiguous().numpy().tobytes()
    return Asked(point.number, x, point.arm, point.id, point.batch)


def measured(optimizer: Optimizer, event: int, *seconds: float) -> Measurement:
    r"""The optimizer after an event, and the seconds of asking, telling and waiting before it."""
    size, dimension = len(optimizer.dictionary), optimizer.effective_dimension
    return Measurement(event, size, dimension, optimizer.width_now, *seconds)


def as_reward(outcome: Outcome) -> Reward | None:
    r"""What there is to be told."""
    return None if outcome.reward is None else Reward(outcome.reward, outcome.variance)


@contextmanager
def shielded() -> Iterator[None]:
    r"""Let Ctrl-C wait until what is written down has also been told; a second one does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []

    def remember(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])
