r"""``Batch``: the base class of batches, which records picks and scores and ends the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches.candidates import Candidates
from botorch_bkb.batches.picks import Picks
from botorch_bkb.batches.rule import BatchRule
from botorch_bkb.state.components import TreeState


class Batch(ABC):
    r"""Base class of batches, whose points are picked one after another.

    Args:
        table: The table of arms. Nothing else may change it while the batch is picked.
        rule: The rule that decides when the batch is complete.
        num_arms: The number of rows that may be picked, counted from the first. The default is
            all rows.
        stragglers: Rows suggested earlier whose results are outstanding. They count as picked.
        given_up: Rows suggested earlier whose results will never arrive. They count as picked, but
            spend nothing of the batch's limit.
        threshold: The score that a pick must exceed to be informative. By default all picks are.
        ends_uninformed: Whether an uninformative pick ends the batch. Such a pick does not change
            the belief, so the same row would be picked again.
        first: The row of the first pick, where it does not depend on the belief.
        joins: Whether picks join the dictionary when they are observed.
        candidates: How often each arm may be picked; by default without limit.

    Attributes:
        picks: Rows picked so far, in order. Rows may repeat.
        scores: ``tau`` of each pick at the start of the batch, to be logged.
        informative: Whether each pick was informative, given the picks before it.
        added: Inputs that picks have added at the end of the table, in the user's units.

    Example:
        A custom batch implements ``_choose``:

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

    #: Whether points may be picked that are not rows of the table yet.
    everywhere = False

    def __init__(
        self,
        table: ArmTable,
        rule: BatchRule,
        *,
        num_arms: int | None = None,
        stragglers: Sequence[int] = (),
        given_up: Sequence[int] = (),
        threshold: float | None = None,
        ends_uninformed: bool = False,
        first: int | None = None,
        joins: bool = False,
        candidates: Candidates | None = None,
    ) -> None:
        self.table, self.rule, self.threshold = table, rule, threshold
        self.stragglers, self.given_up = tuple(stragglers), tuple(given_up)
        self.ends_uninformed, self.first = ends_uninformed, first
        self.num_arms = len(table.X) if num_arms is None else num_arms
        self.candidates = candidates
        self.picks: list[int] = []
        self.scores: list[float] = []
        self.informative: list[bool] = []
        self.added: list[Tensor] = []
        self._counted = Picks(table, joins=joins, everywhere=self.everywhere)
        self._spent = 0.0
        scores = self._scores_at_start(stragglers) if stragglers else []
        self._spend(list(zip(stragglers, scores, strict=True)))
        self._held = 0.0  # remaining repetitions of the last pick
        self._ended = False

    @property
    def complete(self) -> bool:
        r"""Whether feedback is needed before the next pick."""
        if self._ended or len(self.picks) >= self.rule.max_size or not self.has_candidates:
            return True
        return self._held < 1 and self._spent > self.rule.limit

    @property
    def exhausted(self) -> bool:
        r"""Whether nothing more can be picked, whatever the rule says."""
        return self._ended or not self.has_candidates

    @property
    def has_candidates(self) -> bool:
        r"""Whether there is an arm that may be picked."""
        return self.candidates is None or self.candidates.total > 0

    @torch.no_grad()
    def pick(self) -> int:
        r"""Pick the next arm, without the results of the earlier picks, and return its row."""
        if self._held >= 1 and self._may_pick(self.picks[-1]):
            self._held -= 1
            self._record(self.picks[-1], self.scores[-1], self.informative[-1])
            self._note(self.picks[-1])
            return self.picks[-1]
        is_given = self.first is not None and not self.picks
        return self._take(self.first if is_given else self._choose())  # type: ignore[arg-type]

    def _take(self, row: int) -> int:
        score = self._score_at_start(row)
        informative = self.threshold is None or self._score_now(row) > self.threshold
        if informative or not self.ends_uninformed:
            self._hallucinate(row)
            self._spend([(row, score)])
            self._held = self.rule.repeats(score) - 1
        else:
            self._ended = True
        self._record(row, score, informative)
        self._note(row)
        return row

    def _may_pick(self, row: int) -> bool:
        return self.candidates is None or self.candidates.allows(row)

    def _note(self, row: int) -> None:
        r"""Note a pick among the candidates."""
        if self.candidates is not None and self.candidates.take(row):
            self._leave_out(row)

    def _spend(self, picks: Sequence[tuple[int, float]]) -> None:
        r"""Count rows with their scores. This is done at once, so that replaying does the same."""
        for row, score in picks:
            self._counted.add(row, score, self.rule.spent(score))
        if picks and self._spent <= self.rule.limit:  # what is beyond its rule stays beyond it
            self._spent = self.rule.total(self._counted)

    def _record(self, row: int, score: float, informative: bool) -> None:
        self.picks.append(row)
        self.scores.append(score)
        self.informative.append(informative)

    def follow(self, picks: Sequence[int]) -> None:
        r"""Repeat the picks of an interrupted run."""
        for _ in picks:
            self.pick()

    @property
    def is_design(self) -> bool:
        r"""Whether the picks belong to an initial design."""
        return False

    @property
    def tree(self) -> TreeState | None:
        r"""The cells after the picks if the domain is a tree, else None."""
        return None

    def inputs_of(self, rows: Tensor, arms: Tensor) -> Tensor:
        r"""Return the inputs of some picks, in the user's units.

        Args:
            rows: ``q`` rows of the table.
            arms: The inputs with which the table started.
        """
        return arms[rows]

    @cached_property
    def _start(self) -> Tensor:
        return self.table.scores()

    def add_waiting(self) -> None:
        r"""Add picks to the table that wait to be added together. This base class has none."""
        return

    def _score_at_start(self, row: int) -> float:
        return float(self._start[row])

    def _scores_at_start(self, rows: Sequence[int]) -> list[float]:
        r"""Return the scores of several rows at the start of the batch."""
        return [self._score_at_start(row) for row in rows]

    @abstractmethod
    def _choose(self) -> int:
        r"""Return the row of the next pick."""

    def _hallucinate(self, row: int) -> None:
        r"""Lower the variances as if ``row`` had been observed. This base class does nothing."""
        return

    def _leave_out(self, row: int) -> None:
        r"""Forget a row that may not be picked again. This base class does nothing."""
        return

    def _score_now(self, row: int) -> float:
        r"""Return the score of a row given the picks so far.

        This base class returns an upper bound, which considers only picks of the same row. ``c``
        observations of a row reduce its ``tau`` to ``tau / (1 + c tau)``.
        """
        score = self._score_at_start(row)
        earlier = self.picks.count(row) + (*self.stragglers, *self.given_up).count(row)
        return score / (1 + earlier * score)
