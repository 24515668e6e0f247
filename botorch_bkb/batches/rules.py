r"""When a batch is complete: how much the picks may teach before feedback is needed.

Scores are ``tau_fb(x) = var(x) / lambda`` under the model at the start of the batch. A rule
says what a pick spends of the batch's limit, and how often a pick is repeated.

References:
    Calandriello et al.: Near-linear time Gaussian process optimization with adaptive batching
    and resparsification. ICML 2020. (The sum; Lemma 4 is why it is the right measure.)

    Desautels, Krause, Burdick: Parallelizing exploration-exploitation tradeoffs in Gaussian
    process bandit optimization. JMLR 2014. (The product.)

    Calandriello et al.: Scaling Gaussian process optimization by evaluating a few unique
    candidates multiple times. ICML 2022. (Holding.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from botorch.exceptions.errors import InputDataError


@dataclass(frozen=True)
class BatchRule:
    r"""Complete once the picks have spent more than the limit, the last pick included.

    This one asks for feedback after every pick; the others derive from it.

    Attributes:
        limit: What may be spent.
        inflation: ``C~``: by how much variances may have fallen when the last pick is made.
        delay: By how much they may have fallen when the dictionary is drawn again.

    Example:
        A rule of one's own. A theorem's width needs the right ``inflation`` too:

        >>> import torch
        >>> from botorch_bkb import BBKB
        >>> from botorch_bkb.batches import BatchRule
        >>> class InFours(BatchRule):
        ...     @property
        ...     def limit(self):
        ...         return 3.0
        >>> len(BBKB(torch.eye(9, dtype=torch.float64), batch_rule=InFours(), seed=0).ask())
        4
    """

    @property
    def limit(self) -> float:
        r"""What may be spent."""
        return 0.0

    @property
    def inflation(self) -> float:
        r"""By how much variances may have fallen when the last pick is made."""
        return 1.0

    @property
    def delay(self) -> float:
        r"""By how much variances may have fallen when the dictionary is drawn again."""
        return self.inflation

    def spent(self, score: float) -> float:
        r"""What a pick with this score takes from the limit."""
        return 1.0

    def repeats(self, score: float) -> float:
        r"""How often a pick with this score is pulled in a row."""
        return 1.0


class OneAtATime(BatchRule):
    r"""Every pick waits for its feedback: GP-UCB and BKB.

    Example:
        >>> from botorch_bkb.batches import OneAtATime
        >>> rule = OneAtATime()
        >>> rule.spent(0.5) > rule.limit
        True

    Reference:
        Srinivas et al., ICML 2010 (GP-UCB); Calandriello et al., COLT 2019 (BKB, Algorithm 1).
    """


@dataclass(frozen=True)
class ThresholdRule(BatchRule):
    r"""A rule with a threshold.

    Args:
        threshold: At least 1; larger values give longer batches.
    """

    threshold: float

    def __post_init__(self) -> None:
        if not 1 <= self.threshold < math.inf:
            raise InputDataError(
                f"batch_threshold must be finite and at least 1, got {self.threshold}: 2 is usual, "
                "larger values give longer batches and wider bounds."
            )


class SumRule(ThresholdRule):
    r"""BBKB: complete when ``1 + sum tau_fb > C~``; never shorter than by the product rule.

    For any dictionary, after picks ``x_s`` of a batch,

    .. code-block:: text

        tau_fb(x) / (1 + sum_s tau_fb(x_s)) <= tau(x) <= tau_fb(x)

    so no variance has fallen by more than ``C~`` when the last pick is made.

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
        r"""``C~ - 1``."""
        return self.threshold - 1

    @property
    def inflation(self) -> float:
        r"""``C~``."""
        return self.threshold

    def spent(self, score: float) -> float:
        r"""``tau``."""
        return score


class ProductRule(ThresholdRule):
    r"""GP-BUCB: complete when ``prod (1 + tau_fb) > C``.

    The product is no less than ``1 + sum tau_fb``, so no variance has fallen by more than ``C``
    when the last pick is made.

    Args:
        threshold: ``C``, at least 1; larger values give longer batches.

    Example:
        >>> import math
        >>> from botorch_bkb.batches import ProductRule
        >>> rule = ProductRule(4.0)
        >>> rule.limit == math.log(4), rule.spent(1.0) == math.log(2)
        (True, True)

    Reference:
        Desautels, Krause, Burdick, JMLR 2014. (GP-BUCB. The paper bounds what a batch gains in
        information; ``1/2 sum log(1 + tau_fb)`` is no less.)
    """

    @property
    def limit(self) -> float:
        r"""``log C``."""
        return math.log(self.threshold)

    @property
    def inflation(self) -> float:
        r"""``C``."""
        return self.threshold

    def spent(self, score: float) -> float:
        r"""``log(1 + tau)``."""
        return math.log1p(score)


class HoldingRule(ThresholdRule):
    r"""mini-GP-UCB: one pick, held for ``B = max(1, floor((C^2 - 1) / tau))`` pulls.

    Meanwhile ``tau`` at the pick falls to ``tau / (1 + B tau)``, so no variance shrinks by more
    than ``C^2``, unless one pull alone does it.

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
        r"""``C^2``."""
        return self.threshold**2

    def repeats(self, score: float) -> float:
        r"""``B``; infinite at a score of zero, where nothing is left to learn."""
        if score == 0:
            return math.inf
        return max(1.0, (self.threshold**2 - 1) // score)


NAMED = {"one": None, "sum": SumRule, "product": ProductRule, "hold": HoldingRule}


def as_batch_rule(rule: str | BatchRule, threshold: float) -> BatchRule:
    r"""A rule by its name: one, sum, product or hold."""
    if isinstance(rule, BatchRule):
        return rule
    if rule not in NAMED:
        raise InputDataError(
            f"batch_rule must be one of {', '.join(NAMED)}, or a BatchRule, got {rule!r}."
        )
    kind = NAMED[rule]
    return OneAtATime() if kind is None else kind(threshold)
