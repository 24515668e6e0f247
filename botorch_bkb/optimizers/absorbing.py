r"""What becomes of results: which are believed, what they were worth, and the belief after them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.optimizers.compression import Compression
from botorch_bkb.optimizers.reading import Told
from botorch_bkb.optimizers.settling import Settling
from botorch_bkb.optimizers.state import Change, State
from botorch_bkb.optimizers.width import Widths


@dataclass(frozen=True)
class Absorbing:
    r"""Absorbs results one block after another.

    Args:
        compression: Which results are believed.
        widths: Doubles ``F`` where a result says so.
        settling: What follows when nothing is pending any more.
    """

    compression: Compression
    widths: Widths
    settling: Settling

    def absorbed(self, state: State, table: ArmTable, told: Told) -> tuple[State, ArmTable]:
        r"""State and table with some results more."""
        compression, first = self.compression, not state.history.num_observations
        kept = compression.kept(table, told.rows, told.weights)
        believed = told.part(kept) if compression.discard else told
        state = self._logged(state, table, told, kept)
        state = replace(
            state,
            discarded=state.discarded + len(told.rows) - len(believed.rows),
            num_kept=state.num_kept + int(kept.sum()),
            incumbent=max([state.incumbent, *told.rewards[kept].tolist()]),
            batch=None,
        )
        if not compression.discard:
            state = replace(state, kept=torch.cat([state.kept, told.rows[kept]]).unique())
        if len(believed.rows) == 0:
            return state, table
        rewards = state.hyper.to_model(believed.rewards)
        table.observe(believed.rows, rewards, believed.weights)
        state = self._with_pulls(state, believed)
        # The first results are settled at once: until then there is no dictionary.
        return self.settling.settled(state, table) if first or not state.pending else (state, table)

    def _logged(self, state: State, table: ArmTable, told: Told, kept: Tensor) -> State:
        r"""Scores under the model that chose each point; ``F`` doubled where it must be."""
        scores, pending = [0.0] * len(told.ids), dict(state.pending)
        if self.widths.doubles_norm or None in told.ids:
            mean, var = table.moments_at(told.rows)
            gap = (state.hyper.to_model(told.rewards) - mean).abs()
            state = self.widths.with_norm_doubled(state, table, gap, var.sqrt(), told.weights)
            scores = (var / table.noise_var).tolist()
        for i, id_ in enumerate(told.ids):
            if id_ is not None:
                scores[i] = pending.pop(id_).score
        logged = torch.tensor(scores, dtype=torch.float64, device=kept.device) * told.weights
        if self.compression.discard:
            logged = logged[kept]
        return replace(
            state,
            pending=pending,
            unasked=state.unasked + told.ids.count(None),
            log_sum=state.log_sum + float(logged.log1p().sum()),
            log_sum_3=state.log_sum_3 + float((3 * logged).log1p().sum()),
        )

    def _with_pulls(self, state: State, told: Told) -> State:
        history = state.history.with_pulls(told.rows, told.rewards, told.weights)
        resampling, generator = self.settling.resampling, self.settling.generator
        generator.set_state(state.random)
        coins = resampling.coins(state.history, state.coins, history, generator)
        none = told.rows[:0]
        change = Change(state.added[:0], told.rows, told.rewards, told.weights, none)
        return replace(
            state,
            history=history,
            coins=coins,
            recipe=state.recipe.followed_by(change),
            random=generator.get_state(),
            newest=int(told.rows[-1]),
            settled=False,
        )
