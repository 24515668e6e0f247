r"""What all batches over a table of arms share: picks, scores and when to stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches.rules import BatchRule


class Batch(ABC):
    r"""Picks of one batch, one after another.

    Args:
        table: The arms; it must not change while the batch is picked.
        rule: When the batch is complete.
        num_arms: Only the first ``num_arms`` rows of the table may be picked.
        stragglers: Rows asked earlier whose feedback is still out. They count as picked.
        max_size: The most picks in a batch, whatever the rule says.

    Attributes:
        picks: Rows picked so far, in order; repetitions are legal.
        scores: ``tau`` of each pick at the start of the batch, to be logged.
    """

    def __init__(
        self,
        table: ArmTable,
        rule: BatchRule,
        *,
        num_arms: int | None = None,
        stragglers: Sequence[int] = (),
        max_size: int | None = None,
    ) -> None:
        self.table, self.rule, self.max_size = table, rule, max_size
        self.stragglers = stragglers
        self.num_arms = len(table.X) if num_arms is None else num_arms
        self.picks: list[int] = []
        self.scores: list[float] = []
        self._start = table.scores()
        self._spent = sum(rule.spent(float(self._start[row])) for row in stragglers)
        self._held = 0.0  # how often the last pick is still to be repeated

    @property
    def complete(self) -> bool:
        r"""Whether feedback is needed before the next pick."""
        if self.max_size is not None and len(self.picks) >= self.max_size:
            return True
        return self._held < 1 and self._spent > self.rule.limit

    @torch.no_grad()
    def pick(self) -> int:
        r"""The next arm, as if the outcomes of the earlier ones were on their way."""
        if self._held >= 1:
            self._held -= 1
            row, score = self.picks[-1], self.scores[-1]
        else:
            row = self._choose()
            score = float(self._start[row])
            self._spent += self.rule.spent(score)
            self._held = self.rule.repeats(score) - 1
        self.picks.append(row)
        self.scores.append(score)
        return row

    @abstractmethod
    def _choose(self) -> int:
        r"""The next arm, and whatever has to be remembered of it."""
