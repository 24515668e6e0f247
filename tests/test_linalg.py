from __future__ import annotations

import warnings

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from hypothesis import given
from hypothesis import strategies as st
from linear_operator.utils.errors import NotPSDError

from botorch_bkb.linalg import (
    Conditional,
    DTCFactor,
    KernelNotPSDError,
    SlidingFactor,
    extend_cholesky,
    information,
    log_evidence,
    rank_one_root,
    rank_one_solve,
    safe_cholesky,
    solve_rows,
)
from tests import naive
from tests.problems import rbf


class Problem:
    r"""Data, a dictionary and test points with their kernel matrices."""

    def __init__(self, seed=0, n=12, m=5, t=4, d=2, batch=(), noise_low=0.05):
        g = torch.Generator().manual_seed(seed)

        def rand(*shape):
            return torch.rand(*batch, *shape, generator=g, dtype=torch.float64)

        self.X, self.T = rand(n, d), rand(t, d)
        self.S = self.X[..., :m, :]
        self.y = torch.randn(*batch, n, generator=g, dtype=torch.float64)
        self.noise = noise_low + rand(n)
        self.K_ss, self.K_xs = rbf(self.S, self.S), rbf(self.X, self.S)
        self.K_ts, self.K_tt = rbf(self.T, self.S), rbf(self.T, self.T)
        self.factor = DTCFactor.build(self.K_ss, self.K_xs, self.y, self.noise)
        self.Z = solve_rows(self.factor.root, self.K_xs)

    def naive(self):
        return naive.dtc(self.K_ss, self.K_xs, self.K_ts, self.K_tt, self.y, self.noise)

    def moments(self, factor=None, K_ts=None):
        factor = factor or self.factor
        e = factor.embed(self.K_ts if K_ts is None else K_ts)
        return factor.mean(e), e.covariance(self.K_tt)


