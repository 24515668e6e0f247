r"""What becomes of results: which are believed, what they were worth, and the belief after them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.belief import chunks
from botorch_bkb.dictionaries.threshold import BLOCK
from botorch_bkb.optimizers.compression import Compression
from botorch_bkb.optimizers.reading import Told
from botorch_bkb.optimizers.settling import Settling
from botorch_bkb.optimizers.state import Change, State
from botorch_bkb.optimizers.width import Widths


def scores_in_order(table: ArmTable, rows: Tensor, weights: Tensor) -> Tensor:
    r"""``tau`` of each row given those before it, times its weight: what it teaches after them.

    With ``C + Lam = LL'`` for the covariance ``C`` of the rows, ``L_ii^2`` is the variance of the
    observation of row ``i`` given the observations of rows before it.

    Args:
        table: The belief before them.
        rows: ``q`` rows, repetitions allowed.
        weights: ``q`` numbers ``lambda / v`` for results with noise variance ``v``.
    """
    scores = [weights[:0]]
    for block in chunks(len(rows), BLOCK):
        noise = table.noise_var / weights[block]
        root = psd_safe_cholesky(table.covariance(rows[block]) + torch.diag(noise))
        scores.append((root.diagonal().square() / noise - 1).clamp_min(0))
    return torch.cat(scores)


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
        state = self._with_norm_doubled(state, table, told)
        state = self._logged(state, table, believed)
        answered, rows = set(told.ids), set(told.rows.tolist())
        state = replace(
            state,
            pending={id_: p for id_, p in state.pending.items() if id_ not in answered},
            lost=tuple(row for row in state.lost if row not in rows),
            discarded=state.discarded + len(told.rows) - len(believed.rows),
            num_kept=state.num_kept + int(kept.sum()),
            incumbent=max([state.incumbent, *believed.rewards.tolist()]),
            batch=None,
        )
        if not compression.discard:
            state = replace(state, kept=torch.cat([state.kept, told.rows[kept]]).unique())
        if len(believed.rows) == 0:
            return state, table
        rewards = state.hyper.to_model(believed.rewards)
        table.observe(believed.rows, rewards, believed.weights)
        state = self._with_pulls(state, believed)
        # A batch's results wait for each other, so that one dictionary is drawn for all. First
        # results, results nobody asked for and those of exact beliefs are seen by readers at once.
        unasked = told.ids.count(None)
        if state.pending and not (first or unasked or math.isinf(state.oversampling)):
            return state, table
        state, table = self.settling.settled(state, table)
        if unasked > BLOCK:  # too many for scores of their own
            gain = table.log_determinant
            state = replace(state, log_sum=gain, log_sum_3=3 * gain)
        return state, table

    def _with_norm_doubled(self, state: State, table: ArmTable, told: Told) -> State:
        r"""``F`` doubled where a result says so."""
        if not self.widths.doubles_norm:
            return state
        mean, var = table.moments_at(told.rows)
        gap = (state.hyper.to_model(told.rewards) - mean).abs()
        return self.widths.with_norm_doubled(state, table, gap, var.sqrt(), told.weights)

    def _logged(self, state: State, table: ArmTable, told: Told) -> State:
        r"""Scores under the model that chose each point, of points nobody asked for in order."""
        scores = torch.zeros_like(told.weights)
        asked = torch.tensor(
            [id_ is not None for id_ in told.ids], dtype=torch.bool, device=scores.device
        )
        chosen = [state.pending[id_].score for id_ in told.ids if id_ is not None]
        scores[asked] = scores.new_tensor(chosen) * told.weights[asked]
        scores[~asked] = scores_in_order(table, told.rows[~asked], told.weights[~asked])
        return replace(
            state,
            unasked=state.unasked + told.ids.count(None),
            log_sum=state.log_sum + float(scores.log1p().sum()),
            log_sum_3=state.log_sum_3 + float((3 * scores).log1p().sum()),
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
