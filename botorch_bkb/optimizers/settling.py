r"""What happens once results are in: the dictionary is drawn anew, hyperparameters are fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.optimizers.hyperparameters import Hyperparameters, Tuning
from botorch_bkb.optimizers.resampling import Resampling
from botorch_bkb.optimizers.state import State
from botorch_bkb.optimizers.tables import Tables

#: Pulls nobody asked for beyond which the scores of the old model say too little about them.
WARM_START = 512
#: The most points in the dictionary hyperparameters are fitted with.
MOST_FITTED = 500
#: Observations at the next fit over those at this one: all fits together cost five of the last.
#: Twice as many is cheaper and holds on to the length-scale of an unlucky start for too long.
REFIT_GROWTH = 1.25


@dataclass(frozen=True)
class Settling:
    r"""Draws dictionaries and fits hyperparameters when that is due.

    Args:
        tables: The arms and their tables.
        tuning: Which hyperparameters are fitted.
        resampling: How dictionaries are drawn.
        delta: Failure probability, for the oversampling of a longer horizon.
        keeps: Whether the dictionary is what was informative and nothing is drawn.
        generator: Source of randomness; every state has its own state of it.
    """

    tables: Tables
    tuning: Tuning
    resampling: Resampling
    delta: float
    keeps: bool
    generator: torch.Generator

    def settled(self, state: State, table: ArmTable) -> tuple[State, ArmTable]:
        r"""State and table with a new dictionary, and new hyperparameters where they are due."""
        generator = self.generator
        generator.set_state(state.random)
        state = self._with_horizon_doubled(state)
        due = self._is_due(state)
        draw = self._draw_for_fitting if due else self._draw
        dictionary = draw(state, table, generator)
        before = state.hyper
        state, hyper = self._tuned(state, dictionary, generator)
        if hyper != before:
            state, table = self.tables.rebuilt(replace(state, hyper=hyper), dictionary)
            # The models that chose the earlier points are gone; this one scores them all at once.
            gain = table.log_determinant
            state = replace(state, log_sum=gain, log_sum_3=3 * gain)
        if due or hyper != before:
            dictionary = self._draw(state, table, generator)
        state, table = self.tables.exchanged(state, table, dictionary)
        random = generator.get_state()
        return replace(state, settled=True, unasked=0, batch=None, random=random), table

    def _draw(self, state: State, table: ArmTable, generator: torch.Generator) -> Tensor:
        history, rows = state.history, state.history.rows
        noise = table.noise_var * history.counts / history.weights
        if self.keeps:
            kept = state.kept if len(state.kept) else rows.new_tensor([state.newest])
            places = torch.searchsorted(rows, kept)
            return rows[self.resampling.capped(places, table.settled_variance(rows) / noise)]
        if state.unasked > WARM_START and math.isfinite(state.oversampling):
            return self.resampling.draw_from_scratch(
                table.X[rows], table.kernel, noise, history, state.oversampling, generator
            )
        scores = table.settled_variance(rows) / noise
        return self.resampling.draw(
            scores, history, state.coins, state.oversampling, state.newest, generator
        )

    def _is_due(self, state: State) -> bool:
        r"""Whether hyperparameters are to be fitted now."""
        t = state.history.num_observations
        return self.tuning.fits and t >= max(self.tuning.first_fit, state.next_fit)

    def _draw_for_fitting(
        self, state: State, table: ArmTable, generator: torch.Generator
    ) -> Tensor:
        r"""A dictionary of bounded size: the present hyperparameters may ask for thousands.

        At random where there are too many: those of highest score are the outlying ones, and a fit
        to these predicted worse.
        """
        rows = state.history.rows
        if state.unasked <= WARM_START:
            rows = self._draw(state, table, generator)
        if len(rows) <= MOST_FITTED:
            return rows
        device = generator.device
        some = torch.randperm(len(rows), generator=generator, device=device)[:MOST_FITTED]
        return rows[some.sort().values.to(rows.device)]

    def _tuned(
        self, state: State, dictionary: Tensor, generator: torch.Generator
    ) -> tuple[State, Hyperparameters]:
        r"""Hyperparameters for what is known now, and the state that knows when to look again."""
        tuning, history = self.tuning, state.history
        t = history.num_observations
        if not tuning.standardise or tuning.first_fit <= t < state.next_fit:
            return state, state.hyper
        hyper = tuning.restandardised(state.hyper, history, state.noise_known)
        if t < tuning.first_fit:
            return state, hyper
        if tuning.fits and len(history.rows) > 1:
            seed = int(torch.randint(2**31, (), generator=generator))
            X = tuning.inputs(self.tables.points(state, history.rows))
            positions = torch.searchsorted(history.rows, dictionary)
            fitted = tuning.fit(X, history, positions, state.noise_known, seed)
            hyper = state.hyper if fitted is None else fitted
        return replace(state, next_fit=math.ceil(REFIT_GROWTH * t)), hyper

    def _with_horizon_doubled(self, state: State) -> State:
        r"""BKB, Section 3.2: a run that outlives its horizon samples more from now on."""
        while state.horizon is not None and state.history.num_observations > state.horizon:
            # Both theorems' oversampling grows with log(4 T / delta).
            now, then = (math.log(4 * T / self.delta) for T in (2 * state.horizon, state.horizon))
            state = replace(
                state, horizon=2 * state.horizon, oversampling=state.oversampling * now / then
            )
        return state
