from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import MaternKernel, RBFKernel
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import AdaBKB
from botorch_bkb.domains import PartitionTree, Tree, kernel_metric
from botorch_bkb.domains.tree import as_radius, geometric_radius, kernel_radius

BOX = torch.tensor([[-1.0, 2.0], [1.0, 3.5]], dtype=torch.float64)


def rbf(*lengthscales):
    kernel = RBFKernel(ard_num_dims=len(lengthscales)).double()
    kernel.lengthscale = torch.tensor(lengthscales, dtype=torch.float64)
    return kernel


def split_twice():
    r"""Seven cells of depths 0, 1 and 2."""
    return PartitionTree.over(BOX).split(0, 0, 3).split(2, 1, 3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_children": 1}, "at least 2"),
        ({"num_children": 0}, "num_children"),
        ({"num_children": -3}, "num_children"),
        ({"num_children": 2.5}, "num_children"),
        ({"num_children": True}, "num_children"),
        ({"num_children": None}, "at least 2"),
        ({"max_depth": 0}, "max_depth"),
        ({"max_depth": 1.5}, "max_depth"),
        ({"max_depth": math.inf}, "max_depth"),
        ({"radius": "matern"}, "radius must be"),
        ({"radius": None}, "radius must be"),
        ({"radius": 0.5}, "radius must be"),
        ({"radius": (1.0,)}, "radius must be"),
        ({"radius": (1.0, 0.5, 0.2)}, "radius must be"),
        ({"radius": [1.0, 0.5]}, "radius must be"),
        ({"radius": ("a", "b")}, "radius must be"),
        ({"radius": (0.0, 0.5)}, r"rho in \(0, 1\)"),
        ({"radius": (-1.0, 0.5)}, r"rho in \(0, 1\)"),
        ({"radius": (math.nan, 0.5)}, r"rho in \(0, 1\)"),
        ({"radius": (math.inf, 0.5)}, r"rho in \(0, 1\)"),
        ({"radius": (1.0, 0.0)}, r"rho in \(0, 1\)"),
        ({"radius": (1.0, 1.0)}, r"rho in \(0, 1\)"),
        ({"radius": (1.0, math.nan)}, r"rho in \(0, 1\)"),
    ],
)
def test_bad_arguments(options, match):
    with pytest.raises(InputDataError, match=match):
        Tree(BOX, **options)


@pytest.mark.parametrize(("d", "given", "expected"), [(1, None, 8), (6, None, 48), (6, 2, 2)])
def test_the_depth_from_which_cells_are_not_split(d, given, expected):
    bounds = torch.tensor([[0.0], [1.0]]).expand(2, d)
    assert Tree(bounds, max_depth=given).depth_limit == expected


def test_no_cell_is_deeper_than_the_limit():
    optimizer = AdaBKB(
        bounds=BOX, max_depth=2, norm_bound=1e6, width=1.0, covar_module=rbf(0.4, 0.4),
        noise_var=0.01, seed=0,
    )  # fmt: skip
    optimizer.ask()
    tree = optimizer.tree
    assert int(tree.depth.max()) == 2 and (tree.depth[tree.leaves] == 2).all()


