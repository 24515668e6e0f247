r"""Sparse models of others, over the unit cube: SVGP and SGPR."""

from __future__ import annotations

from contextlib import AbstractContextManager

import gpytorch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.utils import gpytorch_modules as defaults
from gpytorch.kernels import InducingPointKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor


def evidence(low_rank: bool) -> AbstractContextManager:
    r"""BoTorch's settings, but for SGPR: they would have it factorise an ``n x n`` matrix."""
    return gpytorch.settings.fast_computations(False, log_prob=low_rank, solves=False)


def fitted_svgp(X: Tensor, Y: Tensor, m: int, limit: float) -> SingleTaskVariationalGP:
    r"""``SingleTaskVariationalGP`` from the first ``m`` inputs, its fit stopped at the limit.

    (BoTorch's own choice of inducing points evaluates the kernel at all pairs of inputs.)
    """
    model = SingleTaskVariationalGP(X, Y.unsqueeze(-1), inducing_points=X[:m].clone())
    mll = VariationalELBO(model.likelihood, model.model, num_data=len(X))
    fit_gpytorch_mll(mll, optimizer_kwargs={"timeout_sec": limit})
    return model


def fitted_sgpr(X: Tensor, Y: Tensor, m: int, limit: float) -> SingleTaskGP:
    r"""``SingleTaskGP`` on an ``InducingPointKernel``, from the first ``m`` inputs; likewise."""
    likelihood = defaults.get_gaussian_likelihood_with_lognormal_prior().to(X)
    kernel = defaults.get_covar_module_with_dim_scaled_prior(X.shape[-1]).to(X)
    kernel = InducingPointKernel(kernel, X[:m].clone(), likelihood)
    model = SingleTaskGP(X, Y.unsqueeze(-1), likelihood=likelihood, covar_module=kernel)
    mll = ExactMarginalLogLikelihood(likelihood, model)
    with evidence(low_rank=True):
        fit_gpytorch_mll(mll, optimizer_kwargs={"timeout_sec": limit})
    return model
