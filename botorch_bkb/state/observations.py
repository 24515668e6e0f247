r"""What was observed so far, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_bkb.models.history import LEAST_WEIGHT, History
from botorch_bkb.rows import appended, take_rows


class Results(NamedTuple):
    r"""Results that the user told, ``q`` of each, in units of the rewards."""

    rows: Tensor
    ids: tuple[int | None, ...]  #: ids of the pending points they answer; None for others
    rewards: Tensor
    weights: Tensor  #: ``lambda / v`` for a result with noise variance ``v``

    def part(self, part: slice | Tensor) -> Results:
        r"""Return some of the results."""
        chosen = torch.arange(len(self.rows), device=self.rows.device)[part]
        ids = tuple(self.ids[i] for i in chosen.tolist())
        return Results(self.rows[chosen], ids, self.rewards[chosen], self.weights[chosen])

    @property
    def num_unsolicited(self) -> int:
        r"""The number of results for points that the optimizer had not asked for."""
        return self.ids.count(None)


@dataclass(frozen=True, eq=False)
class Observations:
    r"""What was observed so far.

    Attributes:
        history: The results in the belief, one entry per distinct input.
        added: ``h x d`` inputs that were asked or observed and are not in the domain's own index;
            rows ``A ..`` of the table.
        newest: The row observed last; -1 before the first result.
        informative: Rows whose results were informative, where others are in the belief, too.
        num_informative: The number of informative results.
        num_discarded: The number of results that were left out of the belief.
        num_skipped: The number of steps without a result, since the point would have taught too
            little.
        best_reward: The best reward in the belief.
    """

    history: History
    added: Tensor
    informative: Tensor
    newest: int = -1
    num_informative: int = 0
    num_discarded: int = 0
    num_skipped: int = 0
    best_reward: float = -math.inf

    @classmethod
    def none(cls, like: Tensor) -> Observations:
        r"""Return the observations of a new run; ``like`` is any ``r x d`` inputs."""
        history = History.empty(like.device)
        return cls(history, like[:0], history.rows)

    @property
    def num_observations(self) -> int:
        r"""The number of results told, those left out of the belief included."""
        return self.history.num_observations + self.num_discarded

    @property
    def num_steps(self) -> int:
        r"""The number of results told and steps skipped."""
        return self.num_observations + self.num_skipped

    def inputs(self, arms: Tensor, rows: Tensor) -> Tensor:
        r"""Return the inputs of some rows of the table, as the user gave them.

        Args:
            arms: The inputs of the first rows.
            rows: ``q`` rows.
        """
        return take_rows(arms, self.added, rows)

    def renumbered(self, new_rows: Callable[[Tensor], Tensor], added: Tensor) -> Observations:
        r"""Return the same observations with other row numbers.

        Args:
            new_rows: Maps old row numbers to new ones.
            added: The inputs behind those of the domain's own index.
        """
        newest = self.newest
        if len(self.history.rows):
            newest = int(new_rows(self.history.rows.new_tensor([newest])))
        return replace(
            self,
            history=self.history.renumbered(new_rows(self.history.rows)),
            added=added,
            newest=newest,
            informative=new_rows(self.informative).sort().values,
        )

    def with_rows(self, X: Tensor) -> Observations:
        r"""Return the observations with ``h x d`` more inputs, not yet observed."""
        return replace(self, added=appended(self.added, X)) if len(X) else self

    def with_skipped(self, change: int) -> Observations:
        r"""Return the observations with more skipped steps, or fewer if ``change`` is negative."""
        return replace(self, num_skipped=self.num_skipped + change)

    def with_results(
        self, results: Results, is_informative: Tensor, discard: bool, retention: float = 1.0
    ) -> Observations:
        r"""Return the observations with more results.

        Args:
            results: The results.
            is_informative: ``q`` booleans.
            discard: Whether uninformative results are left out of the belief.
            retention: The factor by which weights fall with every result in the belief.
        """
        believed = results.part(is_informative) if discard else results
        after = replace(
            self,
            num_discarded=self.num_discarded + len(results.rows) - len(believed.rows),
            num_informative=self.num_informative + int(is_informative.sum()),
            best_reward=max([self.best_reward, *believed.rewards.tolist()]),
        )
        if not discard:
            rows = torch.cat([self.informative, results.rows[is_informative]]).unique()
            after = replace(after, informative=rows)
        if len(believed.rows) == 0:
            return after
        history, weights = self.history, believed.weights
        if retention < 1:
            history = history.decayed(retention ** len(weights))
            age = torch.arange(len(weights) - 1, -1, -1, device=weights.device, dtype=weights.dtype)
            weights = (weights * retention**age).clamp_min(LEAST_WEIGHT)
        history = history.with_pulls(believed.rows, believed.rewards, weights)
        return replace(after, history=history, newest=int(believed.rows[-1]))

    def without(self, dropped: Tensor) -> Observations:
        r"""Return the observations without some rows of the history.

        Args:
            dropped: Booleans, one per row of the history.
        """
        history = self.history.without(dropped)
        informative = self.informative[torch.isin(self.informative, history.rows)]
        return replace(self, history=history, informative=informative)
