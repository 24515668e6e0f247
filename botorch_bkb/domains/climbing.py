r"""Where a search over the unit cube begins, and how it climbs from there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.optim.batched_lbfgs_b import fmin_l_bfgs_b_batched
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bkb.belief import chunks
from botorch_bkb.threads import one_thread

#: Candidates that are evaluated at a time.
CHUNK = 2048
#: How much more often a candidate that is one standard deviation better becomes a start, in logs.
EAGERNESS = 2.0
#: Number of coordinates in which a point near an incumbent differs from it, on average, at most.
MOST_MOVED = 20
#: Largest and smallest standard deviation of these differences.
WIDEST, NARROWEST = 0.2, 1e-3
#: Relative improvement of the acquisition function in a step at which climbing ends.
TOLERANCE = 1e-7


@runtime_checkable
class HasGradient(Protocol):
    r"""An acquisition function with an analytic gradient."""

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return values and gradients at ``q x d`` points."""


@lru_cache(maxsize=8)
def sobol_points(n: int, d: int) -> Tensor:
    r"""Return the first ``n`` points of a scrambled Sobol sequence, always the same ones."""
    return SobolEngine(d, scramble=True, seed=0).draw(n, dtype=torch.float64)


def candidates(
    n: int, cube: Tensor, incumbents: Tensor, n_near: int, generator: torch.Generator
) -> Tensor:
    r"""Return points of a cube: some that fill it, and some near incumbents.

    The former are a Sobol sequence that is shifted at random, modulo one. The latter differ from an
    incumbent in a random subset of the coordinates, at a random scale.

    Args:
        n: The number of points that fill the cube.
        cube: ``2 x d`` corners.
        incumbents: ``k x d`` incumbents.
        n_near: The number of points near each incumbent.
        generator: The source of randomness.
    """
    d, shape = cube.shape[-1], (len(incumbents), n_near)
    like: dict[str, Any] = {
        "generator": generator, "dtype": torch.float64, "device": generator.device
    }  # fmt: skip
    X = (sobol_points(n, d) + torch.rand(d, **like)).remainder(1).to(cube)
    spread = NARROWEST * (WIDEST / NARROWEST) ** torch.rand(*shape, 1, **like)
    moves = spread * torch.randn(*shape, d, **like)
    if d > MOST_MOVED:
        order = torch.rand(*shape, d, **like)
        order[order == order.amin(-1, keepdim=True)] = 0  # at least one coordinate moves
        moves *= order * d < MOST_MOVED
    near = incumbents.unsqueeze(1) + moves.to(cube)
    return torch.cat([cube[0] + X * (cube[1] - cube[0]), near.flatten(end_dim=1)]).clamp(*cube)


@torch.no_grad()
def evaluated(acquisition: AcquisitionFunction, X: Tensor) -> Tensor:
    r"""Return the values of an acquisition function at ``n x d`` points."""
    return torch.cat([acquisition(X[rows].unsqueeze(-2)) for rows in chunks(len(X), CHUNK)])


def starting_points(X: Tensor, values: Tensor, n: int, generator: torch.Generator) -> Tensor:
    r"""Return the best of some candidates and others drawn by their values, ``n x d``.

    Args:
        X: Candidates.
        values: Their values.
        n: The number of starting points.
        generator: The source of randomness.
    """
    values = values.to(generator.device).nan_to_num(nan=-1e300)
    z = (values - values.mean()) / values.std().clamp_min(1e-12)
    best = int(values.argmax())
    weights = (EAGERNESS * (z - z[best])).exp().nan_to_num(0.0) + 1e-12
    weights[best] = 0
    chosen = torch.tensor([best], device=values.device)
    if (others := min(n, len(X)) - 1) > 0:
        drawn = weights.multinomial(others, generator=generator)
        chosen = torch.cat([chosen, drawn])
    return X[chosen.to(X.device)]


@torch.no_grad()
def climb(
    acquisition: HasGradient, starts: Tensor, cube: Tensor, options: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    r"""Climb from all starting points together, by BoTorch's batched L-BFGS-B.

    Args:
        acquisition: An acquisition function with an analytic gradient.
        starts: ``n x d`` points.
        cube: ``2 x d`` corners. Coordinates may be fixed by equal corners.
        options: Options of L-BFGS-B.

    Returns:
        ``n x d`` points and their values.
    """

    def loss(x: Any, batch_indices: Any = None) -> tuple[Any, Any]:
        value, gradient = acquisition.value_and_gradient(torch.from_numpy(x).to(starts))
        return -value.double().cpu().numpy(), -gradient.double().cpu().numpy()

    with one_thread():
        X, losses, _ = fmin_l_bfgs_b_batched(
            loss,
            starts.double().cpu().numpy(),
            bounds=cube.double().T.tolist(),
            **{"factr": None, "ftol": TOLERANCE, **options},
        )
    return torch.from_numpy(X).to(starts).clamp(*cube), torch.from_numpy(-losses)
