r"""The derivatives of draws from a Gaussian process, against draws on a grid."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)

from botorch_bkb.confidence.slopes import SMOOTHNESS, slope_and_tail


def kernel_of(name: str):
    return RBFKernel() if name == "RBF" else MaternKernel(nu=float(name[7:-2]) / 2)


def with_lengthscale(kernel, value):
    kernel = kernel.double()
    kernel.lengthscale = value
    return kernel


def unit(d: int) -> torch.Tensor:
    return torch.ones(d, dtype=torch.float64)


@pytest.mark.parametrize("name", SMOOTHNESS)
def test_the_variance_of_the_derivative(name):
    # var g = lim (k(0) - k(h)) * 2 / h^2.
    kernel = with_lengthscale(kernel_of(name), 1.0)
    h = torch.tensor([[1e-5]], dtype=torch.float64)
    change = 2 * (1 - kernel(h, 0 * h).to_dense().detach()) / h**2
    assert float(change) == pytest.approx(SMOOTHNESS[name].variance, rel=1e-3)


@pytest.mark.parametrize("name", SMOOTHNESS)
@pytest.mark.parametrize("direction", [(1.0, 0.0), (0.0, 1.0), (0.6, 0.8), (0.6, -0.8)])
def test_the_metric_of_the_derivative(name, direction):
    kernel, smooth = with_lengthscale(kernel_of(name), 1.0), SMOOTHNESS[name]
    for r in (1e-2, 0.1, 0.5, 1.0, 2.0, 5.0):
        x = torch.tensor([[r * c for c in direction]], dtype=torch.float64)
        step = torch.tensor([[1e-4, 0.0]], dtype=torch.float64)
        left, middle, right = (
            float(kernel(at, 0 * x).to_dense().detach()) for at in (x - step, x, x + step)
        )
        covariance = (2 * middle - left - right) / 1e-8
        squared = 2 * (smooth.variance - covariance)
        assert math.sqrt(max(0.0, squared)) <= smooth.constant * r**smooth.exponent * (1 + 1e-6)


@pytest.mark.parametrize("name", SMOOTHNESS)
def test_the_tail_bounds_the_slopes_of_draws(name):
    kernel = with_lengthscale(kernel_of(name), 0.2)
    x = torch.linspace(0, 1, 201, dtype=torch.float64).unsqueeze(-1)
    K = kernel(x).to_dense() + 1e-8 * torch.eye(201, dtype=torch.float64)
    z = torch.randn(201, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = torch.linalg.cholesky(K) @ z
    steepest = (draws.diff(dim=0).abs() * 200).amax(0)
    slope, log_tail = slope_and_tail(kernel, unit(1))
    for L in (0.5 * slope, slope, 2 * slope):
        bound = math.exp(min(0.0, log_tail - (L / slope) ** 2))
        assert float((steepest > L).double().mean()) <= bound


def test_sides_and_lengthscales_count_together():
    base = slope_and_tail(with_lengthscale(RBFKernel(), 0.5), unit(2))
    wide = slope_and_tail(with_lengthscale(RBFKernel(), 5.0), 10 * unit(2))
    assert wide == pytest.approx(base)
    ard = RBFKernel(ard_num_dims=2).double()
    ard.lengthscale = torch.tensor([0.5, 50.0], dtype=torch.float64)
    stretched = slope_and_tail(ard, torch.tensor([1.0, 100.0], dtype=torch.float64))
    assert stretched.slope == pytest.approx(base.slope)
    assert stretched.log_tail == pytest.approx(base.log_tail)


def test_the_scale_of_the_kernel_does_not_matter():
    scaled = ScaleKernel(with_lengthscale(RBFKernel(), 0.5)).double()
    scaled.outputscale = 1e6
    expected = slope_and_tail(with_lengthscale(RBFKernel(), 0.5), unit(3))
    assert slope_and_tail(scaled, unit(3)) == expected


@pytest.mark.parametrize(
    "kernel",
    [MaternKernel(nu=0.5), PeriodicKernel(), LinearKernel(), RBFKernel(active_dims=[0])],
)
def test_other_kernels_are_refused_by_the_name_of_the_theorem(kernel):
    with pytest.raises(InputDataError, match=r"^Theorem 3\.2 ii of the compressed GP paper"):
        slope_and_tail(kernel.double(), unit(2))
