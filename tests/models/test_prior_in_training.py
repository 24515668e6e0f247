r"""The prior of a model in training mode, at inputs that are not its training data."""

from __future__ import annotations

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.sampling.pathwise import draw_kernel_feature_paths
from gpytorch.kernels import RBFKernel

from botorch_bkb import DTCGP
from tests.problems import regression


@pytest.mark.parametrize("dictionary", [None, torch.arange(3)], ids=["all", "three"])
@pytest.mark.parametrize("q", [4, 10, 16])
def test_it_is_that_of_single_task_gp(q, dictionary):
    X, Y = regression(10)
    T = torch.rand(q, 2, dtype=torch.float64)
    exact, sparse = SingleTaskGP(X, Y), DTCGP(X, Y, dictionary=dictionary)
    for a, b in zip(
        *((p.mean, p.covariance_matrix) for p in (m.train().forward(T) for m in (exact, sparse))),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_kernel_features_have_its_moments():
    r"""2,048 paths of 1,024 features: a covariance has a standard error of ``2^-5`` at most."""
    X, Y = regression(4)
    model = DTCGP(X, Y, covar_module=RBFKernel().double(), outcome_transform=None)
    paths = draw_kernel_feature_paths(model, torch.Size([2048]), num_features=1024)
    T = torch.rand(16, 2, dtype=torch.float64)
    samples, prior = paths(T), model.forward(T)
    torch.testing.assert_close(samples.T.cov(), prior.covariance_matrix, atol=0.15, rtol=0)
