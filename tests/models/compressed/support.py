r"""Builders shared by the tests of ``CompressedGP``."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from botorch_bkb import CompressedGP
from tests.problems import regression

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
both = pytest.mark.parametrize("discard", [True, False], ids=["discard", "no-discard"])
seeds = st.integers(0, 10_000)
#: Thresholds with which 40 to 60 points are neither all kept nor all discarded.
epsilons = st.sampled_from([0.05, 0.1, 0.3, 0.5, 1.0])


def rand(*shape):
    return torch.rand(*shape, dtype=torch.float64)


def repeating(n=40, distinct=15):
    r"""Data with repeated inputs, in random order, and noise in each repetition."""
    X, _ = regression(distinct)
    X = X[torch.randint(distinct, (n,))]
    return X, torch.sin(3 * X).sum(-1, keepdim=True) + 0.1 * torch.randn(n, 1).double()


def compressed(X, Y, epsilon=0.1, *, lengthscale=0.5, noise=0.05, **kwargs):
    r"""A model without transforms, of fixed hyperparameters."""
    kwargs.setdefault("outcome_transform", None)
    model = CompressedGP(X, Y, epsilon=epsilon, **kwargs)
    model.covar_module.lengthscale = torch.tensor(lengthscale).to(X)
    model.likelihood.noise = torch.tensor(noise, dtype=torch.float64).to(X)  # not through float32
    return model.eval()


def grow(model, X, Y, block):
    for rows in torch.arange(len(X)).split(block):
        model = model.condition_on_observations(X[rows], Y[rows])
    return model


@torch.no_grad()
def dense(model, *pairs):
    return tuple(model.covar_module(a, b).to_dense() for a, b in pairs)


def assert_moments(posterior, mean, cov, tolerance=1e-8):
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=tolerance, rtol=tolerance)
    got = posterior.distribution.covariance_matrix
    torch.testing.assert_close(got, cov, atol=tolerance, rtol=tolerance)
