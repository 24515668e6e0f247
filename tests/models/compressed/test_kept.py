r"""What is kept, and the belief that stands on it."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.mlls import ExactMarginalLogLikelihood
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import CompressedGP
from botorch_bkb.dictionaries.threshold import score_threshold
from tests import naive
from tests.models.compressed.support import (
    assert_moments,
    both,
    compressed,
    dense,
    epsilons,
    rand,
    repeating,
    seeds,
)
from tests.models.support import D, assert_same_posterior
from tests.problems import regression


class TestWhatIsKept:
    @given(seeds, epsilons)
    def test_is_the_papers_test_one_point_after_another(self, seed, epsilon):
        torch.manual_seed(seed)
        X, Y = repeating()
        for discard in (True, False):
            model = compressed(X, Y, epsilon, discard=discard)
            (K,) = dense(model, (X, X))
            lam = torch.full((40,), 0.05, dtype=torch.float64)
            expected = naive.information_threshold(K, lam, epsilon)
            assert model.kept_indices.tolist() == expected
            assert model.model_order == len(expected)
            assert set(model.dictionary_indices.tolist()) <= set(expected)

    def test_with_noise_levels_of_their_own(self):
        X, Y = repeating()
        noise = torch.logspace(-2, 1, 40, dtype=torch.float64).unsqueeze(-1)
        noise = noise[torch.randperm(40)]
        model = CompressedGP(X, Y, noise, epsilon=0.3, outcome_transform=None).eval()
        (K,) = dense(model, (X, X))
        expected = naive.information_threshold(K, noise.squeeze(-1), 0.3)
        assert 0 < len(expected) < 40
        assert model.kept_indices.tolist() == expected

    def test_for_one_output_is_kept_for_all(self):
        X, Y = regression(40, m=2)
        model = CompressedGP(X, Y, epsilon=0.5, outcome_transform=None).eval()
        scale = torch.tensor([0.2, 1.0], dtype=torch.float64).view(2, 1, 1)
        model.covar_module.lengthscale = scale.expand_as(model.covar_module.lengthscale)
        model.likelihood.noise = 0.05
        wiggly = compressed(X, Y[:, :1], 0.5, lengthscale=0.2)
        assert torch.equal(model.kept_indices, wiggly.kept_indices)
        assert compressed(X, Y[:, 1:], 0.5, lengthscale=1.0).model_order < wiggly.model_order

    @given(st.floats(0, 20), st.floats(0, 1e3), st.floats(1e-3, 1e3))
    def test_entropies_and_leverage_scores_say_the_same(self, epsilon, variance, noise):
        r"""Eq. 2.11 as printed, and as a bound on ``tau``."""
        entropy, pure = (
            0.5 * math.log(2 * math.pi * math.e * v) for v in (noise + variance, noise)
        )
        margin = entropy - pure - epsilon
        if abs(margin) > 1e-9:
            assert (margin > 0) == (variance / noise > score_threshold(epsilon))

    def test_grows_as_the_threshold_falls(self):
        X, Y = regression(200, 1)
        orders = [compressed(X, Y, e).model_order for e in (10.0, 1.0, 0.3, 0.1, 0.01, 0.0)]
        assert orders == sorted(orders) and orders[0] == 0 and orders[-1] == 200

    def test_stops_growing_whatever_the_number_of_data(self):
        r"""Theorem 3.1: a bound of the model order that has no ``n`` in it."""
        X, Y = regression(8000, 1)
        orders = [compressed(X[:n], Y[:n]).model_order for n in (125, 500, 2000, 8000)]
        assert orders[-1] < 40 and orders[-1] - orders[-2] <= 2
        assert compressed(X.repeat(2, 1)[:9000], Y.repeat(2, 1)[:9000]).model_order == orders[-1]

    @given(seeds, epsilons)
    def test_variance_where_nothing_was_kept_is_small(self, seed, epsilon):
        torch.manual_seed(seed)
        X, Y = regression(60)
        model = compressed(X, Y, epsilon)
        others = torch.ones(60, dtype=torch.bool).index_fill(0, model.kept_indices, False)
        bound = math.expm1(2 * epsilon) * 0.05
        assert (model.posterior(X[others]).variance <= bound * (1 + 1e-9)).all()

    def test_information_gain_is_the_sum_over_what_is_kept(self):
        r"""Lemma 8.3: ``1/2 sum log(1 + tau_D(x_s)) = 1/2 log det(I + K_DD / lambda)``."""
        X, Y = regression(50)
        model = compressed(X[:1], Y[:1])
        total = 0.5 * math.log1p(1 / 0.05)
        for i in range(1, 50):
            gain = 0.5 * model.leverage_scores(X[i : i + 1]).log1p().item()
            model = model.condition_on_observations(X[i : i + 1], Y[i : i + 1])
            kept = int(model.kept_indices[-1]) == i
            assert kept == (gain > 0.1)
            total += gain if kept else 0
        kept_X = X[model.kept_indices]
        (K,) = dense(model, (kept_X, kept_X))
        gain = 0.5 * torch.logdet(torch.eye(len(K)).double() + K / 0.05)
        assert 5 < len(K) < 50
        assert total == pytest.approx(gain.item(), rel=1e-9)


class TestBelief:
    @given(seeds, epsilons)
    def test_is_the_exact_gp_on_what_was_kept(self, seed, epsilon):
        torch.manual_seed(seed)
        X, Y = repeating()
        model, T = compressed(X, Y, epsilon), rand(5, D)
        with torch.no_grad():
            model.mean_module.constant.fill_(0.7)
        S, y = X[model.kept_indices], Y[model.kept_indices, 0] - 0.7
        kernels = dense(model, (S, S), (T, S), (T, T))
        mean, cov = naive.exact(*kernels, y, torch.full_like(y, 0.05))
        assert_moments(model.posterior(T), mean + 0.7, cov)

    @given(seeds, epsilons)
    def test_without_discarding_is_dtc_on_all_data(self, seed, epsilon):
        torch.manual_seed(seed)
        X, Y = repeating()
        model, T = compressed(X, Y, epsilon, discard=False), rand(5, D)
        if model.model_order == 0:
            return
        S, y = X[model.kept_indices], Y.squeeze(-1)
        kernels = dense(model, (S, S), (X, S), (T, S), (T, T))
        moments = naive.dtc(*kernels, y, torch.full_like(y, 0.05))
        assert_moments(model.posterior(T), *moments, tolerance=1e-6)

    def test_marginal_likelihood_is_that_of_all_data(self):
        X, Y = regression(60)
        for discard in (True, False):
            model = compressed(X, Y, 0.3, discard=discard)
            S = X[model.dictionary_indices]
            assert 5 < len(S) < 60
            K_ss, K_xs = dense(model, (S, S), (X, S))
            Q = K_xs @ torch.linalg.pinv(K_ss, hermitian=True) @ K_xs.mT
            expected = naive.log_marginal(Q + 0.05 * torch.eye(60).double(), Y.squeeze(-1))
            mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
            priors = sum(p.log_prob(c(m)).sum() for _, m, p, c, _ in model.named_priors())
            got = mll(model(X), model.train_targets)
            torch.testing.assert_close(got, (expected + priors) / 60, atol=1e-7, rtol=1e-7)

    @pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.5])
    def test_nothing_thrown_away_is_never_the_worse_mean(self, epsilon):
        r"""Averaged over draws of the prior, seen with noise."""
        X, T, errors = rand(120, 1), rand(50, 1), []
        (K,) = dense(compressed(X, X, lengthscale=0.3), *[(torch.cat([X, T]),) * 2])
        root = torch.linalg.cholesky(K + 1e-9 * torch.eye(170).double())
        for _ in range(20):
            f = root @ torch.randn(170, 1).double()
            Y = f[:120] + 0.05**0.5 * torch.randn(120, 1).double()
            models = (compressed(X, Y, epsilon, lengthscale=0.3, discard=d) for d in (True, False))
            errors.append([(m.posterior(T).mean - f[120:]).square().mean().item() for m in models])
        with_discard, without = torch.tensor(errors).mean(0)
        assert without < 0.8 * with_discard

    def test_variance_is_never_below_that_of_the_exact_gp(self):
        X, Y = regression(60)
        T = rand(30, D)
        exact, model = (compressed(X, Y, epsilon).posterior(T) for epsilon in (0.0, 0.3))
        assert (model.variance >= exact.variance - 1e-10).all()

    @both
    def test_large_joint_posteriors_stay_lazy_and_equal(self, discard, monkeypatch):
        from botorch_bkb import belief

        X, Y = regression(40)
        for epsilon in (0.1, 1e3):
            model = compressed(X, Y, epsilon, discard=discard)
            T = rand(7, D)
            eager = model.posterior(T)
            monkeypatch.setattr(belief, "DENSE_LIMIT", 3)
            lazy = model.posterior(T)
            monkeypatch.undo()
            assert_same_posterior(eager, lazy, 1e-9)
            assert lazy.rsample(torch.Size([2])).isfinite().all()
