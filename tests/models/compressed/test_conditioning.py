from __future__ import annotations

import pytest
import torch
from botorch.acquisition import qNegIntegratedPosteriorVariance
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import MaternKernel
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import DTCGP, CompressedGP
from tests.models.compressed.support import (
    assert_moments,
    both,
    compressed,
    dense,
    epsilons,
    grow,
    rand,
    repeating,
    seeds,
)
from tests.models.support import D, assert_same_posterior
from tests.problems import regression


def sequential_dtc(model, X, y, noise, joins, T):
    r"""Observe one point after another through those that joined; dense and slow.

    The state is the Gaussian of the function at the points that joined. One that joins comes
    with its prior given the others; all are seen as ``k_S(x)' K_SS^{-1} f_S`` plus noise.
    """
    S: list[int] = []
    mean, cov = y.new_zeros(0), y.new_zeros(0, 0)

    def weights(points):
        K_ss, K_xs, K_xx = dense(model, (X[S], X[S]), (points, X[S]), (points, points))
        W = K_xs @ torch.linalg.inv(K_ss)
        return W, K_xx - W @ K_xs.mT

    for i in range(len(X)):
        if i in joins:
            if S:
                W, rest = weights(X[i : i + 1])
            else:
                W, rest = y.new_zeros(1, 0), dense(model, (X[i : i + 1], X[i : i + 1]))[0]
            lift = torch.cat([torch.eye(len(S)).double(), W])
            mean, cov = lift @ mean, lift @ cov @ lift.mT
            cov[-1, -1] += rest.squeeze()
            S.append(i)
        W, _ = weights(X[i : i + 1])
        gain = cov @ W.mT / (W @ cov @ W.mT + noise)
        mean, cov = mean + (gain * (y[i] - W @ mean)).squeeze(-1), cov - gain @ W @ cov
    W, rest = weights(T)
    return W @ mean, rest + W @ cov @ W.mT


