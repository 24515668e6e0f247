r"""Acquisition functions by name, over a model or over the moments of a table of arms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, LogProbabilityOfImprovement
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import Posterior
from botorch.sampling.pathwise.utils import get_train_inputs
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from botorch_bkb.acquisition import BudgetedUCB, select_baseline
from botorch_bkb.batches import UpperBound
from botorch_bkb.models import DTCGP
from botorch_bkb.optimizers.hyperparameters import Hyperparameters


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
    "ucb": lambda model, s: BudgetedUCB(model, s.width),
    "ei": lambda model, s: LogExpectedImprovement(model, best_f=s.incumbent),
    "mpi": lambda model, s: LogExpectedImprovement(model, best_f=s.best_mean),
    "pi": lambda model, s: LogProbabilityOfImprovement(model, best_f=s.incumbent),
}
#: Acquisitions that are not functions of a point's mean and variance.
SAMPLED = ("thompson", "greedy")


def check_acquisition(acquisition: Any, over_arms: bool) -> None:
    r"""Raise unless it is a name, a function of a model or, over a box, a class BoTorch knows."""
    known = (*NAMED, *SAMPLED)
    if isinstance(acquisition, str) and acquisition in known:
        return
    if isinstance(acquisition, str) or not callable(acquisition):
        raise InputDataError(
            f"acquisition must be one of {', '.join(known)}, a function that makes a BoTorch "
            "acquisition function of a model or, over a box, a class of BoTorch's (not its name), "
            f"got {acquisition!r}."
        )
    if not isinstance(acquisition, type):
        return
    if over_arms:
        raise InputDataError(
            f"Over arms pass a function that makes an analytic {acquisition.__name__} of a model, "
            f"such as lambda model: {acquisition.__name__}(model, ...), got the class itself."
        )
    try:
        get_acqf_input_constructor(acquisition)
    except RuntimeError as error:
        raise InputDataError(
            f"BoTorch has no input constructor for {acquisition.__name__}: pass a function that "
            "makes one of a model."
        ) from error


def from_model(acquisition: Factory | type[AcquisitionFunction], model: DTCGP) -> Any:
    r"""An acquisition function from a factory, or from a class by BoTorch's input constructor.

    Args:
        acquisition: A function of a model, or a class BoTorch knows how to construct.
        model: The model; its training data and a small baseline are offered to the constructor.
    """
    if not isinstance(acquisition, type):
        return acquisition(model)
    (X,) = get_train_inputs(model, transformed=False)
    names = [f"x{i}" for i in range(X.shape[-1])]
    Y = model.train_targets.unsqueeze(-1)
    offered = {
        "model": model,
        "training_data": SupervisedDataset(X, Y, feature_names=names, outcome_names=["reward"]),
        "X_baseline": select_baseline(model),
        "bounds": [(0.0, 1.0)] * X.shape[-1],
    }
    return acquisition(**get_acqf_input_constructor(acquisition)(**offered))


ANALYTIC = "Over arms an acquisition function sees means and variances only: use an analytic one."


class Gaussians(Posterior):
    r"""Normal marginals without their joint distribution: all that analytic functions look at.

    Args:
        mean: ``batch x 1`` means.
        variance: ``batch x 1`` variances.
    """

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        self.mean, self.variance = mean.unsqueeze(-1), variance.unsqueeze(-1)

    @property
    def device(self) -> torch.device:
        r"""Of the moments."""
        return self.mean.device

    @property
    def dtype(self) -> torch.dtype:
        r"""Of the moments."""
        return self.mean.dtype

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        r"""Refused: there is no joint distribution to sample from."""
        raise UnsupportedError(ANALYTIC)


class Moments(Model):
    r"""Base class: a model of single points."""

    @property
    def num_outputs(self) -> int:
        r"""One."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        r"""None; the points are batches of the input."""
        return torch.Size()


class FixedMoments(Moments):
    r"""A model that knows ``A`` points and no others, one in each batch.

    Args:
        mean: ``A`` posterior means.
        var: ``A`` posterior variances.
    """

    def __init__(self, mean: Tensor, var: Tensor) -> None:
        super().__init__()
        self._posterior = Gaussians(mean.unsqueeze(-1), var.unsqueeze(-1))

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> Gaussians:
        r"""The moments, for any ``A x 1 x d`` input."""
        return self._posterior


class Marginals(Moments):
    r"""A model reduced to its marginals, in other units: a third of the work of a posterior.

    Args:
        model: A :class:`DTCGP` without outcome transform.
        scale: How many of the model's units one new unit is.
    """

    _model: DTCGP
    _scale: float

    def __init__(self, model: DTCGP, scale: float) -> None:
        super().__init__()
        # Not as a submodule: acquisition functions move all of those at every call.
        self.__dict__.update(_model=model.eval(), _scale=scale)

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> Gaussians:
        r"""Mean and variance at each point of ``batch x 1 x d``."""
        mean, var = self._model.marginals(X.flatten(end_dim=-2))
        mean, var = mean / self._scale, var / self._scale**2
        return Gaussians(mean.reshape(X.shape[:-1]), var.reshape(X.shape[:-1]))


@dataclass(frozen=True)
class AcquisitionCriterion:
    r"""An acquisition function of arms, from their means and variances.

    Args:
        acquisition: A name, or a function of a model, which is in units of the rewards.
        incumbent: The best reward in the belief, in the model's units; -inf before any.
        scale: A standard deviation of the prior, to which named functions are scaled: BoTorch's
            floor for variances is absolute.
        hyper: The units.
    """

    acquisition: str | Factory
    incumbent: float
    scale: float
    hyper: Hyperparameters

    def __call__(self, mean: Tensor, var: Tensor) -> Tensor:
        r"""``A`` values, to be maximised."""
        if not math.isfinite(self.incumbent):  # nothing to improve on yet
            return UpperBound(1.0)(mean, var)
        if not isinstance(self.acquisition, str):
            mean, var = self.hyper.to_rewards(mean), self.hyper.scale**2 * var
            acquisition = self.acquisition(FixedMoments(mean, var))
        else:
            mean, var = mean / self.scale, var / self.scale**2
            standing = Standing(0.0, self.incumbent / self.scale, float(mean.max()))
            acquisition = NAMED[self.acquisition](FixedMoments(mean, var), standing)
        try:
            return acquisition(mean.new_zeros(len(mean), 1, 1))
        except NotImplementedError as error:
            raise UnsupportedError(ANALYTIC) from error
