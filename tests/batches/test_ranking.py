from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.batches.ranking import FIRST, Ranking

#: Few values, so that there are ties, also where the ranking reads on.
VALUES = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 0.5, 3.0])


@given(st.lists(VALUES, min_size=1, max_size=10 * FIRST), st.lists(VALUES, max_size=20))
def test_values_come_in_falling_order_and_ties_in_that_of_their_numbers(values, pushed):
    ranking = Ranking(torch.tensor(values, dtype=torch.float64))
    waiting = {i: v for i, v in enumerate(values) if v > -math.inf}
    for i, value in enumerate(v for v in pushed if v > -math.inf):
        ranking.push(value, len(values) + i)
        waiting[len(values) + i] = value
        highest = min(waiting, key=lambda number: (-waiting[number], number))
        assert ranking.pop() == (waiting.pop(highest), highest)
    while waiting:
        highest = min(waiting, key=lambda number: (-waiting[number], number))
        assert ranking
        assert ranking.pop() == (waiting.pop(highest), highest)
    assert not ranking


def test_the_tensor_may_change_meanwhile():
    values = torch.arange(10.0 * FIRST, dtype=torch.float64)
    ranking = Ranking(values)
    values[:] = 0.0
    assert [ranking.pop()[1] for _ in range(10 * FIRST)] == list(reversed(range(10 * FIRST)))


def test_a_lowered_value_comes_once():
    ranking = Ranking(torch.arange(4.0 * FIRST, dtype=torch.float64))
    value, number = ranking.pop()
    ranking.push(value - 2.5 * FIRST, number)
    popped = [ranking.pop()[1] for _ in range(4 * FIRST)]
    assert sorted(popped) == list(range(4 * FIRST))
    with pytest.raises(IndexError):
        ranking.pop()
