r"""Bounds on sizes: values by hand, units, limits, and seeded runs that obey them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import BBKB, BKB, CompressedUCB, confidence, epsilon_for_horizon
from tests import naive
from tests.optimizers.support import Problem, play

HORIZON = 120


def dimension(problem, rows) -> float:
    r"""The effective dimension of these pulls, by the exact posterior."""
    values = torch.linalg.eigvalsh(problem.K[rows][:, rows]).clamp_min(0)
    return float((values / (values + problem.noise)).sum())


def test_values_by_hand():
    # 3 * (1 + 4) * 3 * 2 * 7 and, with eps = 1/4, alpha = 5/3.
    assert confidence.bkb_dictionary_size(7.0, 2.0, noise_var=0.25) == 630.0
    got = confidence.bkb_dictionary_size(7.0, 2.0, noise_var=0.25, accuracy=0.25)
    assert got == pytest.approx(350.0)
    # 27 * 2 * 5 * 2 * 7.
    got = confidence.bbkb_dictionary_size(7.0, 2.0, noise_var=0.25, batch_threshold=2.0)
    assert got == 3780.0
    # 9 * 3 / 2 * (1 + 1) * 2 = 54, and the logarithm is about 9.
    horizon = round(math.exp(9)) - 1
    got = confidence.bbkb_batches(2.0, horizon, noise_var=1.0, batch_threshold=3.0)
    assert got == pytest.approx(54 * (1 + math.log(1 + horizon)))


@given(factor=st.floats(1e-3, 1e3), d=st.floats(0.1, 100), threshold=st.floats(1.01, 20))
def test_sizes_have_no_units(factor, d, threshold):
    one = {"noise_var": 0.25, "kernel_bound": 1.0}
    other = {"noise_var": factor**2 / 4, "kernel_bound": factor**2}
    for bound in (
        lambda u: confidence.bkb_dictionary_size(d, 2.0, **u),
        lambda u: confidence.bbkb_dictionary_size(d, 2.0, **u, batch_threshold=threshold),
        lambda u: confidence.bbkb_batches(d, 10**9, **u, batch_threshold=threshold),
        lambda u: confidence.model_order_bound(0.1, 10, **u),
    ):
        assert bound(other) == pytest.approx(bound(one))


@given(d=st.floats(0.1, 100), threshold=st.floats(1.01, 20), more=st.floats(1.01, 10))
def test_larger_thresholds_mean_larger_dictionaries_and_fewer_batches(d, threshold, more):
    given = {"noise_var": 1.0}
    small, large = (
        confidence.bbkb_dictionary_size(d, 2.0, **given, batch_threshold=c)
        for c in (threshold, more * threshold)
    )
    assert small < large
    few, many = (
        confidence.bbkb_batches(d, 10**9, **given, batch_threshold=c)
        for c in (more * threshold, threshold)
    )
    assert few < many
    least = 9 * 2 * confidence.log_determinant_bound(d, 10**9, **given)
    assert few > least  # however late a batch ends
    assert confidence.bbkb_batches(d, 77, **given, batch_threshold=1.0) == 77.0


@pytest.mark.parametrize("noise", [1.0, 0.1])
@pytest.mark.parametrize("oversampling", [1.0, 4.0, "theory"])
def test_dictionaries_and_batches_of_runs_are_below_the_bounds(noise, oversampling):
    for seed in range(2):
        for algorithm, more in ((BKB, {}), (BBKB, {"batch_threshold": 1.5})):
            problem = Problem(num_arms=50, noise=noise, seed=seed)
            options = problem.options(oversampling=oversampling, coupled=False, horizon=HORIZON)
            optimizer = algorithm(problem.arms, **options, **more)
            units, pulled, sizes = {"noise_var": noise}, torch.empty(0, dtype=torch.long), []
            for suggestion in play(optimizer, problem, HORIZON):
                pulled = torch.cat([pulled, suggestion.indices])
                sizes.append(len(suggestion))
                d, q = dimension(problem, pulled), optimizer.oversampling
                if algorithm is BKB:
                    bound = confidence.bkb_dictionary_size(d, q, **units)
                else:
                    bound = confidence.bbkb_dictionary_size(d, q, **units, **more)
                assert len(optimizer.dictionary) <= bound
            if algorithm is BBKB:
                bound = confidence.bbkb_batches(d, len(pulled), **units, **more)
                assert len(sizes) <= bound
                assert oversampling == 1.0 or max(sizes) > 1


def test_the_rate_of_theorem_3_1():
    assert confidence.model_order_rate(0.5 * math.log(1.5), 2) == pytest.approx(4.0)
    assert confidence.model_order_rate(0.5 * math.log(1.5), 2, constant=3.0) == pytest.approx(12.0)
    assert confidence.model_order_rate(0.0, 2) == math.inf
    for T, p in ((100, 1), (10_000, 3)):  # T^(a p) with a = 1 / (2p)
        assert confidence.model_order_rate(epsilon_for_horizon(T, p), p) == pytest.approx(T**0.5)


@given(epsilon=st.floats(1e-4, 3), arms=st.integers(1, 1000), noise=st.floats(1e-3, 1e2))
def test_the_bound_on_the_order_is_the_last_that_fits(epsilon, arms, noise):
    M = confidence.model_order_bound(epsilon, arms, noise_var=noise)

    def information(points):
        return arms / 2 * math.log1p(points / (arms * noise))

    assert M == 0 or M * epsilon < information(M)
    assert (M + 1) * epsilon >= information(M + 1)
    assert confidence.model_order_bound(0.0, arms, noise_var=noise) == math.inf


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("noise", [1.0, 0.1])
def test_no_choice_of_points_keeps_more_than_the_bound(epsilon, noise):
    generator = torch.Generator().manual_seed(0)
    for arms in (1, 4):
        problem = Problem(num_arms=arms, noise=noise)
        bound = confidence.model_order_bound(epsilon, arms, noise_var=noise)
        for _ in range(3):
            rows = torch.randint(arms, (300,), generator=generator)
            K, level = problem.K[rows][:, rows], torch.full((300,), noise).double()
            kept = naive.information_threshold(K, level, epsilon)
            assert 0 <= len(kept) <= bound


def test_an_arm_is_kept_several_times():
    # One arm: it is kept until 1 / (c + lambda) <= e^(2 epsilon) - 1, and no more than the bound.
    problem = Problem(num_arms=1, noise=1.0)
    optimizer = CompressedUCB(problem.arms, **problem.options(epsilon=0.05))
    while (suggestion := optimizer.ask(at_most=1)).ids[0] >= 0:
        optimizer.tell(suggestion, problem.rewards([0]))
    assert optimizer.model_order == 9  # 1 / 0.10517 - 1 = 8.5, rounded up
    # 36 * 0.05 = 1.8 < log(37) / 2 = 1.805, and 37 * 0.05 = 1.85 > log(38) / 2 = 1.819.
    assert optimizer.model_order <= confidence.model_order_bound(0.05, 1, noise_var=1.0) == 36
