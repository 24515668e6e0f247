r"""``BatchContext``: what a batch is picked from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from botorch_bkb.acquisition import Acquisition
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches.candidates import Candidates
from botorch_bkb.batches.models import BeliefModels
from botorch_bkb.batches.request import Request
from botorch_bkb.batches.rule import BatchRule
from botorch_bkb.dictionaries import DictionaryRule, threshold_of
from botorch_bkb.domains import Arms, Domain
from botorch_bkb.state.in_flight import BatchRecord
from botorch_bkb.state.state import State

#: As many points as the batch rule allows, without conditions.
ANYTHING = Request()


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
        request: What the user wants of this ask.
        fits: Whether hyperparameters are fitted.
    """

    state: State
    table: ArmTable
    models: BeliefModels
    acquisition: Acquisition
    dictionary: DictionaryRule
    rule: BatchRule
    request: Request = ANYTHING
    fits: bool = False

    @property
    def record(self) -> BatchRecord:
        r"""Width, seed and earlier picks of the batch."""
        record = self.state.in_flight.batch
        assert record is not None
        return record

    def acquisition_of(self, pick: int) -> Acquisition:
        r"""Return what is maximised by a pick of the batch; its number begins at 0."""
        if self.record.stragglers or self.record.given_up:
            return self.acquisition.turn(0)
        return self.acquisition.turn(self.state.history.num_observations + pick)

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
            # What was asked for by number is evaluated, whatever it teaches.
            "ends_uninformed": threshold.ends_batch and self.request.n is None,
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

    def left_of_design(self, domain: Domain) -> int:
        r"""Return how many points of the initial design are to be asked.

        Results that were told, and points that are pending, take the place of points of the design.
        Before the first result a number of points that the user chose is the size of the design.
        """
        size, told = domain.size_of_design(self.fits), self.state.observations.num_observations
        if size and not told and self.request.n is not None:
            return self.request.n
        left = size - max(self.record.designed, told + len(self.record.stragglers))
        return max(0, left if self.request.n is None else min(left, self.request.n))

    def candidates(self, domain: Arms) -> Candidates | None:
        r"""Return how often arms may be picked; None where there are no limits."""
        history, first, request = self.state.history, domain.index.first, self.request
        evaluated = torch.zeros(first.shape, dtype=torch.float64, device=first.device)
        among = history.rows < len(first)
        evaluated[history.rows[among]] = history.counts[among]
        return Candidates.of(
            first,
            evaluated=evaluated,
            max_replicates=domain.max_replicates,
            taken=self.record.stragglers,
            distinct=request.distinct,
            exclude=request.exclude,
        )

    def generator(self) -> torch.Generator:
        r"""Return the batch's own source of randomness."""
        return torch.Generator().manual_seed(self.record.seed)
