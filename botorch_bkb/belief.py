r"""The DTC posterior that a model caches, for a given kernel, mean and dictionary.

This module connects kernels with :mod:`botorch_bkb.linalg`. Kernel values are computed in the
model's dtype, and all ``m x m`` algebra in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from linear_operator.operators import (
    LinearOperator,
    RootLinearOperator,
    SumLinearOperator,
    to_linear_operator,
)
from torch import Tensor

from botorch_bkb.closed_form import closed_diagonal, closed_form, closed_matrix
from botorch_bkb.features import FeatureKernel, has_features
from botorch_bkb.linalg import (
    Conditional,
    DTCFactor,
    Embedding,
    cat_rows,
    information,
    negligible,
    safe_cholesky,
    solve_rows,
)
from botorch_bkb.single_points import SinglePoints, moments

#: Number of training rows embedded at a time.
CHUNK = 4096
#: Joint posteriors over more points than this keep their covariance lazy.
DENSE_LIMIT = 1024


def kernel_matrix(kernel: Kernel, X1: Tensor, X2: Tensor | None = None) -> Tensor:
    r"""Compute ``k(X1, X2)`` in float64, ``batch x q1 x q2``."""
    if isinstance(kernel, FeatureKernel):
        Z = kernel.features(X1)
        return Z @ (Z if X2 is None else kernel.features(X2)).mT
    if (form := closed_form(kernel)) is not None:
        return closed_matrix(form, X1, X1 if X2 is None else X2)
    return kernel(X1, X2).to_dense().double()


def kernel_diagonal(kernel: Kernel, X: Tensor) -> Tensor:
    r"""Compute ``k(x, x)`` in float64, ``batch x q``."""
    if isinstance(kernel, FeatureKernel):
        return kernel.variance(X)
    if (form := closed_form(kernel)) is not None:
        return closed_diagonal(form, X)
    return kernel(X, diag=True).double()


@torch.no_grad()
def check_kernel_on(kernel: Kernel, X: Tensor) -> None:
    r"""Raise unless a kernel returns one matrix for inputs like these.

    Args:
        kernel: The covariance module.
        X: A few inputs, ``q x d``.
    """
    try:
        kernel(X, diag=True)  # gpytorch checks the columns, which closed forms may broadcast
        got = f"a matrix of shape {tuple(kernel_matrix(kernel, X).shape)}"
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
    if got != f"a matrix of shape {(len(X), len(X))}":
        raise InputDataError(
            f"covar_module must return a {len(X)} x {len(X)} matrix for {len(X)} inputs of "
            f"{X.shape[-1]} columns, got {got}: check its ard_num_dims, active_dims and "
            "batch_shape."
        )


def dictionary_root(kernel: Kernel, points: Tensor) -> Tensor:
    r"""Compute the lower factor ``L`` of ``K_SS``, ``batch x m x m``.

    For a kernel with features it is the identity, whatever the points.
    """
    if isinstance(kernel, FeatureKernel):
        eye = torch.eye(kernel.num_features, dtype=torch.float64, device=points.device)
        batch = torch.broadcast_shapes(points.shape[:-2], kernel.batch_shape)
        return eye.expand(*batch, *eye.shape)
    return safe_cholesky(kernel_matrix(kernel, points), precision=points.dtype)


def coordinates(kernel: Kernel, X: Tensor, points: Tensor, root: Tensor) -> Tensor:
    r"""Embed inputs: ``z(x) = L^{-1} k_S(x)``, or the features of a kernel that has them.

    This is the only place that says how inputs are embedded.

    Args:
        kernel: The covariance module.
        X: ``batch x q x d`` inputs.
        points: ``batch x m x d`` inputs of the dictionary; ignored for a kernel with features.
        root: The result of :func:`dictionary_root`.

    Returns:
        ``batch x q x m`` coordinates in float64.
    """
    if isinstance(kernel, FeatureKernel):
        return kernel.features(X)
    if points.shape[-2] == 0:
        return X.new_empty(*X.shape[:-1], 0, dtype=torch.float64)
    return solve_rows(root, kernel_matrix(kernel, X, points))


def zero_mean(X: Tensor) -> Tensor:
    r"""Return zeros, ``batch x q``."""
    return X.new_zeros(X.shape[:-1])


def chunks(n: int, size: int = CHUNK) -> Iterator[slice]:
    r"""Yield slices that cover ``range(n)``, at least one."""
    return (slice(start, min(start + size, n)) for start in range(0, max(n, 1), size))


@dataclass(frozen=True)
class Belief:
    r"""An immutable cached posterior, with evaluation cost independent of the data size.

    Attributes:
        points: The dictionary's inputs, ``batch x m x d``; none for a kernel with features.
        factor: The DTC factor of the dictionary given the training data.
        extra_points: Inputs conditioned on afterwards, ``batch x q x d``, or None.
        conditional: The conditional of the DTC process on ``extra_points``, or None.
    """

    points: Tensor
    factor: DTCFactor
    extra_points: Tensor | None = None
    conditional: Conditional | None = None

    @classmethod
    @torch.no_grad()
    def build(
        cls, kernel: Kernel, points: Tensor, X: Tensor, residual: Tensor, noise: Tensor
    ) -> Belief:
        r"""Compute the posterior in one pass over the data, in ``O(n m^2)``.

        Rows are embedded in chunks, with ``O(m)`` memory per row of a chunk.

        Args:
            kernel: The covariance module.
            points: Dictionary inputs, ``batch x m x d``.
            X: Training inputs, ``batch x n x d``.
            residual: Targets minus the prior mean, ``batch x n``.
            noise: Noise variances, ``batch x n``.
        """
        root = dictionary_root(kernel, points)
        residual, noise = residual.double(), noise.double()
        gram, rhs = torch.zeros_like(root), torch.zeros_like(root[..., 0])
        for rows in chunks(X.shape[-2]):
            Z = coordinates(kernel, X[..., rows, :], points, root)
            more_gram, more_rhs = information(Z, residual[..., rows], noise[..., rows])
            gram, rhs = gram + more_gram, rhs + more_rhs
        return cls(points, DTCFactor.from_information(root, gram, rhs))

    @classmethod
    def prior(cls, like: Tensor) -> Belief:
        r"""Return the belief without observations, with an empty dictionary.

        Args:
            like: A ``batch x n x d`` tensor with the shape, dtype and device of the inputs.
        """
        empty = like.new_empty(*like.shape[:-2], 0, 0, dtype=torch.float64)
        return cls(like[..., :0, :], DTCFactor(empty, empty, empty.sum(-1)))

    def with_points_as(self, dtype: torch.dtype) -> Belief:
        r"""Return this belief for a model of another dtype; the algebra stays in float64."""
        extra = None if self.extra_points is None else self.extra_points.to(dtype)
        return replace(self, points=self.points.to(dtype), extra_points=extra)

    def embed(self, kernel: Kernel, X: Tensor) -> Embedding:
        r"""Compute the embedding of ``X`` for the dictionary."""
        return self.factor.whitened(coordinates(kernel, X, self.points, self.factor.root))

    def _mean_and_projection(
        self, kernel: Kernel, mean: Callable[[Tensor], Tensor], X: Tensor, e: Embedding
    ) -> tuple[Tensor, Tensor | None]:
        value, V = mean(X).double() + self.factor.mean(e), self._projection(kernel, X, e)
        if V is None or self.conditional is None:
            return value, None
        return value + (V @ self.conditional.coef.unsqueeze(-1)).squeeze(-1), V

    def _projection(self, kernel: Kernel, X: Tensor, e: Embedding) -> Tensor | None:
        if self.conditional is None:
            return None
        return self.conditional.project(e, kernel_matrix(kernel, X, self.extra_points))

    def moments(self, kernel: Kernel, mean: Mean, X: Tensor) -> tuple[Tensor, LinearOperator]:
        r"""Compute the posterior mean ``... x q`` and covariance ``... x q x q`` at ``X``."""
        e = self.embed(kernel, X)
        value, V = self._mean_and_projection(kernel, mean, X, e)
        if X.shape[-2] > DENSE_LIMIT:
            return value, self._lazy_covariance(kernel, X, e, V)
        return value, to_linear_operator(self._joint(kernel, X, e, V).to(X.dtype))

    def covariance(self, kernel: Kernel, X: Tensor) -> Tensor:
        r"""Compute the joint covariance ``... x q x q`` at ``X`` in float64."""
        e = self.embed(kernel, X)
        return self._joint(kernel, X, e, self._projection(kernel, X, e))

    @staticmethod
    def _joint(kernel: Kernel, X: Tensor, e: Embedding, V: Tensor | None) -> Tensor:
        covar = e.w @ e.w.mT if has_features(kernel) else e.covariance(kernel_matrix(kernel, X))
        return covar if V is None else covar - V @ V.mT

    @staticmethod
    def _lazy_covariance(kernel: Kernel, X: Tensor, e: Embedding, V: Tensor | None):
        r"""Return the joint covariance as a lazy sum, without ``q x q`` matrices in memory."""
        if has_features(kernel) and V is None:
            return RootLinearOperator(e.w.to(X.dtype))
        minus = e.z if V is None else torch.cat([e.z.expand(*V.shape[:-1], -1), V], -1)
        return SumLinearOperator(
            kernel(X),
            RootLinearOperator(e.w.to(X.dtype)),
            RootLinearOperator(minus.to(X.dtype)).mul(-1),
        )

    def marginals(self, kernel: Kernel, mean: Mean, X: Tensor) -> tuple[Tensor, Tensor]:
        r"""Compute posterior means and variances ``... x q`` in float64, without covariances.

        For kernels in closed form the derivatives with respect to ``X`` are analytic.
        """
        if (singles := self.single_points(kernel, X)) is None:
            return self._marginals(kernel, mean, X)
        value, var = moments(singles, X)
        return mean(X).double() + value, var

    def single_points(self, kernel: Kernel, X: Tensor) -> SinglePoints | None:
        r"""Return the moments of single points, or None if autograd is needed for them.

        Args:
            kernel: The covariance module.
            X: The points. If they require no gradient, but hyperparameters do, autograd is used.
        """
        if (form := closed_form(kernel)) is None:
            return None
        if torch.is_grad_enabled() and not X.requires_grad:
            return None
        extra = None if self.extra_points is None else form.read(self.extra_points)
        general = partial(self._marginals, kernel, zero_mean)
        singles = SinglePoints(
            form, form.read(self.points), self.factor, extra, self.conditional, general
        )
        return singles if singles.is_covered else None

    def _marginals(
        self, kernel: Kernel, mean: Callable[[Tensor], Tensor], X: Tensor
    ) -> tuple[Tensor, Tensor]:
        e = self.embed(kernel, X)
        value, V = self._mean_and_projection(kernel, mean, X, e)
        return value, self._diagonal(kernel, X, e, V)

    @staticmethod
    def _diagonal(
        kernel: Kernel, X: Tensor, e: Embedding, V: Tensor | None, negligible: Tensor | None = None
    ) -> Tensor:
        var = e.variance(kernel_diagonal(kernel, X), negligible)
        return var if V is None else (var - V.square().sum(-1)).clamp_min(0)

    @torch.no_grad()
    def variance(self, kernel: Kernel, X: Tensor, round_off: bool = False) -> Tensor:
        r"""Compute posterior variances ``... x q`` in float64, in chunks, never ``q x q``.

        Args:
            kernel: The covariance module.
            X: ``... x q x d``.
            round_off: Whether what rounding leaves unexplained counts as zero
                (:func:`~botorch_bkb.linalg.negligible`).
        """
        out, least = [], None
        if round_off and self.points.shape[-2]:
            size = kernel_diagonal(kernel, self.points).mean(-1, keepdim=True)
            least = negligible(X.dtype) * size
        for rows in chunks(X.shape[-2]):
            x = X[..., rows, :]
            e = self.embed(kernel, x)
            V = self._projection(kernel, x, e)
            out.append(self._diagonal(kernel, x, e, V, least))
        return torch.cat(out, -1)

    def condition(
        self, kernel: Kernel, mean: Mean, X: Tensor, targets: Tensor, noise: Tensor
    ) -> Belief:
        r"""Condition the DTC process on ``q`` further observations, in ``O(m^2 q + q^3)``.

        Args:
            kernel: The covariance module.
            mean: The mean module.
            X: ``batch x q x d``.
            targets: ``batch' x q``, possibly with more batch dimensions than ``X``.
            noise: ``batch' x q``.
        """
        e = self.embed(kernel, X)
        prior = kernel_matrix(kernel, X)
        residual = targets.double() - mean(X).double() - self.factor.mean(e)
        noise = noise.double()
        if self.conditional is None or self.extra_points is None:
            conditional = Conditional.build(e, prior, residual, noise, X.dtype)
            return Belief(self.points, self.factor, X, conditional)
        cross = kernel_matrix(kernel, X, self.extra_points)
        conditional = self.conditional.extend(e, prior, cross, residual, noise, X.dtype)
        return Belief(self.points, self.factor, cat_rows(self.extra_points, X), conditional)

    def absorb(
        self,
        kernel: Kernel,
        mean: Mean,
        X: Tensor,
        targets: Tensor,
        noise: Tensor,
        joins: Tensor,
    ) -> Belief:
        r"""Add observations to the DTC posterior, in ``O(m^2)`` per point.

        Some of the points join the dictionary first. The posterior is conditioned exactly on
        these. Earlier data are not embedded again.

        Args:
            kernel: The covariance module.
            mean: The mean module.
            X: ``batch x q x d``.
            targets: ``batch' x q``, possibly with more batch dimensions than ``X``.
            noise: ``batch' x q``.
            joins: The positions of the points that join the dictionary.
        """
        assert self.conditional is None  # a belief uses either ``absorb`` or ``condition``
        residual, noise = targets.double() - mean(X).double(), noise.double()
        batch = torch.broadcast_shapes(self.factor.coef.shape[:-1], residual.shape[:-1])
        factor = replace(
            self.factor, coef=self.factor.coef.expand(*batch, self.factor.coef.shape[-1])
        )
        belief, joining = Belief(self.points, factor), set(joins.tolist())
        for i in range(X.shape[-2]):
            x = X[..., i : i + 1, :]
            if i in joining:
                belief = belief._widened(kernel, x)
            if belief.points.shape[-2] == 0:
                continue
            z = belief.embed(kernel, x).z.squeeze(-2)
            factor = belief.factor.observe(z, residual[..., i], noise[..., i])
            belief = Belief(belief.points, factor)
        return belief

    def _widened(self, kernel: Kernel, x: Tensor) -> Belief:
        r"""Add ``x`` to the dictionary, unless it is in its span already, up to rounding."""
        prior = kernel_matrix(kernel, x)
        cross = prior[..., :0]
        if self.points.shape[-2]:
            cross = kernel_matrix(kernel, x, self.points)
        z = solve_rows(self.factor.root, cross)
        unseen = prior.squeeze(-1) - z.square().sum(-1)
        if not (unseen > negligible(x.dtype) * prior.squeeze(-1)).any():
            return self
        factor = self.factor.widen(cross, prior, x.dtype)
        return Belief(cat_rows(self.points, x), factor)
