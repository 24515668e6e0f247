r"""What an optimizer needs to know of the set it searches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Batch, BatchRule
from botorch_bkb.confidence import HEURISTIC
from botorch_bkb.optimizers.acquisitions import Factory
from botorch_bkb.optimizers.compression import Compression
from botorch_bkb.optimizers.reading import Points
from botorch_bkb.optimizers.state import BatchRecord, State
from botorch_bkb.optimizers.suggestion import Suggestion
from botorch_bkb.optimizers.tables import Tables
from botorch_bkb.rows import RowIndex


@dataclass(frozen=True)
class Strategy:
    r"""How picks are made: what stays the same for a whole run.

    Attributes:
        acquisition: A name, or a function that makes an acquisition function of a model.
        rule: When a batch is complete.
        exact: Whether everything observed is in the dictionary.
        epsilon: Probability of a random point where the acquisition is greedy.
        max_batch_size: The most points in a batch.
        compression: Which points are informative, and what becomes of the others.
    """

    acquisition: str | Factory
    rule: BatchRule
    exact: bool
    epsilon: float
    max_batch_size: int
    compression: Compression


@dataclass(frozen=True)
class Situation:
    r"""What a batch is made from.

    Attributes:
        state: The state of the run.
        table: Its table; the batch may add rows to it.
        record: Width, seed and unanswered rows of the batch.
        tables: What the table was made by.
    """

    state: State
    table: ArmTable
    record: BatchRecord
    tables: Tables

    @property
    def incumbent(self) -> float:
        r"""The best reward in the belief, in the model's units."""
        hyper = self.state.hyper
        return (self.state.incumbent - hyper.offset) / hyper.scale


class Domain(ABC):
    r"""A set to be searched.

    Attributes:
        index: The ``r x d`` inputs with which the table starts.
        extent: Inputs whose ranges are those of the domain.
        num_arms: How many of the rows may be picked; 0 where picks are made up.
        dim: ``d``.
        heuristic_width: Width of confidence bounds without a guarantee, in standard deviations.
    """

    heuristic_width: ClassVar[float] = HEURISTIC
    index: RowIndex
    extent: Tensor
    num_arms: int

    @property
    def dim(self) -> int:
        r"""Number of dimensions."""
        return self.extent.shape[-1]

    @property
    @abstractmethod
    def checksum(self) -> int:
        r"""To recognise the domain of a saved state by."""

    @abstractmethod
    def read(self, points: Suggestion | Tensor | Sequence, state: State) -> Points:
        r"""Rows of the points of a tell."""

    @abstractmethod
    def begin(self, strategy: Strategy, situation: Situation) -> Batch:
        r"""A new batch."""

    def remember(self, state: State, batch: Batch) -> State:
        r"""What picks have changed besides the rows they added."""
        return state

    @abstractmethod
    def points(self, batch: Batch, rows: Tensor) -> Tensor:
        r"""Inputs of picks of a batch, ``q x d``."""

    @abstractmethod
    def indices(self, rows: Tensor) -> Tensor | None:
        r"""What the user calls these rows of the table."""

    @abstractmethod
    def contenders(self, state: State) -> Tensor | slice:
        r"""Rows among which the best is recommended."""

    @abstractmethod
    def highest_bound(self, strategy: Strategy, situation: Situation) -> float:
        r"""The highest upper confidence bound, in the model's units."""


def batch_options(strategy: Strategy, situation: Situation) -> dict[str, Any]:
    r"""Keyword arguments all batches take."""
    return {
        "stragglers": situation.record.stragglers,
        "lost": situation.record.lost,
        "max_size": strategy.max_batch_size,
        "threshold": strategy.compression.threshold,
        "ends_uninformed": strategy.compression.ends_batch,
    }


def generator_of(record: BatchRecord) -> torch.Generator:
    r"""A batch's own source of randomness."""
    return torch.Generator().manual_seed(record.seed)
