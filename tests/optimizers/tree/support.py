r"""Problems shared by the tests of Ada-BKB."""

from __future__ import annotations

import io

import torch

from botorch_bkb import AdaBBKB, AdaBKB
from botorch_bkb.optimizers.tables import build_table
from tests.optimizers.inside import inputs_of, state_of
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


def in_batches(algorithm, threshold=2.0, size=10_000):
    r"""Arguments for the batches of AdaBBKB; AdaBKB has none."""
    if algorithm is AdaBKB:
        return {}
    return {"batch_threshold": threshold, "max_batch_size": size}


def consistent(optimizer):
    r"""Cells and their rows belong to each other, and the table to the state."""
    state, tree = state_of(optimizer), optimizer.tree
    if state.tree is not None:
        assert len(state.tree.rows) == len(tree)
        X = inputs_of(optimizer, state.tree.rows)
        size = float(optimizer.domain.bounds.abs().max())
        eps = 1e-6 if X.dtype == torch.float64 else 1e-4
        torch.testing.assert_close(X, tree.centres(), atol=eps * size, rtol=0)
    rows = len(optimizer.domain.index.X) + len(state.observations.added)
    rebuilt = build_table(optimizer.domain, state)
    assert len(optimizer.table.X) == rows and torch.equal(optimizer.table.X, rebuilt.X)