class TestConditioning:
    @given(seeds, epsilons, st.sampled_from([1, 3, 7, 100]))
    def test_in_order_is_the_model_of_all_data(self, seed, epsilon, block):
        torch.manual_seed(seed)
        X, Y = repeating(30)
        whole = compressed(X, Y, epsilon)
        model = grow(compressed(X[:10], Y[:10], epsilon), X[10:], Y[10:], block)
        assert torch.equal(model.kept_indices, whole.kept_indices)
        T = rand(5, D)
        assert_same_posterior(model.posterior(T), whole.posterior(T), 1e-10)
        assert torch.equal(model.dictionary_indices, whole.dictionary_indices)
        assert torch.equal(model.train_inputs[0], X)

    @pytest.mark.parametrize("block", [1, 4, 100])
    def test_without_discarding_observes_through_what_joined(self, block):
        X, Y = regression(30)
        model = grow(compressed(X[:1], Y[:1], 0.3, discard=False), X[1:], Y[1:], block)
        joins = model.kept_indices.tolist()
        assert 5 < len(joins) < 30
        T = rand(5, D)
        moments = sequential_dtc(model, X, Y.squeeze(-1), 0.05, joins, T)
        assert_moments(model.posterior(T), *moments, tolerance=1e-7)

    @pytest.mark.parametrize("block", [1, 10])
    def test_without_discarding_keeps_the_same_rows(self, block):
        X, Y = regression(100)
        whole = compressed(X, Y, 0.3, discard=False)
        model = grow(compressed(X[:20], Y[:20], 0.3, discard=False), X[20:], Y[20:], block)
        assert torch.equal(model.kept_indices, whole.kept_indices)

    @both
    def test_reading_the_dictionary_changes_nothing(self, discard):
        X, Y = regression(100)
        model = grow(compressed(X[:20], Y[:20], 0.3, discard=discard), X[20:], Y[20:], 10)
        before = model.kept_indices
        _ = model.dictionary_indices
        assert torch.equal(model.kept_indices, before)

    @both
    def test_in_any_blocks_is_the_same(self, discard):
        X, Y = regression(60)
        start = compressed(X[:10], Y[:10], 0.3, discard=discard)
        models = [grow(start, X[10:], Y[10:], block) for block in (1, 50)]
        assert torch.equal(*(m.kept_indices for m in models))
        T = rand(5, D)
        assert_same_posterior(*(m.posterior(T) for m in models), tolerance=1e-9)

    @both
    @pytest.mark.parametrize("epsilon", [1e-6, 0.1])
    def test_factorises_nothing_but_the_new_block(self, discard, epsilon, monkeypatch):
        X, Y = regression(60)
        model = compressed(X, Y, epsilon, discard=discard)
        model.posterior(X[:1])
        assert model.model_order > 10
        sizes = []

        def record(name):
            plain = getattr(torch.linalg, name)

            def recorded(A, *args, **kwargs):
                sizes.append(A.shape[-1])
                return plain(A, *args, **kwargs)

            monkeypatch.setattr(torch.linalg, name, recorded)

        for name in ("cholesky_ex", "cholesky", "eigh", "qr", "inv", "solve"):
            record(name)
        for _ in range(3):
            new = 2 * rand(3, D)
            model = model.condition_on_observations(new, new[:, :1])
            model.posterior(rand(4, D))
        assert sizes and max(sizes) <= 3

    @both
    def test_is_told_by_is_informative_without_an_outcome(self, discard):
        X, Y = regression(40)
        model = compressed(X, Y, 0.3, discard=discard)
        new = torch.cat([rand(30, D), 1 + rand(10, D)])
        told = model.is_informative(new)
        assert told.shape == (40,) and told.any() and not told.all()
        for x, kept in zip(new, told.tolist(), strict=True):
            after = model.condition_on_observations(x.view(1, D), torch.zeros(1, 1).double())
            assert after.model_order - model.model_order == kept
        assert model.is_informative(new.view(4, 10, D)).equal(told.view(4, 10))

    def test_is_informative_takes_noise_levels(self):
        X, Y = regression(30, m=2)
        model = CompressedGP(X, Y, torch.full_like(Y, 0.05), epsilon=0.1)
        new, none = rand(5, D), torch.zeros(5, 2).double()
        for level, expected in ((1e-4, True), (1e4, False)):
            told = model.is_informative(new, none + level)
            assert told.tolist() == [expected] * 5
            after = model.condition_on_observations(new[:1], none[:1], noise=none[:1] + level)
            assert after.model_order - model.model_order == expected

    def test_is_informative_at_no_point(self):
        model = compressed(*regression(10))
        assert model.is_informative(rand(0, D)).shape == (0,)

    @both
    def test_fantasies_at_no_point(self, discard):
        model = compressed(*regression(20), discard=discard)
        fantasy = model.fantasize(rand(0, D), SobolQMCNormalSampler(torch.Size([4])))
        T = rand(3, D)
        expected = model.posterior(T).mean.expand(4, 3, 1)
        torch.testing.assert_close(fantasy.posterior(T).mean, expected)

    @both
    def test_fantasies_where_nothing_is_learnt_have_their_shape(self, discard):
        model = compressed(*regression(60), 0.5, discard=discard)
        X = rand(2, D)
        assert not model.is_informative(X).any()
        fantasy = model.fantasize(X, SobolQMCNormalSampler(torch.Size([4])))
        posterior = fantasy.posterior(rand(3, D))
        assert posterior.mean.shape == posterior.variance.shape == (4, 3, 1)

    @both
    def test_noise_of_each_fantasy_stays_its_own(self, discard):
        X, Y = regression(20)
        new, noise = X[:2] + 0.1, torch.logspace(-3, 0, 8, dtype=torch.float64).view(4, 2, 1)
        T, outcomes, posteriors = rand(3, D), rand(4, 2, 1), []
        for cls, options in ((DTCGP, {}), (CompressedGP, {"epsilon": 0.0, "discard": discard})):
            model = cls(X, Y, torch.full_like(Y, 0.05), **options)
            model = model.condition_on_observations(new, outcomes, noise=noise)
            posteriors.append(model.posterior(T))
        assert_same_posterior(*posteriors)

    @both
    def test_noise_of_zero_in_new_observations(self, discard):
        X, Y = regression(20)
        model = CompressedGP(X, Y, torch.full_like(Y, 0.05), discard=discard)
        new, zero = rand(1, D).repeat(2, 1), torch.zeros(2, 1).double()
        model = model.condition_on_observations(new, Y[:1].repeat(2, 1), noise=zero)
        posterior = model.posterior(new[:1])
        torch.testing.assert_close(posterior.mean, Y[:1], atol=1e-4, rtol=1e-4)
        assert (posterior.variance >= 0).all()

    @both
    def test_float32(self, discard):
        X, Y = regression(60, dtype=torch.float32)
        T = rand(5, D)
        models = [
            compressed(X[:30].to(t), Y[:30].to(t), 0.05, discard=discard).to(t)
            for t in (torch.float32, torch.float64)
        ]
        for block in (30, 1):
            single, double = (grow(m, X[30:].to(p), Y[30:].to(p), block) for m, p in zip(
                models, (torch.float32, torch.float64), strict=True
            ))  # fmt: skip
            p, q = single.posterior(T.float()), double.posterior(T)
            assert p.mean.dtype == torch.float32
            torch.testing.assert_close(p.mean.double(), q.mean, atol=5e-3, rtol=5e-3)
            torch.testing.assert_close(p.variance.double(), q.variance, atol=1e-3, rtol=1e-3)

    @both
    def test_dense_data_in_float32(self, discard):
        X, Y = regression(200, 1, dtype=torch.float32)
        model = CompressedGP(X[:100], Y[:100], torch.full_like(Y[:100], 1e-4), discard=discard)
        noise = torch.full_like(Y[100:], 1e-4)
        model = model.condition_on_observations(X[100:], Y[100:], noise=noise)
        assert model.posterior(X).mean.isfinite().all()

    @both
    def test_repeated_inputs_in_float32(self, discard):
        X, Y = regression(10, dtype=torch.float32)
        kernel = MaternKernel(nu=0.5, ard_num_dims=D)
        model = CompressedGP(X, Y, covar_module=kernel, discard=discard)
        model = grow(model, X.repeat(3, 1), Y.repeat(3, 1), 10)
        assert model.posterior(X).mean.isfinite().all()

    def test_a_large_block_needs_no_matrix_of_its_size(self, monkeypatch):
        from botorch_bkb.models import compressed as module

        sizes = []
        plain = module.scan_informative

        def scan(covariance, *args):
            sizes.append(covariance.shape[-1])
            return plain(covariance, *args)

        monkeypatch.setattr(module, "scan_informative", scan)
        X, Y = regression(3000, 1)
        model = compressed(X[:50], Y[:50], 0.3).condition_on_observations(X[50:], Y[50:])
        assert model.model_order < 50
        assert all(size <= 1024 for size in sizes)

    @both
    def test_one_candidate_does_not_depend_on_the_next(self, discard):
        X, Y = regression(60)
        model = compressed(0.5 * X, Y, 0.3, discard=discard)
        acqf = qNegIntegratedPosteriorVariance(model, mc_points=rand(20, D))
        known, far = torch.full((1, 1, D), 0.25).double(), torch.ones(1, 1, D).double()
        assert model.is_informative(torch.cat([known, far])).flatten().tolist() == [False, True]
        torch.testing.assert_close(acqf(torch.cat([known, far]))[:1], acqf(known))

    @both
    def test_gradients_through_fantasies_match_difference_quotients(self, discard):

        X, Y = regression(40)
        model = compressed(0.5 * X, Y, 0.1, discard=discard)
        acqf = qNegIntegratedPosteriorVariance(model, mc_points=rand(20, D))
        T = torch.tensor([[[0.9, 0.8], [0.25, 0.24]]], dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(acqf(T).sum(), T)
        for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
            step = torch.zeros(1, 2, D).double()
            step[0, i, j] = 1e-5
            with torch.no_grad():
                slope = (acqf(T + step) - acqf(T - step)).sum() / 2e-5
            torch.testing.assert_close(grad[0, i, j], slope, atol=1e-7, rtol=1e-5)
