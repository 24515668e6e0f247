r"""The loop of a run: ask, record the points, evaluate them, record the outcomes, tell."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from botorch_bkb.domains import Suggestion
from botorch_bkb.journal import Journal, Outcome
from botorch_bkb.optimizers import (
    BatchCompleteError,
    ConvergedError,
    FinishedError,
    Optimizer,
    OutOfCandidatesError,
)
from botorch_bkb.runs.callbacks import Callback
from botorch_bkb.runs.evaluation import Answer, Evaluator, EvaluatorLostError
from botorch_bkb.runs.failures import FailurePolicy
from botorch_bkb.runs.interrupts import shielded
from botorch_bkb.runs.points import Point, points_of, tell
from botorch_bkb.runs.record import RunRecord, as_asked, as_reward, ends_batch, measured
from botorch_bkb.runs.result import Result, history_table, rewarded

logger = logging.getLogger("botorch_bkb")

#: Seconds of asking and telling between two snapshots, at least; and the largest share of this
#: time that snapshots may cost.
SNAPSHOT_SECONDS, SNAPSHOT_SHARE = 1.0, 0.05
#: Workers receive the first points of a batch while the next ones are chosen. The number of points
#: in each piece grows until choosing them takes this many seconds.
PIECE_SECONDS = 0.05


class Loop:
    r"""A run that asks an optimizer for points, has them evaluated and tells it the results.

    Args:
        optimizer: The optimizer.
        evaluator: The evaluator of the points.
        budget: The total number of points, including skipped and failed ones.
        journal: The journal that records the run, if any.
        callbacks: Callbacks of the run.
        asynchronous: Whether free workers get new points while others are still busy.
        retries: How often a failed evaluation is repeated.
        record: The record of the run so far; by default a new one.
        keep_busy: Whether idle workers get points beyond the batch rule.

    Attributes:
        num_asked: The number of points asked.
        num_done: The number of points that were evaluated, failed or were skipped.
        best_reward: The highest reward so far.
        stopped: Why the run ended; empty while it continues.
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
        record: RunRecord | None = None,
        keep_busy: bool = True,
    ) -> None:
        self.optimizer, self.evaluator, self.budget = optimizer, evaluator, budget
        self.journal, self.callbacks = journal, callbacks
        self.asynchronous = asynchronous and evaluator.free is not None
        self.keep_busy = keep_busy and optimizer.can_exceed_batches
        self.record = record or RunRecord()
        self.stopped = ""
        rewards = [o.reward for o in self.record.outcomes.values() if o.reward is not None]
        self.best_reward = max(rewards, default=-math.inf)
        self.num_asked = len(self.record.points)
        self.num_done = self.num_asked - len(self.record.open)
        self._failures = FailurePolicy(retries, self.record)
        self._tells = len({*self.record.told.values()})
        self._events = journal.last_event if journal else self._tells
        self._ready = self.record.ready
        self._piece = evaluator.free  # points per ask; None for a whole batch
        self._asking = self._waiting = 0.0
        self._unsaved, self._snapshot_cost = 0.0, 0.0

    def stop(self, reason: str) -> None:
        r"""Start no more evaluations, and end the run when the running ones have finished."""
        self.stopped = self.stopped or reason
        self.evaluator.withdraw()

    # ------------------------------------------------------------------ the whole run

    def run(self) -> Result:
        r"""Run until the budget is spent or something stops the run, and return the result."""
        start = time.perf_counter()
        try:
            self._iterate()
        except KeyboardInterrupt:
            self.stop("interrupted")
            logger.warning("Interrupted after %d of %d points.", self.num_done, self.budget)
        except EvaluatorLostError as error:
            self.stop(str(error))
            logger.error("Stopped: %s", error)
        self._end()
        return self.result(time.perf_counter() - start)

    def _iterate(self) -> None:
        for callback in self.callbacks:
            callback.on_start(self)
        self._adopt_pending()
        self.evaluator.submit(self.record.open)
        if self._ready and not self.evaluator.busy:
            self._handle([])
        while True:
            self._ask()
            if self.evaluator.busy or (self.evaluator.free == 0 and self._continues):
                self._collect()  # without busy points, this waits for hanging workers
            elif not self._continues:
                break
        self.stop("budget spent")

    @property
    def _continues(self) -> bool:
        return not self.stopped and self.num_asked < self.budget

    def _adopt_pending(self) -> None:
        r"""Add points that the optimizer suggested before the run."""
        known = {point.id for point in self.record.points.values()}
        pending = self.optimizer.pending
        if set(pending.ids) - known:
            self._record_suggestions(0, points_of(pending, self.record.next_number, self._tells))

    def _end(self) -> None:
        if self.journal is not None:
            if self._unsaved:
                self._snapshot()
        elif self._ready:  # without a journal they would be lost
            self._handle([], at_once=True)
        for callback in self.callbacks:
            callback.on_stop(self)

    def result(self, seconds: float) -> Result:
        r"""Return the result of the run so far.

        Args:
            seconds: The duration of the run.
        """
        record, optimizer = self.record, self.optimizer
        points = [record.points[number] for number in sorted(record.points)]
        X, Y, failures = rewarded(
            points, record.outcomes, optimizer.domain.dim, optimizer.dtype, optimizer.device
        )
        best = optimizer.best() if optimizer.num_observations else None
        history = history_table(points, record.outcomes, record.told, record.measurements)
        skipped = sum(point.id == -1 for point in points)
        return Result(X, Y, best, history, failures, skipped, self.stopped, seconds, optimizer)

    # ------------------------------------------------------------------ asking

    def _ask(self) -> None:
        if self.asynchronous:
            free = self.evaluator.free
            if free and self._continues:
                self._ask_for(min(free, self.budget - self.num_asked))
                self._fill(self.evaluator.free or 0)
            return
        if not self.evaluator.busy:
            self.record.batch_is_whole = self.record.is_filled = False
        while self._continues and not self.record.batch_is_whole:
            # Asking in pieces suggests the same points as asking for all at once.
            left = self.budget - self.num_asked
            seconds = self._ask_for(min(left, self._piece or left))
            if self._piece and seconds < PIECE_SECONDS:
                self._piece *= 2
        if self.record.batch_is_whole and not self.record.is_filled and self.evaluator.workers:
            # Counted by what was asked, not by what runs: a resumed run does the same.
            batch = [p for p in self.record.points.values() if p.batch == self._tells]
            self._fill(self.evaluator.workers - len(batch))

    def _fill(self, idle: int) -> None:
        r"""Give idle workers points beyond the batch rule, as far as there are any."""
        idle = min(idle, self.budget - self.num_asked)
        if not (self.keep_busy and idle > 0 and self._continues):
            return
        self._ask_for(idle, fills=True)
        self.record.is_filled = True

    def _suggested(self, requested: int, fills: bool) -> Suggestion:
        if not fills:
            return self.optimizer.ask(at_most=requested)
        try:
            return self.optimizer.ask(requested, distinct=False)
        except OutOfCandidatesError as error:
            if not error.left:
                raise
            return self.optimizer.ask(error.left, distinct=False)

    def _ask_for(self, requested: int, fills: bool = False) -> float:
        r"""Ask for points and submit them for evaluation; return the seconds spent asking.

        Args:
            requested: How many.
            fills: Whether they may lie beyond the batch rule.
        """
        reason = "the optimizer waits for results of points that are not being evaluated"
        with shielded():
            start = time.perf_counter()
            try:
                suggestion = self._suggested(requested, fills)
                points = points_of(suggestion, self.record.next_number, self._tells)
            except BatchCompleteError:
                points = []
            except OutOfCandidatesError:
                points, reason = [], "all candidates were evaluated as often as is allowed"
            except ConvergedError as error:
                self.stop(f"converged: {error}")
                return 0.0
            except FinishedError as error:
                self.stop(f"finished: {error}")
                return 0.0
            seconds = time.perf_counter() - start
            self._asking += seconds
            requested = len(points) if fills else requested
            self._record_suggestions(requested, points, fills)
        if not (points or self.evaluator.busy or self._may_fill(fills)):
            self.stop(reason)
        for callback in self.callbacks:
            callback.on_ask(self, points)
        if not self.stopped:
            self.evaluator.submit([point for point in points if point.id != -1])
        return seconds

    def _may_fill(self, fills: bool) -> bool:
        r"""Return whether points beyond the batch rule can still be asked."""
        return self.keep_busy and not fills and bool(self.evaluator.workers)

    def _record_suggestions(self, requested: int, points: list[Point], fills: bool = False) -> None:
        if self.journal is not None:
            self.journal.ask(requested, [as_asked(point) for point in points], fills=fills)
            self._events = self.journal.last_event
        self.record.points |= {point.number: point for point in points}
        self.record.next_number += len(points)
        self.num_asked += len(points)
        self.num_done += sum(point.id == -1 for point in points)
        self.record.batch_is_whole = fills or ends_batch(requested, points)

    # ------------------------------------------------------------------ results

    def _collect(self) -> None:
        start = time.perf_counter()
        answers = self.evaluator.collect()
        self._waiting += time.perf_counter() - start
        with shielded():
            outcomes = [outcome for answer in answers if (outcome := self._outcome(answer))]
            if outcomes:
                self._handle(outcomes)
        if reason := self._failures.reason_to_stop(outcomes):
            self.stop(reason)

    def _outcome(self, answer: Answer) -> Outcome | None:
        r"""Return the outcome of a point, or repeat its evaluation and return None."""
        outcome = self._failures.outcome(answer)
        if outcome is None:
            if self.journal is not None:
                self.journal.attempt_failed(answer.point.number, answer.error or "")
            if not self.stopped:
                self.evaluator.submit([answer.point])
        return outcome

    def _handle(self, outcomes: list[Outcome], at_once: bool = False) -> None:
        r"""Record outcomes, and tell them to the optimizer when they are due.

        Args:
            outcomes: New outcomes.
            at_once: Whether to tell them before their batch is complete.
        """
        arrived = self._ready + [outcome.suggestion for outcome in outcomes]
        # In the order they were asked, so that the run does not depend on the workers' speeds.
        at_once = at_once or self.asynchronous or not self.evaluator.busy
        due = sorted(arrived) if at_once else []
        if self.journal is not None:
            self.journal.outcomes(outcomes, due)
            self._events = self.journal.last_event
        elif due:
            self._events += 1
        self._ready = [] if due else arrived
        for outcome in outcomes:
            self.record.outcomes[outcome.suggestion] = outcome
            self.num_done += 1
            if outcome.reward is not None:
                self.best_reward = max(self.best_reward, outcome.reward)
        if due:
            self._tell_optimizer(due)
        for callback in self.callbacks:
            callback.on_tell(self, outcomes)
        if due:
            for callback in self.callbacks:
                callback.on_batch(self)

    def _tell_optimizer(self, due: list[int]) -> None:
        start, optimizer, record = time.perf_counter(), self.optimizer, self.record
        tell(optimizer, [(record.points[n], as_reward(record.outcomes[n])) for n in due])
        telling = time.perf_counter() - start
        record.told |= dict.fromkeys(due, self._events)
        record.batch_is_whole = record.is_filled = False
        self._tells += 1
        measurement = measured(optimizer, self._events, self._asking, telling, self._waiting)
        record.measurements[self._events] = measurement
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
