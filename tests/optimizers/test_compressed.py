r"""Information-thresholded beliefs inside the optimizers."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.exceptions.errors import InputDataError
from hypothesis import given, settings
from hypothesis import strategies as st

from botorch_bkb import (
    BBKB,
    GPUCB,
    BatchCompleteError,
    CompressedEI,
    CompressedMPI,
    CompressedUCB,
    ConvergedError,
    InformationThreshold,
    epsilon_for_horizon,
)
from botorch_bkb.batches import ProductRule, SumRule
from botorch_bkb.confidence import widths
from tests import naive
from tests.optimizers.support import NOISE, Problem, play

CLASSES = {"ucb": CompressedUCB, "ei": CompressedEI, "mpi": CompressedMPI}


def best_reward(optimizer):
    r"""The best reward in the belief."""
    return optimizer.state_dict()["observations"]["best_reward"]


@pytest.mark.parametrize("acquisition", CLASSES)
@pytest.mark.parametrize("discard", [True, False])
@pytest.mark.parametrize("mode", ["skip", "evaluate"])
def test_every_step_equals_the_plain_transcription(acquisition, discard, mode):
    problem = Problem()
    # Theorem 3.2 is about beliefs that discard; its width is defined for others, too.
    theorem = widths.compressed
    options = problem.options(
        width=theorem, norm_bound=None, epsilon=0.1, discard=discard, on_uninformative=mode
    )
    optimizer = CLASSES[acquisition](problem.arms, **options)
    run = naive.CompressedRun(problem.K, NOISE, 0.1, 0.1, discard)
    for row in (3, 17, 41):  # the initial points
        reward = problem.rewards([row])
        optimizer.tell([row], reward)
        run.observe(row, float(reward))
        run.t += 1
    skipped = 0
    for _ in range(100):
        row, informative = run.next_point(acquisition)
        suggestion = optimizer.ask()
        assert suggestion.indices.tolist() == [row]
        assert suggestion.informative.tolist() == [informative]
        run.t += 1
        if informative or mode == "evaluate":
            reward = problem.rewards([row])
            run.observe(row, float(reward))
            optimizer.tell(suggestion, reward)
        skipped += not informative
    assert optimizer.model_order == len(run.kept) and skipped > 5
    for ours, theirs in zip(optimizer.table.moments(), run.moments(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=0)


def test_a_threshold_of_zero_makes_it_gp_ucb():
    problem, same = Problem(), Problem()
    ours = CompressedUCB(problem.arms, **problem.options(epsilon=0.0, width=2.0))
    theirs = GPUCB(same.arms, **same.options(width=2.0))
    for a, b in zip(play(ours, problem, 50), play(theirs, same, 50), strict=True):
        assert a.indices.tolist() == b.indices.tolist() and a.informative.all()
    assert ours.best().mean == theirs.best().mean


@given(st.integers(0, 100), st.sampled_from([1, 3, 50]), st.booleans())
@settings(max_examples=15)
def test_results_are_judged_in_order_however_they_arrive(seed, size, discard):
    problem = Problem(seed=seed)
    rows = torch.randint(60, (50,), generator=torch.Generator().manual_seed(seed))
    rewards = problem.rewards(rows)
    optimizer = CompressedUCB(problem.arms, **problem.options(epsilon=0.2, discard=discard))
    run = naive.CompressedRun(problem.K, NOISE, 0.2, 0.1, discard)
    for row, reward in zip(rows.tolist(), rewards.tolist(), strict=True):
        run.observe(row, reward)
    for part in torch.arange(50).split(size):
        optimizer.tell(rows[part], rewards[part])
    if discard or size == 1:
        assert optimizer.model_order == len(run.kept)
        for ours, theirs in zip(optimizer.table.moments(), run.moments(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=0)
    # Without discarding, results told together are judged by what is kept of them alone.
    assert optimizer.num_observations == 50 and len(run.kept) < 50
    assert abs(optimizer.model_order - len(run.kept)) <= 3


def test_long_tells_are_judged_in_blocks(monkeypatch):
    problem = Problem()
    rows = torch.arange(60).repeat(3)
    rewards = problem.rewards(rows)
    orders = []
    for block in (1024, 7):
        monkeypatch.setattr("botorch_bkb.optimizers.optimizer.BLOCK", block)
        optimizer = CompressedUCB(problem.arms, **problem.options(epsilon=0.1))
        optimizer.tell(rows, rewards)
        orders.append((optimizer.model_order, optimizer.best().mean))
    assert orders[0][0] == orders[1][0]
    assert orders[0][1] == pytest.approx(orders[1][1], abs=1e-10)


def test_the_model_order_levels_off():
    problem = Problem()
    optimizer = CompressedUCB(
        problem.arms, **problem.options(epsilon=0.05, width="paper", norm_bound=None)
    )
    orders = []
    while optimizer.num_steps < 600:
        s = optimizer.ask()
        s = s[s.informative]
        optimizer.tell(s, problem.rewards(s.indices))
        orders.append(optimizer.model_order)
    assert orders[-1] <= 1.2 * orders[299]
    assert optimizer.num_observations == optimizer.model_order < 300


def test_skipped_points_move_time_on_and_wait_for_nothing():
    problem = Problem()
    optimizer = CompressedUCB(
        problem.arms, **problem.options(epsilon=2.0, width="paper", norm_bound=None)
    )
    optimizer.tell(torch.arange(60), problem.f)
    before = optimizer.width_now
    suggestion = optimizer.ask()
    assert suggestion.ids == (-1,) and not suggestion.informative.any()
    assert len(suggestion[suggestion.informative]) == len(optimizer.pending) == 0
    assert optimizer.num_steps == 61 and optimizer.num_observations == 60
    assert optimizer.width_now > before
    optimizer.tell(suggestion[suggestion.informative], [])  # nothing to tell
    optimizer.tell(suggestion, [1.0])  # evaluated all the same
    assert optimizer.num_observations == 61 and optimizer.model_order < 60


def test_stopping_reports_a_bound_that_holds():
    for seed in range(20):
        problem = Problem(num_arms=30, norm=1.0, seed=seed)
        options = problem.options(epsilon=0.05, width="theory", on_uninformative="stop")
        optimizer = CompressedUCB(problem.arms, **options)
        with pytest.raises(ConvergedError, match=r"epsilon = 0\.05") as caught:
            for _ in play(optimizer, problem, 10_000):
                pass
        found = caught.value.convergence
        assert found.epsilon == 0.05 and found.gap == pytest.approx(optimizer.gap())
        # f(x') <= u(x') <= u(x) <= f(x) + 2 width sd(x)
        assert found.gap <= 2 * found.width * math.sqrt(NOISE * math.expm1(0.1)) + 1e-9
        assert problem.f.max() - problem.f[optimizer.best().index] <= found.gap
        with pytest.raises(ConvergedError):
            optimizer.ask()


def test_stopping_waits_for_what_is_pending():
    problem = Problem()
    options = problem.options(epsilon=0.3, on_uninformative="stop", batch_rule=SumRule(1e3))
    optimizer = CompressedUCB(problem.arms, **options)
    first = optimizer.ask()
    assert first.informative.all() and len(first) > 3
    with pytest.raises(BatchCompleteError, match="pending"):
        optimizer.ask()
    optimizer.tell(first, problem.rewards(first.indices))
    assert optimizer.num_observations == optimizer.model_order == len(first)


def test_marks_within_a_batch_are_what_telling_decides():
    flat = {"epsilon": 0.2, "on_uninformative": "evaluate"}
    part = {"dictionary": InformationThreshold(0.2, on_uninformative="evaluate")}
    for algorithm, threshold in ((CompressedUCB, flat), (BBKB, part), (CompressedEI, flat)):
        problem = Problem()
        options = problem.options(batch_rule=ProductRule(1e6, max_size=40), **threshold)
        optimizer = algorithm(problem.arms, **options)
        optimizer.tell([0, 5], problem.f[[0, 5]])
        suggestion = optimizer.ask()
        assert int(suggestion.informative.sum()) > 0
        optimizer.tell(suggestion, problem.rewards(suggestion.indices))
        # An uninformative pick is imagined within its batch, but not believed when told.
        assert optimizer.model_order - 2 >= int(suggestion.informative.sum())


def test_not_discarding_estimates_better():
    r"""Over seeded problems, mean squared error of the mean at all arms."""
    errors = {True: 0.0, False: 0.0}
    for seed in range(20):
        problem = Problem(seed=seed, noise=0.5)
        rows = torch.randint(60, (400,), generator=torch.Generator().manual_seed(seed))
        rewards = problem.rewards(rows)
        for discard in errors:
            options = problem.options(epsilon=0.1, discard=discard)
            optimizer = CompressedUCB(problem.arms, **options)
            optimizer.tell(rows, rewards)
            errors[discard] += float((optimizer.table.mean() - problem.f).square().mean())
    assert errors[False] < 0.7 * errors[True]


def test_the_incumbent_of_ei_is_the_best_kept_result():
    problem = Problem()
    optimizer = CompressedEI(problem.arms, **problem.options(epsilon=0.5))
    optimizer.tell([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30], [1.0] * 10 + [9.0, 0.0])
    assert best_reward(optimizer) == 1.0  # the tenth repetition taught nothing
    assert optimizer.num_observations == 12


def test_a_botorch_acquisition_function_over_arms():
    problem, same = Problem(), Problem()
    ours = CompressedEI(problem.arms, **problem.options(epsilon=0.0))

    def factory(model):
        return LogExpectedImprovement(model, best_f=best_reward(theirs))

    theirs = GPUCB(same.arms, **same.options(acquisition=factory))
    for o, p in ((ours, problem), (theirs, same)):
        o.tell([0, 9], p.f[[0, 9]])
    for a, b in zip(play(ours, problem, 30), play(theirs, same, 30), strict=True):
        assert a.indices.tolist() == b.indices.tolist()


@pytest.mark.parametrize("algorithm", CLASSES.values())
def test_before_any_result(algorithm):
    problem = Problem()
    optimizer = algorithm(problem.arms, num_initial=1, seed=0)
    assert len(optimizer.ask()) == 1 and optimizer.model_order == 0


@pytest.mark.parametrize("algorithm", CLASSES.values())
def test_nothing_is_informative_under_a_huge_threshold(algorithm):
    problem = Problem()
    optimizer = algorithm(problem.arms, **problem.options(epsilon=1e3))
    optimizer.tell([0, 1], [1.0, 2.0])
    assert optimizer.num_observations == 2 and optimizer.model_order == 0
    suggestion = optimizer.ask()
    assert not suggestion.informative.any() and math.isfinite(optimizer.best().mean)


@pytest.mark.parametrize("algorithm", CLASSES.values())
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scales_do_not_matter_where_things_are_fitted(algorithm, scale):
    problem = Problem()
    arms = []
    for s in (1.0, scale):
        optimizer = algorithm(problem.arms, seed=0)
        optimizer.tell(torch.arange(12), s * problem.f[:12])
        arms.append(optimizer.ask().indices.tolist())
    assert arms[0] == arms[1]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"on_uninformative": "never"}, "on_uninformative"),
        ({"acquisition": "best"}, "acquisition"),
        ({"acquisition": 3}, "acquisition"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(InputDataError, match=match):
        CompressedUCB(torch.rand(5, 2, dtype=torch.float64), **options)


def test_the_schedule_of_the_theorem():
    assert epsilon_for_horizon(100, 1, 0.5) == pytest.approx(0.5 * math.log(1.1))
    assert epsilon_for_horizon(10**4, 3) == pytest.approx(0.5 * math.log1p(10 ** (-4 / 6)))
    for bad in ((0, 1, 0.5), (100, 0, 0.5), (100, 2, 0.5), (100, 2, 0.0)):
        with pytest.raises(InputDataError):
            epsilon_for_horizon(*bad)