def assert_same(pair, other, tolerance=1e-7):
    for a, b in zip(pair, other, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_dtc_equals_the_formula_for_any_dictionary(batch):
    p = Problem(batch=batch)
    assert_same(p.moments(), p.naive())
    variance = p.factor.embed(p.K_ts).variance(torch.ones_like(p.K_ts[..., 0]))
    assert_same([variance], [p.naive()[1].diagonal(dim1=-2, dim2=-1)])


def test_full_dictionary_equals_exact_gp():
    p = Problem(m=12)
    exact = naive.exact(p.K_ss, p.K_ts, p.K_tt, p.y, p.noise)
    assert_same(p.moments(), exact)


def test_repeats_equal_counts():
    p = Problem(n=6, m=4)
    counts = torch.tensor([1, 3, 2, 1, 5, 1])
    noise = torch.full((6,), 0.3, dtype=torch.float64)
    rows = torch.repeat_interleave(torch.arange(6), counts)
    rewards = torch.randn(len(rows), dtype=torch.float64)
    sums = torch.zeros(6, dtype=torch.float64).index_add(0, rows, rewards)
    long = DTCFactor.build(p.K_ss, p.K_xs[rows], rewards, noise[rows])
    short = DTCFactor.build(p.K_ss, p.K_xs, sums, noise, counts)
    assert_same(p.moments(long), p.moments(short), 1e-12)


def test_information_adds_up_over_blocks():
    p = Problem(n=10)
    whole = information(p.Z, p.y, p.noise)
    a = information(p.Z[:4], p.y[:4], p.noise[:4])
    b = information(p.Z[4:], p.y[4:], p.noise[4:])
    assert_same(whole, [x + y for x, y in zip(a, b, strict=True)], 1e-12)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_observe_equals_a_rebuild(batch):
    p = Problem(batch=batch)
    k, y, noise = p.K_ts[..., 0, :], p.y[..., 0] + 1, p.noise[..., 0]
    z = solve_rows(p.factor.root, k.unsqueeze(-2)).squeeze(-2)
    updated = p.factor.observe(z, y, noise)
    rebuilt = DTCFactor.build(
        p.K_ss,
        torch.cat([p.K_xs, k.unsqueeze(-2)], -2),
        torch.cat([p.y, y.unsqueeze(-1)], -1),
        torch.cat([p.noise, noise.unsqueeze(-1)], -1),
    )
    assert_same((updated.info_root, updated.coef), (rebuilt.info_root, rebuilt.coef), 1e-9)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("counted", [False, True])
def test_append_equals_a_rebuild(batch, counted):
    p = Problem(batch=batch)
    counts = torch.arange(1, 13) if counted else None
    s, S = p.X[..., 5:8, :], p.X[..., :8, :]
    factor = DTCFactor.build(p.K_ss, p.K_xs, p.y, p.noise, counts)
    appended, Z = factor.append(p.Z, rbf(s, p.S), rbf(s, s), rbf(p.X, s), p.y, p.noise, counts)
    rebuilt = DTCFactor.build(rbf(S, S), rbf(p.X, S), p.y, p.noise, counts)
    assert_same(p.moments(appended, rbf(p.T, S)), p.moments(rebuilt, rbf(p.T, S)))
    assert_same([Z], [solve_rows(appended.root, rbf(p.X, S))])


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("index", [0, 2, 4])
def test_drop_equals_a_rebuild(batch, index):
    p = Problem(batch=batch)
    keep = [i for i in range(5) if i != index]
    S = p.S[..., keep, :]
    dropped, Z = p.factor.drop(p.Z, index)
    rebuilt = DTCFactor.build(rbf(S, S), rbf(p.X, S), p.y, p.noise)
    assert_same((dropped.root,), (rebuilt.root,))
    assert_same(p.moments(dropped, rbf(p.T, S)), p.moments(rebuilt, rbf(p.T, S)))
    assert_same([Z], [solve_rows(rebuilt.root, rbf(p.X, S))])


def test_append_then_drop_returns_to_the_start():
    p = Problem()
    s = p.X[7:8]
    factor, Z = p.factor.append(p.Z, rbf(s, p.S), rbf(s, s), rbf(p.X, s), p.y, p.noise)
    factor, Z = factor.drop(Z, 5)
    assert_same(
        (factor.root, factor.info_root, factor.coef, Z),
        (p.factor.root, p.factor.info_root, p.factor.coef, p.Z),
    )


def test_append_a_point_already_there_changes_nothing():
    p = Problem()
    s = p.S[1:2]
    factor, _ = p.factor.append(p.Z, rbf(s, p.S), rbf(s, s), rbf(p.X, s), p.y, p.noise)
    K_ts = torch.cat([p.K_ts, rbf(p.T, s)], -1)
    assert_same(p.moments(factor, K_ts), p.moments(), 1e-5)


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_rank_one_root_is_the_cholesky_factor(seed, m):
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(2, m, m, generator=g, dtype=torch.float64).tril()
    root.diagonal(dim1=-2, dim2=-1).abs_().add_(0.1)
    u = torch.randn(2, m, generator=g, dtype=torch.float64)
    updated = rank_one_root(root, u)
    eye = torch.eye(m, dtype=torch.float64)
    inner = eye + u.unsqueeze(-1) * u.unsqueeze(-2)
    assert_same([updated @ updated.mT], [root @ inner @ root.mT], 1e-10)
    rows = torch.randn(2, 3, m, generator=g, dtype=torch.float64)
    D = torch.linalg.cholesky(inner)
    assert_same([rank_one_solve(u, rows)], [solve_rows(D, rows)], 1e-10)


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 8))
def test_lemma_4_ratio_bound_and_monotone_variance(seed, m, b):
    r"""BBKB, Lemma 4: tau_fb / (1 + sum of the batch's scores) <= tau_t <= tau_fb."""
    noise = torch.tensor(0.2, dtype=torch.float64)
    p = Problem(seed, n=8 + b, m=m)
    factor = DTCFactor.build(p.K_ss, p.K_xs[:8], p.y[:8], noise.expand(8))
    ones = torch.ones(4, dtype=torch.float64)
    before = factor.embed(p.K_ts).variance(ones) / noise
    batch_scores = factor.embed(p.K_xs[8:]).variance(torch.ones(b, dtype=torch.float64)) / noise
    for i in range(8, 8 + b):
        factor = factor.observe(p.Z[i], p.y[i], noise)
    after = factor.embed(p.K_ts).variance(ones) / noise
    assert (after <= before + 1e-9).all()
    assert (after >= before / (1 + batch_scores.sum()) - 1e-9).all()


