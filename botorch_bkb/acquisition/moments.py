r"""Models of single points: all that analytic acquisition functions look at."""

from __future__ import annotations

from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import Posterior
from torch import Tensor

from botorch_bkb.acquisition.closed import ClosedMarginals
from botorch_bkb.acquisition.scores import HasClosedMarginals
from botorch_bkb.models import DTCGP

#: The error where a function asks for more than marginals.
ANALYTIC = "Over arms an acquisition function sees means and variances only: use an analytic one."


class MarginalPosterior(Posterior):
    r"""A posterior of normal marginals without their joint distribution, for analytic functions.

    Args:
        mean: ``batch x 1`` means.
        variance: ``batch x 1`` variances.
    """

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        self.mean, self.variance = mean.unsqueeze(-1), variance.unsqueeze(-1)

    @property
    def device(self) -> torch.device:
        r"""The device of the moments."""
        return self.mean.device

    @property
    def dtype(self) -> torch.dtype:
        r"""The dtype of the moments."""
        return self.mean.dtype

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        r"""Raise: there is no joint distribution to sample from."""
        raise UnsupportedError(ANALYTIC)


class MarginalModel(Model):
    r"""Base class of models that know marginals of single points only."""

    @property
    def num_outputs(self) -> int:
        r"""The number of outputs, which is one."""
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        r"""The empty batch shape: the points are batches of the input."""
        return torch.Size()


class FixedMoments(MarginalModel):
    r"""A model of ``A`` fixed points, one in each batch.

    Args:
        mean: ``A`` posterior means.
        var: ``A`` posterior variances.
    """

    def __init__(self, mean: Tensor, var: Tensor) -> None:
        super().__init__()
        self._posterior = MarginalPosterior(mean.unsqueeze(-1), var.unsqueeze(-1))

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> MarginalPosterior:
        r"""Return the fixed moments, for any ``A x 1 x d`` input."""
        return self._posterior


class Marginals(MarginalModel, HasClosedMarginals):
    r"""The marginals of a model in other units, for a third of the work of a posterior.

    Args:
        model: A :class:`DTCGP` without outcome transform.
        scale: The number of the model's units in one new unit.
    """

    _model: DTCGP
    _scale: float

    def __init__(self, model: DTCGP, scale: float) -> None:
        super().__init__()
        # Not as a submodule: acquisition functions move all of those at every call.
        closed = ClosedMarginals.of(model.eval(), scale)
        is_direct = not hasattr(model, "input_transform")
        self.__dict__.update(_model=model, _scale=scale, closed=closed, is_direct=is_direct)

    def inputs(self, X: Tensor) -> Tensor:
        r"""Return ``batch x d`` inputs as the kernel sees them."""
        return self._model.transform_inputs(X)

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> MarginalPosterior:
        r"""Return mean and variance at each point of ``batch x 1 x d``."""
        mean, var = self._model.marginals(X.flatten(end_dim=-2))
        mean, var = mean / self._scale, var / self._scale**2
        return MarginalPosterior(mean.reshape(X.shape[:-1]), var.reshape(X.shape[:-1]))


class ClosedModel(MarginalModel, HasClosedMarginals):
    r"""Marginals in closed form as a model.

    Args:
        closed: The marginals.
    """

    closed: ClosedMarginals
    is_direct = True

    def __init__(self, closed: ClosedMarginals) -> None:
        super().__init__()
        self.__dict__["closed"] = closed

    def inputs(self, X: Tensor) -> Tensor:
        r"""Return the inputs as they are."""
        return X

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> MarginalPosterior:
        r"""Return mean and variance at each point of ``batch x 1 x d``."""
        at = _Moments.apply(X.flatten(end_dim=-2), self.closed)
        mean, var = (t.reshape(X.shape[:-1]) for t in at)
        return MarginalPosterior(mean, var)


class _Moments(torch.autograd.Function):
    r"""Means and variances at ``q x d`` points, with analytic gradients."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, closed: ClosedMarginals) -> tuple[Tensor, Tensor]:
        ctx.at, ctx.closed, ctx.like = closed.evaluate(X), closed, X
        return ctx.at.mean, ctx.at.var

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_mean: Tensor, by_var: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.closed.pull(ctx.at, by_mean, by_var, ctx.like.shape[-1]).to(ctx.like), None
