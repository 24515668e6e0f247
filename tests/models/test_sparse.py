from __future__ import annotations

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import DTCGP, AllPoints, InformationThreshold, RidgeLeverageSampling
from tests import naive
from tests.models.support import (
    D,
    assert_same_posterior,
    dense_moments,
    sparse_model,
)
from tests.problems import regression


class TestSparsePosterior:
    @given(st.integers(0, 10_000), st.integers(1, 20))
    def test_equals_the_formula_for_any_dictionary(self, seed, m):
        torch.manual_seed(seed)
        model = sparse_model(30, m)
        T = torch.rand(5, D, dtype=torch.float64)
        mean, cov = dense_moments(model, T)
        posterior = model.posterior(T)
        torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-6, rtol=1e-6)
        got = posterior.distribution.covariance_matrix
        torch.testing.assert_close(got, cov, atol=1e-6, rtol=1e-6)

    def test_conditioning_is_the_exact_conditional_of_the_dtc_process(self):
        model = sparse_model()
        T, X = (torch.rand(k, D, dtype=torch.float64) for k in (4, 3))
        Y = torch.randn(3, 1, dtype=torch.float64)
        joint = dense_moments(model, torch.cat([T, X]))
        noise = torch.full((3,), model.likelihood.noise.item(), dtype=torch.float64)
        mean, cov = naive.condition(*joint, Y.squeeze(-1), noise, 3)
        together = model.condition_on_observations(X, Y)
        one_by_one = model
        for i in range(3):
            one_by_one = one_by_one.condition_on_observations(X[i : i + 1], Y[i : i + 1])
        for conditioned in (together, one_by_one):
            posterior = conditioned.posterior(T)
            torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-6, rtol=1e-6)
            got = posterior.distribution.covariance_matrix
            torch.testing.assert_close(got, cov, atol=1e-6, rtol=1e-6)

    def test_conditioning_shrinks_the_variance_off_the_dictionary(self):
        X, Y = regression(200)
        model = DTCGP(0.2 * X, Y, dictionary=torch.arange(20), covar_module=MaternKernel())
        far = torch.full((1, D), 5.0, dtype=torch.float64)
        before = model.posterior(far).variance
        after = model.condition_on_observations(far, Y[:1]).posterior(far).variance
        assert after < 0.1 * before

    def test_variance_falls_with_data_for_a_fixed_dictionary(self):
        X, Y = regression(80)
        T = torch.rand(50, D, dtype=torch.float64)
        few, many = (
            DTCGP(X[:n], Y[:n], dictionary=torch.arange(15), outcome_transform=None)
            for n in (40, 80)
        )
        assert (many.posterior(T).variance <= few.posterior(T).variance + 1e-9).all()

    def test_large_joint_posteriors_stay_lazy_and_equal(self, monkeypatch):
        from botorch_bkb import belief

        model = sparse_model().condition_on_observations(
            torch.rand(2, D, dtype=torch.float64), torch.rand(2, 1, dtype=torch.float64)
        )
        T = torch.rand(7, D, dtype=torch.float64)
        eager = model.posterior(T)
        monkeypatch.setattr(belief, "DENSE_LIMIT", 3)
        lazy = model.posterior(T)
        assert_same_posterior(eager, lazy, 1e-9)

    def test_leverage_scores_and_effective_dimension(self):
        model = sparse_model()
        X = model.train_inputs[0]
        noise = model.likelihood.noise
        scores = model.leverage_scores(X)
        torch.testing.assert_close(scores, model.posterior(X).variance / noise)
        torch.testing.assert_close(model.effective_dimension, scores.sum())
        assert model.leverage_scores(torch.rand(4, 3, D).double()).shape == (4, 3, 1)

    def test_scores_do_not_depend_on_the_outcome_scale(self):
        X, Y = regression(30)
        T = torch.rand(4, D, dtype=torch.float64)
        a, b = (DTCGP(X, s * Y).leverage_scores(T) for s in (1.0, 1e6))
        torch.testing.assert_close(a, b)

    def test_marginal_likelihood_is_that_of_the_low_rank_prior(self):
        model = sparse_model()
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        X = model.train_inputs[0]
        S, k = X[model.dictionary_indices], model.covar_module
        pinv = torch.linalg.pinv(k(S, S).to_dense(), hermitian=True)
        Q = k(X, S).to_dense() @ pinv @ k(S, X).to_dense()
        noise = model.likelihood.noise * torch.eye(60, dtype=torch.float64)
        expected = naive.log_marginal(Q + noise, model.train_targets)
        priors = sum(p.log_prob(c(m)).sum() for _, m, p, c, _ in model.named_priors())
        got = mll(model(X), model.train_targets)
        torch.testing.assert_close(got, (expected + priors) / 60, atol=1e-7, rtol=1e-7)

    def test_trace_term_makes_a_lower_bound(self):
        X, Y = regression(60)
        values = []
        for kwargs in ({"trace_term": True}, {"trace_term": False}):
            model = DTCGP(X, Y, dictionary=torch.arange(6), **kwargs)
            mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
            values.append(mll(model(X), model.train_targets))
        residual = 1 - (model(X).lazy_covariance_matrix.diagonal())
        gap = 0.5 * (residual / model.likelihood.noise).sum() / 60
        torch.testing.assert_close(values[1] - values[0], gap)
        exact = SingleTaskGP(X, Y)
        mll = ExactMarginalLogLikelihood(exact.likelihood, exact).train()
        assert values[0] < mll(exact(X), exact.train_targets)

    def test_marginal_likelihood_gradient_matches_a_difference_quotient(self):
        model = sparse_model(trace_term=True)
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        X, raw = model.train_inputs[0], model.covar_module.raw_lengthscale

        def value():
            return mll(model(X), model.train_targets)

        (grad,) = torch.autograd.grad(value(), raw)
        h = 1e-5
        with torch.no_grad():
            raw[0, 0] += h
            up = value()
            raw[0, 0] -= 2 * h
            down = value()
        torch.testing.assert_close(grad[0, 0], (up - down) / (2 * h), atol=1e-6, rtol=1e-5)


