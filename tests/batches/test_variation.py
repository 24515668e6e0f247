from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import PeriodicKernel, RBFKernel

from botorch_bkb.batches.variation import Variation
from botorch_bkb.domains import PartitionTree, Tree, kernel_metric
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.state.components import ModelState
from botorch_bkb.units import RewardUnits, UnitCube

BOX = torch.tensor([[-1.0, 2.0], [1.0, 3.5]], dtype=torch.float64)


def rbf(*lengthscales):
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor(lengthscales, dtype=torch.float64)
    return kernel


def variation(kernel, scale=None, **options):
    model = ModelState(Hyperparameters(kernel, 0.1, RewardUnits()), scale, 1, None)
    return Variation(Tree(BOX, **options), model)


@pytest.mark.parametrize("scales", [(0.4, 0.4), (0.2, 50.0), (50.0, 0.2)])
@pytest.mark.parametrize("N", [2, 3])
def test_children_are_the_slices_along_the_longest_side(scales, N):
    kernel = rbf(*scales)
    ours, metric = variation(kernel, num_children=N), kernel_metric(kernel)
    tree = PartitionTree.over(BOX).split(0, 0, N)
    lower, upper, radii, new = ours.children(tree, tree.leaves)
    for i, cell in enumerate(tree.leaves.tolist()):
        split = tree.split(cell, tree.longest_side(cell, metric), N)
        ids = torch.arange(len(tree), len(split))
        assert torch.equal(split.lower[ids], lower[i]) and torch.equal(split.upper[ids], upper[i])
        torch.testing.assert_close(radii[i], split.radii(ids, metric))
        mine = slice(i * N, (i + 1) * N)
        assert torch.equal(new.depth[mine], split.depth[ids])
        assert new.parent[mine].tolist() == [cell] * N


def test_a_kernel_sees_scaled_inputs_and_the_papers_radius_is_in_its_units():
    cube, kernel = UnitCube(BOX), rbf(0.5, 0.5)
    root, ids = PartitionTree.over(BOX), torch.tensor([0])
    half = torch.tensor([[0.5, 0.5], [1.0, 1.0]], dtype=torch.float64)
    far = kernel_metric(kernel)(half[:1], half[1:])
    torch.testing.assert_close(variation(kernel, cube).radii(root, ids), far)
    pair = variation(kernel, cube, radius=(0.3, 0.5)).radii(root, ids)
    side = torch.tensor([[0.0, 0.0], [0.3, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(pair, kernel_metric(kernel)(side[:1], side[1:]))


def test_radii_are_in_double_precision():
    def radius(tree, ids, metric):
        return torch.ones(len(ids), dtype=torch.float32)

    radii = variation(rbf(1.0, 1.0), radius=radius).radii(
        PartitionTree.over(BOX), torch.tensor([0])
    )
    assert radii.dtype == torch.float64


def test_kernels_whose_corners_are_not_farthest_are_refused():
    periodic = PeriodicKernel().double()
    periodic.period_length, periodic.lengthscale = 0.5, 1.0
    with pytest.raises(InputDataError, match="fall with the distance in each coordinate"):
        variation(periodic).check_corners()
    variation(rbf(0.1, 9.0)).check_corners()
