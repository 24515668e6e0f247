r"""Elimination of arms after each of a few fixed batches, and what is known then."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Elimination
from botorch_bkb.domains import Arms
from botorch_bkb.models.history import History
from botorch_bkb.optimizers.parts import Parts
from botorch_bkb.optimizers.recommending import highest_of
from botorch_bkb.optimizers.results import Best, FinishedError
from botorch_bkb.state.stage import Stage
from botorch_bkb.state.state import State


def first_stage(parts: Parts) -> Stage | None:
    r"""Return the stage before the first batch; None where no arms are eliminated."""
    if not isinstance(parts.batch, Elimination):
        return None
    return Stage.first(len(parts.domain.index.X), parts.domain.device)


def check_unfinished(parts: Parts, state: State) -> None:
    r"""Raise if nothing is left to ask: all batches are complete, or one arm is left.

    Raises:
        FinishedError: No batch is left, or no choice.
    """
    stage = state.in_flight.stage
    if stage is None or not isinstance(parts.batch, Elimination):
        return
    total, left = len(parts.batch.sizes), len(survivors(parts.domain, stage))  # type: ignore[arg-type]
    if stage.index >= total:
        raise FinishedError(
            f"All {total} batches are complete, and {left} arms are left: best() recommends one of "
            "them. To go on, tell the results to a new optimizer over these arms (`survivors`)."
        )
    if stage.index and left == 1:
        raise FinishedError(
            f"One arm is left after {stage.index} of {total} batches: best() returns it."
        )


def survivors(domain: Arms, stage: Stage) -> Tensor:
    r"""Return the rows of the arms that are left, the first of equal arms."""
    rows = torch.nonzero(stage.alive).squeeze(-1)
    return domain.first_equal(rows).unique()


def with_stage_completed(parts: Parts, state: State, table: ArmTable) -> State:
    r"""Return the state after elimination, if all points of the batch are told or given up.

    Args:
        parts: The parts of the optimizer.
        state: The state after some results.
        table: Its table.
    """
    stage, rule = state.in_flight.stage, parts.batch
    if stage is None or not isinstance(rule, Elimination) or stage.index >= len(rule.sizes):
        return state
    if state.in_flight.pending or len(stage.asked) < rule.sizes[stage.index]:
        return state
    bounds = stage.lower, stage.upper
    if len(stage.rows):
        bounds = stage_bounds(parts, state, stage, parts.width_now(state, table))
    return replace(state, in_flight=replace(state.in_flight, stage=stage.completed(*bounds)))


def stage_bounds(parts: Parts, state: State, stage: Stage, width: float) -> tuple[Tensor, Tensor]:
    r"""Return the bounds of all arms by the results of one batch alone, in units of the rewards.

    Args:
        parts: The parts of the optimizer.
        state: The state, whose hyperparameters are used.
        stage: The batch.
        width: The width in posterior standard deviations.
    """
    X, hyper = state.model.inputs(parts.domain.index.X), state.hyper
    none = History.empty(X.device)
    history = none.with_pulls(stage.rows, stage.rewards, stage.weights)
    counts, sums = torch.zeros(2, len(X), dtype=torch.float64, device=X.device)
    counts[history.rows] = history.weights
    sums[history.rows] = history.weights * hyper.units.to_model(history.means)
    # With all results in the dictionary the posterior is exact.
    table = ArmTable(X, hyper.kernel, hyper.noise_var, history.rows, counts, sums, keep=False)
    mean, var = table.moments()
    half = width * var.sqrt()
    return hyper.units.to_rewards(mean - half), hyper.units.to_rewards(mean + half)


def best_survivor(by: str, domain: Arms, state: State, table: ArmTable, stage: Stage) -> Best:
    r"""Return the survivor of highest mean, or of highest lower bound, with its bounds.

    Means are those given *all* results, and bounds the best of all batches. The mean is moved into
    the interval of the bounds, where it is outside of it. Where bounds of two batches contradict
    each other, the interval reaches from one to the other.

    Args:
        by: ``"mean"``, or ``"lower"``, the arm whose regret :func:`gap_of_survivors` bounds.
        domain: The arms.
        state: The state.
        table: Its table.
        stage: A stage after at least one complete batch.
    """
    mean = table.mean()[: len(domain.arms)]
    rows = torch.nonzero(stage.alive).squeeze(-1)
    row = int(rows[highest_of(by, mean[rows], stage.lower[rows])])
    lower, upper = sorted((float(stage.lower[row]), float(stage.upper[row])))
    middle = float(state.hyper.units.to_rewards(mean[row]))
    return Best(row, domain.arms[row], max(lower, min(middle, upper)), lower, upper)


def gap_of_survivors(stage: Stage) -> float:
    r"""Return the highest upper bound minus the best lower bound, in units of the rewards."""
    highest, lowest = stage.upper[stage.alive].max(), stage.lower[stage.alive].max()
    return max(0.0, float(highest - lowest))
