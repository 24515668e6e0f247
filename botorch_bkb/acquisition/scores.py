r"""Acquisition functions of posterior mean and deviation, with analytic gradients.

For the models of :mod:`botorch_bkb.acquisition.closed` neither value nor gradient uses autograd.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from botorch_bkb.acquisition.closed import MIN_VARIANCE, ClosedMarginals, Partials, Score
from botorch_bkb.models import DTCGP

#: Improvements this many deviations away have an asymptotic logarithm.
FAR = -1e3
#: Improvements this many deviations away are certain.
CERTAIN = 30.0


class _Score(torch.autograd.Function):
    r"""A function of mean and deviation at single points, with an analytic gradient."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, marginals: ClosedMarginals, score: Score) -> Tensor:
        at = marginals.evaluate(X.reshape(-1, X.shape[-1]))
        sd = at.var.sqrt()
        value, by_mean, by_deviation = score(at.mean, sd)
        ctx.at, ctx.marginals, ctx.by = at, marginals, (by_mean, by_deviation / (2 * sd))
        ctx.shape, ctx.dtype = X.shape, X.dtype
        return value.view(X.shape[:-2])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        weight, (by_mean, by_var) = weight.reshape(-1), ctx.by
        by_mean = by_mean * (weight.unsqueeze(-1) if ctx.at.mean.dim() > 1 else weight)
        by_var = by_var * weight
        gradient = ctx.marginals.pull(ctx.at, by_mean, by_var, ctx.shape[-1])
        return gradient.view(ctx.shape).to(ctx.dtype), None, None


class _ScoreOfMoments(torch.autograd.Function):
    r"""A function of means and variances. Second derivatives use autograd."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor, score: Score) -> Tensor:
        sd = var.clamp_min(MIN_VARIANCE).sqrt()
        value, by_mean, by_deviation = score(mean, sd)
        ctx.score, ctx.by = score, (by_mean, by_deviation / (2 * sd) * (var > MIN_VARIANCE))
        ctx.save_for_backward(mean, var)
        return value

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if not torch.is_grad_enabled():
            by_mean, by_var = ctx.by
            return weight * by_mean, weight * by_var, None
        mean, var = ctx.saved_tensors
        value = ctx.score(mean, var.clamp_min(MIN_VARIANCE).sqrt()).value
        return *torch.autograd.grad(value, (mean, var), weight, create_graph=True), None


class HasClosedMarginals(ABC):
    r"""Base class of models of single points that may know them in closed form."""

    #: The marginals in closed form, if there is one, as functions of :meth:`inputs`.
    closed: ClosedMarginals | None
    #: Whether inputs are taken as they are.
    is_direct: bool

    @abstractmethod
    def inputs(self, X: Tensor) -> Tensor:
        r"""Return ``batch x d`` inputs as the kernel sees them."""


def by_autograd(acquisition: AcquisitionFunction, X: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return values and gradients of an acquisition function at ``q x d`` points."""
    with torch.enable_grad():
        X = X.detach().requires_grad_()
        value = acquisition(X.unsqueeze(-2))
        return value.detach(), torch.autograd.grad(value.sum(), X)[0]


