r"""Failed evaluations: which are repeated, and when there are too many."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from botorch_bkb.journal import Outcome
from botorch_bkb.runs.evaluation import Answer
from botorch_bkb.runs.record import RunRecord

logger = logging.getLogger("botorch_bkb")

#: A run stops after this many failures in a row, if they came in at least this many rounds.
MOST_FAILURES, MOST_ROUNDS = 100, 5
#: A run in which no evaluation has succeeded stops after this many failures.
FIRST_FAILURES = 20


class FailurePolicy:
    r"""Counts failed evaluations, and decides which to repeat and when to stop.

    Args:
        retries: How often a failed evaluation is repeated.
        record: The record of the run so far.
    """

    def __init__(self, retries: int, record: RunRecord) -> None:
        self.retries = retries
        self._attempts = dict(record.attempts)
        self._has_succeeded = any(o.reward is not None for o in record.outcomes.values())
        self._failures = self._rounds = 0

    def outcome(self, answer: Answer) -> Outcome | None:
        r"""Return the outcome of a point, or None if its evaluation is to be repeated."""
        number = answer.point.number
        attempts = self._attempts.pop(number, 0) + 1
        if answer.reward is None:
            error = answer.error or ""
            if attempts <= self.retries:
                logger.info("Point %d is evaluated again after %s", number, error)
                self._attempts[number] = attempts
                return None
            return Outcome(number, None, None, error, attempts, answer.seconds, time.time())
        value, variance = answer.reward.value, answer.reward.variance
        return Outcome(number, value, variance, None, attempts, answer.seconds, time.time())

    def reason_to_stop(self, outcomes: Sequence[Outcome]) -> str | None:
        r"""Count one round of outcomes; return why the run should stop, or None."""
        failed = [outcome for outcome in outcomes if outcome.reward is None]
        if len(failed) < len(outcomes):
            self._failures, self._rounds, self._has_succeeded = 0, 0, True
        elif failed:
            self._failures, self._rounds = self._failures + len(failed), self._rounds + 1
        if not failed:
            return None
        error = failed[-1].error
        logger.warning(
            "%d of %d points failed, the last with %s", len(failed), len(outcomes), error
        )
        too_many = self._failures >= MOST_FAILURES and self._rounds >= MOST_ROUNDS
        if too_many or (not self._has_succeeded and self._failures >= FIRST_FAILURES):
            return f"{self._failures} evaluations failed in a row, the last with {error}"
        return None
