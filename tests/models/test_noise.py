r"""Likelihoods that wrap a Gaussian one."""

from __future__ import annotations

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.module import Module

from botorch_bkb import DTCGP, CompressedGP, RidgeLeverageSampling
from tests.models.support import assert_same_posterior
from tests.problems import regression


class Wrapper(GaussianLikelihood):
    r"""A likelihood that only hands calls on: it has no ``noise_covar`` of its own."""

    def __init__(self, inner: Likelihood) -> None:
        Module.__init__(self)
        self.inner = inner

    def __call__(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


class Foreign(Likelihood):
    r"""The same, without being a Gaussian likelihood to gpytorch."""

    def __init__(self, inner: Likelihood) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner.forward(*args, **kwargs)

    def __call__(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


@pytest.mark.parametrize("wrapper", [Wrapper, Foreign])
@pytest.mark.parametrize("dictionary", [None, torch.arange(10), RidgeLeverageSampling(2.0)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_wrapped_likelihood_gives_the_same_posterior(wrapper, dictionary, outputs):
    X, Y = regression(40, 2, outputs)
    plain = DTCGP(X, Y, dictionary=dictionary)
    wrapped = DTCGP(X, Y, dictionary=dictionary)
    for model in (plain, wrapped):
        model.likelihood.noise = 0.3
    wrapped.likelihood = wrapper(wrapped.likelihood)
    indices = plain.with_dictionary(torch.arange(20)), wrapped.with_dictionary(torch.arange(20))
    T = torch.rand(5, 2, dtype=torch.float64)
    new = torch.rand(3, 2, dtype=torch.float64), torch.rand(3, outputs, dtype=torch.float64)
    for a, b in (indices, (m.condition_on_observations(*new) for m in indices)):
        assert_same_posterior(a.posterior(T), b.posterior(T), 1e-10)
    torch.testing.assert_close(*(m.effective_dimension for m in indices))


def test_a_compressed_model_takes_a_wrapped_likelihood():
    X, Y = regression(40)
    models = [CompressedGP(X, Y) for _ in range(2)]
    models[1].likelihood = Wrapper(models[1].likelihood)
    T = torch.rand(5, 2, dtype=torch.float64)
    assert_same_posterior(*(m.posterior(T) for m in models), 1e-10)


def test_a_wrapped_likelihood_is_fitted():
    X, Y = regression(60)
    noises = []
    for wrap in (lambda likelihood: likelihood, Wrapper):
        model = DTCGP(X, Y, dictionary=torch.arange(30))
        inner = model.likelihood
        model.likelihood = wrap(inner)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        noises.append(inner.noise.item())
    assert noises[0] == pytest.approx(noises[1], rel=1e-2)