class TestDictionary:
    def test_is_fixed_during_a_fit_and_drawn_again_after(self):
        X, Y = regression(700)
        model = DTCGP(X, Y, dictionary=RidgeLeverageSampling(2.0))
        before = model.dictionary_indices
        seen = []

        def callback(parameters, result):
            seen.append(model.dictionary_indices)

        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"callback": callback})
        assert len(seen) > 2 and all(i is before for i in seen)
        after = model.dictionary_indices
        assert not torch.equal(before, after)
        model.posterior(X[:2])
        assert torch.equal(model.dictionary_indices, after)
        model.train()
        assert torch.equal(model.eval().dictionary_indices, after)

    def test_given_indices_stay_through_a_fit(self):
        model = sparse_model()
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        model.posterior(torch.rand(2, D, dtype=torch.float64))
        assert model.dictionary_indices.tolist() == list(range(12))

    def test_with_dictionary_leaves_the_original_alone(self):
        model = sparse_model()
        T = torch.rand(3, D, dtype=torch.float64)
        before = model.posterior(T).mean
        other = model.with_dictionary(torch.tensor([5, 3, 40, 3]))
        assert other.dictionary_indices.tolist() == [3, 5, 40]
        assert not torch.allclose(other.posterior(T).mean, before)
        assert torch.equal(model.posterior(T).mean, before)

    def test_resparsify_draws_from_the_current_scores(self):
        X, Y = regression(600)
        model = DTCGP(X, Y, dictionary=RidgeLeverageSampling(2.0))
        scores = model.leverage_scores(X).squeeze(-1)
        g = torch.Generator().manual_seed(5)
        assert model.resparsify(g) is model
        got = model.dictionary_indices
        p = (2 * scores).clamp(max=1)
        g = torch.Generator().manual_seed(5)
        coins = torch.rand(600, generator=g, dtype=torch.float64)
        assert torch.equal(got, torch.nonzero(coins < p).squeeze(-1))
        assert model.posterior(X[:2]).mean.isfinite().all()

    def test_resparsify_turns_conditioned_points_into_data(self):
        model = sparse_model()
        X = torch.rand(3, D, dtype=torch.float64)
        conditioned = model.condition_on_observations(X, X[:, :1])
        assert conditioned.dictionary_indices.tolist() == [*range(12), 60, 61, 62]
        conditioned.resparsify()
        assert conditioned.train_inputs[0].shape == (63, D)
        T = torch.rand(4, D, dtype=torch.float64)
        mean, _ = dense_moments(conditioned, T)
        got = conditioned.posterior(T).mean.squeeze(-1)
        torch.testing.assert_close(got, mean, atol=1e-6, rtol=1e-6)

    @pytest.mark.parametrize("rule", [AllPoints(), InformationThreshold(1e-3)])
    def test_any_rule(self, rule):
        X, Y = regression(50)
        model = DTCGP(X, Y, dictionary=rule)
        assert model.posterior(X[:3]).variance.min() > 0

    def test_set_train_data_of_another_size_draws_again(self):
        X, Y = regression(40)
        model = DTCGP(X, Y)
        model.posterior(X[:1])
        X, Y = regression(30)
        model.set_train_data(X, Y.squeeze(-1), strict=False)
        assert len(model.dictionary_indices) == 30
        model.posterior(X[:1])
