r"""What every optimizer knows: its parts, its state, and the belief that can be read."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, Self

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Batch, BatchContext, BeliefModels, Elimination, Request
from botorch_bkb.dictionaries import RidgeLeverageSampling
from botorch_bkb.domains import Arms, Domain, PartitionTree, Suggestion, Tree
from botorch_bkb.models import DTCGP
from botorch_bkb.models.history import History
from botorch_bkb.optimizers.elimination import survivors
from botorch_bkb.optimizers.exclusive import exclusive, unstable
from botorch_bkb.optimizers.parts import Parts
from botorch_bkb.optimizers.start import initial_state, seeded_generator
from botorch_bkb.optimizers.tables import build_table
from botorch_bkb.optimizers.updating import Updater
from botorch_bkb.state.components import TreeState
from botorch_bkb.state.state import State
from botorch_bkb.validation import warn_of_single_precision


class OptimizerBase:
    r"""Parts, state and belief of an optimizer.

    Attributes:
        parts: The six parts.
        seed: The seed of all randomness.
    """

    parts: Parts
    seed: int | None

    @classmethod
    def from_parts(cls, parts: Parts, seed: int | None = None) -> Self:
        r"""Make an optimizer of this class from its parts, whatever arguments its class takes.

        Args:
            parts: The parts, as those of another optimizer of the class.
            seed: Seed of all randomness.
        """
        self = cls.__new__(cls)
        self._begin(parts, seed)
        return self

    def _begin(self, parts: Parts, seed: int | None) -> None:
        warn_of_single_precision("Inputs", parts.domain.extent)
        self._lock = threading.RLock()
        self.seed, self._generator = seed, seeded_generator(seed)
        self._updater = Updater(parts, self._generator)
        self._use(parts)
        self._state = initial_state(parts, self._generator)

    def _use(self, parts: Parts) -> None:
        r"""Take on parts; what was computed with others is forgotten."""
        self.parts = self._updater.parts = parts
        self._forget()

    def _forget(self) -> None:
        r"""Drop what can be computed again, to the last bit."""
        self._models = BeliefModels(self.parts.domain.index.X)
        self._cached_table: ArmTable | None = None
        self._cached_batch: Batch | None = None

    def _restore(self, parts: Parts, state: State) -> None:
        r"""Return to earlier parts and an earlier state, unless they are the present ones."""
        if self.parts is not parts:
            self._use(parts)
        if self._state is not state:
            self._state = state
            self._cached_table = self._cached_batch = None

    @exclusive
    def __getstate__(self) -> dict[str, Any]:
        r"""Return what ``pickle`` and ``deepcopy`` need: all but what can be computed again."""
        dropped = {"_lock", "_models", "_cached_table", "_cached_batch"}
        return {name: value for name, value in vars(self).items() if name not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()
        self._forget()

    def __repr__(self) -> str:
        r"""Return what it optimises, and how far it is."""
        domain = self.domain
        where = f"{len(domain.arms):,} arms in" if isinstance(domain, Arms) else "a box of"
        return (
            f"<{type(self).__name__} over {where} {domain.dim} dimensions, "
            f"{self.num_observations:,} observations, {len(self._state.in_flight.pending):,} "
            "pending>"
        )

    @property
    def domain(self) -> Domain:
        r"""The set that is searched."""
        return self.parts.domain

    @property
    def device(self) -> torch.device:
        r"""The device of the arms or bounds, on which everything is computed."""
        return self.domain.device

    @property
    def dtype(self) -> torch.dtype:
        r"""The dtype of the arms or bounds, and of every suggestion."""
        return self.domain.dtype

    @property
    def arms(self) -> Tensor:
        r"""The ``A x d`` arms."""
        if not isinstance(self.domain, Arms):
            raise UnsupportedError("An optimizer over a box has no arms; see `domain.bounds`.")
        return self.domain.arms

    @property
    def survivors(self) -> Tensor:
        r"""The rows of the arms that were not eliminated, the first of equal arms."""
        stage = self._state.in_flight.stage
        if stage is None or not isinstance(self.domain, Arms):
            raise UnsupportedError(
                f"{type(self).__name__} eliminates no arms: use BatchedElimination, or the batch "
                "rule Elimination."
            )
        return survivors(self.domain, stage)

    @property
    def tree(self) -> PartitionTree:
        r"""The cells into which a box is cut so far, where it is searched through a tree.

        Its ``leaves`` may have the maximum, and those that were ``pruned`` do not, if bounds hold.
        """
        if not isinstance(self.domain, Tree):
            raise UnsupportedError(
                f"{type(self).__name__} has no tree: use AdaBKB, AdaBBKB or AdaGPUCB, or the "
                "domain Tree."
            )
        cells = self._state.tree or TreeState.over(self.domain.bounds)
        return cells.tree

    @property
    @exclusive
    def model(self) -> DTCGP:
        r"""The belief as a BoTorch model: distinct inputs, mean rewards, their noise variances."""
        if not self._state.history.num_observations:
            raise InputDataError("There is no model before the first result: tell one first.")
        return self._models.in_rewards(self._state)

    @property
    @exclusive
    def table(self) -> ArmTable:
        r"""The posterior at all arms, in the model's units, to be read and not to be changed.

        Over a box its rows are the points asked or observed so far.
        """
        return self._table()

    @property
    def history(self) -> History:
        r"""The results in the belief: one entry per distinct row of :attr:`table`."""
        return self._state.history

    @property
    def pending(self) -> Suggestion:
        r"""The points asked and not told."""
        state = self._state
        pending = state.in_flight.pending
        rows, beyond = (
            torch.tensor(values, device=self.device, dtype=dtype)
            for values, dtype in (
                ([point.row for point in pending.values()], torch.long),
                ([point.beyond for point in pending.values()], torch.bool),
            )
        )
        X = state.observations.inputs(self.domain.index.X, rows)
        return Suggestion(X, self.domain.indices(rows), tuple(pending), beyond=beyond)

    @property
    def num_observations(self) -> int:
        r"""The number of results told so far."""
        return self._state.observations.num_observations

    @property
    def num_steps(self) -> int:
        r"""The number of results told and steps skipped so far: the papers' ``t``."""
        return self._state.observations.num_steps

    @property
    def model_order(self) -> int:
        r"""``M``: the number of informative results; all, without an information threshold."""
        return self._state.observations.num_informative

    @property
    def dictionary(self) -> Tensor:
        r"""The ``m x d`` points of the dictionary; none before the first result."""
        first, state = self.domain.index.X, self._state
        if not state.history.num_observations:
            return first[:0]
        return state.observations.inputs(first, state.table.dictionary)

    @property
    @exclusive
    def effective_dimension(self) -> float:
        r"""``d_eff = sum_s tau(x_s)`` over the pulls, under the present belief, up to rounding."""
        return self._table().effective_dimension

    @property
    def information_gain(self) -> float:
        r"""``1/2 sum_s log(1 + tau(x_s))``, each score the one its point had when chosen."""
        return self._state.confidence.log_sum / 2

    @property
    @exclusive
    def width_now(self) -> float:
        r"""The width of the bounds in posterior standard deviations: of this batch, or the next."""
        batch = self._state.in_flight.batch
        if batch is not None:
            return batch.width
        return self.parts.width_now(self._state, self._table())

    @property
    def noise_is_known(self) -> bool:
        r"""Whether results may come with variances of their own: they do, or noise was given."""
        return self.parts.model.noise_is_fixed or self._state.model.noise_known is not None

    @property
    def can_exceed_batches(self) -> bool:
        r"""Whether points beyond the batch rule can be asked for without harm.

        The sizes of batches with elimination are fixed, and points that would teach too little are
        not to be paid for.
        """
        return not (isinstance(self.parts.batch, Elimination) or self.parts.threshold.ends_batch)

    @property
    def norm_bound(self) -> float:
        r"""``F``, as doubled so far, in the model's units."""
        return self._state.confidence.norm_bound

    @property
    def oversampling(self) -> float | None:
        r"""``q̄``, as raised so far; None where the dictionary is not sampled."""
        rule = self.parts.dictionary_after(self._state.history.num_observations)
        return rule.rate if isinstance(rule, RidgeLeverageSampling) else None

    def _table(self) -> ArmTable:
        self._cached_table = table = self._take_table()
        return table

    def _take_table(self) -> ArmTable:
        r"""Return the table of the present state; the cache is empty until it is put back."""
        table, self._cached_table = self._cached_table, None
        return build_table(self.domain, self._state) if table is None else table

    def _commit(self, state: State, table: ArmTable, batch: Batch | None = None) -> None:
        r"""Replace everything at once: whatever is interrupted before this has not happened.

        Args:
            state: The new state. The log of the table is copied into it.
            table: Its table.
            batch: The batch being asked, if any.
        """
        if not table.is_finite:
            raise unstable(self.parts.model, "it has overflowed")
        self._state = replace(state, table=table.log)
        self._cached_table, self._cached_batch = table, batch

    def _context(self, state: State, request: Request | None = None) -> BatchContext:
        parts = self.parts
        return BatchContext(
            state,
            self._table(),
            self._models,
            parts.acquisition,
            parts.dictionary,
            parts.batch,
            request or Request(),
            parts.model.fits,
        )
