r"""What batches are picked from, taken from real optimizers."""

from __future__ import annotations

from dataclasses import replace

import torch
from gpytorch.kernels import ScaleKernel

from botorch_bkb.acquisition import as_acquisition
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import BatchContext, BeliefModels
from botorch_bkb.domains import Arms, Box
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import Optimizer
from botorch_bkb.optimizers.tables import build_table
from tests.arms.support import NOISE, kernel
from tests.optimizers.inside import state_of

#: Options of BoTorch's optimizer that make searches of a box fast.
FAST = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 20}}
BOUNDS = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64)


def apart(n=6) -> ArmTable:
    r"""Arms that know nothing of each other; all have a score of ``1 / NOISE = 5``."""
    X = 100 * torch.arange(n, dtype=torch.float64).unsqueeze(-1)
    return ArmTable(X, kernel(), NOISE, torch.tensor([0]))


def told(optimizer: Optimizer, n=8, scale=1.0) -> Optimizer:
    r"""Tell an optimizer over arms ``n`` results."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randperm(len(optimizer.arms), generator=generator)[:n]
    rewards = torch.randn(n, generator=generator, dtype=torch.float64)
    optimizer.tell(rows, 3 * (scale - 1) + scale * rewards)
    return optimizer


def over_arms(n=40, results=8, *, scale=1.0, amplitude=1.0, **parts) -> Optimizer:
    r"""An optimizer over arms in a square, after some results.

    Args:
        n: The number of arms.
        results: The number of results.
        scale: The spread of the rewards. Unless it is one they are standardised.
        amplitude: The prior standard deviation, in the model's units.
        parts: Parts of the optimizer.
    """
    generator = torch.Generator().manual_seed(0)
    X = 2 * torch.rand(n, 2, generator=generator, dtype=torch.float64)
    covar = ScaleKernel(kernel()).double()
    covar.outputscale = amplitude**2
    noise = NOISE if scale == 1 else None
    model = Surrogate(covar, noise, refit=False)
    optimizer = Optimizer(Arms(X), model=model, seed=0, **parts)
    return told(optimizer, results, scale) if results else optimizer


def context_of(optimizer: Optimizer, *, width=2.0, seed=0, **changes) -> BatchContext:
    r"""What the next batch of an optimizer is picked from; nothing is shared with it.

    Args:
        optimizer: The optimizer.
        width: The width of the bounds.
        seed: The seed of the batch.
        changes: Fields of the batch's record (stragglers, given_up, ...) and ``acquisition``,
            ``dictionary`` or ``rule``.
    """
    parts, state = optimizer.parts, state_of(optimizer)
    rules = {
        "acquisition": as_acquisition(changes.pop("acquisition", parts.acquisition)),
        "dictionary": changes.pop("dictionary", parts.dictionary),
        "rule": changes.pop("rule", parts.batch),
    }
    in_flight = state.in_flight.begun(width, seed, state.num_cells)
    record = in_flight.batch._replace(**changes)
    state = replace(state, in_flight=replace(in_flight, batch=record))
    table, models = build_table(parts.domain, state), BeliefModels(parts.domain.index.X)
    return BatchContext(state, table, models, **rules)


def whole(batch):
    r"""Pick until the batch is complete."""
    while not batch.complete:
        batch.pick()
    return batch


#: The points of the unit square among which :class:`Grid` searches.
UNIT = torch.cartesian_prod(*[torch.linspace(0, 1, 9, dtype=torch.float64)] * 2)


class Grid(Box):
    r"""A box that is searched by the best point of a grid."""

    def maximise(self, acquisition, starts, seed):
        return UNIT[acquisition(UNIT.unsqueeze(-2)).argmax()].unsqueeze(0)


def over_box(kind=Grid, *, scale=1.0, results=True, **parts) -> Optimizer:
    r"""An optimizer over a box, after its initial design of six points.

    Args:
        kind: Box, or a class that derives from it.
        scale: The spread of the rewards. Unless it is one they are standardised.
        results: Whether the results of the design are told.
        parts: Parts of the optimizer.
    """
    noise = NOISE if scale == 1 else None
    model = Surrogate(kernel(), noise, refit=False)
    domain = kind(BOUNDS, num_initial=6, acquisition_options=FAST)
    optimizer = Optimizer(domain, model=model, seed=0, **{"acquisition": "ucb", **parts})
    if results:
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, 30 * (scale - 1) - scale * suggestion.X.square().sum(-1))
    return optimizer
