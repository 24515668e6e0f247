r"""What all batches share: picks, scores and when to stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches.rules import BatchRule


class Batch(ABC):
    r"""Picks of one batch, one after another.

    Args:
        table: The arms; nobody else may change it while the batch is picked.
        rule: When the batch is complete.
        num_arms: Only the first ``num_arms`` rows of the table may be picked.
        stragglers: Rows asked earlier whose feedback is still out. They count as picked.
        lost: Rows asked earlier whose feedback never came. They count as picked, and the rule does
            not know of them.
        max_size: The most picks in a batch, whatever the rule says.
        threshold: The score a pick must exceed to be informative; by default all are.
        ends_uninformed: Whether a pick that is not informative ends the batch. The belief stays
            then, so that it would win again.

    Attributes:
        picks: Rows picked so far, in order; repetitions are legal.
        scores: ``tau`` of each pick at the start of the batch, to be logged.
        informative: Whether each pick was informative, given the picks before it.
        added: Inputs that picks have put at the end of the table, ``1 x d`` each.
        is_design: Whether the picks are those of an initial design.

    Example:
        A batch of one's own implements ``_choose``:

        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.arms import ArmTable
        >>> from botorch_bkb.batches import Batch, SumRule
        >>> class InTurn(Batch):
        ...     def _choose(self):
        ...         return len(self.picks) % self.num_arms
        >>> X = torch.linspace(0, 4, 9, dtype=torch.float64).unsqueeze(-1)
        >>> table = ArmTable(X, RBFKernel().double(), 0.5, torch.tensor([0]))
        >>> batch = InTurn(table, SumRule(6.0))  # each arm has a score of 2
        >>> while not batch.complete:
        ...     row = batch.pick()
        >>> batch.picks
        [0, 1, 2]
    """

    is_design = False

    def __init__(
        self,
        table: ArmTable,
        rule: BatchRule,
        *,
        num_arms: int | None = None,
        stragglers: Sequence[int] = (),
        lost: Sequence[int] = (),
        max_size: int | None = None,
        threshold: float | None = None,
        ends_uninformed: bool = False,
    ) -> None:
        self.table, self.rule, self.max_size = table, rule, max_size
        self.stragglers, self.lost, self.threshold = tuple(stragglers), tuple(lost), threshold
        self.ends_uninformed = ends_uninformed
        self.num_arms = len(table.X) if num_arms is None else num_arms
        self.picks: list[int] = []
        self.scores: list[float] = []
        self.informative: list[bool] = []
        self.added: list[Tensor] = []
        self._spent = sum(rule.spent(self._score_at_start(row)) for row in stragglers)
        self._held = 0.0  # how often the last pick is still to be repeated
        self._ended = False

    @property
    def complete(self) -> bool:
        r"""Whether feedback is needed before the next pick."""
        if self._ended or (self.max_size is not None and len(self.picks) >= self.max_size):
            return True
        return self._held < 1 and self._spent > self.rule.limit

    @torch.no_grad()
    def pick(self) -> int:
        r"""The next arm, as if the outcomes of the earlier ones were on their way."""
        if self._held >= 1:
            self._held -= 1
            self._record(self.picks[-1], self.scores[-1], self.informative[-1])
            return self.picks[-1]
        return self._take(self._choose())

    def _take(self, row: int) -> int:
        score = self._score_at_start(row)
        informative = self.threshold is None or self._score_now(row) > self.threshold
        if informative or not self.ends_uninformed:
            self._hallucinate(row)
            self._spent += self.rule.spent(score)
            self._held = self.rule.repeats(score) - 1
        else:
            self._ended = True
        self._record(row, score, informative)
        return row

    def _record(self, row: int, score: float, informative: bool) -> None:
        self.picks.append(row)
        self.scores.append(score)
        self.informative.append(informative)

    def follow(self, picks: Sequence[int]) -> None:
        r"""Pick again what was picked before a run was interrupted."""
        for _ in picks:
            self.pick()

    @cached_property
    def _start(self) -> Tensor:
        return self.table.scores()

    def _score_at_start(self, row: int) -> float:
        return float(self._start[row])

    @abstractmethod
    def _choose(self) -> int:
        r"""The next arm."""

    def _hallucinate(self, row: int) -> None:
        r"""Let variances fall as if ``row`` had been observed; here they stay."""
        return

    def _score_now(self, row: int) -> float:
        r"""The score given the picks so far; here an upper bound that knows of the same row only.

        ``c`` observations take ``tau`` to ``tau / (1 + c tau)``.
        """
        score = self._score_at_start(row)
        earlier = self.picks.count(row) + (*self.stragglers, *self.lost).count(row)
        return score / (1 + earlier * score)
