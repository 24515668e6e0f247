r"""Fits of products with an index kernel on a sparse dictionary."""

from __future__ import annotations

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.kernels import IndexKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP, MultiTaskDTCGP

TASKS = 3


def tasked(n):
    X = torch.rand(n, 3, dtype=torch.float64)
    X[:, 2] = torch.randint(TASKS, (n,)).double()
    Y = torch.sin(5 * X[:, :2]).sum(-1, keepdim=True) + 0.5 * X[:, 2:]
    return X, Y


def product():
    data = RBFKernel(ard_num_dims=2, active_dims=[0, 1])
    return ScaleKernel(data) * IndexKernel(TASKS, rank=1, active_dims=[2])


@pytest.mark.parametrize("trace_term", [False, True])
@pytest.mark.parametrize("multitask", [False, True], ids=["product", "MultiTaskDTCGP"])
def test_a_sparse_fit_learns_all_tasks(multitask, trace_term):
    X, Y = tasked(600)
    options = {"dictionary": torch.arange(80), "trace_term": trace_term}
    noisy = Y + 0.1 * torch.randn_like(Y)
    if multitask:
        model = MultiTaskDTCGP(X, noisy, task_feature=2, **options)
    else:
        model = DTCGP(X, noisy, covar_module=product(), **options)
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model),
        optimizer_kwargs={"options": {"maxiter": 30}},
    )
    T, truth = tasked(200)
    posterior = model.posterior(T)
    assert (posterior.mean - truth).square().mean() < 0.1**2
    assert (posterior.variance > 0).all()
