r"""Without a threshold it is ``SingleTaskGP``."""

from __future__ import annotations

import torch
from botorch.cross_validation import loo_cv
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import CompressedGP
from tests.models.compressed.support import (
    both,
    rand,
    repeating,
)
from tests.models.support import D, assert_same_posterior, noise_for
from tests.problems import regression


class TestWithoutThresholdIsSingleTaskGP:
    def test_posterior(self, pair):
        exact, model = pair
        for T in (rand(4, D), rand(1, D), rand(5, *exact.batch_shape, 3, D)):
            for noisy in (False, True):
                assert_same_posterior(
                    exact.posterior(T, observation_noise=noisy),
                    model.posterior(T, observation_noise=noisy),
                )
        assert model.model_order == 23

    def test_marginal_likelihood_and_its_gradient(self, pair):
        values = []
        for model in pair:
            mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
            value = mll(model(*model.train_inputs), model.train_targets).sum()
            grads = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
            values.append((value, *(g for g in grads if g is not None)))
        for a, b in zip(*values, strict=True):
            torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)

    def test_conditioning_once_and_twice(self, pair):
        exact, model = pair
        shape = exact.batch_shape
        T = rand(*shape, 4, D)
        exact.posterior(T)
        for _ in range(2):
            X, Y = rand(*shape, 3, D), rand(*shape, 3, exact.num_outputs)
            exact, model = (
                m.condition_on_observations(X, Y, **noise_for(m, Y)) for m in (exact, model)
            )
            assert_same_posterior(exact.posterior(T), model.posterior(T))
        assert exact.train_inputs[0].shape == model.train_inputs[0].shape
        torch.testing.assert_close(exact.train_targets, model.train_targets)
        assert model.kept_indices.tolist() == list(range(29))

    def test_fantasies(self, pair):
        X, T = (rand(*pair[0].batch_shape, q, D) for q in (2, 3))
        pair[0].posterior(X)
        fantasies = [m.fantasize(X, SobolQMCNormalSampler(torch.Size([4]), seed=1)) for m in pair]
        assert_same_posterior(*(f.posterior(T) for f in fantasies), tolerance=1e-5)
        exact, model = fantasies
        assert exact.batch_shape == model.batch_shape
        assert exact.train_inputs[0].shape == model.train_inputs[0].shape

    def test_fantasies_in_batches_of_points(self, pair):
        X, T = (rand(5, *pair[0].batch_shape, q, D) for q in (2, 3))
        pair[0].posterior(X)
        fantasies = [m.fantasize(X, SobolQMCNormalSampler(torch.Size([4]), seed=1)) for m in pair]
        assert_same_posterior(*(f.posterior(T) for f in fantasies), tolerance=1e-5)

    @both
    def test_leave_one_out(self, discard):
        X, Y = repeating(12, 8)
        exact, model = SingleTaskGP(X, Y), CompressedGP(X, Y, epsilon=0.0, discard=discard)
        torch.testing.assert_close(loo_cv(exact).posterior.mean, loo_cv(model).posterior.mean)

    def test_fit_reaches_the_same_hyperparameters(self):
        X, Y = regression(25)
        models = SingleTaskGP(X, Y), CompressedGP(X, Y, epsilon=0.0)
        for model in models:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)

    def test_dense_data_in_float32_are_all_kept(self):
        X, Y = regression(150, 1, dtype=torch.float32)
        noise = torch.full_like(Y, 1e-6)
        model = CompressedGP(X[:50], Y[:50], noise[:50], epsilon=0.0)
        model = model.condition_on_observations(X[50:], Y[50:], noise=noise[50:])
        assert model.model_order == 150