@given(st.integers(0, 10_000))
def test_variance_lies_between_zero_and_the_prior(seed):
    p = Problem(seed)
    variance = p.factor.embed(p.K_ts).variance(torch.ones(4, dtype=torch.float64))
    assert (variance >= 0).all() and (variance <= 1 + 1e-12).all()


def test_effective_dimension_and_information_gain_identities():
    p = Problem(n=10, m=10)
    noise = torch.full((10,), 0.3, dtype=torch.float64)
    factor = DTCFactor.build(p.K_ss, p.K_xs, p.y, noise)
    scores = factor.embed(p.K_xs).variance(torch.ones(10, dtype=torch.float64)) / noise
    K = p.K_ss
    d_eff = torch.trace(K @ torch.linalg.inv(K + torch.diag(noise)))
    assert_same([scores.sum()], [d_eff])
    empty = torch.zeros_like(noise)
    factor = DTCFactor.from_information(factor.root, torch.zeros_like(K), empty)
    gain = 0.0
    for i in range(10):  # sum of log(1 + tau_{s-1}(x_s)) = log det(K / lambda + I)
        e = factor.embed(p.K_xs[i : i + 1])
        gain += torch.log1p(e.variance(torch.ones(1).double()) / noise[i])
        factor = factor.observe(e.z[0], p.y[i], noise[i])
    logdet = torch.logdet(K / 0.3 + torch.eye(10, dtype=torch.float64))
    assert_same([gain.squeeze()], [logdet])


def test_variance_does_not_starve_where_subset_of_regressors_does():
    X = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
    S, far = X[:5], torch.tensor([[5.0]], dtype=torch.float64)
    noise = torch.full((40,), 0.01, dtype=torch.float64)
    factor = DTCFactor.build(rbf(S, S), rbf(X, S), X.squeeze(-1), noise)
    dtc = factor.embed(rbf(far, S)).variance(torch.ones(1, dtype=torch.float64))
    assert dtc > 0.99
    assert naive.sor_variance(rbf(S, S), rbf(X, S), rbf(far, S), noise) < 0.01


@pytest.mark.parametrize("batch", [(), (3,)])
def test_log_evidence_equals_the_dense_density(batch):
    p = Problem(batch=batch)
    Q = p.Z @ p.Z.mT + torch.diag_embed(p.noise)
    sums = information(p.Z, p.y, p.noise)
    got = log_evidence(*sums, p.y, p.noise)
    assert_same([got], [naive.log_marginal(Q, p.y)], 1e-9)


class TestConditional:
    def joint(self, p, q):
        r"""DTC moments over test points followed by ``q`` new ones, and their kernel."""
        new = torch.rand(*p.X.shape[:-2], q, p.X.shape[-1], dtype=torch.float64)
        points = torch.cat([p.T, new], -2)
        mean, cov = naive.dtc(p.K_ss, p.K_xs, rbf(points, p.S), rbf(points, points), p.y, p.noise)
        return new, mean, cov

    @pytest.mark.parametrize("batch", [(), (3,)])
    def test_equals_the_exact_conditional_and_sequential_equals_joint(self, batch):
        p = Problem(batch=batch)
        new, mean, cov = self.joint(p, 3)
        y = torch.randn(*batch, 3, dtype=torch.float64)
        noise = torch.full_like(y, 0.1)
        expected = naive.condition(mean, cov, y, noise, 3)

        e, t = p.factor.embed(rbf(new, p.S)), p.factor.embed(p.K_ts)
        prior, residual = rbf(new, new), y - p.factor.mean(e)
        together = Conditional.build(e, prior, residual, noise)

        def part(rows):
            return type(e)(*(f[..., rows, :] for f in e)), prior[..., rows, rows]

        first, second = slice(0, 1), slice(1, 3)
        one_by_one = Conditional.build(*part(first), residual[..., first], noise[..., first])
        one_by_one = one_by_one.extend(
            *part(second), prior[..., second, first], residual[..., second], noise[..., second]
        )
        for conditional in (together, one_by_one):
            V = conditional.project(t, rbf(p.T, new))
            got = (
                p.factor.mean(t) + (V @ conditional.coef.unsqueeze(-1)).squeeze(-1),
                t.covariance(p.K_tt) - V @ V.mT,
            )
            assert_same(got, expected)


