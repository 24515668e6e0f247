r"""What ``tell`` does with results: which are believed, and the belief after them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from botorch.exceptions.errors import InputDataError
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.belief import chunks
from botorch_bkb.confidence import noise_over_time
from botorch_bkb.dictionaries.threshold import BLOCK
from botorch_bkb.linalg import scan_informative
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.parts import Parts
from botorch_bkb.optimizers.tables import new_table
from botorch_bkb.optimizers.updating import Updater
from botorch_bkb.state.observations import Results
from botorch_bkb.state.state import State

#: A posterior standard deviation this small, relative to the prior's, counts as none.
NEGLIGIBLE = 1e-6


def with_known_noise(surrogate: Surrogate, state: State, variances: Tensor) -> State:
    r"""Return a state that knows how results with variances of their own are weighted.

    If all of the first results have one, then their mean becomes the noise variance. If only some
    results have one, the noise of the others is fitted, and those that have one are kept apart, to
    be weighted by every noise variance that is fitted.

    Args:
        surrogate: The model part.
        state: The state before the results.
        variances: Noise variances of the results, in units of the rewards; NaN where not known.

    Raises:
        InputDataError: Only some results have variances, and results are forgotten.
    """
    model, is_known = state.model, ~variances.isnan()
    if not is_known.any() or surrogate.noise_is_fixed or model.noise_known is not None:
        return state
    if is_known.all() and not state.observations.num_observations:
        return replace(state, model=model.with_known_noise(float(variances.mean())))
    if surrogate.forgets:
        raise InputDataError(
            "Yvar must be known for all results or for none where results are forgotten "
            f"(half_life={surrogate.half_life:g}), got it for some: give noise_var, tell Yvar from "
            "the first results on, or leave it out."
        )
    return replace(state, observations=state.observations.told_apart())


def absorb(
    updater: Updater, state: State, table: ArmTable, results: Results
) -> tuple[State, ArmTable]:
    r"""Return state and table with a block of results.

    Args:
        updater: Draws dictionaries and fits hyperparameters.
        state: The state before the results.
        table: Its table, which is changed in place.
        results: The results.
    """
    parts = updater.parts
    threshold, is_first = parts.threshold, not state.history.num_observations
    informative = is_informative(threshold.least_score, table, results)
    believed = results.part(informative) if threshold.discard else results
    state = with_norm_doubled(parts, state, table, results)
    are_many = results.num_unsolicited > BLOCK  # for scores of their own
    if not are_many:
        state = with_scores(parts, state, table, believed)
    observations = state.observations.with_results(
        results, informative, threshold.discard, parts.model.retention
    )
    state = replace(state, in_flight=state.in_flight.answered(results))
    if len(believed.rows) == 0:
        return replace(state, observations=observations), table
    if not parts.model.forgets:
        rewards = state.hyper.units.to_model(believed.rewards)
        table.observe(believed.rows, rewards, believed.weights)
    updater.generator.set_state(state.random)
    coins = updater.coins_after(state, observations.history)
    state = replace(
        state,
        observations=observations,
        dictionary=state.dictionary.with_pulls(coins, believed.num_unsolicited),
        random=updater.generator.get_state(),
    )
    # A batch's results wait for each other, so that one dictionary is drawn for all. First results,
    # unsolicited results and those of exact beliefs are believed at once.
    at_once = is_first or results.num_unsolicited or parts.dictionary.joins_at_once
    if state.in_flight.pending and not at_once:
        # Where results are forgotten the weights of all have changed.
        forgets, dictionary = parts.model.forgets, table.dictionary
        return state, new_table(parts.domain, state, dictionary) if forgets else table
    state, table = updater.update(state, table)
    if are_many:
        state = replace(
            state, confidence=state.confidence.rescored(table.log_determinant, parts.alpha)
        )
    return state, table


def is_informative(threshold: float | None, table: ArmTable, results: Results) -> Tensor:
    r"""Return which of some results, taken in order, are informative: ``q`` booleans.

    Args:
        threshold: The score that must be exceeded; None where all are informative.
        table: The belief before the results.
        results: The results.
    """
    mask = torch.ones_like(results.rows, dtype=torch.bool)
    if threshold is None:
        return mask
    noise = table.noise_var / results.weights
    kept, _ = scan_informative(table.covariance(results.rows), noise, threshold)
    return torch.zeros_like(mask).index_fill(0, kept, True)


def with_scores(parts: Parts, state: State, table: ArmTable, results: Results) -> State:
    r"""Log the score that each result's point had under the model that chose it.

    Unsolicited points are scored in order, each given those before it.
    """
    scores, pending = torch.zeros_like(results.weights), state.in_flight.pending
    asked = torch.tensor(
        [id_ is not None for id_ in results.ids], dtype=torch.bool, device=scores.device
    )
    chosen = [pending[id_].score for id_ in results.ids if id_ is not None]
    scores[asked] = scores.new_tensor(chosen) * results.weights[asked]
    if not asked.all():
        scores[~asked] = scores_in_order(table, results.rows[~asked], results.weights[~asked])
    return replace(state, confidence=state.confidence.with_scores(scores, parts.alpha))


def scores_in_order(table: ArmTable, rows: Tensor, weights: Tensor) -> Tensor:
    r"""Return ``tau`` of each row given those before it, times its weight.

    With ``C + Lam = LL'`` for the covariance ``C`` of the rows, ``L_ii^2`` is the variance of the
    observation of row ``i`` given the observations of the rows before it.

    Args:
        table: The belief before the rows are observed.
        rows: ``q`` rows, which may repeat.
        weights: ``q`` numbers ``lambda / v`` for results with noise variance ``v``.
    """
    scores = [weights[:0]]
    for block in chunks(len(rows), BLOCK):
        noise = table.noise_var / weights[block]
        root = psd_safe_cholesky(table.covariance(rows[block]) + torch.diag(noise))
        scores.append((root.diagonal().square() / noise - 1).clamp_min(0))
    return torch.cat(scores)


def with_norm_doubled(parts: Parts, state: State, table: ArmTable, results: Results) -> State:
    r"""Double ``F`` until no result is outside of its interval by more than noise explains.

    Args:
        parts: The parts of the optimizer.
        state: The state before the results.
        table: Its table.
        results: The results.
    """
    if not parts.confidence.doubles_norm:
        return state
    mean, var = table.moments_at(results.rows)
    sd, hyper = var.sqrt(), state.hyper
    t = state.history.num_observations + len(results.rows)
    noise_bound = parts.confidence.noise_in_model(hyper.noise_var, hyper.units)
    noise = noise_over_time(t, noise_bound, parts.confidence.delta)
    gap = (hyper.units.to_model(results.rewards) - mean).abs() - noise / results.weights.sqrt()
    # Where nothing is left to learn no norm explains an outlier.
    learnable = sd > NEGLIGIBLE * math.sqrt(table.kernel_bound)
    width = parts.width_now(state, table)
    while bool((learnable & (gap > width * sd)).any()):
        doubled = replace(state, confidence=state.confidence.with_norm_doubled())
        wider = parts.width_now(doubled, table)
        if not width < wider:  # a width of the user's own that does not depend on the norm
            break
        # The bounds did not hold, so nothing that was concluded from them does.
        state, width = doubled.with_bounds_from_scratch(), wider
    return state
