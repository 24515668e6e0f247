r"""Histories whose weights decay; how they merge is tested through the optimizers."""

from __future__ import annotations

import torch

from botorch_bkb.models.history import LEAST_WEIGHT, History


def history(weights):
    n = len(weights)
    rows, ones = torch.arange(n), torch.ones(n, dtype=torch.float64)
    weights = torch.tensor(weights, dtype=torch.float64)
    return History.empty(rows.device).with_pulls(rows, ones, weights)


def test_decay_changes_weights_and_nothing_else():
    two = History.empty(torch.device("cpu")).with_pulls(
        torch.tensor([4, 4]), torch.tensor([1.0, 3.0]).double(), torch.ones(2).double()
    )
    half = two.decayed(0.5)
    assert half.counts.tolist() == [2] and half.means.tolist() == [2]
    assert half.weights.tolist() == [1] and half.deviations.tolist() == [1]
    assert half.standardisation() == two.standardisation()
    assert float(two.decayed(0.0).weights) == LEAST_WEIGHT


def test_rows_are_negligible_together_and_with_all_dropped_before():
    h = history([0.3, 0.01, 1.0, 0.02])
    assert h.negligible(0.005).tolist() == [False] * 4
    assert h.negligible(0.025).tolist() == [False, True, False, False]
    assert h.negligible(0.031).tolist() == [False, True, False, True]
    less = h.without(h.negligible(0.025))
    assert less.rows.tolist() == [0, 2, 3] and less.lost == 0.01
    assert less.forgotten == 1 and less.num_observations == 4
    assert less.negligible(0.025).tolist() == [False] * 3  # 0.02 + 0.01 is too much
    assert less.decayed(0.5).lost == 0.005
    after = less.with_pulls(torch.tensor([1]), torch.ones(1).double(), torch.ones(1).double())
    assert after.num_observations == 5 and after.lost == 0.01
    assert after.renumbered(torch.tensor([9, 8, 7, 6])).forgotten == 1
