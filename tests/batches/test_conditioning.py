from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Conditioning
from botorch_bkb.dictionaries import RandomFeatures
from tests.arms.support import NOISE, conditioned, dense_joint, kernel, make


@given(st.integers(0, 1000), st.lists(st.integers(0, 24), max_size=12))
def test_variances_equal_dense_conditioning(seed, rows):
    torch.manual_seed(seed)
    table = make(n=25, m=6)  # most rows are not in the dictionary
    conditioning = Conditioning(table)
    own = [conditioning.pick(row) for row in rows]
    cov = dense_joint(table)[1]
    every = torch.arange(25)
    torch.testing.assert_close(
        conditioning.variances(every), conditioned(cov, rows), atol=1e-8, rtol=0
    )
    for i, row in enumerate(rows):
        torch.testing.assert_close(
            own[i], float(conditioned(cov, rows[: i + 1])[row]), atol=1e-8, rtol=0
        )
    assert conditioning.rows.tolist() == rows


def test_a_pick_lowers_what_the_dictionary_does_not_explain():
    X = 100 * torch.arange(3, dtype=torch.float64).unsqueeze(-1)
    conditioning = Conditioning(ArmTable(X, kernel(), NOISE, torch.tensor([0])))
    conditioning.follow([1, 1])
    expected = torch.tensor([1.0, 1 / (1 + 2 / NOISE), 1.0], dtype=torch.float64)
    torch.testing.assert_close(conditioning.variances(torch.arange(3)), expected)


def test_kernels_with_features():
    X = torch.rand(20, 2, dtype=torch.float64)
    features = RandomFeatures(30, seed=0).belief_kernel(kernel(), X)
    table = ArmTable(X, features, NOISE, torch.tensor([0]))
    conditioning = Conditioning(table)
    conditioning.follow([3, 7])
    cov = table.covariance(torch.arange(20))
    torch.testing.assert_close(
        conditioning.variances(torch.arange(20)), conditioned(cov, [3, 7]), atol=1e-8, rtol=0
    )