class TestSafeCholesky:
    def test_well_conditioned_matrix_is_barely_touched(self):
        K = rbf(torch.arange(3.0).double()[:, None], torch.arange(3.0).double()[:, None])
        assert_same([safe_cholesky(K)], [torch.linalg.cholesky(K)], 1e-9)

    def test_rank_one_kernel_needs_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            L = safe_cholesky(torch.ones(20, 20, dtype=torch.float64))
        assert_same([L @ L.mT], [torch.ones(20, 20, dtype=torch.float64)], 1e-8)

    def test_more_jitter_than_rounding_brings_one_warning(self):
        K = torch.eye(4, dtype=torch.float64)
        K[0, 1] = K[1, 0] = 1 + 2e-8
        with pytest.warns(Warning, match="jitter") as caught:
            safe_cholesky(K)
        assert len(caught) == 1

    @pytest.mark.parametrize(
        "bad",
        [
            torch.tensor([[1.0, 2.0], [2.0, 1.0]]).double(),
            torch.full((2, 2), torch.nan).double(),
            -torch.eye(2).double(),
        ],
    )
    def test_not_psd_is_said_so_to_users_and_to_fit(self, bad):
        with pytest.raises(KernelNotPSDError, match="positive semi-definite"):
            safe_cholesky(bad)
        assert issubclass(KernelNotPSDError, InputDataError)
        assert issubclass(KernelNotPSDError, NotPSDError)

    @pytest.mark.parametrize("scale", [1e-12, 1e12])
    def test_jitter_follows_the_scale(self, scale):
        K = scale * torch.ones(5, 5, dtype=torch.float64)
        L = safe_cholesky(K)
        assert_same([L @ L.mT / scale], [torch.ones(5, 5).double()], 1e-8)

    def test_zero_kernel_is_harmless(self):
        assert torch.isfinite(safe_cholesky(torch.zeros(3, 3, dtype=torch.float64))).all()

    def test_extend_equals_factorising_again(self):
        X = torch.rand(2, 7, 2, dtype=torch.float64)
        K = rbf(X, X) + 0.1 * torch.eye(7).double()
        root = torch.linalg.cholesky(K[..., :4, :4])
        extended = extend_cholesky(root, K[..., 4:, :4], K[..., 4:, 4:])
        assert_same([extended], [torch.linalg.cholesky(K)], 1e-8)


@pytest.mark.parametrize("lead", [(), (5,), (5, 2)])
@pytest.mark.parametrize("batch", [(), (3,), (1,)])
def test_solve_rows_folds_leading_dimensions(lead, batch):
    root = torch.rand(*batch, 4, 4, dtype=torch.float64).tril() + torch.eye(4).double()
    rows = torch.rand(*lead, *batch, 6, 4, dtype=torch.float64)
    expected = (torch.linalg.inv(root) @ rows.mT).mT
    assert_same([solve_rows(root, rows)], [expected], 1e-9)


def test_features_are_solved_without_the_observed_rows():
    torch.manual_seed(0)
    Z, y = torch.randn(40, 7, dtype=torch.float64), torch.randn(40, dtype=torch.float64)
    noise = 0.01 + torch.rand(40, dtype=torch.float64)
    factor, root = SlidingFactor.of_features(*information(Z[:3], y[:3], noise[:3]))
    A = (Z[:3].mT / noise[:3]) @ Z[:3] + torch.eye(7, dtype=torch.float64)
    torch.testing.assert_close(root @ root.mT, A)
    for rows in (slice(3, 4), slice(4, 30), slice(30, 40)):  # fewer and more than coordinates
        factor.observe(Z[rows], noise[rows], y[rows])
    A = (Z.mT / noise) @ Z + torch.eye(7, dtype=torch.float64)
    expected = torch.linalg.solve(A, Z.mT @ (y / noise))
    torch.testing.assert_close(factor.coefficients(), expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(factor.Q, torch.linalg.inv(A), atol=1e-12, rtol=1e-10)
    scores = (Z @ torch.linalg.inv(A) * Z).sum(-1) / noise
    assert factor.explained_dimension == pytest.approx(float(scores.sum()), rel=1e-10)
    assert factor.log_determinant == pytest.approx(float(A.logdet()), rel=1e-12)
    e = factor.as_dtc(expected).whitened(Z)
    torch.testing.assert_close(e.w.square().sum(-1) / noise, scores, atol=1e-10, rtol=1e-10)
