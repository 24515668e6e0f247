r"""A finite set of arms, searched exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from botorch_bkb.batches import (
    Batch,
    ExactBatch,
    GreedyBatch,
    LazyBatch,
    ThompsonBatch,
    UpperBound,
)
from botorch_bkb.optimizers.acquisitions import AcquisitionCriterion
from botorch_bkb.optimizers.domains.domain import (
    Domain,
    Situation,
    Strategy,
    batch_options,
    generator_of,
)
from botorch_bkb.optimizers.reading import Points, check_arms, read_points
from botorch_bkb.optimizers.state import State
from botorch_bkb.optimizers.suggestion import Suggestion
from botorch_bkb.rows import RowIndex


class Arms(Domain):
    r"""``A`` arms.

    Args:
        arms: ``A x d``.
    """

    def __init__(self, arms: Tensor) -> None:
        check_arms(arms)
        # What the user does to it later is nobody's business.
        self.extent = arms.detach().clone()
        self.index = RowIndex(self.extent)
        self.num_arms = len(arms)

    @property
    def checksum(self) -> int:
        r"""Of the arms."""
        return self.index.checksum

    def read(self, points: Suggestion | Tensor | Sequence, state: State) -> Points:
        r"""A suggestion, rows of the arms, or inputs, which need not be arms."""
        return read_points(points, self.index, state.added, state.pending)

    def begin(self, strategy: Strategy, situation: Situation) -> Batch:
        r"""A new batch; upper bounds are refreshed lazily where picks do not join at once."""
        table, record, rule = situation.table, situation.record, strategy.rule
        options = {"num_arms": self.num_arms, **batch_options(strategy, situation)}
        if strategy.acquisition == "thompson":
            return ThompsonBatch(table, rule, generator_of(record), **options)
        if strategy.acquisition == "greedy":
            return GreedyBatch(table, rule, strategy.epsilon, generator_of(record), **options)
        if strategy.acquisition != "ucb":
            criterion = AcquisitionCriterion(
                strategy.acquisition,
                situation.incumbent,
                math.sqrt(table.kernel_bound) or 1.0,
                situation.state.hyper,
            )
            return ExactBatch(table, rule, criterion, **options)
        if strategy.exact:
            return ExactBatch(table, rule, UpperBound(record.width), **options)
        return LazyBatch(table, rule, record.width, **options)

    def points(self, batch: Batch, rows: Tensor) -> Tensor:
        r"""The arms."""
        return self.index.X[rows]

    def indices(self, rows: Tensor) -> Tensor | None:
        r"""The rows themselves."""
        return rows

    def contenders(self, state: State) -> Tensor | slice:
        r"""All arms."""
        return slice(self.num_arms)

    def highest_bound(self, strategy: Strategy, situation: Situation) -> float:
        r"""Over all arms."""
        mean, var = (t[: self.num_arms] for t in situation.table.moments())
        return float(UpperBound(situation.record.width)(mean, var).max())
