r"""Posterior means and variances of single points, with analytic derivatives.

For the stationary kernels of :mod:`botorch_bkb.closed_form` the moments at a point depend on it
only through ``k``, the kernel at the dictionary ``S`` and at the points ``q`` conditioned on:

.. code-block:: text

    z = L^{-1} k_S,  w = R^{-1} z,  v = T^{-1} (k_q - Z_q z + W_q w)
    mean = w'c + v'c_q,             var = [k(x,x) - |z|^2] + |w|^2 - |v|^2

The derivatives are the same steps backwards. The symbols are those of :mod:`botorch_bkb.linalg`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from botorch_bkb.closed_form import LINEAR, ClosedForm, Evaluation, closed_diagonal, correlation
from botorch_bkb.linalg import Conditional, DTCFactor, solve_rows

#: The largest entry of ``N``, over the root of the prior's precision, with which rounding errors of
#: the variance stay below about ``1e-11`` of the prior's.
LARGEST = 1e4

Moments = Callable[[Tensor], tuple[Tensor, Tensor]]


class SinglePoints(NamedTuple):
    r"""The moments of single points, without the prior mean."""

    form: ClosedForm
    points: Tensor  #: ``m x d``, the dictionary, as the kernel reads it
    factor: DTCFactor
    extra: Tensor | None  #: ``q x d``, the points conditioned on
    given: Conditional | None
    general: Moments  #: the same moments by autograd, for second derivatives

    @property
    def is_covered(self) -> bool:
        r"""Whether there are no batches and no autograd graph."""
        factor, given, form = self.factor, self.given, self.form
        tensors = [self.points, factor.root, factor.info_root]
        vectors = [factor.coef]
        if given is not None and self.extra is not None:
            tensors += [self.extra, given.root]
            vectors.append(given.coef)
        return (
            form.profile != LINEAR
            and form.weights.dim() == 2
            and self.points.shape[-2] > 0
            and all(t.dim() == 2 and not t.requires_grad for t in tensors)
            and all(t.dim() == 1 and not t.requires_grad for t in vectors)
            and all(s.numel() == 1 for s in form.scales)
        )

    def evaluate(self, X: Tensor) -> _Evaluated:
        r"""Evaluate the moments and what their derivatives need."""
        x, factor = self.form.read(X), self.factor
        at_dictionary = self._kernel(x, self.points)
        z = solve_rows(factor.root, at_dictionary.matrix)
        w = solve_rows(factor.info_root, z)
        rest = closed_diagonal(self.form, X) - torch.linalg.vecdot(z, z)
        mean, var = w @ factor.coef, rest.clamp_min(0) + torch.linalg.vecdot(w, w)
        if self.given is None or self.extra is None:
            return _Evaluated(mean, var, rest, z, w, None, at_dictionary, None)
        at_extra = self._kernel(x, self.extra)
        e = self.given.embedding
        v = solve_rows(self.given.root, at_extra.matrix - z @ e.z.mT + w @ e.w.mT)
        mean = mean + v @ self.given.coef
        var = (var - torch.linalg.vecdot(v, v)).clamp_min(0)
        return _Evaluated(mean, var, rest, z, w, v, at_dictionary, at_extra)

    def _kernel(self, x: Tensor, points: Tensor) -> Evaluation:
        return Evaluation.of(self.form.profile, x, points, self.form.hyperparameters)

    def pull(self, at: _Evaluated, by_mean: Tensor, by_var: Tensor) -> Tensor:
        r"""Return the gradient of weighted moments with respect to the dimensions that are read."""
        by_mean, by_var = by_mean.unsqueeze(-1), (2 * by_var).unsqueeze(-1)
        if at.v is not None:
            by_var = by_var * (at.var > 0).unsqueeze(-1)
        by_w = by_mean * self.factor.coef + by_var * at.w
        by_z = -by_var * (at.rest > 0).unsqueeze(-1) * at.z
        by_given: Tensor | float = 0.0
        if at.v is not None and at.at_extra is not None and self.given is not None:
            by_v = by_mean * self.given.coef - by_var * at.v
            by_extra = _solve_transposed(self.given.root, by_v)
            by_w = by_w + by_extra @ self.given.embedding.w
            by_z = by_z - by_extra @ self.given.embedding.z
            by_given = at.at_extra.pull_inputs(by_extra)
        by_z = by_z + _solve_transposed(self.factor.info_root, by_w)
        return at.at_dictionary.pull_inputs(_solve_transposed(self.factor.root, by_z)) + by_given


class _Evaluated(NamedTuple):
    r"""Moments of ``n`` points, and what their derivatives need."""

    mean: Tensor
    var: Tensor
    rest: Tensor  #: ``n``, the prior variance that the dictionary leaves unexplained
    z: Tensor
    w: Tensor
    v: Tensor | None
    at_dictionary: Evaluation
    at_extra: Evaluation | None


def _solve_transposed(root: Tensor, rows: Tensor) -> Tensor:
    r"""Apply ``root^{-T}`` to each row."""
    return torch.linalg.solve_triangular(root, rows, upper=False, left=False)


class PreparedPoints(NamedTuple):
    r"""The same moments with the factors inverted, for many evaluations; nothing conditioned on.

    With ``N = L^{-1}`` and ``P = R^{-1} N`` the coordinates of all points are one product.
    """

    form: ClosedForm
    centre: Tensor  #: ``1 x d``
    per_length: Tensor  #: ``1 x d``, one over the length-scales
    b: Tensor  #: ``m x d``, the dictionary in length-scales around the centre
    with_ones: Tensor  #: ``m x (d + 1)``, the same and a column of ones
    rows: Tensor  #: ``2m x m``, the rows of ``N`` and ``P``, times the scale of the kernel
    signs: Tensor  #: ``2m``, twice the signs of the squares of coordinates in the variance
    weights: Tensor  #: ``m``, ``P'c`` times the scale of the kernel
    prior: float  #: ``k(x,x)``
    general: Moments

    @classmethod
    @torch.no_grad()
    def of(cls, singles: SinglePoints) -> PreparedPoints | None:
        r"""Return the prepared moments, in ``O(m^3)``, or None where they lose digits."""
        form, factor = singles.form, singles.factor
        if singles.given is not None:
            return None
        eye = torch.eye(len(singles.points), dtype=torch.float64, device=singles.points.device)
        N = torch.linalg.solve_triangular(factor.root, eye, upper=False)
        P = torch.linalg.solve_triangular(factor.info_root, N, upper=False)
        prior = math.prod(scale.item() for scale in form.scales)
        if not math.sqrt(prior) * float(N.abs().max()) <= LARGEST:
            return None
        centre, per_length = singles.points.mean(0, keepdim=True), 1 / form.weights.detach()
        b = (singles.points - centre) * per_length
        return cls(
            form=form,
            centre=centre,
            per_length=per_length.double(),
            b=b,
            with_ones=pad(b, (0, 1), value=1.0),
            rows=torch.cat([N, P]) * prior,
            signs=torch.cat([torch.full_like(eye[0], -2.0), torch.full_like(eye[0], 2.0)]),
            weights=prior * (P.mT @ factor.coef),
            prior=prior,
            general=singles.general,
        )

    def evaluate(self, X: Tensor) -> _PreparedValues:
        r"""Evaluate the moments and what their derivatives need."""
        a = (self.form.read(X) - self.centre) * self.per_length
        phi, psi = correlation(self.form.profile, a, self.b)
        zw = phi @ self.rows.mT
        squares = zw.square().unflatten(-1, (2, -1)).sum(-1)
        rest = self.prior - squares[:, 0]
        var = rest.clamp_min(0) + squares[:, 1]
        return _PreparedValues(phi @ self.weights, var, a, psi, rest, zw)

    def pull(self, at: _PreparedValues, by_mean: Tensor, by_var: Tensor) -> Tensor:
        r"""Return the gradient of weighted moments with respect to the dimensions that are read."""
        by_zw = (at.zw * self.signs).mul_(by_var.unsqueeze(-1))
        if not bool(at.rest.min() > 0):
            by_zw[at.rest <= 0, : len(self.b)] = 0.0
        H = (by_zw @ self.rows).addr_(by_mean, self.weights).mul_(at.psi)
        sums = H @ self.with_ones
        return (sums[:, :-1] - at.a * sums[:, -1:]) * self.per_length


class _PreparedValues(NamedTuple):
    r"""Moments of ``n`` points, and what their derivatives need."""

    mean: Tensor
    var: Tensor
    a: Tensor  #: ``n x d`` points in length-scales
    psi: Tensor  #: ``n x m``; see :mod:`botorch_bkb.closed_form`
    rest: Tensor
    zw: Tensor  #: ``n x 2m``


def moments(
    points: SinglePoints | PreparedPoints, X: Tensor, offset: float = 0.0, unit: float = 1.0
) -> tuple[Tensor, Tensor]:
    r"""Return means and variances of single points.

    Derivatives are with respect to the points only.

    Args:
        points: The moments as a function of ``n x d`` points.
        X: ``... x d`` points.
        offset: Added to the means.
        unit: The unit of the results, in which moments are multiplied.

    Returns:
        Two tensors of shape ``...`` in float64: ``offset + unit mean`` and ``unit^2 var``.
    """
    if torch.is_grad_enabled() and X.requires_grad:
        return _Moments.apply(X, points, offset, unit)
    with torch.no_grad():
        at = points.evaluate(X.reshape(-1, X.shape[-1]))
        return _in_units(at.mean, at.var, X, offset, unit)


def _in_units(
    mean: Tensor, var: Tensor, X: Tensor, offset: float, unit: float
) -> tuple[Tensor, Tensor]:
    shape = X.shape[:-1]
    return (mean * unit).add_(offset).view(shape), (var * unit**2).view(shape)


class _Moments(torch.autograd.Function):
    r"""Means and variances, with analytic derivatives. Second derivatives use autograd."""

    @staticmethod
    def forward(
        ctx: Any, X: Tensor, points: Any, offset: float, unit: float
    ) -> tuple[Tensor, Tensor]:
        at = points.evaluate(X.reshape(-1, X.shape[-1]))
        ctx.points, ctx.at, ctx.unit = points, at, unit
        ctx.save_for_backward(X)
        return _in_units(at.mean, at.var, X, offset, unit)

    @staticmethod
    def backward(ctx: Any, by_mean: Tensor, by_var: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (X,) = ctx.saved_tensors
        by_mean, by_var = by_mean.reshape(-1) * ctx.unit, by_var.reshape(-1) * ctx.unit**2
        if torch.is_grad_enabled():  # second derivatives are wanted
            found = ctx.points.general(X.reshape(-1, X.shape[-1]))
            (gradient,) = torch.autograd.grad(found, X, (by_mean, by_var), create_graph=True)
            return gradient, None, None, None
        gradient, dims = ctx.points.pull(ctx.at, by_mean, by_var), ctx.points.form.dims
        if dims is not None:
            full = gradient.new_zeros(len(gradient), X.shape[-1])
            gradient = full.index_add(-1, dims, gradient)
        return gradient.view(X.shape).to(X.dtype), None, None, None
