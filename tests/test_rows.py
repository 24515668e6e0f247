from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.models.history import History
from botorch_bkb.rows import appended

INITIAL = torch.arange(3.0, dtype=torch.float64).unsqueeze(-1)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 90)), max_size=25))
def test_appending_in_any_order_equals_copying(steps):
    r"""Each step appends some rows to one of the earlier results."""
    grown, copied = [INITIAL], [INITIAL]
    for base, size in steps:
        base = base % len(grown)
        more = torch.full((size, 1), len(grown) + 10.0, dtype=torch.float64)
        grown.append(appended(grown[base], more))
        copied.append(torch.cat([copied[base], more]))
    assert all(torch.equal(a, b) for a, b in zip(grown, copied, strict=True))


def test_appending_again_and_again_copies_the_new_rows_only():
    rows = appended(INITIAL, INITIAL)
    after = appended(rows, INITIAL)
    assert after.data_ptr() == rows.data_ptr()
    assert appended(rows, INITIAL).data_ptr() != rows.data_ptr()


def test_a_history_of_later_rows_equals_one_of_rows_in_any_order():
    rows = torch.tensor([4, 1, 9, 4, 7])
    rewards, weights = torch.randn(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    expected = History.empty(rows.device).with_pulls(rows, rewards, weights)
    for order in ([1, 0, 3, 4, 2], [2, 4, 0, 3, 1]):  # later rows each time, and earlier ones
        history = History.empty(rows.device)
        for i in order:
            history = history.with_pulls(*(t[i : i + 1] for t in (rows, rewards, weights)))
        assert history.num_observations == 5 == int(history.counts.sum())
        for name in ("rows", "counts", "weights", "means", "deviations"):
            torch.testing.assert_close(getattr(history, name), getattr(expected, name))
