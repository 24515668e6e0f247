r"""Acquisition functions of posterior mean and deviation, with analytic gradients.

For the kernels of :mod:`botorch_bkb.closed_form` the posterior of a single point is

.. code-block:: text

    mean(x) = c + k(x)'beta,     var(x) = k(x,x) - |N k(x)|^2 + |P k(x)|^2

where ``k(x)`` holds the kernel at the dictionary and at the points conditioned on. So value and
gradient of an acquisition function take one product with ``P'P - N'N``, and one with the derivative
of ``k(x)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.models.model import Model
from gpytorch.means import ConstantMean, ZeroMean
from torch import Tensor
from torch.nn.functional import pad

from botorch_bkb.closed_form import LINEAR, ClosedForm, closed_form, correlation
from botorch_bkb.models import DTCGP

#: The least variance, as in BoTorch.
MIN_VARIANCE = 1e-12
#: The largest entry of ``N'N`` over that of the prior's precision with which the difference
#: ``P'P - N'N`` keeps ten digits. Beyond it the factors are applied one after the other.
LARGEST = 1e5
#: Improvements this many deviations away have an asymptotic logarithm.
FAR = -1e3
#: Improvements this many deviations away are certain.
CERTAIN = 30.0


class Partials(NamedTuple):
    r"""A function of mean and deviation, and its partial derivatives, each of ``q`` points."""

    value: Tensor
    by_mean: Tensor | float
    by_deviation: Tensor | float


Score = Callable[[Tensor, Tensor], Partials]


class ClosedMarginals:
    r"""Means and variances of single points in some unit, with analytic gradients.

    Args:
        form: A stationary kernel.
        constant: The prior mean.
        points: ``m x d`` inputs, of the dictionary and of the points conditioned on.
        weights: ``m`` weights ``beta``.
        N: ``p x m``, the factor that lowers the variance.
        P: ``q x m``, the factor that raises it.
        unit: The number of the model's units in one unit.
    """

    def __init__(
        self,
        form: ClosedForm,
        constant: float,
        points: Tensor,
        weights: Tensor,
        N: Tensor,
        P: Tensor,
        unit: float,
    ) -> None:
        self.dims, self.profile = form.dims, form.profile
        variance = torch.ones_like(weights[0])
        for scale in form.scales:
            variance = variance * scale.detach().double()
        self.per_length = form.weights.detach().double().reciprocal()
        points = form.read(points)
        centre = points.mean(-2, keepdim=True)
        self._offset = -centre * self.per_length
        self._points = (points - centre) * self.per_length
        self._constant, self.weights = (
            weights.new_tensor(constant / unit),
            weights * (variance / unit),
        )
        self.prior, self._factors = variance / unit**2, torch.cat([N, P]) * (variance / unit)
        self._signs = torch.ones_like(self._factors[:, 0])
        self._signs[: len(N)] = -1
        # The product of the factors is faster than one after the other, and less accurate.
        self._product: Tensor | None = None
        if variance * N.square().sum(0).max() <= LARGEST:
            self._product = (self._factors.mT * self._signs) @ self._factors

    @classmethod
    @torch.no_grad()
    def of(cls, model: DTCGP, unit: float = 1.0) -> Self | None:
        r"""Return the marginals of a model without batches, or None if it is not covered.

        Args:
            model: The model.
            unit: The number of the model's units in one new unit.
        """
        form, mean, belief = closed_form(model.covar_module), model.mean_module, model.belief
        plain = type(mean) in (ConstantMean, ZeroMean) and belief.points.dim() == 2
        if form is None or form.profile == LINEAR or form.weights.dim() > 2 or not plain:
            return None
        factor, points, given = belief.factor, belief.points, belief.conditional
        eye = torch.eye(len(points), dtype=torch.float64, device=points.device)
        N = torch.linalg.solve_triangular(factor.root, eye, upper=False)
        P = torch.linalg.solve_triangular(factor.info_root, N, upper=False)
        weights = P.mT @ factor.coef
        if given is not None and belief.extra_points is not None:
            if given.coef.dim() > 1 or given.root.dim() > 2:
                return None
            ahead = given.embedding.w @ P - given.embedding.z @ N
            eye = torch.eye(len(ahead), dtype=torch.float64, device=points.device)
            rows = torch.cat([ahead, eye], -1)
            rows = torch.linalg.solve_triangular(given.root, rows, upper=False)
            N, P = (pad(t, (0, len(ahead))) for t in (N, P))
            weights = pad(weights, (0, len(ahead))) + rows.mT @ given.coef
            N, points = torch.cat([N, rows]), torch.cat([points, belief.extra_points])
        constant = float(mean.constant) if isinstance(mean, ConstantMean) else 0.0
        return cls(form, constant, points, weights, N, P, unit)

    def evaluate(self, X: Tensor) -> tuple[Tensor, ...]:
        r"""Return means and variances at ``q x d`` points, and what their gradients need."""
        a = torch.addcmul(self._offset, X, self.per_length)
        phi, psi = correlation(self.profile, a, self._points)
        slope = self._times_product(phi)
        mean = torch.addmv(self._constant, phi, self.weights)
        return mean, self.prior + torch.linalg.vecdot(slope, phi), a, psi, slope

    def _times_product(self, phi: Tensor) -> Tensor:
        r"""Return ``(P'P - N'N) phi`` for each row."""
        if self._product is not None:
            return phi @ self._product
        return ((phi @ self._factors.mT) * self._signs) @ self._factors

    def pull(
        self, a: Tensor, psi: Tensor, slope: Tensor, by_mean: Tensor, by_var: Tensor
    ) -> Tensor:
        r"""Return the gradient with respect to the points of weighted means and variances."""
        G = slope * (2 * by_var).unsqueeze(-1)
        H = G.addr_(by_mean, self.weights).mul_(psi)
        return (H @ self._points - a * H.sum(-1, keepdim=True)) * self.per_length


class _Score(torch.autograd.Function):
    r"""A function of mean and deviation at single points, with an analytic gradient."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, marginals: ClosedMarginals, score: Score) -> Tensor:
        x = X.reshape(-1, X.shape[-1]).double()
        x = x if marginals.dims is None else x.index_select(-1, marginals.dims)
        mean, var, *rest = marginals.evaluate(x)
        sd = var.clamp_min_(MIN_VARIANCE).sqrt_()
        value, by_mean, by_deviation = score(mean, sd)
        ctx.rest, ctx.marginals = (*rest, by_mean, by_deviation / (2 * sd)), marginals
        ctx.shape, ctx.dtype = X.shape, X.dtype
        return value.view(X.shape[:-2])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        a, psi, slope, by_mean, by_var = ctx.rest
        weight, dims = weight.reshape(-1), ctx.marginals.dims
        gradient = ctx.marginals.pull(a, psi, slope, weight * by_mean, weight * by_var)
        if dims is not None:
            full = gradient.new_zeros(len(gradient), ctx.shape[-1])
            gradient = full.index_add(-1, dims, gradient)
        return gradient.view(ctx.shape).to(ctx.dtype), None, None


