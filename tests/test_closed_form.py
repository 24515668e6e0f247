r"""Kernels in closed form against gpytorch's values and autograd."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import CosineKernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from botorch_bkb.closed_form import closed_diagonal, closed_form, closed_matrix

KINDS = {
    "rbf": RBFKernel,
    "1/2": lambda **kw: MaternKernel(nu=0.5, **kw),
    "3/2": lambda **kw: MaternKernel(nu=1.5, **kw),
    "5/2": lambda **kw: MaternKernel(nu=2.5, **kw),
    "linear": LinearKernel,
}


def make(kind: str, d: int, batch: torch.Size, ard: bool, scales: int, dims, seed: int):
    shape = {"batch_shape": batch}
    if dims is not None:
        shape["active_dims"] = dims
    kernel = KINDS[kind](ard_num_dims=len(dims or range(d)) if ard else None, **shape)
    for _ in range(scales):
        kernel = ScaleKernel(kernel, batch_shape=batch)
    kernel = kernel.double()
    generator = torch.Generator().manual_seed(seed)
    for p in kernel.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.5
    return kernel


def gradients(matrix: Tensor, G: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad((matrix * G).sum(), inputs))


@given(
    kind=st.sampled_from(list(KINDS)),
    n=st.integers(1, 6),
    m=st.integers(1, 5),
    d=st.integers(1, 4),
    batch=st.sampled_from([(), (2,), (3, 2)]),
    ard=st.booleans(),
    scales=st.integers(0, 2),
    some=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_values_and_gradients_are_those_of_gpytorch(kind, n, m, d, batch, ard, scales, some, seed):
    batch = torch.Size(batch)
    dims = tuple(range(d - 1, -1, -2)) if some else None
    kernel = make(kind, d, batch, ard, scales, dims, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    X1, X2 = (
        torch.randn(*batch, k, d, generator=generator, dtype=torch.float64).requires_grad_()
        for k in (n, m)
    )
    G = torch.randn(*batch, n, m, generator=generator, dtype=torch.float64)
    inputs = [X1, X2, *kernel.parameters()]
    expected = kernel(X1, X2).to_dense()
    found = closed_matrix(closed_form(kernel), X1, X2)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)
    for ours, theirs in zip(
        gradients(found, G, inputs), gradients(expected, G, inputs), strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_give_the_same_values_as_few(kind):
    kernel = make(kind, 3, torch.Size(), True, 1, None, 0)
    X = torch.rand(400, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    form = closed_form(kernel)
    with torch.no_grad():
        whole = closed_matrix(form, X, X)
        parts = torch.cat([closed_matrix(form, rows, X) for rows in X.split(20)])
        assert torch.allclose(whole, parts, rtol=1e-11, atol=1e-12)
        assert torch.allclose(whole.diagonal(), closed_diagonal(form, X), rtol=1e-11)
        assert torch.allclose(closed_diagonal(form, X), kernel(X, diag=True))


@pytest.mark.parametrize("kind", ["rbf", "1/2", "3/2", "5/2", "linear"])
def test_second_derivatives_are_right(kind):
    kernel = make(kind, 2, torch.Size(), True, 1, None, 3).requires_grad_(False)
    X, S = (
        torch.randn(k, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(k))
        for k in (3, 4)
    )
    form = closed_form(kernel)
    assert torch.autograd.gradgradcheck(lambda x: closed_matrix(form, x, S), X.requires_grad_())


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_gradients_at_equal_points_are_finite(nu):
    kernel = MaternKernel(nu=nu).double()
    X = torch.ones(3, 2, dtype=torch.float64).requires_grad_()
    K = closed_matrix(closed_form(kernel), X, torch.ones(2, 2, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(K.sum(), X)
    assert torch.equal(gradient, torch.zeros_like(gradient))
    assert torch.allclose(K, torch.ones_like(K))


def test_large_offsets_lose_no_digits():
    kernel = MaternKernel(nu=1.5).double()
    X = torch.rand(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    form = closed_form(kernel)
    with torch.no_grad():
        shifted = closed_matrix(form, X + 2.0**20, X + 2.0**20)
        assert torch.allclose(shifted, closed_matrix(form, X, X), atol=1e-8)


def test_other_kernels_and_subclasses_have_none():
    class Other(RBFKernel):
        pass

    for kernel in (CosineKernel(), Other(), RBFKernel() + LinearKernel()):
        assert closed_form(kernel) is None
