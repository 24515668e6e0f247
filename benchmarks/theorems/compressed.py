r"""Theorems of the compressed GP paper, for functions drawn from the prior."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmarks.curves import power
from benchmarks.problems.bandits import rbf
from benchmarks.theorems.problems import DELTA, LENGTHSCALE, Arms
from botorch_bkb import (
    CompressedEI,
    CompressedUCB,
    InformationThreshold,
    confidence,
    epsilon_for_horizon,
)
from botorch_bkb.optimizers import Optimizer

NUM_ARMS = 60


def play(optimizer: Optimizer, problem: Arms, steps: int) -> tuple[list[int], list[int], float]:
    r"""Return the rows selected, those evaluated, and the largest score of an improvement.

    The score is ``|mean(x) - best observation| / sd(x)``, over all steps and arms. Skipped
    candidates are selected and not evaluated.
    """
    selected, kept, best, largest = [], [], -math.inf, 0.0
    for _ in range(steps):
        if kept:
            mean, variance = optimizer.table.moments()
            largest = max(largest, float(((mean - best).abs() / variance.sqrt()).max()))
        suggestion = optimizer.ask(at_most=1)
        row = int(suggestion.indices[0])
        selected.append(row)
        if suggestion.ids[0] < 0:
            continue
        rewards = problem.rewards(torch.tensor([row]))
        optimizer.tell(suggestion, rewards)
        best = max(best, float(rewards))
        kept.append(row)
    return selected, kept, largest


def over_arms(noise_var: float, seed: int, steps: int) -> dict[str, float]:
    r"""Check the regret of UCB and EI, and the model order, over arms in one dimension."""
    found = {}
    for name, kind in (("ucb", CompressedUCB), ("ei", CompressedEI)):
        problem = Arms(seed, noise_var, from_prior=True, num_arms=NUM_ARMS, dim=1)
        epsilon = epsilon_for_horizon(steps, 1)  # a = 1/2
        theory = {"width": "paper", "delta": DELTA} if name == "ucb" else {}
        optimizer = kind(problem.arms, **problem.model, **theory, epsilon=epsilon, seed=seed)
        selected, kept, largest = play(optimizer, problem, steps)
        regret = problem.regret(torch.tensor(selected))
        gain = problem.information_gain(torch.tensor(kept))
        width = confidence.finite_set(NUM_ARMS, steps, DELTA)
        given = {"epsilon": epsilon, "width": width, "noise_var": noise_var}
        order = confidence.model_order_bound(epsilon, NUM_ARMS, noise_var=noise_var)
        found[f"compressed, Theorem 3.1, {name.upper()}: model order by the information"] = (
            len(kept) / order
        )
        if name == "ucb":
            bound = confidence.compressed_ucb_regret(gain, steps, **given)
            found["compressed, Theorem 3.2 i: regret"] = regret / bound
            rate = confidence.compressed_ucb_rate(
                steps, width=width, noise_var=noise_var, kernel_trace=float(NUM_ARMS)
            )
            found["compressed, Corollary 3.3: regret, Y = 1"] = regret / rate
        else:
            bound = confidence.compressed_ei_regret(gain, steps, **given, largest_score=largest)
            found["compressed, Theorem 3.4: regret"] = regret / bound
    return found


def over_a_box(seed: int, steps: int) -> dict[str, float]:
    r"""Check width and regret over an interval, for a draw from the prior."""
    noise_var = 0.1
    generator = torch.Generator().manual_seed(seed)
    f = draw(generator)
    grid = torch.linspace(0, 2, 401, dtype=torch.float64).unsqueeze(-1)
    highest = float(f(grid).max())

    epsilon = epsilon_for_horizon(steps, 1)
    optimizer = CompressedUCB(
        bounds=torch.tensor([[0.0], [2.0]], dtype=torch.float64), covar_module=rbf(LENGTHSCALE**2),
        noise_var=noise_var, width="paper", delta=DELTA, epsilon=epsilon, num_initial=2, seed=seed,
    )  # fmt: skip
    regret, covered = 0.0, 0.0
    while optimizer.num_steps < steps:
        suggestion = optimizer.ask()
        regret += float((highest - f(suggestion.X)).sum())
        to_do = suggestion[suggestion.informative]
        noise = torch.randn(len(to_do.X), generator=generator, dtype=torch.float64)
        if len(to_do.X):
            optimizer.tell(to_do, f(to_do.X) + math.sqrt(noise_var) * noise)
        with torch.no_grad():
            posterior = optimizer.model.posterior(grid)
        distance = (f(grid) - posterior.mean.squeeze(-1)).abs() / posterior.variance.sqrt().squeeze(
            -1
        )
        covered = max(covered, float(distance.max()) / optimizer.width_now)
    bound = confidence.compressed_ucb_regret(
        optimizer.information_gain, optimizer.num_steps, epsilon=epsilon,
        width=optimizer.width_now, noise_var=noise_var, is_box=True,
    )  # fmt: skip
    return {
        "compressed, Theorem 3.2 ii: width": covered,
        "compressed, Theorem 3.2 ii: regret": regret / bound,
    }


def draw(generator: torch.Generator, features: int = 2000):
    r"""Return a draw from the prior in one dimension, by random Fourier features."""
    w, phase, weights = (
        torch.randn(features, generator=generator, dtype=torch.float64) / LENGTHSCALE,
        2 * math.pi * torch.rand(features, generator=generator, dtype=torch.float64),
        torch.randn(features, generator=generator, dtype=torch.float64),
    )

    def f(X: Tensor) -> Tensor:
        return math.sqrt(2 / features) * torch.cos(X * w + phase) @ weights

    return f


def order(dim: int, seed: int, horizons: tuple[int, ...]) -> dict[str, float]:
    r"""Measure how the model order grows with the horizon under the theorem's schedule.

    Every point is drawn uniformly from the cube, so no selection rule helps.
    """
    sizes = []
    for T in horizons:
        generator = torch.Generator().manual_seed(seed)
        X = 2 * torch.rand(T, dim, generator=generator, dtype=torch.float64)
        rule = InformationThreshold(epsilon_for_horizon(T, dim), max_size=None)
        noise = torch.full((T,), 0.1, dtype=torch.float64)
        sizes.append(len(rule.select(X, rbf(LENGTHSCALE**2), noise)))
    slope = power(list(horizons), [float(size) for size in sizes])
    return {
        f"compressed, Theorem 3.1, d = {dim}: exponent of the order (sublinear)": slope,
        f"compressed, Theorem 3.1, d = {dim}: exponent of the order over a p = 1/2": slope / 0.5,
    }
