r"""``BatchContext``: what a batch is picked from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from botorch_bkb.acquisition import Acquisition
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches.models import BeliefModels
from botorch_bkb.batches.rule import BatchRule
from botorch_bkb.dictionaries import DictionaryRule, threshold_of
from botorch_bkb.state.in_flight import BatchRecord
from botorch_bkb.state.state import State


@dataclass(frozen=True, eq=False)
class BatchContext:
    r"""What a batch is picked from: the belief, what is in flight, and the rules.

    Attributes:
        state: The state of the run, in which the batch has begun.
        table: The table of the state. The batch may add rows to it.
        models: The belief as BoTorch models.
        acquisition: What is maximised.
        dictionary: How the dictionary is chosen.
        rule: When the batch is complete.
    """

    state: State
    table: ArmTable
    models: BeliefModels
    acquisition: Acquisition
    dictionary: DictionaryRule
    rule: BatchRule

    @property
    def record(self) -> BatchRecord:
        r"""Width, seed and earlier picks of the batch."""
        record = self.state.in_flight.batch
        assert record is not None
        return record

    @property
    def best_reward(self) -> float:
        r"""The best reward in the belief, in the model's units."""
        return self.state.hyper.units.to_model(self.state.observations.best_reward)

    @property
    def prior_deviation(self) -> float:
        r"""The largest prior standard deviation, in the model's units.

        Acquisition functions are computed in units of it: BoTorch's floors are absolute.
        """
        return self.table.kernel_bound**0.5 or 1.0

    @property
    def options(self) -> dict[str, Any]:
        r"""The keyword arguments that all batches take."""
        threshold = threshold_of(self.dictionary)
        return {
            "stragglers": self.record.stragglers,
            "given_up": self.record.given_up,
            "threshold": threshold.least_score,
            "ends_uninformed": threshold.ends_batch,
            "joins": self.dictionary.joins_at_once,
        }

    @property
    def first_row(self) -> int | None:
        r"""The first pick of a run over arms, drawn when it began; None later.

        Reference:
            Calandriello et al., COLT 2019 and ICML 2020. (Algorithm 1 of BKB and of BBKB.)
        """
        record = self.record
        if self.state.history.num_observations or record.stragglers or record.given_up:
            return None
        return int(self.state.table.dictionary[0])

    def generator(self) -> torch.Generator:
        r"""Return the batch's own source of randomness."""
        return torch.Generator().manual_seed(self.record.seed)
