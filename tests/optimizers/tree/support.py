r"""Problems shared by the tests of Ada-BKB."""

from __future__ import annotations

import io

import torch

from botorch_bkb import AdaBBKB, AdaBKB
from tests.optimizers.support import kernel

BOTH = [AdaBKB, AdaBBKB]
NOISE = 0.05
UNIT = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
BOX = torch.tensor([[-1.0, 2.0], [1.0, 3.5]], dtype=torch.float64)


def f(X):
    r"""Best at 0.3 in each coordinate of the unit cube."""
    return -(X - 0.3).square().sum(-1)


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(bounds, n, seed=0):
    return bounds[0] + rand(n, bounds.shape[-1], seed=seed) * (bounds[1] - bounds[0])


def given(lengthscale=0.4, noise=NOISE, **more):
    return {"covar_module": kernel(lengthscale), "noise_var": noise, "seed": 0, **more}


def sines(X):
    return torch.sin(4 * X).sum(-1) + 0.5 * torch.cos(9 * X).sum(-1)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def consistent(optimizer):
    r"""Cells and their rows belong to each other, and the table to the state."""
    state, tree = optimizer._state, optimizer.tree
    if state.cells is not None:
        assert len(state.cells) == len(tree)
        X = optimizer.tables.points(state, state.cells)
        size = float(optimizer.domain.bounds.abs().max())
        eps = 1e-6 if X.dtype == torch.float64 else 1e-4
        torch.testing.assert_close(X, tree.centres(), atol=eps * size, rtol=0)
    rows = len(optimizer.tables.arms) + len(state.added)
    assert len(optimizer._table().X) == rows == len(optimizer.tables.follow(state).X)
