from __future__ import annotations

import pytest
import torch
from gpytorch.means import ZeroMean
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.arms import ArmTable
from botorch_bkb.arms import table as tables
from tests import naive
from tests.arms.support import NOISE, assert_current, dense, kernel, make
from tests.problems import rbf


def dense_log_determinant(table: ArmTable) -> float:
    r"""``log det(I + C^{1/2} Q C^{1/2} / lambda)`` for the part of the kernel through ``S``."""
    X, S = table.X[table.pulled], table.X[table.dictionary]
    through = rbf(X, S) @ torch.linalg.inv(rbf(S, S)) @ rbf(S, X)
    root = (table.counts[table.pulled] / NOISE).sqrt()
    return float((torch.eye(len(X)) + root.unsqueeze(-1) * through * root).logdet())


def rebuilt(table: ArmTable, keep: bool = True) -> ArmTable:
    r"""A new table of the same arms, dictionary and observations."""
    X, dictionary, noise = table.X, table.dictionary, table.noise_var
    return ArmTable(X, table.kernel, noise, dictionary, table.counts, table.sums, keep=keep)


def random_rows(n, k):
    return torch.randperm(n)[:k]


def test_a_new_table_equals_the_oracle():
    assert_current(make())


def test_observing_equals_the_oracle_with_repetitions():
    table = make()
    for _ in range(5):
        rows = torch.randint(60, (7,))
        table.observe(rows, torch.randn(7, dtype=torch.float64))
        assert_current(table)


@pytest.mark.parametrize("thin", [True, False], ids=["thin", "rebuild"])
def test_any_sequence_of_changes_equals_the_oracle(thin, monkeypatch):
    if thin:
        monkeypatch.setattr(tables, "SPARE", 20)
        monkeypatch.setattr(ArmTable, "rebuild_is_better", lambda self, dictionary: False)
    else:
        monkeypatch.setattr(tables, "CHANGES_BEFORE_REBUILD", 0)
    table = make(m=20)
    for _ in range(tables.CHANGES_BEFORE_REBUILD or 20):
        table.observe(torch.randint(60, (4,)), torch.randn(4, dtype=torch.float64))
        stay = table.dictionary[torch.randperm(len(table.dictionary))[3:]]
        others = random_rows(60, 60)
        joining = others[~torch.isin(others, stay)][: 2 + int(torch.randint(3, ()))]
        table.set_dictionary(torch.cat([stay, joining]))
        assert_current(table)


def test_chunks_do_not_show(monkeypatch):
    monkeypatch.setattr(tables, "CHUNK", 7)
    table = make(m=16)
    table.set_dictionary(torch.arange(1, 18))
    assert_current(table)


def test_only_joining_and_only_leaving():
    table = make(m=10)
    table.set_dictionary(torch.arange(13))
    assert_current(table)
    table.set_dictionary(torch.arange(2, 13))
    assert_current(table)
    table.set_dictionary(torch.arange(2, 13))
    assert_current(table)


def test_directions_that_left_linger_until_the_room_is_used_up():
    table, anew, slots = make(m=16), [], []
    for first in range(1, 30):
        table.set_dictionary(torch.arange(first, first + 16))
        anew.append(table.rebuilt)
        slots.append(table.inverse_information.shape[-1])
        assert_current(table)
    assert any(anew) and not all(anew)
    assert all((n == 16) == new for n, new in zip(slots, anew, strict=True))
    assert max(slots) <= 16 + 16 * tables.SPARE + 16


def test_exchanging_the_whole_dictionary_rebuilds():
    table = make(m=5)
    table.set_dictionary(torch.arange(30, 35))
    assert table.rebuilt
    assert_current(table)


def test_float32_arms_have_float64_algebra():
    table = make(dtype=torch.float32)
    table.set_dictionary(torch.arange(1, 10))
    mean, variance = dense(table)
    assert table.coordinates(0).dtype == torch.float32
    assert table.inverse_information.dtype == torch.float64
    torch.testing.assert_close(table.mean(), mean, atol=1e-3, rtol=0)
    torch.testing.assert_close(table.variance(), variance, atol=1e-3, rtol=0)


