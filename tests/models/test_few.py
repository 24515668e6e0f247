r"""The evidence of few observations in NumPy against that in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.priors import GammaPrior, HalfNormalPrior, LogNormalPrior, NormalPrior
from hypothesis import given, settings
from hypothesis import strategies as st

from botorch_bkb.closed_form import Evaluation
from botorch_bkb.linalg import exact_evidence
from botorch_bkb.models.densities import log_density
from botorch_bkb.models.few import MOST_DIFFERENCES, FewObservations


@settings(max_examples=60, deadline=None)
@given(
    profile=st.sampled_from(["rbf", 1.5, 2.5]),
    n=st.integers(1, 12),
    d=st.integers(1, 4),
    common=st.booleans(),
    scales=st.integers(0, 2),
    seed=st.integers(0, 1000),
)
def test_value_and_derivatives_are_those_of_torch(profile, n, d, common, scales, seed):
    rng = np.random.default_rng(seed)
    X, residual, noise = rng.random((n, d)), rng.standard_normal(n), 0.1 + rng.random(n)
    kernel = [0.2 + rng.random((1, 1 if common else d)), *(0.5 + rng.random(scales))]
    value, slopes, by_target, by_noise = FewObservations(profile, X).evidence(
        [np.asarray(k) for k in kernel], residual, noise
    )
    tensors = [torch.as_tensor(k) for k in kernel]
    x = torch.from_numpy(X)
    e = Evaluation.of(profile, x, x, tuple(tensors))
    expected = exact_evidence(e.matrix + torch.from_numpy(noise).diag(), torch.from_numpy(residual))
    assert value == pytest.approx(float(expected.value), rel=1e-10, abs=1e-10)
    assert np.allclose(by_target, expected.targets, rtol=1e-8)
    assert np.allclose(by_noise, expected.covariance.diagonal(), rtol=1e-8, atol=1e-10)
    pulled = e.pull_hyperparameters(expected.covariance)
    for ours, theirs in zip(slopes, pulled, strict=True):
        assert np.allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_indefinite_covariances_are_left_to_torch():
    few = FewObservations("rbf", np.zeros((3, 1)))
    assert few.evidence([np.ones((1, 1))], np.ones(3), np.full(3, -1.0)) is None


def test_many_inputs_and_other_kernels_are_left_to_torch():
    X = torch.rand(20, 2, dtype=torch.float64)
    assert FewObservations.of("rbf", X) is not None
    assert FewObservations.of(0.5, X) is None and FewObservations.of("linear", X) is None
    many = int(MOST_DIFFERENCES**0.5) + 1
    assert FewObservations.of("rbf", torch.rand(many, 1, dtype=torch.float64)) is None


@pytest.mark.parametrize(
    "prior",
    [
        LogNormalPrior(*torch.tensor([0.3, 1.2]).double()),
        GammaPrior(3.0, 6.0),
        NormalPrior(0.0, 2.0),
        HalfNormalPrior(1.5),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_densities_of_priors_are_gpytorchs(prior):
    x = torch.tensor([[0.2, 1.0, 3.0]], dtype=torch.float64).requires_grad_()
    expected = prior.double().log_prob(x).sum()
    value, slope = log_density(prior)(x.detach().numpy())
    assert value == pytest.approx(float(expected.detach()), rel=1e-10)
    assert np.allclose(slope, torch.autograd.grad(expected, x)[0])
