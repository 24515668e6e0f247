from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.batches.hallucination import FOLD, Hallucination
from tests.arms.support import NOISE, dense_joint, dense_residual, make

EVERY = torch.arange(25)


def table_of(seed=0):
    r"""A table from whose dictionary a point has left."""
    torch.manual_seed(seed)
    table = make(n=25, m=12)
    table.set_dictionary(torch.arange(1, 13))
    return table


def dense_variances(table, picks):
    r"""Variances as if the picks had been observed, for the table's dictionary."""
    more = torch.tensor(picks, dtype=torch.long)
    return dense_joint(table, more)[1].diagonal()


@given(st.integers(0, 1000), st.lists(st.integers(0, 24), max_size=10))
def test_variances_equal_the_dense_formula(seed, picks):
    table = table_of(seed)
    hallucination = Hallucination(table)
    for row in picks:
        hallucination.pick(row)
    expected = dense_variances(table, picks)
    assert hallucination.picked == len(picks)
    torch.testing.assert_close(hallucination.variances(EVERY), expected, atol=1e-8, rtol=0)
    single = [hallucination.variance(row) for row in range(25)]
    assert single == pytest.approx(expected.tolist(), abs=1e-8)


@pytest.mark.parametrize("n", [FOLD - 1, FOLD, FOLD + 1, 2 * FOLD + 5])
def test_many_picks_are_folded(n):
    table = table_of()
    hallucination, picks = Hallucination(table), torch.randint(25, (n,)).tolist()
    for row in picks:
        hallucination.pick(row)
    expected = dense_variances(table, picks)
    torch.testing.assert_close(hallucination.variances(EVERY), expected, atol=1e-8, rtol=0)
    assert hallucination.variance(7) == pytest.approx(float(expected[7]), abs=1e-8)


@pytest.mark.parametrize("seen", [0, 3, FOLD - 1, FOLD, FOLD + 3])
def test_earlier_variances_are_brought_up_to_date(seen):
    table = table_of()
    hallucination, picks = Hallucination(table), torch.randint(25, (FOLD + 10,)).tolist()
    for row in picks[:seen]:
        hallucination.pick(row)
    before = hallucination.variance(20)
    for row in picks[seen:]:
        hallucination.pick(row)
    expected = float(dense_variances(table, picks)[20])
    assert hallucination.variance(20, before, seen) == pytest.approx(expected, abs=1e-8)


def test_a_pick_says_by_how_much_variances_fall():
    table = table_of()
    hallucination = Hallucination(table)
    for row in (3, 20, 3):
        before = hallucination.variances(EVERY)
        gain, g = hallucination.pick(row)
        z = table.coordinates(EVERY).double()
        fall = before - hallucination.variances(EVERY)
        torch.testing.assert_close((z @ g).square(), fall, atol=1e-9, rtol=0)
        # What the dictionary explains of the row itself is observed with noise.
        assert float(fall[row]) == pytest.approx(gain**2 / (NOISE + gain), abs=1e-9)


@pytest.mark.parametrize("times", [1, 3])
def test_a_row_given_up_loses_of_its_residual_too(times):
    table, row = table_of(), 20
    unexplained = float(dense_residual(table)[row])
    assert unexplained > 0.01  # the dictionary does not explain all of it
    hallucination, left, falls = Hallucination(table), unexplained, []
    for _ in range(times):
        falls.append(left**2 / (NOISE + left))
        left -= falls[-1]
        assert hallucination.give_up(row)[0] == pytest.approx(falls[-1], abs=1e-8)
    expected = dense_variances(table, [row] * times)
    expected[row] -= sum(falls)
    torch.testing.assert_close(hallucination.variances(EVERY), expected, atol=1e-8, rtol=0)
    assert hallucination.variance(row) == pytest.approx(float(expected[row]), abs=1e-8)


def test_rows_added_later_have_variances():
    table = table_of()
    hallucination, picks = Hallucination(table), [3, 20, 5]
    for row in picks:
        hallucination.pick(row)
    hallucination.variance(0)
    table.extend(table.X[20:21] + 0.05)
    assert hallucination.variance(25) == pytest.approx(
        float(dense_variances(table, picks)[25]), abs=1e-8
    )
    hallucination.pick(25)
    expected = dense_variances(table, [*picks, 25])
    assert hallucination.variance(25) == pytest.approx(float(expected[25]), abs=1e-8)
    assert hallucination.variance(20) == pytest.approx(float(expected[20]), abs=1e-8)


def test_the_table_stays_as_it_was():
    table = table_of()
    before, Q = table.variance().clone(), table.inverse_information.clone()
    hallucination = Hallucination(table)
    for row in range(25):
        hallucination.pick(row)
        hallucination.give_up(row)
        hallucination.pick(row)
    assert torch.equal(table.variance(), before) and torch.equal(table.inverse_information, Q)
