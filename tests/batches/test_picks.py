from __future__ import annotations

import math
from unittest.mock import patch

import pytest
import torch
from gpytorch.kernels import LinearKernel

from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Picks, picks
from tests.arms.support import NOISE, dense_joint, dense_residual, make
from tests.batches.support import apart


def dense_covariances(table, joins):
    r"""What a pick lowers, over the noise: all, or what S explains and its own residual."""
    cov = dense_joint(table)[1]
    if not joins:
        X, S = table.X.double(), table.X[table.dictionary].double()
        k = table.kernel
        K = k(X, S).to_dense()
        whole = k(X).to_dense() - K @ torch.linalg.inv(k(S).to_dense()) @ K.mT
        cov = cov - whole + torch.diag(dense_residual(table))
    return cov / NOISE


def counted(table, rows, **options):
    out, scores = Picks(table, **options), table.scores()
    for row in rows:
        out.add(row, float(scores[row]), 1.0)
    return out


ROWS = [3, 20, 3, 9, 41, 20, 3]


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_covariances_equal_the_dense_ones(joins, keep):
    table = make(n=60, m=8)
    table.set_dictionary(torch.arange(2, 9))  # former points stay in the coordinates
    if not keep:
        table = ArmTable(
            table.X, table.kernel, NOISE, table.dictionary, table.counts, table.sums, keep=False
        )
    c = dense_covariances(table, joins)
    ours = counted(table, ROWS, joins=joins)
    distinct = [3, 20, 9, 41]
    assert ours.rows == distinct and ours.counts.tolist() == [3, 2, 1, 1]
    assert len(ours) == ours.spent == 7
    assert ours.scores == table.scores()[distinct].tolist()
    assert torch.equal(ours.arm_scores, table.scores())
    torch.testing.assert_close(ours.covariance(), c[distinct][:, distinct], atol=1e-8, rtol=0)
    for row in distinct:
        torch.testing.assert_close(ours.covariances_with(row), c[:, row], atol=1e-8, rtol=0)


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize(
    "sizes", [{"COLUMNS": 64}, {"COLUMNS": 2}, {"NEAR": 1.0}, {"NEAR": 0.0, "CHUNK": 7}]
)
def test_the_largest_fall_is_on_the_right_side_of_every_limit(joins, sizes):
    table = make(n=60, m=8)
    table.observe(torch.randint(60, (30,)), torch.randn(30, dtype=torch.float64))
    c, tau = dense_covariances(table, joins), table.scores()
    rows = torch.randint(60, (40,)).tolist()
    expected = [float((c[:, rows[: i + 1]].square().sum(-1) / tau).max()) for i in range(len(rows))]
    with patch.multiple(picks, **sizes):
        for i, fall in enumerate(expected):
            assert counted(table, rows[: i + 1], joins=joins).largest_fall() == pytest.approx(fall)
        for limit in (0.3, 1.0, 3.0, 10.0):
            ours = Picks(table, joins=joins)
            for row, fall in zip(rows, expected, strict=True):
                ours.add(row, float(tau[row]), 0.0)
                assert (ours.largest_fall(limit) > limit) == (fall > limit)
        # The other order: a limit that was exceeded, and then a larger one.
        ours = counted(table, rows, joins=joins)
        for limit in (expected[-1] / 3, expected[-1] / 2, 2 * expected[-1]):
            assert (ours.largest_fall(limit) > limit) == (expected[-1] > limit)


@pytest.mark.parametrize("joins", [True, False])
def test_where_any_point_may_be_picked_it_is_the_largest_eigenvalue(joins):
    table = make(n=60, m=8)
    c = dense_covariances(table, joins)[ROWS][:, ROWS]
    ours = counted(table, ROWS, joins=joins, everywhere=True)
    expected = float(torch.linalg.eigvalsh(c)[-1])
    assert ours.largest_fall() == pytest.approx(expected)
    assert expected >= counted(table, ROWS, joins=joins).largest_fall() - 1e-9
    assert expected <= float(c.trace())


def test_nothing_is_computed_while_the_sum_is_within_the_limit():
    table = make(n=60, m=8)
    with patch.object(Picks, "_covariances", side_effect=AssertionError):
        ours = counted(table, ROWS)
        total = sum(float(table.scores()[row]) for row in ROWS)
        assert ours.largest_fall(total + 1e-9) == pytest.approx(total)
        with pytest.raises(AssertionError):
            ours.largest_fall(total - 1e-9)


def test_few_rows_are_examined_for_each_pick():
    table = make(n=3000, m=30)
    table.observe(torch.randint(3000, (300,)), torch.randn(300, dtype=torch.float64))
    rows = torch.randint(3000, (20,)).repeat(40).tolist()
    limit, examined, tau = 0.9 * counted(table, rows).largest_fall(), 0, table.scores()
    covariances = Picks._covariances

    def watched(self, which, at):
        nonlocal examined
        out = covariances(self, which, at)
        examined += out.numel()
        return out

    ours, picked = Picks(table), 0
    with patch.object(Picks, "_covariances", watched):
        while ours.largest_fall(limit) <= limit:
            ours.add(rows[picked], float(tau[rows[picked]]), 0.0)
            picked += 1
    assert picked > 600
    assert examined < 0.05 * picked * 3000


def test_rows_without_variance_do_not_fall():
    X = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    table = ArmTable(X, LinearKernel().double(), 1.0, torch.tensor([1]))
    for joins in (True, False):
        assert counted(table, [0], joins=joins).largest_fall() == 0.0
        fall = counted(table, [1, 0, 2], joins=joins).largest_fall()
        assert fall == pytest.approx(float(table.scores().sum()))  # all the same direction


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
def test_huge_and_tiny_scores_stay_below_their_sum(scale):
    table = apart(4)
    table = ArmTable(table.X, table.kernel, NOISE / scale, torch.tensor([0]))
    ours = counted(table, [0, 1, 1])
    total = 3 * scale / NOISE
    fall = ours.largest_fall(1e-3 * total)
    assert 0 <= fall <= total * (1 + 1e-9) and math.isfinite(fall)


def test_float32_arms():
    torch.manual_seed(0)
    table = make(n=60, m=8)
    torch.manual_seed(0)
    single = make(n=60, m=8, dtype=torch.float32)
    for joins in (True, False):
        expected = counted(table, ROWS, joins=joins).largest_fall()
        assert counted(single, ROWS, joins=joins).largest_fall() == pytest.approx(
            expected, rel=1e-4
        )


def test_rows_may_be_added_to_the_table():
    table = make(n=20, m=6)
    ours = counted(table, [3, 4], joins=True, everywhere=True)
    assert len(ours.covariances_with(3)) == 20
    table.extend(torch.full((2, 2), 0.3, dtype=torch.float64))
    ours.add(20, float(table.scores()[20]), 0.0)
    c = dense_covariances(table, True)
    torch.testing.assert_close(ours.covariances_with(3), c[:, 3], atol=1e-8, rtol=0)
    assert ours.covariance().shape == (3, 3)
