r"""Bounds on the regret of compressed beliefs: values by hand, units, limits, and runs."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import CompressedEI, CompressedUCB, confidence, epsilon_for_horizon
from tests.optimizers.support import kernel
from tests.problems import rbf

GIVEN = {"width": 5.0, "noise_var": 0.1}


def test_theorem_3_2():
    # C_1 = 8 / log 11 = 3.336261, its root 1.826543; 5 * (sqrt(1000 * 20) + 1000 * 0.1).
    got = confidence.compressed_ucb_regret(20.0, 1000, epsilon=0.01, **GIVEN)
    assert got == pytest.approx(1.826543 * 5 * 241.421356, rel=1e-6)
    over_box = confidence.compressed_ucb_regret(20.0, 1000, epsilon=0.01, **GIVEN, is_box=True)
    assert over_box - got == pytest.approx(1.644934, rel=1e-6)


def test_theorem_3_4():
    # sqrt(3 * (25 + 1 + 9)) + 5 = 15.246951; sqrt(C_1) / 2 = 0.913272; 241.421356 as above.
    got = confidence.compressed_ei_regret(20.0, 1000, epsilon=0.01, largest_score=3.0, **GIVEN)
    assert got == pytest.approx(15.246951 * 0.913272 * 241.421356, rel=1e-6)


def test_corollary_3_3():
    # Z_1 = 50 / (0.1 * 0.632121) = 790.988; its root 28.124508 and 1, times 10,000^(3/4) = 1000.
    got = confidence.compressed_ucb_rate(10_000, kernel_trace=50.0, **GIVEN)
    assert got == pytest.approx(1.826543 * 5 * 29.124508 * 1000, rel=1e-6)
    # a = 0.2 and p = 3: T^0.8 and T^0.9.
    got = confidence.compressed_ucb_rate(
        10_000, kernel_trace=50.0, exponent=0.2, dim=3, constant=4.0, **GIVEN
    )
    want = 2 * 28.124508 * 10_000**0.8 + 10_000**0.9
    assert got == pytest.approx(1.826543 * 5 * want, rel=1e-6)


@given(
    factor=st.floats(1e-3, 1e3),
    epsilon=st.floats(0, 1),
    gain=st.floats(0, 100),
    is_box=st.booleans(),
)
def test_bounds_scale_with_the_rewards(factor, epsilon, gain, is_box):
    for bound in (
        lambda f: confidence.compressed_ucb_regret(
            gain, 50, epsilon=epsilon, width=5.0, noise_var=0.1 * f**2, kernel_bound=f**2,
            is_box=is_box,
        ),
        lambda f: confidence.compressed_ei_regret(
            gain, 50, epsilon=epsilon, width=5.0, noise_var=0.1 * f**2, kernel_bound=f**2,
            largest_score=3.0,
        ),
        lambda f: confidence.compressed_ucb_rate(
            50, width=5.0, noise_var=0.1 * f**2, kernel_bound=f**2, kernel_trace=9 * f**2
        ),
    ):  # fmt: skip
        assert bound(factor) == pytest.approx(factor * bound(1.0), rel=1e-9)


@given(gain=st.floats(0.1, 100), horizon=st.integers(1, 10**5), epsilon=st.floats(1e-6, 1))
def test_what_a_threshold_costs(gain, horizon, epsilon):
    given = {**GIVEN, "horizon": horizon}
    free = confidence.compressed_ucb_regret(gain, epsilon=0.0, **given)
    bound = confidence.compressed_ucb_regret(gain, epsilon=epsilon, **given)
    assert bound > free
    four = confidence.compressed_ucb_regret(gain, 4 * horizon, epsilon=0.0, **GIVEN)
    assert four == pytest.approx(2 * free)
    # Improvement costs more than upper bounds, at every largest score.
    for score in (0.0, 3.0):
        more = confidence.compressed_ei_regret(gain, epsilon=epsilon, largest_score=score, **given)
        assert more > bound


def test_with_the_schedule_the_bound_is_sublinear():
    def average(T):
        epsilon, kept = epsilon_for_horizon(T, 1), math.sqrt(T)
        gain = confidence.log_determinant_bound(20.0, round(kept), noise_var=0.1) / 2
        width = confidence.finite_set(1000, T, 0.1)
        bound = confidence.compressed_ucb_regret(
            gain, T, epsilon=epsilon, width=width, noise_var=0.1
        )
        return bound / T

    values = [average(10**k) for k in range(2, 9)]
    assert all(a > b for a, b in itertools.pairwise(values))
    assert values[-1] < 0.1 * values[0]  # of the order T^(-1/4), here 10^(-3/2), times logarithms


@pytest.mark.parametrize("epsilon", [0.0, 0.02])
@pytest.mark.parametrize("algorithm", [CompressedUCB, CompressedEI])
def test_the_regret_of_runs_is_below_the_bound(algorithm, epsilon):
    noise, T, n = 0.1, 120, 40
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        arms = 2 * torch.rand(n, 2, generator=generator, dtype=torch.float64)
        K = rbf(arms, arms)
        root = torch.linalg.cholesky(K + 1e-9 * torch.eye(n, dtype=torch.float64))
        f = root @ torch.randn(n, generator=generator, dtype=torch.float64)  # from the prior
        confident = {"width": "paper", "delta": 0.1} if algorithm is CompressedUCB else {}
        optimizer = algorithm(
            arms, covar_module=kernel(), noise_var=noise, epsilon=epsilon, seed=seed, **confident
        )
        regret, score, kept = 0.0, 0.0, []
        for _ in range(T):
            if kept:
                mean, var = optimizer.table.moments()
                best = max(reward for _, reward in kept)
                score = max(score, float(((mean - best).abs() / var.sqrt()).max()))
            suggestion = optimizer.ask(at_most=1)
            row = int(suggestion.indices[0])
            regret += float(f.max() - f[row])
            if suggestion.ids[0] < 0:  # skipped, and so are all after it: the belief stays
                continue
            eta = torch.randn(1, generator=generator, dtype=torch.float64)
            kept.append((row, float(f[row] + noise**0.5 * eta)))
            optimizer.tell(suggestion, f[[row]] + noise**0.5 * eta)
        rows = [row for row, _ in kept]
        values = torch.linalg.eigvalsh(K[rows][:, rows]).clamp_min(0)
        gain = float(torch.log1p(values / noise).sum()) / 2
        given = {"epsilon": epsilon, "width": confidence.finite_set(n, T, 0.1), "noise_var": noise}
        if algorithm is CompressedUCB:
            bound = confidence.compressed_ucb_regret(gain, T, **given)
        else:
            bound = confidence.compressed_ei_regret(gain, T, **given, largest_score=score)
        assert 0 < regret <= bound
        assert len(kept) <= confidence.model_order_bound(epsilon, n, noise_var=noise)
