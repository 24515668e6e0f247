r"""Partition trees: leaves tile the box, whatever is split."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.domains import PartitionTree, kernel_metric
from botorch_bkb.rows import GrowingRows


def euclidean(a, b):
    return (a - b).norm(dim=-1)


def box(lower, upper, dtype=torch.float64):
    return torch.tensor([lower, upper], dtype=dtype)


@st.composite
def boxes(draw):
    r"""One to six dimensions, sides from tiny to huge, anywhere."""
    d = draw(st.sampled_from([1, 2, 3, 6]))
    lower = draw(st.lists(st.floats(-10, 10), min_size=d, max_size=d))
    sides = draw(st.lists(st.floats(0.1, 10), min_size=d, max_size=d))
    scale = draw(st.sampled_from([1e-12, 1e-3, 1.0, 1e6, 1e150]))
    return box([scale * a for a in lower], [scale * (a + s) for a, s in zip(lower, sides)])  # noqa: B905


@st.composite
def trees(draw):
    r"""A tree after up to twelve splits of random leaves along random sides."""
    tree, N = PartitionTree.over(draw(boxes())), draw(st.integers(2, 5))
    for _ in range(draw(st.integers(1, 12))):
        leaves = tree.leaves.tolist()
        cell = leaves[draw(st.integers(0, len(leaves) - 1))]
        tree = tree.split(cell, draw(st.integers(0, tree.lower.shape[-1] - 1)), N)
    return tree, N


def volumes(tree, ids):
    r"""Exactly, in fractions: floating point would hide what it does to the cuts."""
    out = []
    for low, high in zip(tree.lower[ids].tolist(), tree.upper[ids].tolist(), strict=True):
        sides = zip(low, high, strict=True)
        out.append(math.prod(Fraction(b) - Fraction(a) for a, b in sides))
    return out


@given(trees())
def test_children_tile_their_parent(case):
    tree, N = case
    for cell in torch.nonzero(~tree.is_leaf).squeeze(-1).tolist():
        children = torch.nonzero(tree.parent == cell).squeeze(-1)
        children = children[children != cell]
        assert len(children) == N
        assert sum(volumes(tree, children)) == volumes(tree, [cell])[0]
        assert torch.equal(tree.lower[children].amin(0), tree.lower[cell])
        assert torch.equal(tree.upper[children].amax(0), tree.upper[cell])
        differs = (tree.lower[children] != tree.lower[cell]).any(0)
        differs |= (tree.upper[children] != tree.upper[cell]).any(0)
        assert int(differs.sum()) == 1  # one side is cut
        axis = int(differs.long().argmax())
        assert torch.equal(tree.upper[children[:-1], axis], tree.lower[children[1:], axis])


@given(trees())
def test_leaves_tile_the_box_without_overlap(case):
    tree, _ = case
    leaves = tree.leaves
    assert sum(volumes(tree, leaves)) == volumes(tree, [0])[0]
    assert (tree.lower < tree.upper).all()
    for a, b in itertools.combinations(leaves.tolist(), 2):
        low = torch.maximum(tree.lower[a], tree.lower[b])
        assert not (low < torch.minimum(tree.upper[a], tree.upper[b])).all()
    X = tree.centres(leaves)
    inside = (tree.lower[leaves] < X.unsqueeze(1)) & (X.unsqueeze(1) < tree.upper[leaves])
    assert torch.equal(inside.all(-1), torch.eye(len(leaves), dtype=torch.bool))


@given(trees())
def test_ids_parents_and_depths(case):
    tree, N = case
    n = len(tree)
    splits = int((~tree.is_leaf).sum())
    assert n == 1 + N * splits and len(tree.leaves) == n - splits
    assert tree.parent[0] == 0 and tree.depth[0] == 0
    assert (tree.parent[1:] < torch.arange(1, n)).all()
    assert not tree.is_leaf[tree.parent[1:]].any()
    assert torch.equal(tree.depth[1:], tree.depth[tree.parent[1:]] + 1)
    assert len(torch.cat([tree.lower, tree.upper], -1).unique(dim=0)) == n
    assert {t.shape[0] for t in tree.to_dict().values()} == {n}
    assert (tree.lower >= tree.lower[tree.parent]).all()
    assert (tree.upper <= tree.upper[tree.parent]).all()


@given(trees())
def test_leaves_split_together_are_those_split_one_by_one(case):
    tree, N = case
    leaves, growing, one_by_one = tree.leaves, GrowingRows(), tree
    axes = tree.longest_sides(leaves, euclidean)
    corners = tree.slices(leaves, axes, N)
    for i, cell in enumerate(leaves.tolist()):
        axis = one_by_one.longest_side(cell, euclidean)
        assert axis == axes[i]
        before, here = one_by_one, slice(i, i + 1)
        one_by_one = before.with_children(leaves[here], *(c[here] for c in corners), growing)
        assert torch.equal(one_by_one.upper, before.split(cell, axis, N).upper)
        assert len(before) == len(one_by_one) - N and before.is_leaf[cell]
    together = tree.with_children(leaves, *corners)
    for name, values in one_by_one.to_dict().items():
        assert torch.equal(values, getattr(together, name))


@given(trees(), st.integers(1, 6), st.integers(0, 10**6))
def test_cells_split_with_their_own_children_are_those_split_one_by_one(case, splits, seed):
    tree, N = case
    one_by_one, ids, corners = tree, [], []
    for i in range(splits):
        leaves = one_by_one.leaves
        cell = leaves[(seed + i) % len(leaves)].unsqueeze(0)
        axis = one_by_one.longest_sides(cell, euclidean)
        corners.append(one_by_one.slices(cell, axis, N))
        one_by_one = one_by_one.with_children(cell, *corners[-1])
        ids.append(cell)
    lower, upper = (torch.cat(parts) for parts in zip(*corners, strict=True))
    together = tree.with_children(torch.cat(ids), lower, upper, GrowingRows())
    for name, values in one_by_one.to_dict().items():
        assert torch.equal(values, getattr(together, name))


@given(trees())
def test_leaves_kept_and_pruned_tile_the_box(case):
    tree, _ = case
    leaves = tree.leaves
    some = tree.pruned_to(leaves[::2])
    assert torch.equal(some.leaves, leaves[::2]) and torch.equal(some.pruned, leaves[1::2])
    assert torch.equal(some.is_leaf, tree.is_leaf) and not tree.is_pruned.any()
    # Which leaves are kept does not depend on which were pruned before.
    assert torch.equal(some.pruned_to(leaves[1:]).pruned, leaves[:1])
    assert torch.equal(some.restored().leaves, leaves)


@pytest.mark.parametrize("ids", [[0], [2], [4], [1, 7], [1, 3, 7]])
def test_what_is_no_leaf_cannot_be_split(ids):
    tree = PartitionTree.over(box([0.0], [1.0])).split(0, 0, 3)
    tree = tree.pruned_to(torch.tensor([1, 3]))
    cells = torch.tensor(ids)
    if ids == [1, 3, 7]:  # the first child of 3, which is split before it
        assert len(tree.with_children(cells, *(torch.zeros(3, 3, 1) for _ in range(2)))) == 13
        return
    with pytest.raises(InputDataError, match="Only leaves can be split"):
        tree.with_children(cells, *(torch.zeros(len(ids), 3, 1) for _ in range(2)))


@given(boxes(), st.integers(2, 9), st.integers(0, 5))
def test_slices_are_equal(bounds, N, axis):
    axis %= bounds.shape[-1]
    tree = PartitionTree.over(bounds).split(0, axis, N)
    sides = (tree.upper - tree.lower)[1:, axis]
    slack = 1e-14 * float(bounds.abs().max())
    assert float(sides.max() - sides.min()) <= slack
    if N % 2:
        middle = tree.centres(torch.tensor([1 + N // 2]))
        torch.testing.assert_close(middle, tree.centres(torch.tensor([0])), atol=slack, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("N", [2, 3])
def test_a_cell_split_again_and_again(dtype, N):
    tree, cell = PartitionTree.over(box([-0.7], [1.9], dtype)), 0
    for _ in range(12):
        tree = tree.split(cell, 0, N)
        cell = len(tree) - 1 - N // 2
    assert sum(volumes(tree, tree.leaves)) == volumes(tree, [0])[0]
    assert tree.lower.dtype == tree.upper.dtype == dtype
    assert int(tree.depth.max()) == 12


def test_cells_narrower_than_rounding_still_tile():
    tree, cell = PartitionTree.over(box([1e8], [1e8 + 16], torch.float32)), 0
    for _ in range(4):
        tree = tree.split(cell, 0, 3)
        cell = len(tree) - 1
    assert (tree.lower <= tree.upper).all()
    assert sum(volumes(tree, tree.leaves)) == 16


def test_splitting_makes_a_new_tree():
    tree = PartitionTree.over(box([0.0, 0.0], [1.0, 1.0]))
    before = {name: value.clone() for name, value in tree.to_dict().items()}
    tree.split(0, 1, 3).split(2, 0, 3)
    for name, value in tree.to_dict().items():
        assert torch.equal(value, before[name])


def test_only_leaves_are_split():
    tree = PartitionTree.over(box([0.0], [1.0])).split(0, 0, 2)
    with pytest.raises(InputDataError, match="leaves"):
        tree.split(0, 0, 2)
    with pytest.raises(IndexError):
        tree.split(3, 0, 2)
    assert len(tree.split(1, 0, 2)) == 5


class TestSides:
    def test_the_longest_in_inputs(self):
        tree = PartitionTree.over(box([0.0, -3.0, 1.0], [1.0, -1.0, 2.5]))
        assert tree.longest_side(0, euclidean) == 1
        assert tree.split(0, 1, 3).longest_side(2, euclidean) == 2

    @pytest.mark.parametrize("base", [RBFKernel, MaternKernel])
    @pytest.mark.parametrize(
        ("scales", "axis"), [((1.0, 9.0), 0), ((1.0, 0.1), 1), ((5.0, 4.0), 1)]
    )
    def test_the_longest_for_a_kernel_with_lengthscales(self, base, scales, axis):
        kernel = ScaleKernel(base(ard_num_dims=2)).double()
        kernel.base_kernel.lengthscale = torch.tensor(scales, dtype=torch.float64)
        kernel.outputscale = 7.0
        tree = PartitionTree.over(box([-1.0, -1.0], [1.0, 1.0]))
        assert tree.longest_side(0, kernel_metric(kernel)) == axis

    @given(st.lists(st.floats(0.05, 20), min_size=6, max_size=6), st.integers(0, 1000))
    def test_splitting_the_longest_evens_the_sides_out(self, scales, seed):
        kernel = RBFKernel(ard_num_dims=6).double()
        kernel.lengthscale = torch.tensor(scales, dtype=torch.float64)
        corner = torch.rand(6, generator=torch.Generator().manual_seed(seed)).double()
        tree, cell = PartitionTree.over(torch.stack([corner - 1, corner])), 0
        metric = kernel_metric(kernel)
        for _ in range(8):
            lengths = (tree.upper[cell] - tree.lower[cell]) / kernel.lengthscale.squeeze().detach()
            axis = tree.longest_side(cell, metric)
            # Sides many lengthscales long are as long as each other.
            assert float(lengths[axis]) >= min(float(lengths.max()) * (1 - 1e-6), 5.0)
            tree = tree.split(cell, axis, 3)
            cell = len(tree) - 2


class TestRadii:
    @given(trees())
    def test_no_corner_is_farther(self, case):
        tree, _ = case
        scale = float((tree.upper[0] - tree.lower[0]).max())
        kernel = RBFKernel().double()
        kernel.lengthscale = 0.7 * scale
        metric, ids = kernel_metric(kernel), tree.leaves
        radii = tree.radii(ids, metric)
        d = tree.lower.shape[-1]
        patterns = [(0,) * d, (1,) * d, (0, 1, 0, 1, 0, 1)[:d], (1, 1, 0, 0, 0, 1)[:d]]
        for pattern in patterns:
            where = torch.tensor(pattern, dtype=torch.bool)
            corner = torch.where(where, tree.upper[ids], tree.lower[ids])
            torch.testing.assert_close(metric(tree.centres(ids), corner), radii, atol=1e-6, rtol=0)

    def test_a_function_varies_by_no_more_than_its_norm_times_the_radius(self):
        generator = torch.Generator().manual_seed(0)
        kernel = RBFKernel().double()
        tree = PartitionTree.over(box([-2.0, 0.0], [2.0, 1.0])).split(0, 0, 3).split(2, 0, 4)
        radii = tree.radii(torch.arange(len(tree)), kernel_metric(kernel))
        for _ in range(50):
            Z = 4 * torch.rand(5, 2, generator=generator, dtype=torch.float64) - 2
            w = torch.randn(5, generator=generator, dtype=torch.float64)
            norm = (w @ kernel(Z).to_dense() @ w).sqrt().detach()
            for cell in range(len(tree)):
                u = torch.rand(40, 2, generator=generator, dtype=torch.float64)
                X = tree.lower[cell] + u * (tree.upper[cell] - tree.lower[cell])
                X = torch.cat([tree.centres(torch.tensor([cell])), X])
                f = (kernel(X, Z).to_dense() @ w).detach()
                assert float((f - f[0]).abs().max()) <= float(norm * radii[cell]) + 1e-12

    def test_the_metric(self):
        kernel = ScaleKernel(MaternKernel(nu=0.5)).double()
        kernel.outputscale = 3.0
        a, b = torch.rand(2, 7, 2, dtype=torch.float64)
        K = kernel(torch.cat([a, b])).to_dense()
        i = torch.arange(7)
        expected = (K[i, i] + K[i + 7, i + 7] - 2 * K[i, i + 7]).sqrt()
        torch.testing.assert_close(kernel_metric(kernel)(a, b), expected)
        assert float(kernel_metric(kernel)(a, a).max()) == 0.0