def test_duplicate_arms_and_one_arm():
    X = torch.zeros(4, 2, dtype=torch.float64)
    table = ArmTable(X, kernel(), NOISE, torch.tensor([0]))
    table.observe(torch.tensor([0, 1, 2]), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(table.mean(), torch.full((4,), 3 / 3.2, dtype=torch.float64))
    table.set_dictionary(torch.tensor([0, 3]))
    assert table.variance().isfinite().all()
    one = ArmTable(X[:1], kernel(), NOISE, torch.tensor([0]))
    one.observe(torch.tensor([0]), torch.tensor([1e12]))
    assert one.mean().isfinite().all()


def test_effective_dimension():
    table = make()
    scores = dense(table)[1] / NOISE
    assert table.effective_dimension == pytest.approx(float((table.counts * scores).sum()))


@given(
    st.floats(-300, 0), st.sets(st.integers(0, 29), min_size=1), st.integers(1, 4), st.booleans()
)
def test_all_points_explain_no_more_dimensions_than_there_are(exponent, rows, times, single):
    dtype = torch.float32 if single else torch.float64
    X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pulled = torch.tensor(sorted(rows))
    table = ArmTable(X.to(dtype), kernel(dtype), 10.0**exponent, pulled)
    table.observe(pulled.repeat(times), torch.zeros(times * len(rows), dtype=torch.float64))
    assert 0 < table.effective_dimension <= len(rows) * (1 + 1e-6)


def test_dropped_points_count_with_what_is_left_unexplained_of_them():
    table = make(m=12)
    before = table.effective_dimension
    table.set_dictionary(torch.arange(6))
    scores = dense(table)[1] / NOISE
    assert table.effective_dimension == pytest.approx(float((table.counts * scores).sum()))
    assert table.effective_dimension != pytest.approx(before)


def test_log_determinant():
    table = make(m=12)
    table.observe(torch.randint(60, (9,)), torch.randn(9, dtype=torch.float64))
    table.set_dictionary(torch.arange(2, 15))
    assert not table.rebuilt and table.inverse_information.shape[-1] > 13
    assert table.log_determinant == pytest.approx(dense_log_determinant(table))


@pytest.mark.parametrize("noise", [1e-3, 1e-5, 1e-7])
def test_little_noise_and_an_ill_conditioned_kernel_do_not_drift(noise):
    X = torch.rand(60, 1, dtype=torch.float64)
    table = ArmTable(X, kernel(), noise, torch.arange(1))
    for _ in range(80):
        table.observe(torch.randint(60, (2,)), torch.sin(6 * X[:2, 0]))
        chosen = table.pulled[torch.rand(len(table.pulled)) < 0.9]
        table.set_dictionary(chosen if len(chosen) else table.pulled[:1])
        new = rebuilt(table)
        # The kernel matrix has a condition of 1e12 and more: a rebuild is no better than this.
        torch.testing.assert_close(table.mean(), new.mean(), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(table.variance(), new.variance(), atol=1e-6, rtol=1e-6)


def test_more_rows_than_coordinates_are_observed_by_their_information():
    table = make(n=60, m=5)
    before = table.log_determinant
    rows = torch.arange(60)
    table.observe(rows, torch.randn(60, dtype=torch.float64))
    assert_current(table)
    assert table.log_determinant == pytest.approx(dense_log_determinant(table)) != before


def test_covariances_with_one_row():
    table = make(m=10)
    table.set_dictionary(torch.arange(2, 13))
    X, S = table.X, table.X[table.dictionary]
    rows = table.pulled
    noise = NOISE / table.counts[rows]
    zero = torch.zeros(len(rows), dtype=torch.float64)
    _, cov = naive.dtc(rbf(S, S), rbf(X[rows], S), rbf(X, S), rbf(X, X), zero, noise)
    torch.testing.assert_close(table.covariance_with(7), cov[:, 7], atol=1e-8, rtol=0)


def test_weights_are_fractions_of_pulls():
    table = make()
    other = rebuilt(table)
    table.observe(torch.tensor([3, 3]), torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5]))
    other.observe(torch.tensor([3]), torch.tensor([1.5]))
    torch.testing.assert_close(table.mean(), other.mean())
    torch.testing.assert_close(table.variance(), other.variance())