class MarginalScore(AnalyticAcquisitionFunction):
    r"""Base class of acquisition functions that depend on mean and deviation of single points.

    For a :class:`DTCGP` with an RBF or Matérn kernel the gradients are analytic.

    Args:
        model: A single-outcome model.
        posterior_transform: Reduces several outcomes to one.
    """

    @abstractmethod
    def score(self, mean: Tensor, sd: Tensor) -> Partials:
        r"""Return values and partial derivatives at ``q`` points."""

    def forward(self, X: Tensor) -> Tensor:
        r"""Return ``b`` values at ``b x 1 x d`` points."""
        model = self.model
        if isinstance(model, HasClosedMarginals) and model.closed:
            inputs = model.inputs(X)
            if torch.is_grad_enabled() and inputs.requires_grad:
                return _Score.apply(inputs, model.closed, self.score)
            at, var = model.closed.moments(inputs.reshape(-1, X.shape[-1]))
            return self.score(at, var.sqrt()).value.view(X.shape[:-2])
        if isinstance(model, DTCGP) and self.posterior_transform is None:
            found = (model.eval() if model.training else model).moments_of_single_points(X)
            if found is not None:
                return _ScoreOfMoments.apply(*found, self.score).squeeze(-1)
        mean, sd = self._mean_and_sigma(X)
        assert sd is not None
        return self.score(mean.squeeze(-1), sd.squeeze(-1)).value

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return values and gradients at ``q x d`` points."""
        model = self.model
        if isinstance(model, HasClosedMarginals) and model.closed and model.is_direct:
            return model.closed.value_and_gradient(X, self.score)
        return by_autograd(self, X)


class UpperBound(MarginalScore):
    r"""Upper confidence bounds ``mean + width sd`` of single points.

    Args:
        model: A single-outcome model.
        width: The width in posterior standard deviations.
    """

    def __init__(self, model: Model, width: float) -> None:
        super().__init__(model)
        self.width = width

    def score(self, mean: Tensor, sd: Tensor) -> Partials:
        r"""Return the bounds."""
        return Partials(mean + self.width * sd, 1.0, self.width)


class LogImprovement(MarginalScore):
    r"""The logarithm of the expected improvement over a value (BoTorch's numerics).

    It has the values of BoTorch's ``LogExpectedImprovement``, with analytic gradients for a
    :class:`DTCGP`.

    Args:
        model: A single-outcome model.
        best_f: The value to improve on.

    Example:
        >>> import torch
        >>> from botorch.optim import optimize_acqf
        >>> from botorch_bkb import DTCGP
        >>> from botorch_bkb.acquisition import LogImprovement
        >>> X = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1)
        >>> Y = torch.sin(6 * X)
        >>> improvement = LogImprovement(DTCGP(X, Y), best_f=Y.max())
        >>> cube = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> optimize_acqf(improvement, cube, q=1, num_restarts=2, raw_samples=16)[0].shape
        torch.Size([1, 1])

    Reference:
        Ament, Daulton, Eriksson, Balandat, Bakshy: Unexpected improvements to expected improvement
        for Bayesian optimization. NeurIPS 2023.
    """

    def __init__(self, model: Model, best_f: float | Tensor) -> None:
        super().__init__(model)
        self.best_f = best_f

    def score(self, mean: Tensor, sd: Tensor) -> Partials:
        r"""Return the logarithms.

        With ``u = (mean - best_f) / sd`` and ``EI = sd h(u)`` the partial derivatives of ``log EI``
        are ``Phi(u) / EI`` and ``phi(u) / EI``.
        """
        improvement = _log_improvement((mean - self.best_f) / sd)
        log_h, by_mean, by_deviation = improvement
        return Partials(log_h + sd.log(), by_mean / sd, by_deviation / sd)


def _log_improvement(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Compute ``log h``, ``Phi / h`` and ``phi / h`` for ``h(u) = phi(u) + u Phi(u)``.

    With ``r = Phi / phi`` the quotient ``q = h / phi`` is ``1 + u r``, and about
    ``(1 - 3/u^2) / u^2`` for large negative ``u``. For large ``u``, ``h`` is ``u``.
    """
    near = u.clamp_max(CERTAIN)
    r = math.sqrt(math.pi / 2) * torch.special.erfcx(near * -math.sqrt(0.5))
    q, square = 1 + near * r, near.square()
    q = torch.where(near < FAR, (1 - 3 / square) / square, q)
    beyond = torch.where(u > CERTAIN, near / u, 1.0)
    log_h = q.log() - 0.5 * (square + math.log(2 * math.pi)) - beyond.log()
    return log_h, r / q * beyond, beyond / q
