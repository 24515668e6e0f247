r"""Acquisition functions by name, over a model or over the moments of a table of arms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from botorch.exceptions.errors import InputDataError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_bkb.batches import UpperBound


@dataclass(frozen=True)
class Standing:
    r"""What named acquisition functions depend on besides the model, in its outcome's units.

    Attributes:
        width: Width of confidence bounds in posterior standard deviations.
        incumbent: The best reward in the belief.
        best_mean: The highest posterior mean.
    """

    width: float
    incumbent: float
    best_mean: float


Named = Callable[[Model, Standing], AcquisitionFunction]
Factory = Callable[[Model], AcquisitionFunction]

#: ``"mpi"`` is what the compressed GP paper calls most probable improvement: expected improvement
#: over the highest posterior mean. ``"pi"`` is the probability of improving on the best reward.
NAMED: dict[str, Named] = {
    "ucb": lambda model, s: UpperConfidenceBound(model, beta=s.width**2),
    "ei": lambda model, s: LogExpectedImprovement(model, best_f=s.incumbent),
    "mpi": lambda model, s: LogExpectedImprovement(model, best_f=s.best_mean),
    "pi": lambda model, s: LogProbabilityOfImprovement(model, best_f=s.incumbent),
}
#: Acquisitions that are not functions of a point's mean and variance.
SAMPLED = ("thompson", "greedy")


def check_acquisition(acquisition: Any) -> None:
    r"""Raise unless it is a name or can be called."""
    known = (*NAMED, *SAMPLED)
    if acquisition not in known and (isinstance(acquisition, str) or not callable(acquisition)):
        raise InputDataError(
            f"acquisition must be one of {', '.join(known)}, or a function that makes a BoTorch "
            f"acquisition function of a model, got {acquisition!r}."
        )


class FixedMoments(Model):
    r"""A model that knows ``A`` points and no others, one in each batch.

    Args:
        mean: ``A`` posterior means.
        var: ``A`` posterior variances.
    """

    def __init__(self, mean: Tensor, var: Tensor) -> None:
        super().__init__()
        covar = DiagLinearOperator(var.unsqueeze(-1))
        self._posterior = GPyTorchPosterior(MultivariateNormal(mean.unsqueeze(-1), covar))

    @property
    def num_outputs(self) -> int:
        r"""One."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        r"""Of the model: none; the points are batches of the input."""
        return torch.Size()

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> GPyTorchPosterior:
        r"""The moments, for any ``A x 1 x d`` input."""
        return self._posterior


@dataclass(frozen=True)
class AcquisitionCriterion:
    r"""An acquisition function of arms, from their means and variances.

    Args:
        acquisition: A name, or a function of a model.
        incumbent: The best reward in the belief, in the model's units; -inf before any.
        scale: A standard deviation of the prior, to which named functions are scaled.
    """

    acquisition: str | Factory
    incumbent: float
    scale: float

    def __call__(self, mean: Tensor, var: Tensor) -> Tensor:
        r"""``A`` values, to be maximised."""
        if not math.isfinite(self.incumbent):  # nothing to improve on yet
            return UpperBound(1.0)(mean, var)
        if not isinstance(self.acquisition, str):
            acquisition = self.acquisition(FixedMoments(mean, var))
        else:
            # BoTorch's floor for variances is absolute.
            mean, var = mean / self.scale, var / self.scale**2
            standing = Standing(0.0, self.incumbent / self.scale, float(mean.max()))
            acquisition = NAMED[self.acquisition](FixedMoments(mean, var), standing)
        return acquisition(mean.new_zeros(len(mean), 1, 1))
