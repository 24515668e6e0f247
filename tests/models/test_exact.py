from __future__ import annotations

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP
from tests.models.support import (
    D,
    assert_same_posterior,
    noise_for,
)
from tests.problems import regression


class TestFullDictionaryIsSingleTaskGP:
    def test_posterior(self, pair):
        exact, sparse = pair
        for shape in ((4, D), (1, D), (5, *exact.batch_shape, 3, D)):
            T = torch.rand(*shape, dtype=torch.float64)
            for observation_noise in (False, True):
                assert_same_posterior(
                    exact.posterior(T, observation_noise=observation_noise),
                    sparse.posterior(T, observation_noise=observation_noise),
                )

    def test_marginal_likelihood_and_its_gradient(self, pair):
        values = []
        for model in pair:
            mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
            value = mll(model(*model.train_inputs), model.train_targets).sum()
            grads = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
            values.append((value, *(g for g in grads if g is not None)))
        for a, b in zip(*values, strict=True):
            torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)

    def test_gradient_in_x(self, pair):
        T = torch.rand(*pair[0].batch_shape, 3, D, dtype=torch.float64)
        grads = []
        for model in pair:
            x = T.clone().requires_grad_()
            posterior = model.posterior(x)
            grads.append(torch.autograd.grad((posterior.mean + posterior.variance).sum(), x)[0])
        torch.testing.assert_close(*grads, atol=1e-6, rtol=1e-6)

    def test_conditioning_once_and_twice(self, pair):
        exact, sparse = pair
        shape = exact.batch_shape
        T = torch.rand(*shape, 4, D, dtype=torch.float64)
        exact.posterior(T)
        for _ in range(2):
            X = torch.rand(*shape, 3, D, dtype=torch.float64)
            Y = torch.rand(*shape, 3, exact.num_outputs, dtype=torch.float64)
            exact, sparse = (
                m.condition_on_observations(X, Y, **noise_for(m, Y)) for m in (exact, sparse)
            )
            assert_same_posterior(exact.posterior(T), sparse.posterior(T))
            noisy = {"observation_noise": True}
            assert_same_posterior(exact.posterior(T, **noisy), sparse.posterior(T, **noisy))
        assert exact.train_inputs[0].shape == sparse.train_inputs[0].shape
        torch.testing.assert_close(exact.train_targets, sparse.train_targets)
        assert exact.batch_shape == sparse.batch_shape

    def test_fantasies(self, pair):
        exact, sparse = pair
        X = torch.rand(*exact.batch_shape, 2, D, dtype=torch.float64)
        T = torch.rand(4, *exact.batch_shape, 3, D, dtype=torch.float64)
        exact.posterior(X)
        fantasies = [m.fantasize(X, SobolQMCNormalSampler(torch.Size([4]), seed=1)) for m in pair]
        assert_same_posterior(*(f.posterior(T) for f in fantasies), tolerance=1e-5)
        assert_same_posterior(*(f.posterior(T[0]) for f in fantasies), tolerance=1e-5)
        exact, sparse = fantasies
        assert exact.batch_shape == sparse.batch_shape
        assert exact.train_targets.shape == sparse.train_targets.shape
        assert exact.train_inputs[0].shape == sparse.train_inputs[0].shape

    def test_fit_reaches_the_same_hyperparameters(self, outputs):
        X, Y = regression(25, D, outputs)
        models = [c(X, Y) for c in (SingleTaskGP, DTCGP)]
        for model in models:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)

    def test_repeated_inputs_are_no_trouble(self):
        X, Y = regression(15)
        X, Y = X.repeat(3, 1), Y.repeat(3, 1) + 0.1 * torch.randn(45, 1).double()
        exact, sparse = SingleTaskGP(X, Y), DTCGP(X, Y)
        assert len(sparse.dictionary_indices) == 15
        T = torch.rand(4, D, dtype=torch.float64)
        assert_same_posterior(exact.posterior(T), sparse.posterior(T))