class HasClosedMarginals(ABC):
    r"""Base class of models of single points that may know them in closed form."""

    closed: ClosedMarginals | None  #: the marginals in closed form, if there is one

    @abstractmethod
    def inputs(self, X: Tensor) -> Tensor:
        r"""Return ``batch x d`` inputs as the kernel sees them."""


class MarginalScore(AnalyticAcquisitionFunction):
    r"""Base class of acquisition functions that depend on mean and deviation of single points.

    Args:
        model: A single-outcome model.
    """

    @abstractmethod
    def score(self, mean: Tensor, sd: Tensor) -> Partials:
        r"""Return values and partial derivatives at ``q`` points."""

    def forward(self, X: Tensor) -> Tensor:
        r"""Return ``b`` values at ``b x 1 x d`` points."""
        model = self.model
        if isinstance(model, HasClosedMarginals) and model.closed is not None:
            return _Score.apply(model.inputs(X), model.closed, self.score)
        mean, sd = self._mean_and_sigma(X)
        assert sd is not None
        return self.score(mean.squeeze(-1), sd.squeeze(-1)).value


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

    Args:
        model: A single-outcome model.
        best_f: The value to improve on.

    Reference:
        Ament, Daulton, Eriksson, Balandat, Bakshy: Unexpected improvements to expected improvement
        for Bayesian optimization. NeurIPS 2023.
    """

    def __init__(self, model: Model, best_f: float) -> None:
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
