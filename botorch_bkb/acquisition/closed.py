r"""``ClosedMarginals``: posterior means and variances of single points, with analytic gradients.

For the stationary kernels of :mod:`botorch_bkb.closed_form` the posterior of a single point is

.. code-block:: text

    mean(x) = c + k(x)'beta,     var(x) = k(x,x) - |N k(x)|^2 + |P k(x)|^2

where ``k(x)`` holds the kernel at the dictionary and at the points conditioned on. So value and
gradient of a function of both take one product with ``P'P - N'N``, and one with the derivative of
``k(x)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, ZeroMean
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn.functional import pad

from botorch_bkb.arms.table import KernelForm
from botorch_bkb.belief import Belief
from botorch_bkb.closed_form import LINEAR, ClosedForm, closed_form, correlation
from botorch_bkb.models import DTCGP
from botorch_bkb.units import UnitCube

#: The least variance, as in BoTorch.
MIN_VARIANCE = 1e-12
#: The largest entry of ``N'N`` over that of the prior's precision with which the difference
#: ``P'P - N'N`` keeps ten digits. Beyond it the factors are applied one after the other.
LARGEST = 1e5


class Partials(NamedTuple):
    r"""A function of mean and deviation, and its partial derivatives, each of ``q`` points."""

    value: Tensor
    by_mean: Tensor | float
    by_deviation: Tensor | float


Score = Callable[[Tensor, Tensor], Partials]


class Evaluated(NamedTuple):
    r"""Means and variances at ``q`` points, and what their gradients need."""

    mean: Tensor  #: ``q``, or ``q x S`` of draws
    var: Tensor
    a: Tensor  #: ``q x d`` points in units of the length-scales
    psi: Tensor  #: ``q x m``; see :mod:`botorch_bkb.closed_form`
    slope: Tensor  #: ``q x m``, ``(P'P - N'N) k(x)``

    def at(self, points: Tensor) -> Evaluated:
        r"""Return the part of some of the points."""
        return Evaluated(*(t[points] for t in self))


@dataclass(frozen=True, eq=False)
class ClosedMarginals:
    r"""Means and variances of single points in some unit, with analytic gradients.

    Attributes:
        profile: The profile of the kernel.
        dims: The dimensions that the kernel reads; None for all.
        per_length: ``1 x d``, the number of length-scales in one unit of the inputs.
        offset: ``1 x d``, where the origin of the inputs lies, in length-scales.
        points: ``m x d`` points in length-scales, of the dictionary and those conditioned on.
        constant: The prior mean.
        prior: The prior variance.
        weights: ``m`` weights ``beta`` of the correlations; ``m x S`` if there are the means of
            ``S`` draws, with one variance.
        factors: ``(p + q) x m``, the rows of ``N`` and ``P``, times the scale of the kernel.
        signs: ``p + q`` signs with which squares of these rows enter the variance.
        product: ``P'P - N'N``, if that is accurate.
    """

    profile: str | float
    dims: Tensor | None
    per_length: Tensor
    offset: Tensor
    points: Tensor
    constant: Tensor
    prior: Tensor
    weights: Tensor
    factors: Tensor
    signs: Tensor
    product: Tensor | None

    @classmethod
    def of(cls, model: DTCGP, unit: float = 1.0) -> Self | None:
        r"""Return the marginals of a model without batches, or None if it is not covered.

        Args:
            model: The model.
            unit: The number of the model's units in one new unit.
        """
        mean = model.mean_module
        if type(mean) not in (ConstantMean, ZeroMean):
            return None
        constant = mean.constant.item() if isinstance(mean, ConstantMean) else 0.0
        found = cls.of_belief(model.covar_module, model.belief, constant)
        return None if found is None else found.in_units(unit)

    @classmethod
    @torch.no_grad()
    def of_belief(cls, kernel: Kernel, belief: Belief, constant: float = 0.0) -> Self | None:
        r"""Return the marginals of a belief without batches, or None if it is not covered.

        Args:
            kernel: The kernel.
            belief: The belief.
            constant: The prior mean.
        """
        form, points, given = closed_form(kernel), belief.points, belief.conditional
        if form is None or form.profile == LINEAR or form.weights.dim() > 2 or points.dim() > 2:
            return None
        eye = torch.eye(len(points), dtype=torch.float64, device=points.device)
        N = torch.linalg.solve_triangular(belief.factor.root, eye, upper=False)
        P = torch.linalg.solve_triangular(belief.factor.info_root, N, upper=False)
        weights = P.mT @ belief.factor.coef
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
        scale = _scale_of(form, weights)
        factors = torch.cat([N, P])
        signs = torch.ones_like(factors[:, 0])
        signs[: len(N)] = -1
        found = cls._of_factors(form, points, weights, factors, signs, constant)
        # The product of the factors is faster than one after the other, and less accurate.
        if bool(scale * N.square().sum(0).max() > LARGEST):
            return found
        return replace(found, product=(found.factors.mT * signs) @ found.factors)

    @classmethod
    @torch.no_grad()
    def of_table(cls, kernel: Kernel, X: Tensor, at: KernelForm) -> Self | None:
        r"""Return the marginals of the belief of a table, or None if it is not covered.

        With ``I - Q = SS'`` the variance is ``k(x,x) - |S'y|^2`` with ``y = M'k_S(x)``. So there is
        one factor, ``S'M'``.

        Args:
            kernel: The kernel of the table.
            X: The inputs of the table.
            at: The posterior in terms of the kernel at the dictionary.
        """
        form = closed_form(kernel)
        if form is None or form.profile == LINEAR or form.weights.dim() > 2:
            return None
        eye = torch.eye(len(at.Q), dtype=at.Q.dtype, device=at.Q.device)
        S, failed = torch.linalg.cholesky_ex(eye - at.Q)
        if failed:  # the data say nearly nothing about something that the dictionary spans
            return None
        factors = (at.M @ S).mT.contiguous()
        signs = torch.full_like(factors[:, 0], -1.0)
        return cls._of_factors(form, X[at.rows], at.weights, factors, signs, 0.0)

    @classmethod
    def _of_factors(
        cls,
        form: ClosedForm,
        points: Tensor,
        weights: Tensor,
        factors: Tensor,
        signs: Tensor,
        constant: float,
    ) -> Self:
        r"""Return marginals from weights and factors of the kernel itself, not its correlation."""
        scale = _scale_of(form, weights)
        per_length, points = form.weights.detach().double().reciprocal(), form.read(points)
        centre = points.mean(-2, keepdim=True)
        return cls(
            profile=form.profile,
            dims=form.dims,
            per_length=per_length,
            offset=-centre * per_length,
            points=(points - centre) * per_length,
            constant=weights.new_tensor(constant),
            prior=scale,
            weights=weights * scale,
            factors=factors * scale,
            signs=signs,
            product=None,
        )

    def in_units(self, unit: float) -> Self:
        r"""Return the same marginals in a unit of so many of the present ones."""
        if unit == 1:
            return self
        return replace(
            self,
            constant=self.constant / unit,
            prior=self.prior / unit**2,
            weights=self.weights / unit,
            factors=self.factors / unit,
            product=None if self.product is None else self.product / unit**2,
        )

    def in_cube(self, cube: UnitCube) -> Self:
        r"""Return the same marginals as functions of points of the unit cube.

        Args:
            cube: The map from the present inputs to the unit cube.
        """
        lower, upper = self.read(cube.bounds)
        offset = torch.addcmul(self.offset, lower, self.per_length)
        return replace(self, offset=offset, per_length=self.per_length * (upper - lower))

    def read(self, X: Tensor) -> Tensor:
        r"""Return the dimensions of ``q x d`` inputs that the kernel reads, in float64."""
        return (X if self.dims is None else X.index_select(-1, self.dims)).double()

    def evaluate(self, X: Tensor) -> Evaluated:
        r"""Return means and variances at ``q x d`` points, and what their gradients need."""
        a = torch.addcmul(self.offset, self.read(X), self.per_length)
        phi, psi = correlation(self.profile, a, self.points)
        slope = self._times_product(phi)
        mean = self.constant + phi @ self.weights
        var = (self.prior + torch.linalg.vecdot(slope, phi)).clamp_min_(MIN_VARIANCE)
        return Evaluated(mean, var, a, psi, slope)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return means and variances at ``q x d`` points, for half of the work of a gradient."""
        if self.product is not None:
            at = self.evaluate(X)
            return at.mean, at.var
        a = torch.addcmul(self.offset, self.read(X), self.per_length)
        phi = correlation(self.profile, a, self.points)[0]
        squares = (phi @ self.factors.mT).square_() @ self.signs
        return self.constant + phi @ self.weights, (self.prior + squares).clamp_min_(MIN_VARIANCE)

    def _times_product(self, phi: Tensor) -> Tensor:
        r"""Return ``(P'P - N'N) phi`` for each row."""
        if self.product is not None:
            return phi @ self.product
        return ((phi @ self.factors.mT) * self.signs) @ self.factors

    def pull(self, at: Evaluated, by_mean: Tensor, by_var: Tensor, dim: int) -> Tensor:
        r"""Return the gradient with respect to the points of weighted means and variances.

        Args:
            at: The moments at ``q`` points.
            by_mean: ``q`` weights of the means, or ``q x S``.
            by_var: ``q`` weights of the variances.
            dim: The number of dimensions of the points.
        """
        G = at.slope * (2 * by_var).unsqueeze(-1)
        draws = self.weights.dim() > 1
        G = G.addmm_(by_mean, self.weights.mT) if draws else G.addr_(by_mean, self.weights)
        H = G.mul_(at.psi)
        gradient = (H @ self.points - at.a * H.sum(-1, keepdim=True)) * self.per_length
        if self.dims is None:
            return gradient
        return gradient.new_zeros(len(gradient), dim).index_add(-1, self.dims, gradient)

    def value_and_gradient(self, X: Tensor, score: Score) -> tuple[Tensor, Tensor]:
        r"""Return the values of a score at ``q x d`` points, and their gradients."""
        at = self.evaluate(X)
        sd = at.var.sqrt()
        value, by_mean, by_deviation = score(at.mean, sd)
        by_mean = value.new_tensor(by_mean) if not isinstance(by_mean, Tensor) else by_mean
        weights = by_mean.expand_as(at.mean), by_deviation / (2 * sd)
        return value, self.pull(at, *weights, X.shape[-1])

    def covariance(self, X: Tensor) -> tuple[Evaluated, Tensor]:
        r"""Return the marginals at ``q x d`` points, and their joint covariance, ``q x q``."""
        at = self.evaluate(X)
        own, phi = (correlation(self.profile, at.a, b)[0] for b in (at.a, self.points))
        return at, torch.addmm(self.prior * own, at.slope, phi.mT)

    def drawn(self, at: Evaluated, root: Tensor, base: Tensor) -> Self:
        r"""Return the marginals given the values of ``S`` joint draws at some points.

        With ``C`` the covariance of the points, ``R`` its factor and ``e_s`` the base samples of a
        draw, ``mean_s(x) = mean(x) + c(x)' R^{-T} e_s`` and ``var(x) - |R^{-1} c(x)|^2``.

        Args:
            at: The present marginals at ``q`` points.
            root: ``R``, ``q x q``.
            base: ``q x S`` base samples.
        """
        prior = self.prior * torch.eye(len(root), dtype=root.dtype, device=root.device)
        rows = torch.linalg.solve_triangular(root, torch.cat([at.slope, prior], -1), upper=False)
        return replace(
            self._with_rows(rows, at.a),
            weights=torch.addmm(pad(self.weights, (0, len(root))).unsqueeze(-1), rows.mT, base),
        )

    def _with_rows(self, rows: Tensor, points: Tensor) -> Self:
        r"""Return the marginals whose variance is less by the squares of further rows.

        Args:
            rows: ``q x (m + q)`` rows of ``N``, also at the points.
            points: ``q x d`` further points in length-scales.
        """
        q, product = len(rows), None
        if self.product is not None and rows.square().max() <= LARGEST * self.prior:
            product = torch.addmm(pad(self.product, (0, q, 0, q)), rows.mT, rows, alpha=-1)
        return replace(
            self,
            points=torch.cat([self.points, points]),
            weights=pad(self.weights, (0, q)),
            factors=torch.cat([pad(self.factors, (0, q)), rows]),
            signs=torch.cat([self.signs, self.signs.new_full((q,), -1.0)]),
            product=product,
        )

    def hallucinated(self, X: Tensor, noise_var: float) -> Self:
        r"""Return the marginals conditioned on their own means at ``q x d`` points.

        Means stay, and variances fall. For one point ``var'(y) = var(y) - cov(y, x)^2 / (var(x) +
        noise)``.

        Args:
            X: The points, which may repeat.
            noise_var: The variance of the noise there, in the unit of the marginals.
        """
        at, joint = self.covariance(X)
        joint.diagonal().copy_(at.var + noise_var)
        prior = self.prior * torch.eye(len(joint), dtype=joint.dtype, device=joint.device)
        root = psd_safe_cholesky(joint)
        rows = torch.linalg.solve_triangular(root, torch.cat([at.slope, prior], -1), upper=False)
        return self._with_rows(rows, at.a)


def _scale_of(form: ClosedForm, like: Tensor) -> Tensor:
    r"""Return the product of the output scales of a kernel."""
    scale = like.new_ones(())
    for outputscale in form.scales:
        scale = scale * outputscale.detach().double()
    return scale
