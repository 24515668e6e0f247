r"""When a batch is complete: how much the picks may teach before feedback is needed.

Scores are ``tau_fb(x) = var(x) / lambda`` under the model at the start of the batch. A rule
says what a pick spends of the batch's limit, and how often a pick is repeated.

References:
    Calandriello et al.: Scaling parallel Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020. (The sum; Lemma 4 is why it is the right measure.)

    Desautels, Krause, Burdick: Parallelizing exploration-exploitation tradeoffs in Gaussian
    process bandit optimization. JMLR 2014. (The product.)

    Calandriello et al.: Scaling Gaussian process optimization by evaluating a few unique
    candidates multiple times. ICML 2022. (Holding.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from botorch.exceptions.errors import InputDataError


class BatchRule(ABC):
    r"""Complete once the picks have spent more than the limit, the last pick included."""

    limit: float

    @abstractmethod
    def spent(self, score: float) -> float:
        r"""What a pick with this score takes from the limit."""

    def repeats(self, score: float) -> float:
        r"""How often a pick with this score is pulled in a row, at least."""
        return 1


@dataclass(frozen=True)
class OneAtATime(BatchRule):
    r"""Every pick waits for its feedback: GP-UCB and BKB."""

    limit = 0.0

    def spent(self, score: float) -> float:
        return 1.0


@dataclass(frozen=True)
class SumRule(BatchRule):
    r"""BBKB: complete when ``1 + sum tau_fb > C~``; never shorter than by the product rule.

    By Lemma 4 no variance has fallen by more than this factor since the batch began.

    Args:
        threshold: ``C~``, above 1.

    Example:
        >>> rule = SumRule(3.0)
        >>> rule.limit, rule.spent(0.5)
        (2.0, 0.5)
    """

    threshold: float

    def __post_init__(self) -> None:
        check_threshold(self.threshold)

    @property
    def limit(self) -> float:  # type: ignore[override]
        return self.threshold - 1

    def spent(self, score: float) -> float:
        return score


@dataclass(frozen=True)
class ProductRule(BatchRule):
    r"""GP-BUCB: complete when ``prod (1 + tau_fb) > C``.

    Args:
        threshold: ``C``, above 1.
    """

    threshold: float

    def __post_init__(self) -> None:
        check_threshold(self.threshold)

    @property
    def limit(self) -> float:  # type: ignore[override]
        return math.log(self.threshold)

    def spent(self, score: float) -> float:
        return math.log1p(score)


@dataclass(frozen=True)
class HoldingRule(OneAtATime):
    r"""mini-GP-UCB: one pick, held for ``B = max(1, floor((C^2 - 1) / tau))`` pulls.

    Meanwhile ``tau`` at the pick falls to ``tau / (1 + B tau)``, so no bound shrinks by more
    than ``C^2``.

    Args:
        threshold: ``C``, above 1.

    Example:
        >>> HoldingRule(2.0).repeats(0.25)
        12.0
    """

    threshold: float

    def __post_init__(self) -> None:
        check_threshold(self.threshold)

    def repeats(self, score: float) -> float:
        r"""``B``; infinite at a score of zero, where nothing is left to learn."""
        if score == 0:
            return math.inf
        return max(1.0, (self.threshold**2 - 1) // score)


def check_threshold(threshold: float) -> None:
    r"""Raise unless a batch can ever be longer than one pick."""
    if not threshold > 1:
        raise InputDataError(
            f"batch_threshold must be above 1, got {threshold}: 2 is usual, larger values give "
            "longer batches and wider bounds."
        )
