from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

from botorch_bkb import BKB
from botorch_bkb.batches.regions import lengthscales
from botorch_bkb.domains import TrustRegion
from tests.optimizers.inside import state_of

WIDE = torch.tensor([[-3.0, 10.0], [5.0, 30.0]], dtype=torch.float64)


def found(kernel):
    optimizer = BKB(
        bounds=WIDE, covar_module=kernel, noise_var=0.1, trust_region=TrustRegion(), seed=0
    )
    return lengthscales(optimizer.domain, state_of(optimizer))


def test_lengthscales_are_in_sides_of_the_box():
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([2.0, 40.0], dtype=torch.float64)
    expected = torch.tensor([0.25, 2.0], dtype=torch.float64)
    torch.testing.assert_close(found(ScaleKernel(kernel)), expected)
    torch.testing.assert_close(found(kernel), expected)


def test_a_lengthscale_of_all_coordinates_is_one_in_units_of_the_user():
    kernel = RBFKernel().double()
    kernel.lengthscale = 4.0
    torch.testing.assert_close(found(kernel), torch.tensor([0.5, 0.2], dtype=torch.float64))


@pytest.mark.parametrize(
    "kernel", [LinearKernel(), PeriodicKernel(), RBFKernel(active_dims=[0])], ids=str
)
def test_other_kernels_have_regions_with_equal_sides(kernel):
    assert found(kernel).tolist() == [1.0, 1.0]
