r"""Differential evolution and local search, for coordinates without gradients.

Evaluating an acquisition function of marginals at a hundred points takes hardly more time than at
one point. So a generation costs less than a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

#: Number of generations, and of children per member in each generation.
GENERATIONS, CHILDREN = 8, 12
#: Probability that a child differs from its parent in a coordinate.
CROSSOVER = 0.5
#: Standard deviation of the noise added to steps, so that a population of equal members moves.
JITTER = 0.05
#: Largest number of steps to neighbours. Rounding errors in values might otherwise cause a cycle.
STEPS = 20


@torch.no_grad()
def evolve(
    acquisition: AcquisitionFunction, X: Tensor, size: int, snapped: Callable[[Tensor], Tensor]
) -> Tensor:
    r"""Return the best point that differential evolution finds, ``1 x d``.

    Children move towards the best member and along the difference of two others. A member is
    replaced by its best child if that is better, and never by the child of another member.
    Otherwise the population would gather around one maximum and miss the rest.

    Args:
        acquisition: An acquisition function over the unit cube.
        X: ``n x d`` allowed points of the unit cube.
        size: The size of the population, which starts with the best rows of ``X``.
        snapped: A function that moves points to the nearest allowed ones.
    """
    X = X[acquisition(X.unsqueeze(-2)).topk(min(size, len(X))).indices]
    best, (n, d) = X[0], X.shape
    like: dict[str, Any] = {"dtype": X.dtype, "device": X.device}
    for _ in range(GENERATIONS):
        one, other = torch.randint(n, (2, n, CHILDREN), device=X.device)
        steps = torch.rand(n, CHILDREN, 1, **like) * (X[one] - X[other])
        steps += torch.rand(n, CHILDREN, 1, **like) * (best - X).unsqueeze(1)
        steps += JITTER * torch.randn(n, CHILDREN, d, **like)
        steps *= torch.rand(n, CHILDREN, d, **like) < CROSSOVER
        family = torch.cat([X.unsqueeze(1), snapped(X.unsqueeze(1) + steps)], 1)
        values = acquisition(family.flatten(end_dim=1).unsqueeze(-2)).view(n, -1)
        value, place = values.max(1)
        X = family[torch.arange(n, device=X.device), place]
        best = X[value.argmax()]
    return best.unsqueeze(0)


@torch.no_grad()
def climb_steps(
    acquisition: AcquisitionFunction, X: Tensor, neighbours: Callable[[Tensor], Tensor]
) -> Tensor:
    r"""Move from a point to its best neighbour as long as that is better.

    Args:
        acquisition: An acquisition function over the unit cube.
        X: The ``1 x d`` starting point.
        neighbours: A function that returns the ``k x d`` neighbours of a ``1 x d`` point.
    """
    for _ in range(STEPS):
        family = torch.cat([X, neighbours(X)])
        place = int(acquisition(family.unsqueeze(-2)).argmax())
        if place == 0:
            break
        X = family[place].unsqueeze(0)
    return X
