r"""TuRBO-1: Thompson sampling in a trust region (Eriksson et al., NeurIPS 2019), one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from torch.quasirandom import SobolEngine

#: Side of the region at first, at least and at most, in sides of the box.
FIRST, LEAST, MOST = 0.8, 0.5**7, 1.6
#: Successes in a row after which the region doubles. The paper has 3, BoTorch's tutorial 10.
SUCCESSES = 10
#: Part of the best value by which a success must improve on it, as in the tutorial.
IMPROVEMENT = 1e-3


@dataclass
class Region:
    r"""The side length of a trust region, which successes and failures change.

    It has failed for good once its side is below ``LEAST``.

    Args:
        dim: Number of dimensions; as many failures in a row, at least four, halve the region.
    """

    dim: int
    length: float = FIRST
    successes: int = 0
    failures: int = 0

    @property
    def failed(self) -> bool:
        r"""Whether the region has become too small to go on."""
        return self.length < LEAST

    def update(self, success: bool) -> None:
        r"""Count one result."""
        self.successes = self.successes + 1 if success else 0
        self.failures = 0 if success else self.failures + 1
        if self.successes == SUCCESSES:
            self.length, self.successes = min(2 * self.length, MOST), 0
        elif self.failures == max(4, self.dim):
            self.length, self.failures = self.length / 2, 0

    def bounds(self, centre: Tensor, model: SingleTaskGP) -> Tensor:
        r"""Return the box about a centre, longer where length-scales are, of the same volume."""
        scales = model.covar_module.base_kernel.lengthscale.detach().flatten()
        weights = scales / scales.log().mean().exp()
        half = weights * self.length / 2
        return torch.stack([centre - half, centre + half]).clamp(0, 1)


def fitted(X: Tensor, Y: Tensor) -> SingleTaskGP:
    r"""Fit a model with a Matern kernel of smoothness 5/2, as in the paper."""
    constraint = Interval(0.005, 4.0)
    kernel = MaternKernel(2.5, ard_num_dims=X.shape[-1], lengthscale_constraint=constraint)
    model = SingleTaskGP(X, Y.unsqueeze(-1), covar_module=ScaleKernel(kernel))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def candidates(box: Tensor, centre: Tensor, seed: int) -> Tensor:
    r"""Return Sobol points of a box, each with only some coordinates off the centre's.

    A coordinate is perturbed with probability ``min(1, 20 / d)``, and at least one is.
    """
    d = len(centre)
    n = min(100 * d, 5_000)
    generator = torch.Generator().manual_seed(seed)
    points = SobolEngine(d, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    points = box[0] + points * (box[1] - box[0])
    moved = torch.rand(n, d, generator=generator) < min(1.0, 20 / d)
    moved[torch.arange(n), torch.randint(d, (n,), generator=generator)] = True
    return torch.where(moved, points, centre)


class TuRBO:
    r"""One trust region, which is begun anew with a design of its own when it has failed.

    Inputs are in the unit cube. With noise the centre is the point with the highest posterior mean.

    Args:
        design: Function from a seed to the inputs of a first or new design, ``n x d``.
        seed: Seed of the candidates and of the designs after the first.
    """

    def __init__(self, design: Callable[[int], Tensor], seed: int) -> None:
        self._design, self._seed, self._asked = design, seed, 0
        self._begin(design(seed))

    def _begin(self, design: Tensor) -> None:
        self._waiting = design
        self._region = Region(design.shape[-1])
        self._X, self._Y = design[:0], design.new_empty(0)

    def ask(self) -> Tensor:
        r"""Return the inputs to evaluate next, a design or one point."""
        if self._region.failed:
            self._begin(self._design(self._seed + 1_000 * (self._asked + 1)))
        if len(self._waiting):
            return self._waiting
        self._asked += 1
        model = fitted(self._X, self._Y)
        with torch.no_grad():
            centre = self._X[model.posterior(self._X).mean.argmax()]
            box = self._region.bounds(centre, model)
            points = candidates(box, centre, self._seed + 1_000 * self._asked)
            return MaxPosteriorSampling(model, replacement=False)(points, num_samples=1)

    def tell(self, X: Tensor, Y: Tensor) -> None:
        r"""Add the results of what was asked last."""
        if len(self._waiting):
            self._waiting = self._waiting[len(X) :]
        else:
            best = float(self._Y.max())
            self._region.update(float(Y.max()) > best + IMPROVEMENT * math.fabs(best))
        self._X, self._Y = torch.cat([self._X, X]), torch.cat([self._Y, Y])
