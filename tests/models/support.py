r"""Builders and comparisons shared by the tests of the models."""

from __future__ import annotations

import torch
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP
from tests import naive
from tests.problems import regression

D = 2


def build(cls, X, Y, *, fixed_noise=False, transformed=False, **kwargs):
    return cls(
        X,
        Y,
        train_Yvar=torch.full_like(Y, 0.05) if fixed_noise else None,
        input_transform=Normalize(D) if transformed else None,
        **kwargs,
    )


def assert_same_posterior(p, q, tolerance=1e-7):
    assert p.mean.shape == q.mean.shape
    for a, b in (
        (p.mean, q.mean),
        (p.variance, q.variance),
        (p.distribution.covariance_matrix, q.distribution.covariance_matrix),
    ):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def noise_for(model, Y):
    fixed = type(model.likelihood).__name__.startswith("Fixed")
    return {"noise": torch.full_like(Y, 0.03)} if fixed else {}


def sparse_model(n=60, m=12, **kwargs):
    X, Y = regression(n)
    kwargs.setdefault("outcome_transform", None)
    return DTCGP(X, Y, dictionary=torch.arange(m), **kwargs)


def dense_moments(model, T):
    r"""The oracle's moments at ``T`` for a model without transforms."""
    model.eval()
    X = model.train_inputs[0]
    S, k = X[model.dictionary_indices], model.covar_module
    with torch.no_grad():
        y = model.train_targets - model.mean_module(X)
        noise = torch.full_like(y, model.likelihood.noise.item())
        mean, cov = naive.dtc(
            *(k(a, b).to_dense() for a, b in ((S, S), (X, S), (T, S), (T, T))), y, noise
        )
        return mean + model.mean_module(T), cov


def likelihood_of(model):
    r"""The log marginal likelihood of a model's training data."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    return mll(model(*model.train_inputs), model.train_targets, *model.train_inputs)