def test_readers_leave_no_trace():
    table = rebuilt(make())
    unread = rebuilt(table)
    for t in (table, unread):
        for row in (5, 7, 9):
            t.observe(torch.tensor([row]), torch.tensor([1.0]))
            if t is table:
                t.moments()
        t.set_dictionary(torch.arange(1, 10))
    assert torch.equal(table.mean(), unread.mean())
    assert torch.equal(table.variance(), unread.variance())


def test_many_observations_before_anybody_asks():
    table = make()
    for row in range(60):
        table.observe(torch.tensor([row]), torch.tensor([0.1 * row]))
    assert_current(table)


def test_without_kept_coordinates_nothing_else_changes():
    kept = make(m=10)
    table = rebuilt(kept, keep=False)
    for t in (kept, table):
        t.observe(torch.tensor([2, 30, 30]), torch.tensor([1.0, 2.0, 3.0]))
    assert_current(table)
    for t in (kept, table):
        t.set_dictionary(torch.arange(2, 14))
    assert_current(table)
    # Kept coordinates are always the same memory.
    ends = [(t.coordinates(slice(2)), t.coordinates(slice(2))) for t in (kept, table)]
    assert [a.data_ptr() == b.data_ptr() for a, b in ends] == [True, False]


def test_rows_added_later_are_as_if_they_had_always_been_there():
    for waiting in (False, True):
        table = make(n=50, m=10)
        table.set_dictionary(torch.arange(2, 13))
        if waiting:
            table.observe(torch.tensor([30, 31]), torch.ones(2))
        table.extend(2 * torch.rand(4, 2, dtype=torch.float64))
        assert_current(table)
        table.observe(torch.tensor([51, 53, 53]), torch.ones(3))
        assert_current(table)
        table.set_dictionary(torch.cat([torch.arange(4, 13), torch.tensor([51])]))
        assert_current(table)


def test_moments_of_some_rows_equal_those_of_all():
    table = make()
    table.observe(torch.tensor([30, 31]), torch.ones(2))
    rows = torch.tensor([3, 30, 59])
    for some, every in zip(table.moments_at(rows), table.moments(), strict=True):
        torch.testing.assert_close(some, every[rows])


def test_settled_variances_are_those_before_the_observations():
    table = make()
    table.set_dictionary(torch.arange(1, 9))
    rows, before = torch.arange(60), table.variance().clone()
    table.observe(torch.tensor([30]), torch.ones(1))
    table.observe(torch.tensor([31]), torch.ones(1))
    assert torch.equal(table.settled_variance(rows), before)
    assert (table.variance() < before - 1e-3).any()
    table.set_dictionary(torch.arange(2, 9))
    assert torch.equal(table.settled_variance(rows), table.variance())


@pytest.mark.parametrize("noise", [0.5, 1e-4])
def test_the_belief_of_a_table_is_the_posterior_of_its_rows(noise):
    X = torch.rand(80, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    table, generator = ArmTable(X, kernel(), noise, torch.arange(12)), torch.Generator()
    for step in range(30):
        rows = torch.randint(80, (5,), generator=generator.manual_seed(step))
        table.observe(rows, torch.randn(5, generator=generator).double())
        table.set_dictionary(torch.randperm(80, generator=generator)[: 10 + step % 5])
        mean, var = table.belief().marginals(table.kernel, ZeroMean(), X)
        assert torch.allclose(mean, table.mean(), atol=1e-7)
        assert torch.allclose(var, table.variance(), atol=1e-7)


def test_the_kernel_form_is_the_posterior_of_single_points():
    table = make(m=14)
    table.slide(torch.arange(3, 12))
    table.observe(torch.tensor([4, 40]), torch.ones(2, dtype=torch.float64))
    table.slide(torch.tensor([1, 5, 6, 7, 8, 9, 10, 11, 50]))
    rows, weights, M, Q = table.kernel_form()
    assert torch.equal(rows, table.dictionary)
    k = rbf(table.X, table.X[rows])
    y = k @ M
    torch.testing.assert_close(k @ weights, table.mean(), atol=1e-8, rtol=0)
    variance = 1 - y.square().sum(-1) + (y @ Q * y).sum(-1)
    torch.testing.assert_close(variance, table.variance(), atol=1e-8, rtol=0)
