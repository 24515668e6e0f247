r"""Bounds for points that do not depend on the noise, and for weights that decay."""

from __future__ import annotations

import math

import torch

from benchmarks.theorems.problems import DELTA, NORM, Arms
from botorch_bkb import BatchedElimination, FinishedError, Optimizer
from botorch_bkb.confidence import Confidence
from botorch_bkb.dictionaries import AllPoints
from botorch_bkb.domains import Arms as ArmsDomain
from botorch_bkb.models import Surrogate

NUM_BATCHES, HALF_LIFE = 3, 20.0


def elimination(noise_var: float, seed: int, horizon: int) -> dict[str, float]:
    r"""Check the bounds of an elimination by the dense posterior of each batch alone."""
    problem = Arms(seed, noise_var)
    optimizer = BatchedElimination(
        problem.arms, budget=horizon, num_batches=NUM_BATCHES, **problem.model, norm_bound=NORM,
        delta=DELTA, seed=seed,
    )  # fmt: skip
    best = int(problem.f.argmax())
    lower, upper = torch.full_like(problem.f, -torch.inf), math.inf
    covered, kept, gap = 0.0, 0.0, 0.0
    for _ in range(NUM_BATCHES):
        width, survivors = optimizer.width_now, optimizer.survivors
        try:
            suggestion = optimizer.ask()
        except FinishedError:  # one arm is left
            break
        rows = suggestion.indices
        rewards = problem.rewards(rows)
        optimizer.tell(suggestion, rewards)
        mean, sd = problem.posterior(rows, rewards)
        covered = max(covered, float(((problem.f - mean).abs() / sd)[survivors].max()) / width)
        lower = torch.maximum(lower, mean - width * sd)
        upper = min(upper, float((mean + width * sd)[best]))
        # Both relative to a value below them, so that their ratio has a meaning.
        least = float(torch.minimum(problem.f, lower).min())
        kept = max(kept, (float(lower[survivors].max()) - least) / (upper - least))
        if best not in optimizer.survivors.tolist():
            kept = math.inf
        surest = optimizer.best(by="lower").index
        gap = max(gap, float(problem.f.max() - problem.f[surest]) / max(optimizer.gap(), 1e-300))
    return {
        "elimination, non-adaptive bound: width": covered,
        "elimination: best lower bound over the upper bound of the best arm": kept,
        "elimination: regret of the recommendation over the gap": gap,
    }


def half_life(noise_var: float, seed: int, horizon: int) -> dict[str, float]:
    r"""Check the width for weights that decay at one time, where the function does not change."""
    problem = Arms(seed, noise_var)
    optimizer = Optimizer(
        ArmsDomain(problem.arms),
        model=Surrogate(**problem.model, half_life=HALF_LIFE),
        dictionary=AllPoints(),
        confidence=Confidence(2.0),
        seed=seed,
    )
    rows = []
    while len(rows) < horizon:
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, problem.rewards(suggestion.indices))
        rows += suggestion.indices.tolist()
    mean, variance = optimizer.table.moments()
    age = torch.arange(horizon - 1, -1, -1, dtype=torch.float64)
    root = 2 ** (-age / HALF_LIFE / 2)
    weighted = root * problem.K[rows][:, rows] * root.unsqueeze(-1) / noise_var
    log_determinant = float(torch.linalg.eigvalsh(weighted).clamp_min(0).log1p().sum())
    # The noise has the standard deviation of the model.
    width = NORM + math.sqrt(log_determinant + 2 * math.log(1 / DELTA))
    distance = (problem.f - mean).abs() / variance.sqrt()
    return {f"half-life of {HALF_LIFE:g}: width at one time": float(distance.max()) / width}
