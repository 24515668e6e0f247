from __future__ import annotations

import math

import pytest
import torch

from botorch_bkb.state.observations import Observations, Results

LIKE = torch.zeros(5, 2, dtype=torch.float64)


def results(rows, rewards, ids=None):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    ids = (None,) * len(rows) if ids is None else ids
    return Results(torch.tensor(rows), ids, rewards, torch.ones_like(rewards))


def mask(*values):
    return torch.tensor(values)


def test_parts_of_results():
    whole = results([4, 2, 7], [1.0, 2.0, 3.0], (0, None, 5))
    for part in (slice(1, 3), mask(False, True, True)):
        some = whole.part(part)
        assert (some.rows.tolist(), some.ids, some.rewards.tolist()) == ([2, 7], (None, 5), [2, 3])
        assert len(some.weights) == 2 and some.num_unsolicited == 1
    assert whole.num_unsolicited == 1 and len(whole.part(slice(0)).rows) == 0


def test_a_new_run_has_no_observations():
    none = Observations.none(LIKE)
    assert (none.num_observations, none.num_steps, none.newest) == (0, 0, -1)
    assert none.best_reward == -math.inf and none.added.shape == (0, 2)
    assert none.added.dtype == LIKE.dtype and len(none.informative) == 0


def test_results_are_counted_where_everything_is_believed():
    none = Observations.none(LIKE)
    first = none.with_results(results([4, 2, 4], [1.0, 2.0, 5.0]), mask(True, False, True), False)
    assert (first.num_observations, first.num_informative, first.num_discarded) == (3, 2, 0)
    assert (first.best_reward, first.newest) == (5.0, 4)
    assert first.history.rows.tolist() == [2, 4] and first.history.counts.tolist() == [1, 2]
    assert first.history.means.tolist() == [2.0, 3.0] and first.informative.tolist() == [4]
    second = first.with_results(results([0, 4], [-1.0, 0.0]), mask(True, True), False)
    assert second.informative.tolist() == [0, 4] and second.num_informative == 4
    assert (second.best_reward, second.newest, second.num_observations) == (5.0, 4, 5)
    # Everything is a value: the earlier ones are as they were.
    assert none.num_observations == 0 and first.history.counts.tolist() == [1, 2]


def test_uninformative_results_may_be_left_out():
    none = Observations.none(LIKE)
    after = none.with_results(results([4, 2, 3], [1.0, 9.0, 0.5]), mask(True, False, True), True)
    assert (after.num_observations, after.num_informative, after.num_discarded) == (3, 2, 1)
    assert after.history.rows.tolist() == [3, 4] and after.history.num_observations == 2
    assert (after.best_reward, after.newest) == (1.0, 3)  # of the belief, not of all results
    assert len(after.informative) == 0  # all in the belief are


def test_a_belief_stays_where_all_results_are_left_out():
    before = Observations.none(LIKE).with_results(results([4], [1.0]), mask(True), True)
    after = before.with_results(results([2, 3], [9.0, 9.0]), mask(False, False), True)
    assert after.history is before.history and after.newest == 4
    assert (after.num_observations, after.num_discarded, after.best_reward) == (3, 2, 1.0)


def test_skipped_steps_are_no_observations():
    after = Observations.none(LIKE).with_results(results([4], [1.0]), mask(True), False)
    after = after.with_skipped(3).with_skipped(-1)
    assert (after.num_observations, after.num_steps) == (1, 3)


def test_rows_behind_the_arms():
    none = Observations.none(LIKE)
    assert none.with_rows(LIKE[:0]) is none
    more = none.with_rows(LIKE[:2] + 1).with_rows(LIKE[:1] + 2)
    assert more.added[:, 0].tolist() == [1.0, 1.0, 2.0]
    rows = torch.tensor([7, 0, 5])
    assert more.inputs(LIKE, rows)[:, 0].tolist() == [2.0, 0.0, 1.0]
    assert len(none.added) == 0


def test_weights_are_kept():
    told = Results(
        torch.tensor([1, 1]), (None, None), torch.tensor([0.0, 3.0]), torch.tensor([1.0, 0.5])
    )
    after = Observations.none(LIKE).with_results(told, mask(True, True), False)
    assert after.history.counts.tolist() == [2] and after.history.weights.tolist() == [1.5]
    assert after.history.means.tolist() == pytest.approx([1.0])
