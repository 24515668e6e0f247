r"""The algorithms against a plain transcription, and the papers' statements as properties."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import LinearKernel
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import BBKB, BKB, GPBUCB, GPUCB, AllPoints, MiniGPUCB
from botorch_bkb.arms import ArmTable
from botorch_bkb.dictionaries.leverage import RidgeLeverageSampling, smallest_coins
from tests import naive
from tests.optimizers.support import NOISE, Problem, kernel, play
from tests.problems import rbf

EXACT = (GPUCB, GPBUCB, MiniGPUCB)
ALGORITHMS = [
    (GPUCB, "one", 1.0, {}),
    (BKB, "one", 1.0, {}),
    (BKB, "one", 1.0, {"coupled": False}),
    (GPBUCB, "product", 4.0, {"batch_threshold": 4.0}),
    (BBKB, "sum", 3.0, {"batch_threshold": 3.0, "batch_rule": "sum"}),
    (BBKB, "sum", 3.0, {"batch_threshold": 3.0, "batch_rule": "sum", "coupled": False}),
    (BBKB, "local", 3.0, {"batch_threshold": 3.0, "batch_rule": "local"}),
    (BBKB, "local", 1.5, {"batch_threshold": 1.5, "batch_rule": "local", "oversampling": 2.0}),
    (GPBUCB, "product", 4e4, {"batch_threshold": 4e4}),
    (GPBUCB, "sum", 30.0, {"batch_threshold": 30.0, "batch_rule": "sum"}),
    (GPBUCB, "local", 6.0, {"batch_threshold": 6.0, "batch_rule": "local"}),
    (MiniGPUCB, "hold", 2.0, {}),
    (BKB, "hold", 2.0, {"batch_rule": "hold"}),
]


@pytest.mark.parametrize(("algorithm", "rule", "threshold", "options"), ALGORITHMS)
def test_every_pick_equals_the_plain_transcription(algorithm, rule, threshold, options):
    problem = Problem()
    optimizer = algorithm(problem.arms, **problem.options(**options))
    inflation = threshold if rule in ("sum", "local", "product") else 1.0
    run = naive.Run(problem.K, NOISE, problem.norm, 0.1, inflation)
    # Algorithm 1 draws the first arm uniformly; the seed of a design comes before it.
    generator = torch.Generator().manual_seed(0)
    torch.randint(2**31, (), generator=generator)
    drawn = int(torch.randint(len(problem.arms), (), generator=generator))
    first = optimizer.ask()
    assert int(first.indices[0]) == drawn
    rewards = problem.rewards(first.indices)
    run.log_sum += len(first) * math.log1p(1 / NOISE)
    run.observe(first.indices.tolist(), rewards.tolist())
    optimizer.tell(first, rewards)
    while optimizer.num_observations < 150:
        S = optimizer.table.dictionary.tolist()
        assert optimizer.width_now == pytest.approx(run.width(), rel=1e-9)
        expected = run.next_batch(S, threshold, rule, exact=algorithm in EXACT)
        suggestion = optimizer.ask()
        assert suggestion.indices.tolist() == expected
        rewards = problem.rewards(suggestion.indices)
        run.observe(expected, rewards.tolist())
        optimizer.tell(suggestion, rewards)
    mean, var = run.moments(optimizer.table.dictionary.tolist())
    for ours, theirs in zip(optimizer.table.moments(), (mean, var), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=0)


def test_a_dictionary_of_all_points_makes_bkb_gp_ucb():
    problem, same = Problem(), Problem()
    bkb = BKB(problem.arms, **problem.options(dictionary=AllPoints()))
    exact = GPUCB(problem.arms, **problem.options())
    for ours, theirs in zip(play(bkb, problem, 60), play(exact, same, 60), strict=True):
        assert ours.indices.tolist() == theirs.indices.tolist()
    assert bkb.best().mean == exact.best().mean
    assert bkb.oversampling is None


@given(st.integers(0, 1000))
def test_lemma_4_holds_at_the_end_of_every_batch(seed):
    problem = Problem(seed=seed)
    options = problem.options(batch_threshold=3.0, batch_rule="sum")
    optimizer = BBKB(problem.arms, **options)
    for _ in range(15):
        table = optimizer.table
        before = table.scores().clone()
        suggestion = optimizer.ask()
        total = 1 + float(before[suggestion.indices].sum())
        imagined = ArmTable.from_log(problem.arms, table.kernel, table.noise_var, table.log)
        imagined.observe(suggestion.indices, torch.zeros(len(suggestion)))
        after = imagined.scores()
        assert (after <= before + 1e-9).all() and (after >= before / total - 1e-9).all()
        assert total > 3.0 >= total - float(before[suggestion.indices[-1]])
        optimizer.tell(suggestion, problem.rewards(suggestion.indices))


def test_the_sum_rule_never_gives_smaller_batches_than_the_product_rule():
    for seed in range(10):
        problem = Problem(seed=seed)
        told = problem.rewards(torch.arange(30))
        sizes = {}
        for rule in ("sum", "product"):
            options = problem.options(batch_threshold=5.0, batch_rule=rule, width=2.0)
            optimizer = GPBUCB(problem.arms, **options)
            optimizer.tell(torch.arange(30), told)
            sizes[rule] = len(optimizer.ask())
        assert sizes["sum"] >= sizes["product"] >= 1


@pytest.mark.parametrize("coupled", [True, False])
def test_the_dictionary_has_the_law_of_one_coin_a_pull(coupled):
    counts = torch.tensor([1.0, 2.0, 7.0, 30.0]).double()
    scores = torch.tensor([0.3, 0.2, 0.05, 0.01]).double()
    rule, generator = RidgeLeverageSampling(2.0), torch.Generator().manual_seed(0)
    hits = torch.zeros(4)
    for _ in range(4000):
        coins = smallest_coins(counts, generator)
        if coupled:  # pulls in two parts: the smallest coin of all is the smaller of the smallest
            half = (counts / 2).floor()
            coins = torch.minimum(
                smallest_coins(half, generator), smallest_coins(counts - half, generator)
            )
        drawn = torch.nonzero(coins < (2.0 * scores).clamp(max=1)).squeeze(-1)
        hits[drawn] += 1
    # Four standard deviations of a share of 4,000 draws are below 0.032.
    expected = rule.inclusion_probability(scores, counts)
    assert ((hits / 4000 - expected).abs() < 0.032).all()


def test_variances_are_within_the_factor_alpha_with_theory_oversampling():
    alpha, n, noise = 3.0, 3000, 2000.0  # alpha = (1 + eps) / (1 - eps) at eps = 1/2
    for seed in range(3):
        problem = Problem(num_arms=n, noise=noise, seed=seed, d=1)
        options = problem.options(oversampling="theory", horizon=n, coupled=False)
        optimizer = BKB(problem.arms, **options)
        for rows in (torch.arange(n - 10), torch.arange(n - 10, n)):
            optimizer.tell(rows, problem.rewards(rows))
        assert len(optimizer.dictionary) < 0.9 * n  # the theorem asks for much, not for all
        full = torch.full((n,), noise).double()
        _, exact = naive.exact(problem.K, problem.K, problem.K, torch.zeros(n).double(), full)
        ratio = optimizer.table.variance() / exact.diagonal()
        assert (ratio <= alpha).all() and (ratio >= 1 / alpha).all()


@pytest.mark.parametrize("width", ["information", "heuristic"])
@pytest.mark.parametrize("algorithm", [BBKB, BKB])
def test_regret_is_sublinear(algorithm, width):
    problem = Problem(num_arms=300, norm=3.0, noise=0.05, seed=3)
    optimizer = algorithm(problem.arms, **problem.options(width=width))
    regrets = []
    for suggestion in play(optimizer, problem, 2000):
        regrets += (problem.f.max() - problem.f[suggestion.indices]).tolist()
    average = torch.tensor(regrets).cumsum(0) / torch.arange(1, len(regrets) + 1)
    assert average[1999] <= 0.5 * average[249]


def test_an_interval_of_the_wrong_norm_is_noticed():
    problem = Problem(norm=50.0)
    optimizer = BBKB(problem.arms, **problem.options(norm_bound="double"))
    for _ in play(optimizer, problem, 100):
        pass
    assert 4 <= optimizer.norm_bound <= 256
    honest = Problem(norm=0.5)
    optimizer = BBKB(honest.arms, **honest.options(norm_bound="double"))
    for _ in play(optimizer, honest, 100):
        pass
    assert optimizer.norm_bound == 1.0


def test_outliers_that_no_norm_explains_do_not_double_it():
    arms = torch.linspace(0, 10, 50, dtype=torch.float64).unsqueeze(-1)
    noisy = GPUCB(arms, covar_module=kernel(), noise_var=0.01, norm_bound="double", seed=0)
    noisy.tell([0, 20, 40], [100.0, -100.0, 50.0], [1e4] * 3)
    assert noisy.norm_bound == 1.0
    linear = LinearKernel().double()
    flat = GPUCB(arms, covar_module=linear, noise_var=0.01, norm_bound="double", seed=0)
    flat.tell([0], [100.0])  # where the kernel is zero
    assert flat.norm_bound == 1.0


def test_oversampling_is_larger_where_arms_are_pulled_again():
    problem = Problem()
    assert BKB(problem.arms, **problem.options()).oversampling == 8.0
    assert BKB(bounds=torch.tensor([[0.0], [1.0]])).oversampling == 2.0
    assert BKB(problem.arms, oversampling=3, **problem.options()).oversampling == 3.0


def test_a_horizon_outlived_raises_oversampling():
    problem = Problem()
    optimizer = BKB(problem.arms, oversampling=2.0, **problem.options(horizon=10))
    for _ in play(optimizer, problem, 25):
        pass
    assert optimizer.parts.dictionary_after(optimizer.num_observations).horizon == 40
    assert optimizer.oversampling == pytest.approx(2.0 * math.log(1600) / math.log(400))


def test_rkhs_norm_of_the_problems():
    problem = Problem(num_arms=5, norm=2.0)
    assert float(problem.f @ torch.linalg.solve(rbf(problem.arms, problem.arms), problem.f)) <= 4.01