class TestRadii:
    def test_names_pairs_and_functions(self):
        def mine(tree, ids, metric):
            return 0.0 * ids

        assert as_radius("kernel") == (kernel_radius, True)
        assert as_radius(mine) == (mine, True)
        radius, takes_user_inputs = as_radius((1, 0.5))
        assert callable(radius) and not takes_user_inputs

    @pytest.mark.parametrize("scales", [(0.4, 0.4), (0.3, 5.0)])
    def test_that_of_a_kernel_is_the_distance_to_a_corner(self, scales):
        tree, ids = split_twice(), torch.tensor([0, 1, 4, 6])
        radii = kernel_radius(tree, ids, kernel_metric(rbf(*scales)))
        for cell, radius in zip(ids.tolist(), radii.tolist(), strict=True):
            halves = [(b - a) / 2 for a, b in zip(tree.lower[cell], tree.upper[cell], strict=True)]
            square = sum(float(h / s) ** 2 for h, s in zip(halves, scales, strict=True))
            assert radius == pytest.approx(math.sqrt(2 - 2 * math.exp(-square / 2)))

    @given(st.floats(0.01, 10), st.floats(0.05, 0.95))
    def test_that_of_the_paper_falls_with_the_depth(self, v1, rho):
        tree = split_twice()
        kernel = MaternKernel(nu=0.5).double()
        kernel.lengthscale = torch.tensor(0.7, dtype=torch.float64)
        radius_of, metric = geometric_radius(v1, rho), kernel_metric(kernel)
        radii = radius_of(tree, torch.arange(len(tree)), metric)
        for depth, radius in zip(tree.depth.tolist(), radii.tolist(), strict=True):
            expected = math.sqrt(2 - 2 * math.exp(-v1 * rho**depth / 0.7))
            assert radius == pytest.approx(expected, abs=1e-7)
        some = torch.tensor([6, 0, 2, 6])
        assert torch.equal(
            geometric_radius(v1, rho)(tree, some, kernel_metric(kernel)), radii[some]
        )

    def test_that_of_the_paper_goes_along_the_shortest_lengthscale(self):
        radius = geometric_radius(0.5, 0.5)
        root = PartitionTree.over(BOX)
        (far,) = radius(root, torch.tensor([0]), kernel_metric(rbf(3.0, 0.4))).tolist()
        assert far == pytest.approx(math.sqrt(2 - 2 * math.exp(-0.5 * (0.5 / 0.4) ** 2)))

    @pytest.mark.parametrize("radius", ["kernel", (2.0, 0.6)])
    def test_children_have_no_larger_radius_than_their_parent(self, radius):
        tree, metric = split_twice(), kernel_metric(rbf(0.4, 0.9))
        radii = as_radius(radius)[0](tree, torch.arange(len(tree)), metric)
        assert (radii[1:] < radii[tree.parent[1:]]).all()

    def test_a_function_of_a_user_gets_inputs_as_the_user_knows_them(self):
        seen = []

        def radius(tree, ids, metric):
            seen.append((tree.lower[0].tolist(), float(metric(BOX[:1], BOX[1:]))))
            return torch.zeros(len(ids), dtype=torch.float64)

        optimizer = AdaBKB(bounds=BOX, radius=radius, refit=False, noise_var=0.1, seed=0)
        optimizer.ask()
        # BoTorch's default kernel sees the unit cube, whose corners are sqrt(2) apart.
        kernel = optimizer.parts.model.initial(BOX).kernel
        unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
        assert seen[0][0] == [-1.0, 2.0]
        assert seen[0][1] == pytest.approx(float(kernel_metric(kernel)(unit[:1], unit[1:])))

    @pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
    def test_a_function_of_a_user_that_is_no_radius_is_refused(self, value):
        def radius(tree, ids, metric):
            return torch.full(ids.shape, value, dtype=torch.float64)

        with pytest.raises(InputDataError, match="A radius must"):
            AdaBKB(bounds=BOX, radius=radius, seed=0).ask()


def test_the_gap_does_not_fall_below_the_variation_at_the_depth_limit():
    optimizer = AdaBKB(
        bounds=BOX, max_depth=3, norm_bound=1.0, width=2.0, covar_module=rbf(0.4, 0.4),
        noise_var=1e-4, seed=0,
    )  # fmt: skip
    for _ in range(60):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, torch.sin(4 * suggestion.X).sum(-1) / 4)
    tree = optimizer.tree
    radii = kernel_radius(tree, tree.leaves, kernel_metric(rbf(0.4, 0.4)))
    assert int(tree.depth.max()) == 3 and optimizer.gap() >= float(radii.min())
    # A cell at the limit is evaluated even though its uncertainty is smaller than the cell.
    var = optimizer.table.variance()
    assert 2 * float(var[optimizer.history.rows].min().sqrt()) < float(radii.min())
