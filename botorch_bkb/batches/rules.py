r"""Batch rules: they decide when a batch is complete and feedback is needed.

Each pick spends a part of the batch's limit. A rule defines the limit, what a pick spends, what all
picks spend together, and how often a pick is repeated. Scores are ``tau_fb(x) = var(x) / lambda``
under the model at the start of the batch.

References:
    Calandriello et al.: Near-linear time Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020. (The sum rule, justified by Lemma 4.)

    Desautels, Krause, Burdick: Parallelizing exploration-exploitation tradeoffs in Gaussian
    process bandit optimization. JMLR 2014. (The product rule.)

    Calandriello et al.: Scaling Gaussian process optimization by evaluating a few unique
    candidates multiple times. ICML 2022. (The holding rule.)
"""

from __future__ import annotations

import math

from botorch.exceptions.errors import InputDataError

from botorch_bkb.batches.local import LocalRule
from botorch_bkb.batches.rule import MAX_SIZE, THRESHOLD, BatchRule, ThresholdRule


class OneAtATime(BatchRule):
    r"""A rule that asks for feedback after every pick, as GP-UCB and BKB do.

    Example:
        >>> from botorch_bkb.batches import OneAtATime
        >>> rule = OneAtATime()
        >>> rule.spent(0.5) > rule.limit
        True

    Reference:
        Srinivas et al., ICML 2010 (GP-UCB); Calandriello et al., COLT 2019 (BKB, Algorithm 1).
    """


class SumRule(ThresholdRule):
    r"""BBKB's rule, which completes a batch when ``1 + sum tau_fb > C~``.

    Batches are never shorter than by the product rule. For any dictionary, after picks ``x_s`` of
    a batch,

    .. code-block:: text

        tau_fb(x) / (1 + sum_s tau_fb(x_s)) <= tau(x) <= tau_fb(x)

    So no variance has fallen by more than ``C~`` when the last pick is made.

    Args:
        threshold: ``C~``, at least 1; larger values give longer batches.

    Example:
        >>> from botorch_bkb.batches import SumRule
        >>> rule = SumRule(3.0)
        >>> rule.limit, rule.spent(0.5)
        (2.0, 0.5)

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Algorithm 1, Lemma 4.)
    """

    @property
    def limit(self) -> float:
        r"""The limit ``C~ - 1``."""
        return self.threshold - 1

    @property
    def inflation(self) -> float:
        r"""The inflation, which is the threshold ``C~``."""
        return self.threshold

    def spent(self, score: float) -> float:
        r"""Return ``tau`` itself."""
        return score


class ProductRule(ThresholdRule):
    r"""GP-BUCB's rule, which completes a batch when ``prod (1 + tau_fb) > C``.

    The product is at least ``1 + sum tau_fb``. So no variance has fallen by more than ``C`` when
    the last pick is made.

    Args:
        threshold: ``C``, at least 1; larger values give longer batches.

    Example:
        >>> import math
        >>> from botorch_bkb.batches import ProductRule
        >>> rule = ProductRule(4.0)
        >>> rule.limit == math.log(4), rule.spent(1.0) == math.log(2)
        (True, True)

    Reference:
        Desautels, Krause, Burdick, JMLR 2014. (GP-BUCB. The paper bounds the information
        gain of a batch, which is at most ``1/2 sum log(1 + tau_fb)``.)
    """

    @property
    def limit(self) -> float:
        r"""The limit ``log C``."""
        return math.log(self.threshold)

    @property
    def inflation(self) -> float:
        r"""The inflation, which is the threshold ``C``."""
        return self.threshold

    def spent(self, score: float) -> float:
        r"""Return ``log(1 + tau)``."""
        return math.log1p(score)


class HoldingRule(ThresholdRule):
    r"""mini-GP-UCB's rule, which pulls a single pick several times in a row.

    A pick with score ``tau`` is pulled ``B = max(1, floor((C^2 - 1) / tau))`` times. Its score
    then falls to ``tau / (1 + B tau)``. So no variance shrinks by more than ``C^2``, unless a
    single pull has that effect.

    Args:
        threshold: ``C``, at least 1; larger values hold a pick longer.

    Example:
        >>> from botorch_bkb.batches import HoldingRule
        >>> HoldingRule(2.0).repeats(0.25)
        12.0

    Reference:
        Calandriello et al., ICML 2022. (mini-GP-UCB.)
    """

    @property
    def delay(self) -> float:
        r"""The delay, which is ``C^2``."""
        return self.threshold**2

    def repeats(self, score: float) -> float:
        r"""Return ``B``, infinite for a score of zero, where nothing is left to learn."""
        if score == 0:
            return math.inf
        return max(1.0, (self.threshold**2 - 1) // score)


#: Batch rules by their short names.
NAMED: dict[str, type[BatchRule]] = {
    "one": OneAtATime,
    "sum": SumRule,
    "local": LocalRule,
    "product": ProductRule,
    "hold": HoldingRule,
}


def as_batch_rule(
    rule: str | BatchRule,
    threshold: float = THRESHOLD,
    max_size: int | None = None,
    default_size: int = MAX_SIZE,
) -> BatchRule:
    r"""Return the batch rule for a name; rules are returned unchanged.

    Args:
        rule: A batch rule, or one of the names one, sum, local, product and hold.
        threshold: The threshold of a rule given by name.
        max_size: The largest batch size of a rule given by name.
        default_size: The same where ``max_size`` is None.
    """
    if isinstance(rule, BatchRule):
        if (threshold, max_size) != (THRESHOLD, None):
            raise InputDataError(
                "batch_threshold and max_batch_size have no effect beside a batch rule, got "
                f"{rule!r}: give them to the rule, as in SumRule(3.0, max_size=100)."
            )
        return rule
    if rule not in NAMED:
        raise InputDataError(
            f"batch_rule must be one of {', '.join(NAMED)}, or a BatchRule, got {rule!r}."
        )
    kind = NAMED[rule]
    if issubclass(kind, ThresholdRule):
        return kind(threshold, max_size=default_size if max_size is None else max_size)
    if (threshold, max_size) != (THRESHOLD, None):
        raise InputDataError(
            'batch_threshold and max_batch_size have no effect where batch_rule is "one": leave '
            "them out, or use another rule."
        )
    return kind()
