r"""The posterior of single points against the joint posterior, which uses autograd."""

from __future__ import annotations

import copy

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
from botorch.models.transforms import Normalize
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.means import LinearMean, ZeroMean

from botorch_bkb import DTCGP, BudgetedUCB
from botorch_bkb.acquisition import LogImprovement
from tests.problems import regression

KERNELS = {
    "rbf": lambda: RBFKernel(ard_num_dims=2),
    "1/2": lambda: MaternKernel(nu=0.5),
    "3/2": lambda: ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)),
    "5/2": lambda: ScaleKernel(ScaleKernel(MaternKernel())),
    "one dimension": lambda: ScaleKernel(RBFKernel(active_dims=(1,))),
    "linear": lambda: LinearKernel(),
    "periodic": lambda: PeriodicKernel(),
}
OPTIONS = {
    "plain": {"outcome_transform": None},
    "standardised": {},
    "normalised": {"input_transform": Normalize(2)},
    "zero mean": {"mean_module": ZeroMean()},
    "linear mean": {"mean_module": LinearMean(2).double()},
}
MANY = 15  # evaluations: from the eleventh on the factors are inverted


def model_of(kind="rbf", noise=0.05, n=50, m=20, **options):
    torch.manual_seed(0)
    X, Y = regression(n)
    kernel = KERNELS[kind]().double()
    indices = torch.arange(m)
    Yvar = torch.full_like(Y, noise)
    return DTCGP(X, Y, Yvar, covar_module=kernel, dictionary=indices, **options).eval()


def moments_and_gradient(model, X):
    X = X.clone().requires_grad_()
    posterior = model.posterior(X)
    value = (posterior.mean + 3 * posterior.variance).sum()
    (gradient,) = torch.autograd.grad(value, X)
    return posterior.mean.detach(), posterior.variance.detach(), gradient


def assert_same_as_the_joint_posterior(model, X, evaluations=MANY):
    doubled = torch.cat([X, X + 0.1], -2)  # two points: the joint posterior
    mean, variance, _ = moments_and_gradient(model, doubled)
    x = doubled.clone().requires_grad_()
    joint = model.posterior(x)
    value = (joint.mean[..., :1, :] + 3 * joint.variance[..., :1, :]).sum()
    expected = mean[..., :1, :], variance[..., :1, :], torch.autograd.grad(value, x)[0][..., :1, :]
    for _ in range(evaluations):
        for ours, theirs in zip(moments_and_gradient(model, X), expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-8)


@pytest.mark.parametrize("noise", [1e-6, 0.05])
@pytest.mark.parametrize("kind", list(KERNELS))
def test_moments_and_gradients_are_those_of_the_joint_posterior(kind, noise):
    X = torch.rand(3, 4, 1, 2, dtype=torch.float64)
    assert_same_as_the_joint_posterior(model_of(kind, noise), X)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_transforms_and_means_are_applied(options):
    X = torch.rand(4, 1, 2, dtype=torch.float64)
    assert_same_as_the_joint_posterior(model_of(**options), X)


@pytest.mark.parametrize("kind", ["rbf", "3/2", "one dimension"])
def test_points_conditioned_on_are_known(kind):
    model, X = model_of(kind), torch.rand(4, 1, 2, dtype=torch.float64)
    for _ in range(MANY):
        model.posterior(X)  # the belief is prepared for many evaluations, and then another
    with torch.no_grad():
        new = torch.rand(3, 2, dtype=torch.float64)
        noise = torch.full((3, 1), 0.02, dtype=torch.float64)
        model = model.condition_on_observations(new, torch.ones_like(noise), noise=noise)
    assert_same_as_the_joint_posterior(model, X)


@pytest.mark.parametrize("evaluations", [1, MANY])
@pytest.mark.parametrize("kind", ["rbf", "1/2", "5/2"])
def test_second_derivatives_are_right(kind, evaluations):
    model, X = model_of(kind), torch.rand(3, 1, 2, dtype=torch.float64).requires_grad_()
    for _ in range(evaluations):
        model.posterior(X)

    def moments(x):
        posterior = model.posterior(x)
        return posterior.mean + posterior.variance

    assert torch.autograd.gradgradcheck(moments, X)


def test_derivatives_with_respect_to_hyperparameters_stay():
    model = model_of("3/2")
    model.posterior(torch.rand(3, 1, 2, dtype=torch.float64)).mean.sum().backward()
    assert model.covar_module.base_kernel.raw_lengthscale.grad.abs().sum() > 0


def test_new_hyperparameters_data_and_kernels_are_seen():
    X = torch.rand(4, 1, 2, dtype=torch.float64)
    model = model_of("3/2")
    for _ in range(MANY):
        before = moments_and_gradient(model, X)[0]
    again = copy.deepcopy(model)
    torch.testing.assert_close(moments_and_gradient(again, X)[0], before)
    model.train()
    model.covar_module.base_kernel.lengthscale = 0.2
    assert_same_as_the_joint_posterior(model, X)
    model.set_train_data(targets=-model.train_targets, strict=False)
    assert_same_as_the_joint_posterior(model, X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_are_those_of_the_model(dtype):
    X, Y = regression(30)
    model = DTCGP(X.to(dtype), Y.to(dtype)).eval()
    posterior = model.posterior(torch.rand(3, 1, 2).requires_grad_())
    assert posterior.mean.dtype == posterior.variance.dtype == dtype
    assert posterior.rsample(torch.Size([2])).shape == (2, 3, 1, 1)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@pytest.mark.parametrize("kind", list(KERNELS))
def test_our_acquisition_functions_are_botorchs(kind, options):
    model, X = model_of(kind, **options), torch.rand(5, 1, 2, dtype=torch.float64)
    pairs = [
        (BudgetedUCB(model, 2.0), UpperConfidenceBound(model, beta=4.0)),
        (BudgetedUCB(model, 2.0, maximize=False), UpperConfidenceBound(model, 4.0, maximize=False)),
        (LogImprovement(model, 1.0), LogExpectedImprovement(model, 1.0)),
    ]
    for ours, theirs in pairs:
        found = []
        for function in (ours, theirs):
            x = X.clone().requires_grad_()
            value = function(x)
            first = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
            found.append([value, first])
            if kind != "periodic":  # gpytorch's has no second derivatives
                found[-1] += torch.autograd.grad(first.square().sum(), x)
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-7)
