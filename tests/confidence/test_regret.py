r"""Bounds on the regret: values worked out by hand, units, limits, and runs that obey them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from botorch_bkb import BBKB, BKB, confidence
from tests.optimizers.support import Problem, play
from tests.problems import rbf

NOISE = {"noise_var": 0.25, "noise_bound": 0.5, "norm_bound": 4.0, "delta": 0.1}


def scaled(factor: float, **more) -> dict:
    r"""The same problem with its rewards times a factor; a norm has no units."""
    units = {"noise_var": 0.25 * factor**2, "noise_bound": 0.5 * factor}
    return {**NOISE, **units, **more}


def test_theorem_2_of_bkb():
    # 2 * 6^1.5 = 29.393877; sqrt 7; L = 1 + log(1 + 28) = 4.367296, gain 8.734592: the spread is
    # 0.5 * (8.734592 + 2.302585) = 5.518588, the bias 4 * sqrt(0.25 * 8.734592) = 5.910869, and
    # the scores are at most 4, 4 / log 5 = 2.485340 times their logarithms: sqrt(1.242670).
    got = confidence.bkb_regret(2.0, 7, **NOISE)
    want = 29.393877 * 2.645751 * (5.518588 + 5.910869) * 1.114751
    assert got == pytest.approx(want, rel=1e-5)


def test_theorem_2_of_bbkb():
    # 55 * 8 * sqrt(7) * (0.5 * 4.302585 + 0.707107 * 4).
    got = confidence.bbkb_regret(2.0, 7, **NOISE, batch_threshold=2.0)
    assert got == pytest.approx(440 * 2.645751 * (2.151293 + 2.828427), rel=1e-5)


@given(factor=st.floats(1e-3, 1e3), dimension=st.floats(0, 100), horizon=st.integers(1, 10**6))
def test_bounds_scale_with_the_rewards(factor, dimension, horizon):
    bkb = [
        confidence.bkb_regret(dimension, horizon, **scaled(f), kernel_bound=f**2)
        for f in (1.0, factor)
    ]
    bbkb = [
        confidence.bbkb_regret(dimension, horizon, **scaled(f), batch_threshold=2.0)
        for f in (1.0, factor)
    ]
    for one, other in (bkb, bbkb):
        assert other == pytest.approx(factor * one, rel=1e-9)


@given(dimension=st.floats(0.01, 100), horizon=st.integers(2, 10**6), more=st.floats(1.01, 10))
def test_bounds_grow_with_what_makes_a_problem_harder(dimension, horizon, more):
    bkb = confidence.bkb_regret(dimension, horizon, **NOISE)
    bbkb = confidence.bbkb_regret(dimension, horizon, **NOISE, batch_threshold=2.0)
    for change in ("norm_bound", "noise_bound"):
        harder = {**NOISE, change: more * NOISE[change]}
        assert confidence.bkb_regret(dimension, horizon, **harder) > bkb
        assert confidence.bbkb_regret(dimension, horizon, **harder, batch_threshold=2.0) > bbkb
    assert confidence.bkb_regret(more * dimension, horizon, **NOISE) > bkb
    assert confidence.bkb_regret(dimension, 2 * horizon, **NOISE) > math.sqrt(2) * bkb
    assert confidence.bbkb_regret(dimension, horizon, **NOISE, batch_threshold=2 * more) > bbkb
    twice = confidence.bbkb_regret(dimension, 4 * horizon, **NOISE, batch_threshold=2.0)
    assert twice == pytest.approx(2 * bbkb)


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 40),
    seed=st.integers(0, 1000),
    noise=st.floats(1e-4, 1e2),
    scale=st.floats(1e-3, 1e3),
)
def test_the_log_determinant_is_bounded_by_the_effective_dimension(n, seed, noise, scale):
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    values = torch.linalg.eigvalsh(scale * rbf(X, X)).clamp_min(0)
    log_determinant = float(torch.log1p(values / noise).sum())
    dimension = float((values / (values + noise)).sum())
    units = {"noise_var": noise, "kernel_bound": scale}
    bound = confidence.log_determinant_bound(dimension, n, **units)
    assert dimension <= log_determinant * (1 + 1e-9) <= bound * (1 + 1e-6)


@given(ratio=st.floats(1e-6, 1e6), share=st.floats(1e-6, 1))
def test_scores_are_bounded_by_their_logarithms(ratio, share):
    constant = confidence.variance_over_information(1.0, ratio)
    score = share * ratio
    assert score <= constant * math.log1p(score) * (1 + 1e-9)
    assert (
        confidence.variance_over_information(0.4) < 2 < confidence.variance_over_information(0.39)
    )


@pytest.mark.parametrize("noise", [1.0, 0.1])
@pytest.mark.parametrize("algorithm", [BKB, BBKB])
def test_the_regret_of_runs_is_below_the_bound(algorithm, noise):
    for seed in range(3):
        problem = Problem(num_arms=30, norm=2.0, noise=noise, seed=seed)
        options = problem.options(width="theory", oversampling="theory", horizon=150)
        optimizer = algorithm(problem.arms, **options)
        rows = torch.cat([s.indices for s in play(optimizer, problem, 150)])[:150]
        values = torch.linalg.eigvalsh(problem.K[rows][:, rows]).clamp_min(0) / noise
        dimension = float((values / (1 + values)).sum())
        given = {
            "noise_var": noise, "noise_bound": math.sqrt(noise), "norm_bound": 2.0, "delta": 0.1,
        }  # fmt: skip
        if algorithm is BKB:
            bound = confidence.bkb_regret(dimension, 150, **given)
        else:
            scores = confidence.variance_over_information(noise) * float(torch.log1p(values).sum())
            bound = confidence.bbkb_regret(scores, 150, **given, batch_threshold=2.0)
        assert 0 < problem.regret(rows) <= bound
