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
    precisions: Tensor | None = None  #: ``1 / v`` where ``v`` is known, else zero

    def part(self, part: slice | Tensor) -> Results:
        r"""Return some of the results."""
        chosen = torch.arange(len(self.rows), device=self.rows.device)[part]
        ids = tuple(self.ids[i] for i in chosen.tolist())
        precisions = None if self.precisions is None else self.precisions[chosen]
        return Results(
            self.rows[chosen], ids, self.rewards[chosen], self.weights[chosen], precisions
        )

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
        measured: Where some results have variances of their own while the noise of others is
            fitted: these results, with the weights ``1 / v``. Else None.
        plain: The other results then.
    """

    history: History
    added: Tensor
    informative: Tensor
    newest: int = -1
    num_informative: int = 0
    num_discarded: int = 0
    num_skipped: int = 0
    best_reward: float = -math.inf
    measured: History | None = None
    plain: History | None = None

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
        parts = {
            name: part.renumbered(new_rows(part.rows))
            for name in ("measured", "plain")
            if (part := getattr(self, name)) is not None
        }
        return replace(
            self,
            **parts,
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
        after = replace(after, history=history, newest=int(believed.rows[-1]))
        return after if self.measured is None else after._with_parts(believed)

    def _with_parts(self, results: Results) -> Observations:
        r"""Return the observations with results added to those measured and those that are not."""
        assert self.measured is not None and self.plain is not None
        measured, plain, precisions = self.measured, self.plain, results.precisions
        precisions = torch.zeros_like(results.weights) if precisions is None else precisions
        has = precisions > 0
        if has.any():
            measured = measured.with_pulls(results.rows[has], results.rewards[has], precisions[has])
        if not has.all():
            ones = torch.ones_like(results.weights[~has])
            plain = plain.with_pulls(results.rows[~has], results.rewards[~has], ones)
        return replace(self, measured=measured, plain=plain)

    def told_apart(self) -> Observations:
        r"""Return the observations such that results with variances are kept apart from now on.

        None of those so far has one.
        """
        if self.measured is not None:
            return self
        return replace(self, measured=History.empty(self.added.device), plain=self.history)

    def weighted(self, noise_var: float) -> Observations:
        r"""Return the observations with weights for another noise variance.

        Args:
            noise_var: ``lambda``, in units of the rewards.
        """
        if self.measured is None or self.plain is None:
            return self
        return replace(self, history=self.plain.combined(self.measured, noise_var))

    def without(self, dropped: Tensor) -> Observations:
        r"""Return the observations without some rows of the history.

        Args:
            dropped: Booleans, one per row of the history.
        """
        history = self.history.without(dropped)
        informative = self.informative[torch.isin(self.informative, history.rows)]
        return replace(self, history=history, informative=informative)
