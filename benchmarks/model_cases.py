r"""The models that the study ``model`` compares, their common problem, and what is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.utils import gpytorch_modules as defaults
from botorch.optim.closures import get_loss_closure_with_grads
from botorch.test_functions import Hartmann
from gpytorch.kernels import InducingPointKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor

from benchmarks.peers.sparse import evidence
from botorch_bkb import DTCGP, RidgeLeverageSampling

D, M, LENGTHSCALE = 6, 200, 2.0
#: Noise variance divided by ``n``. Noise in proportion to ``n`` keeps the effective dimension, and
#: so the number of points that ridge leverage sampling draws, at about ``M``.
NOISE_PER_POINT = 6e-6

OURS, OURS_SAMPLED, EXACT, SVGP, SGPR = "DTCGP", "sampled", "SingleTaskGP", "SVGP", "SGPR"
MODELS = (OURS, EXACT, SVGP, SGPR)
BUILD, SAMPLED = "build (dictionary given)", "build (dictionary sampled)"
KERNEL, PRODUCT = "unavoidable: K = k(X; S)", "unavoidable: K'K"
SINGLE, BATCH, GRADIENT = "posterior q=1", "posterior 20 x q=4", "posterior 20 x q=4 + gradient"
CONDITION, STEP, FIT = "condition on 4 + posterior q=1", "MLL step + gradient", "fit"

Times = dict[tuple[str, str, int], float]  # operation, model, n -> seconds


class Problem(NamedTuple):
    r"""Training data and the rows that serve as dictionary or inducing points."""

    n: int
    X: Tensor
    Y: Tensor
    indices: Tensor


def problem(n: int) -> Problem:
    torch.manual_seed(0)
    X = torch.rand(n, D, dtype=torch.float64)
    Y = Hartmann(dim=D, noise_std=0.1)(X).unsqueeze(-1)
    return Problem(n, X, (Y - Y.mean()) / Y.std(), torch.randperm(n)[:M].sort().values)


def kernel(p: Problem):
    module = defaults.get_covar_module_with_dim_scaled_prior(D).to(p.X)
    return module.initialize(lengthscale=LENGTHSCALE)


def make(name: str, p: Problem):
    r"""Return a model with the common hyperparameters, for outcomes already standardised."""
    likelihood = defaults.get_gaussian_likelihood_with_lognormal_prior().to(p.X)
    likelihood.initialize(noise=NOISE_PER_POINT * p.n)
    k, points = kernel(p), p.X[p.indices].clone()
    if name == SGPR:
        k = InducingPointKernel(k, points, likelihood)
    common = {"likelihood": likelihood, "covar_module": k, "outcome_transform": None}
    if name in (EXACT, SGPR):
        return SingleTaskGP(p.X, p.Y, **common)
    if name == SVGP:
        return SingleTaskVariationalGP(p.X, p.Y, inducing_points=points, **common)
    dictionary = p.indices if name == OURS else RidgeLeverageSampling()
    return DTCGP(p.X, p.Y, dictionary=dictionary, **common)


def possible(operation: str, name: str, n: int) -> bool:
    r"""Return whether a model supports the operation within a minute and several gigabytes."""
    if name == EXACT:
        return n <= (1_000 if operation in (CONDITION, STEP, FIT) else 10_000)
    if name == SGPR and operation in (BATCH, GRADIENT):
        return n <= 10_000  # needs several times n x m numbers per t-batch
    return name == OURS or operation != CONDITION


def posterior(model, X: Tensor) -> Tensor:
    distribution = model.posterior(X).distribution
    return distribution.mean.sum() + distribution.covariance_matrix.sum()


@torch.enable_grad()
def gradient(model, X: Tensor) -> Tensor:
    X = X.clone().requires_grad_(True)
    return torch.autograd.grad(posterior(model, X), X)[0]


def condition(model, X: Tensor, Y: Tensor, x: Tensor) -> Tensor:
    return posterior(model.condition_on_observations(X, Y), x)


def objective(name: str, p: Problem):
    model = make(name, p)
    if name == SVGP:
        return VariationalELBO(model.likelihood, model.model, num_data=p.n).train()
    return ExactMarginalLogLikelihood(model.likelihood, model).train()


def step(name: str, mll) -> None:
    with evidence(low_rank=name == SGPR):
        closure_of(mll)()


def closure_of(mll) -> Callable[[], object]:
    r"""Return BoTorch's function that computes the loss and its gradients."""
    return get_loss_closure_with_grads(mll, parameters=dict(mll.named_parameters()))
