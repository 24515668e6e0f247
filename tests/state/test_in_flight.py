from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch

from botorch_bkb.state.in_flight import MOST_GIVEN_UP, BatchRecord, InFlight, Pending
from botorch_bkb.state.observations import Results


def asked(state, picks, *, is_design=False, ends_batch=False):
    pending = {state.next_id + i: Pending(row, 0.5) for i, row in enumerate(picks)}
    return state.asked(picks, pending, is_design=is_design, ends_batch=ends_batch)


def told(rows, ids):
    values = torch.zeros(len(rows), dtype=torch.float64)
    return Results(torch.tensor(rows), ids, values, values + 1)


def begun(**fields):
    return InFlight(7, **fields).begun(2.0, 11, 0)


def test_a_batch_begins_with_what_is_in_flight():
    pending = {3: Pending(8, 0.1), 5: Pending(2, 0.2), 6: Pending(8, 0.3)}
    state = InFlight(7, designed=4, pending=pending, given_up=(9, 1), next_id=7)
    record = state.begun(1.5, 11, 13).batch
    assert record == BatchRecord(1.5, 11, (8, 2, 8), (9, 1), designed=4, cells=13, picks=())
    assert state.batch is None and state.rows == {3: 8, 5: 2, 6: 8}


def test_points_that_are_asked_are_pending_under_new_ids():
    state = asked(asked(begun(), [4, 4]), [6])
    assert state.rows == {0: 4, 1: 4, 2: 6} and state.next_id == 3
    assert state.batch.picks == (4, 4, 6) and state.designed == 0
    assert state.batch.stragglers == ()


def test_points_of_a_design_are_counted():
    state = asked(asked(begun(), [1, 2], is_design=True), [3], is_design=True)
    assert state.designed == 3 and state.batch.designed == 0


def test_a_skipped_point_ends_the_batch():
    state = begun().asked([4, 5], {0: Pending(4, 0.5)}, is_design=False, ends_batch=True)
    assert state.batch is None and state.rows == {0: 4} and state.next_id == 1


def test_answers_end_the_batch_and_are_no_longer_pending():
    state = asked(begun(given_up=(5, 4, 9, 5)), [4, 6, 4])
    after = state.answered(told([4, 5], (0, None)))
    assert after.rows == {1: 6, 2: 4} and after.batch is None
    assert after.given_up == (9,)  # results came after all
    assert after.next_id == 3
    assert state.rows == {0: 4, 1: 6, 2: 4} and state.given_up == (5, 4, 9, 5)


def test_points_that_are_given_up_are_no_longer_pending():
    state = asked(begun(given_up=(9,)), [4, 6, 4])
    after = state.with_given_up({0, 1}, [4, 6])
    assert after.rows == {2: 4} and after.given_up == (9, 4, 6) and after.batch is None


@pytest.mark.parametrize("at_once", [True, False])
def test_the_last_hundred_that_were_given_up_are_kept(at_once):
    state, rows = InFlight(7, given_up=(1000,)), list(range(130))
    if at_once:
        state = state.with_given_up((), rows)
    else:
        for row in rows:
            state = state.with_given_up((), [row])
    assert len(state.given_up) == MOST_GIVEN_UP == 100
    assert state.given_up == tuple(range(30, 130))


def test_points_stay_where_only_the_batch_ends():
    state = asked(begun(), [4])
    assert state.without_batch().batch is None and state.without_batch().rows == {0: 4}
    assert state.batch is not None


def test_what_is_in_flight_is_a_value():
    with pytest.raises(FrozenInstanceError):
        begun().next_id = 3
