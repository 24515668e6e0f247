r"""Differential evolution and steps to neighbours, for coordinates that have no gradients.

Acquisition functions of marginals are evaluated at a hundred points in hardly more time than at
one, so that a generation costs less than a gradient does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

#: Generations, and children of each member in each.
GENERATIONS, CHILDREN = 8, 12
#: How likely a child differs from its parent in a coordinate.
CROSSOVER = 0.5
#: Standard deviation of what is added to differences, lest a population of equals stands still.
JITTER = 0.05
#: Steps to neighbours: where values differ by rounding, there might be no end of them.
STEPS = 20


@torch.no_grad()
def evolve(
    acquisition: AcquisitionFunction, X: Tensor, size: int, snapped: Callable[[Tensor], Tensor]
) -> Tensor:
    r"""The best point found, ``1 x d``.

    Children go towards the best member and along the difference of two others. The best of a
    member's children replaces it if it is better, and never another member: a crowd around one
    maximum would miss the rest.

    Args:
        acquisition: Over the unit cube.
        X: ``n x d`` points of the unit cube that are allowed.
        size: How many of them, the best, are members of the population.
        snapped: Takes points to the nearest ones that are allowed.
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
def climb(
    acquisition: AcquisitionFunction, X: Tensor, neighbours: Callable[[Tensor], Tensor]
) -> Tensor:
    r"""From one point to the best of its neighbours, as long as that is better.

    Args:
        acquisition: Over the unit cube.
        X: ``1 x d``.
        neighbours: Those of a ``1 x d`` point, ``k x d``.
    """
    for _ in range(STEPS):
        family = torch.cat([X, neighbours(X)])
        place = int(acquisition(family.unsqueeze(-2)).argmax())
        if place == 0:
            break
        X = family[place].unsqueeze(0)
    return X
