r"""Fits with BoTorch's ``LinearTruncatedFidelityKernel``, which is slightly indefinite.

Its factor ``(1 + f f')^p`` is positive semi-definite for integers ``p`` only: otherwise a
coefficient of its binomial series is negative. The smallest eigenvalue of the kernel matrix grows
with the number of points.
"""

from __future__ import annotations

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.kernels.linear_truncated_fidelity import LinearTruncatedFidelityKernel
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP, MultiFidelityDTCGP


def fidelities(n):
    X = torch.rand(n, 3, dtype=torch.float64)
    bias = 0.3 * (1 - X[:, 2:]) * torch.cos(3 * X[:, :1])
    return X, torch.sin(5 * X[:, :2]).sum(-1, keepdim=True) + bias


@pytest.mark.parametrize("m", [100, 512])
@pytest.mark.parametrize("own", [False, True], ids=["MultiFidelityDTCGP", "covar_module"])
def test_a_sparse_fit_predicts_the_full_fidelity(own, m):
    X, Y = fidelities(600)
    noisy = Y + 0.1 * torch.randn_like(Y)
    if own:
        kernel = ScaleKernel(LinearTruncatedFidelityKernel(fidelity_dims=[2], dimension=3))
        model = DTCGP(X, noisy, covar_module=kernel, dictionary=torch.arange(m))
    else:
        model = MultiFidelityDTCGP(X, noisy, data_fidelities=[2], dictionary=torch.arange(m))
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model),
        optimizer_kwargs={"options": {"maxiter": 20}},
    )
    T, _ = fidelities(200)
    T[:, 2] = 1.0
    posterior = model.posterior(T)
    truth = torch.sin(5 * T[:, :2]).sum(-1, keepdim=True)
    assert (posterior.mean - truth).square().mean() < 0.1**2
    assert (posterior.variance >= 0).all()
