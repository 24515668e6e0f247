r"""The sparse models SVGP and SGPR over the unit cube."""

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
    r"""Return BoTorch's settings, but for SGPR ones that avoid factorising an ``n x n`` matrix."""
    return gpytorch.settings.fast_computations(False, log_prob=low_rank, solves=False)


def fitted_svgp(X: Tensor, Y: Tensor, m: int, limit: float) -> SingleTaskVariationalGP:
    r"""Fit ``SingleTaskVariationalGP`` with the first ``m`` inputs as inducing points.

    The fit is stopped after ``limit`` seconds. BoTorch's own choice of inducing points is not used,
    since it evaluates the kernel at all pairs of inputs.
    """
    model = SingleTaskVariationalGP(X, Y.unsqueeze(-1), inducing_points=X[:m].clone())
    mll = VariationalELBO(model.likelihood, model.model, num_data=len(X))
    fit_gpytorch_mll(mll, optimizer_kwargs={"timeout_sec": limit})
    return model


def fitted_sgpr(X: Tensor, Y: Tensor, m: int, limit: float) -> SingleTaskGP:
    r"""Fit ``SingleTaskGP`` on an ``InducingPointKernel`` with the first ``m`` inputs.

    The fit is stopped after ``limit`` seconds.
    """
    likelihood = defaults.get_gaussian_likelihood_with_lognormal_prior().to(X)
    kernel = defaults.get_covar_module_with_dim_scaled_prior(X.shape[-1]).to(X)
    kernel = InducingPointKernel(kernel, X[:m].clone(), likelihood)
    model = SingleTaskGP(X, Y.unsqueeze(-1), likelihood=likelihood, covar_module=kernel)
    mll = ExactMarginalLogLikelihood(likelihood, model)
    with evidence(low_rank=True):
        fit_gpytorch_mll(mll, optimizer_kwargs={"timeout_sec": limit})
    return model
