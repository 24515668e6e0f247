r"""What results do to a state, function by function."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb import BBKB, CompressedUCB
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.tables import build_table
from botorch_bkb.optimizers.telling import (
    absorb,
    is_informative,
    scores_in_order,
    with_known_noise,
    with_norm_doubled,
    with_scores,
)
from botorch_bkb.optimizers.updating import Updater
from botorch_bkb.state.observations import Results
from tests.optimizers.inside import state_of
from tests.optimizers.support import NOISE, Problem, make, warm


@pytest.fixture
def problem():
    return Problem()


def results(rows, rewards, ids=None, weights=None):
    rows = torch.tensor(rows)
    weights = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights
    ids = (None,) * len(rows) if ids is None else ids
    return Results(rows, ids, torch.as_tensor(rewards, dtype=torch.float64), weights)


def dense_scores(problem, rows, weights):
    r"""One conditioning after another, with dense matrices."""
    K, scores = problem.K.clone(), []
    for row, weight in zip(rows, weights, strict=True):
        noise = NOISE / weight
        scores.append(float(K[row, row] / noise))
        K = K - torch.outer(K[row], K[row]) / (K[row, row] + noise)
    return torch.tensor(scores, dtype=torch.float64)


def test_scores_in_order_are_those_of_one_conditioning_after_another(problem):
    table = make(problem).table
    rows, weights = [3, 17, 3, 3, 40], torch.tensor([1.0, 2.0, 1.0, 0.5, 1.0], dtype=torch.float64)
    ours = scores_in_order(table, torch.tensor(rows), weights)
    torch.testing.assert_close(ours, dense_scores(problem, rows, weights), atol=1e-9, rtol=0)


def test_informative_results_exceed_the_threshold_given_those_kept(problem):
    table = make(problem).table
    told = results([3, 3, 3, 17], [0.0] * 4)
    assert is_informative(None, table, told).all()
    # tau is 10, then 10 / 11, then as before, since the second was not kept.
    assert is_informative(1.0, table, told).tolist() == [True, False, False, True]


def test_asked_points_have_the_score_they_were_chosen_with(problem):
    optimizer = warm(problem)
    suggestion = optimizer.ask(at_most=2)
    state, table = state_of(optimizer), optimizer.table
    scores = torch.tensor([p.score for p in state.in_flight.pending.values()])
    told = results(suggestion.indices.tolist(), [0.0, 0.0], suggestion.ids)
    after = with_scores(optimizer.parts, state, table, told).confidence
    gained = after.log_sum - state.confidence.log_sum
    assert gained == pytest.approx(float(scores.log1p().sum()))
    assert after.log_sum_alpha - state.confidence.log_sum_alpha == pytest.approx(
        float((3 * scores).log1p().sum())
    )


def test_known_noise_comes_with_the_first_results(problem):
    optimizer = BBKB(problem.arms, seed=0)
    state, variances = state_of(optimizer), torch.tensor([0.1, 0.3])
    known = with_known_noise(Surrogate(), state, variances).model
    assert known.noise_known == pytest.approx(0.2) == known.hyper.noise_var
    assert with_known_noise(Surrogate(), state, torch.full((2,), torch.nan)) is state
    assert with_known_noise(Surrogate(noise_var=0.5), state, variances) is state
    optimizer.tell([0], [1.0])
    later = with_known_noise(Surrogate(), state_of(optimizer), variances)
    assert later.model.noise_known is None and later.observations.measured is not None
    with pytest.raises(InputDataError, match="Yvar must be known for all results or for none"):
        with_known_noise(Surrogate(half_life=9.0), state_of(optimizer), variances)


def test_the_norm_is_doubled_until_a_result_is_within_its_interval(problem):
    optimizer = make(problem, norm_bound="double", width="information")
    optimizer.tell([0], [0.0])
    state, table, parts = state_of(optimizer), optimizer.table, optimizer.parts
    outlier = results([50], [60.0])
    after = with_norm_doubled(parts, state, table, outlier)
    norm = after.confidence.norm_bound
    mean, var = table.moments_at(outlier.rows)
    assert norm > 1 and norm == 2 ** round(torch.tensor(norm).log2().item())
    halved = replace(after, confidence=replace(after.confidence, norm_bound=norm / 2))
    excess = float((outlier.rewards - mean).abs() / var.sqrt())
    assert parts.width_now(halved, table) < excess
    assert with_norm_doubled(parts, state, table, results([50], [0.1])) is state


@pytest.mark.parametrize("discard", [True, False])
def test_absorbing_leaves_out_what_is_not_informative(problem, discard):
    options = problem.options(epsilon=0.5, discard=discard)
    optimizer = CompressedUCB(problem.arms, **options)
    state = state_of(optimizer)
    updater = Updater(optimizer.parts, torch.Generator())
    table = build_table(optimizer.domain, state)
    after, table = absorb(updater, state, table, results([3, 3, 17], [1.0, 9.0, 2.0]))
    observations = after.observations
    assert observations.num_observations == 3 and observations.num_informative == 2
    assert observations.best_reward == (2.0 if discard else 9.0)
    assert float(table.counts.sum()) == (2 if discard else 3)
    assert after.dictionary.is_current and torch.equal(table.dictionary, torch.tensor([3, 17]))
    assert state.observations.num_observations == 0  # the state before is as it was


def test_results_of_a_batch_wait_for_each_other(problem):
    optimizer = warm(problem)
    suggestion = optimizer.ask(at_most=3)
    state = state_of(optimizer)
    updater, told = Updater(optimizer.parts, torch.Generator()), suggestion.indices.tolist()
    table = build_table(optimizer.domain, state)
    dictionary = table.dictionary
    state, table = absorb(updater, state, table, results(told[:2], [0.0, 0.0], suggestion.ids[:2]))
    assert not state.dictionary.is_current and torch.equal(table.dictionary, dictionary)
    state, table = absorb(updater, state, table, results(told[2:], [0.0], suggestion.ids[2:]))
    assert state.dictionary.is_current and not state.in_flight.pending
