r"""DTC / Nyström algebra on plain tensors: no kernels, no models.

With a dictionary ``S`` of ``m`` points, ``K_SS = L L'`` and the embedding
``z(x) = L^{-1} k_S(x)``, the deterministic training conditional models the data as
``y = Z theta + noise`` with ``theta ~ N(0, I)`` and noise covariance ``Lam = diag(noise)``,
and keeps the prior's own variance for what the embedding cannot see. With

.. code-block:: text

    A = I + Z' Lam^{-1} Z = R R',     w(x) = R^{-1} z(x),     c = R^{-1} Z' Lam^{-1} y

the posterior of BKB eq. (4) (where ``V = lambda A``) is, one identity a line,

.. code-block:: text

    mean(x)    = w(x)'c
    var(x)     = [k(x,x) - |z(x)|^2] + |w(x)|^2
    cov(x,x')  = [k(x,x') - z(x)'z(x')] + w(x)'w(x')
    tau(x)     = var(x) / lambda                      (the papers' sigma~^2)

The bracket is what keeps the variance from starving away from the dictionary; it is the
only place where rounding can produce a negative number, and the only one clamped.

Everything carries leading batch dimensions. ``noise`` are variances, one an observation.
With ``counts``, a row stands for that many pulls of one input and its target is the *sum*
of their rewards.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from botorch.exceptions.errors import InputDataError
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor


class KernelNotPSDError(InputDataError, NotPSDError):
    r"""A kernel matrix that no reasonable jitter makes positive definite.

    It is BoTorch's ``InputDataError`` for users, and linear_operator's ``NotPSDError`` for
    ``fit_gpytorch_mll``, which answers that one by another attempt.
    """


def safe_cholesky(
    matrix: Tensor, precision: torch.dtype | None = None, prior: Tensor | None = None
) -> Tensor:
    r"""Cholesky factor of a kernel matrix that may be singular up to rounding.

    Adds a jitter of the size of the rounding in the entries: ``1e-13`` of the mean diagonal,
    ``1e-6`` for entries computed in float32, and ten times more as often as it takes. A
    Nyström posterior with jitter is that of dictionary values seen through noise of that
    variance: still a valid Gaussian process, with a variance never below the one without.

    Args:
        matrix: A ``batch x m x m`` kernel matrix.
        precision: The dtype in which the entries were computed, if coarser than the matrix's.
        prior: The kernel matrix whose Schur complement ``matrix`` is, if it is one: rounding
            is relative to its diagonal.

    Returns:
        The ``batch x m x m`` lower factor. A jitter that may be seen in results (``1e-9``,
        ``1e-5`` in float32) brings one warning.

    Raises:
        KernelNotPSDError: If the matrix is not positive semi-definite.
    """
    base, tries = (1e-13, 6) if (precision or matrix.dtype) == torch.float64 else (1e-6, 3)
    reference = matrix if prior is None else prior
    scale = reference.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].detach()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    relative = matrix / scale + base * eye
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            root = psd_safe_cholesky(relative, jitter=10 * base, max_tries=tries)
    except (NotPSDError, NanError) as error:
        raise KernelNotPSDError(
            "The kernel matrix of the dictionary must be finite and positive semi-definite, got "
            f"one of shape {tuple(matrix.shape)} that is not, even with relative jitter "
            f"{base * 10**tries:.0e} ({error}). Likely causes: a kernel that is not positive "
            "definite, hyperparameters that overflowed, or inputs on very different scales "
            "(use Normalize)."
        ) from error
    # psd_safe_cholesky warns at each try, and the last says how far it went.
    if len(caught) >= tries - 2:
        warnings.warn(caught[-1].message, stacklevel=2)
    return root * scale.sqrt()


def solve_rows(root: Tensor, rows: Tensor) -> Tensor:
    r"""Apply ``root^{-1}`` to each row: ``rows root^{-T}``.

    Leading dimensions of ``rows`` that ``root`` lacks are folded into the rows, so that one
    factor is never copied for each t-batch.

    Args:
        root: A ``batch x m x m`` lower-triangular matrix.
        rows: A ``... x batch x q x m`` tensor.
    """
    extra = rows.dim() - root.dim()
    if extra <= 0 or rows.shape[extra:-2] != root.shape[:-2]:
        return torch.linalg.solve_triangular(root.mT, rows, upper=True, left=False)
    lead = rows.shape[:extra]
    folded = rows.reshape(-1, *rows.shape[extra:]).movedim(0, -3).flatten(-3, -2)
    out = torch.linalg.solve_triangular(root.mT, folded, upper=True, left=False)
    out = out.unflatten(-2, (math.prod(lead), rows.shape[-2])).movedim(-3, 0)
    return out.reshape(rows.shape)


def solve_vector(root: Tensor, vector: Tensor) -> Tensor:
    r"""``root^{-1} vector`` for a ``... x batch x m`` vector."""
    return solve_rows(root, vector.unsqueeze(-2)).squeeze(-2)


def extend_cholesky(root: Tensor, cross: Tensor, corner: Tensor) -> Tensor:
    r"""Cholesky factor of ``[[M, cross'], [cross, corner]]`` from that of ``M``.

    Costs ``O(m^2 k)`` for ``k`` new rows; nothing is factorised again.

    Args:
        root: The ``batch x m x m`` lower factor of ``M``.
        cross: ``batch x k x m``.
        corner: ``batch x k x k``.
    """
    left = solve_rows(root, cross)
    tail = safe_cholesky(corner - left @ left.mT, prior=corner)
    return _block_triangular(root, left, tail)


def _block_triangular(root: Tensor, left: Tensor, tail: Tensor) -> Tensor:
    batch = torch.broadcast_shapes(root.shape[:-2], left.shape[:-2], tail.shape[:-2])
    top = torch.nn.functional.pad(root.expand(*batch, *root.shape[-2:]), (0, tail.shape[-1]))
    bottom = torch.cat(
        [left.expand(*batch, *left.shape[-2:]), tail.expand(*batch, *tail.shape[-2:])], -1
    )
    return torch.cat([top, bottom], -2)


def _running_energy(u: Tensor) -> tuple[Tensor, Tensor]:
    r"""``t_k = 1 + u_1^2 + ... + u_k^2`` and the same without the last term."""
    after = 1 + u.square().cumsum(-1)
    return after, torch.cat([torch.ones_like(after[..., :1]), after[..., :-1]], -1)


def rank_one_root(root: Tensor, u: Tensor) -> Tensor:
    r"""Lower factor of ``root (I + u u') root'`` in ``O(m^2)``, without a loop.

    ``I + uu'`` has the semi-separable Cholesky factor ``D_kk = sqrt(t_k / t_{k-1})``,
    ``D_jk = u_j u_k / sqrt(t_k t_{k-1})`` for ``j > k``, so ``root D`` is a scaled copy of
    the columns plus a scaled sum of the columns to their right.

    Args:
        root: ``batch x m x m`` lower-triangular.
        u: ``batch x m``.
    """
    after, before = _running_energy(u)
    scaled = root * u.unsqueeze(-2)
    to_the_right = scaled.flip(-1).cumsum(-1).flip(-1) - scaled
    gain = u / (after * before).sqrt()
    updated = root * (after / before).sqrt().unsqueeze(-2) + to_the_right * gain.unsqueeze(-2)
    return updated.tril()


def rank_one_solve(u: Tensor, rows: Tensor) -> Tensor:
    r"""Apply ``D^{-1}`` of :func:`rank_one_root` to each row in ``O(m)`` a row.

    Args:
        u: ``batch x m``.
        rows: ``batch x n x m``.
    """
    after, before = (t.unsqueeze(-2) for t in _running_energy(u))
    u = u.unsqueeze(-2)
    weighted = rows * u
    to_the_left = weighted.cumsum(-1) - weighted
    return (rows - u * to_the_left / before) * (before / after).sqrt()


class Embedding(NamedTuple):
    r"""Where points stand relative to a :class:`DTCFactor`: ``z`` and ``w = R^{-1} z``."""

    z: Tensor  #: ``... x q x m``
    w: Tensor  #: ``... x q x m``

    def posterior_covariance(self, other: Embedding, prior: Tensor) -> Tensor:
        r"""DTC covariance between two sets of points, ``prior`` being their kernel matrix."""
        return prior - self.z @ other.z.mT + self.w @ other.w.mT

    def covariance(self, prior: Tensor) -> Tensor:
        r"""Joint DTC covariance, ``... x q x q``, its diagonal no less than ``|w|^2``."""
        residual = prior - self.z @ self.z.mT
        lift = residual.diagonal(dim1=-2, dim2=-1).clamp_max(0).neg()
        return residual + torch.diag_embed(lift) + self.w @ self.w.mT

    def variance(self, prior: Tensor) -> Tensor:
        r"""DTC variance, ``... x q``, ``prior`` being ``k(x,x)``."""
        return (prior - self.z.square().sum(-1)).clamp_min(0) + self.w.square().sum(-1)


def information(
    Z: Tensor, targets: Tensor, noise: Tensor, counts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""What the data say of ``theta``: ``Z' Lam^{-1} Z`` and ``Z' Lam^{-1} y``.

    Both are sums over the data, so blocks of rows may be added up.

    Args:
        Z: ``batch x n x m`` embedded inputs.
        targets: ``batch x n`` observations, or sums of rewards where ``counts`` are given.
        noise: ``batch x n`` noise variance of a single observation.
        counts: ``n`` numbers of pulls.
    """
    weighted = Z / noise.unsqueeze(-1)
    rhs = (weighted * targets.unsqueeze(-1)).sum(-2)
    if counts is not None:
        weighted = weighted * counts.unsqueeze(-1)
    return weighted.mT @ Z, rhs


def log_evidence(Z: Tensor, targets: Tensor, noise: Tensor) -> Tensor:
    r"""Log density of ``y ~ N(0, Z Z' + Lam)`` in ``O(n m^2)``.

    .. code-block:: text

        -1/2 [ y'Lam^{-1}y - |c|^2 + log det A + log det Lam + n log 2 pi ]

    Args:
        Z: ``batch x n x m``.
        targets: ``batch x n``.
        noise: ``batch x n``.
    """
    scale = noise.rsqrt()
    Z, targets = Z * scale.unsqueeze(-1), targets * scale
    eye = torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device)
    info_root = psd_safe_cholesky(Z.mT @ Z + eye)
    coef = solve_vector(info_root, (Z.mT @ targets.unsqueeze(-1)).squeeze(-1))
    quadratic = targets.square().sum(-1) - coef.square().sum(-1)
    logdet = 2 * info_root.diagonal(dim1=-2, dim2=-1).log().sum(-1) + noise.log().sum(-1)
    return -0.5 * (quadratic + logdet + targets.shape[-1] * math.log(2 * math.pi))


@dataclass(frozen=True)
class DTCFactor:
    r"""The DTC posterior as three tensors, built once and applied often.

    Attributes:
        root: ``batch x m x m``, the lower factor ``L`` of ``K_SS``.
        info_root: ``batch x m x m``, the lower factor ``R`` of ``A = I + Z' Lam^{-1} Z``.
        coef: ``batch x m``, ``c = R^{-1} Z' Lam^{-1} y``.

    Example:
        >>> import torch
        >>> from botorch_bkb.linalg import DTCFactor
        >>> K = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
        >>> y, noise = torch.ones(2, dtype=torch.float64), torch.full((2,), 0.5).double()
        >>> factor = DTCFactor.build(K, K, y, noise)
        >>> e = factor.embed(K)
        >>> exact = torch.linalg.solve(K + noise.diag(), K)
        >>> torch.allclose(factor.mean(e), exact.T @ y)
        True
        >>> torch.allclose(e.covariance(K), K - K @ exact)
        True
    """

    root: Tensor
    info_root: Tensor
    coef: Tensor

    @classmethod
    def build(
        cls,
        K_SS: Tensor,
        K_XS: Tensor,
        targets: Tensor,
        noise: Tensor,
        counts: Tensor | None = None,
    ) -> DTCFactor:
        r"""Factorise from kernel matrices; see :func:`information` for the arguments.

        Args:
            K_SS: ``batch x m x m``.
            K_XS: ``batch x n x m``.
            targets: ``batch x n``.
            noise: ``batch x n``.
            counts: ``n``.
        """
        root = safe_cholesky(K_SS)
        return cls.from_information(
            root, *information(solve_rows(root, K_XS), targets, noise, counts)
        )

    @classmethod
    def from_information(cls, root: Tensor, gram: Tensor, rhs: Tensor) -> DTCFactor:
        r"""Factorise from ``L``, ``Z' Lam^{-1} Z`` and ``Z' Lam^{-1} y``."""
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        info_root = psd_safe_cholesky(gram + eye)
        return cls(root, info_root, solve_vector(info_root, rhs))

    def embed(self, K_xS: Tensor) -> Embedding:
        r"""``z`` and ``w`` of points with kernel values ``K_xS`` (``... x q x m``)."""
        z = solve_rows(self.root, K_xS)
        return Embedding(z, solve_rows(self.info_root, z))

    def mean(self, e: Embedding) -> Tensor:
        r"""Posterior mean, ``... x q``."""
        return (e.w @ self.coef.unsqueeze(-1)).squeeze(-1)

    def observe(self, z: Tensor, target: Tensor, noise: Tensor) -> DTCFactor:
        r"""One more observation at an embedded point, by a rank-one update in ``O(m^2)``.

        Args:
            z: ``batch x m``.
            target: ``batch``.
            noise: ``batch``.
        """
        z, target = z * noise.rsqrt().unsqueeze(-1), target * noise.rsqrt()
        u = solve_vector(self.info_root, z)
        coef = (self.coef + u * target.unsqueeze(-1)).unsqueeze(-2)
        return replace(
            self,
            info_root=rank_one_root(self.info_root, u),
            coef=rank_one_solve(u, coef).squeeze(-2),
        )

    def append(
        self,
        Z: Tensor,
        K_sS: Tensor,
        K_ss: Tensor,
        K_Xs: Tensor,
        targets: Tensor,
        noise: Tensor,
        counts: Tensor | None = None,
    ) -> tuple[DTCFactor, Tensor]:
        r"""``k`` more dictionary points, in ``O(n m k)``: each adds one coordinate.

        Args:
            Z: ``batch x n x m``, the embedded observations.
            K_sS: ``batch x k x m``, new against old dictionary points.
            K_ss: ``batch x k x k``.
            K_Xs: ``batch x n x k``, observations against new dictionary points.
            targets: ``batch x n``; see :func:`information`.
            noise: ``batch x n``.
            counts: ``n``.

        Returns:
            The new factor, and the observations embedded in it (``batch x n x (m+k)``).
        """
        root = extend_cholesky(self.root, K_sS, K_ss)
        m = self.root.shape[-1]
        left, tail = root[..., m:, :m], root[..., m:, m:]
        new = solve_rows(tail, K_Xs - Z @ left.mT)
        Z = torch.cat([Z, new], -1)
        weight = (noise if counts is None else noise / counts).reciprocal().unsqueeze(-1)
        cross = new.mT @ (Z * weight)  # the new rows of Z' Lam^{-1} Z
        k = new.shape[-1]
        eye = torch.eye(k, dtype=Z.dtype, device=Z.device)
        left = solve_rows(self.info_root, cross[..., :m])
        tail = psd_safe_cholesky(cross[..., m:] + eye - left @ left.mT)
        rhs = (new * (targets / noise).unsqueeze(-1)).sum(-2)
        rhs = rhs - (left @ self.coef.unsqueeze(-1)).squeeze(-1)
        extra = solve_vector(tail, rhs)
        factor = DTCFactor(
            root, _block_triangular(self.info_root, left, tail), torch.cat([self.coef, extra], -1)
        )
        return factor, Z

    def drop(self, Z: Tensor, index: int) -> tuple[DTCFactor, Tensor]:
        r"""One dictionary point less, in ``O(n m + m^3)``.

        Deleting row ``j`` of ``L`` leaves a rank-one term in the block below it. With
        ``u = L_33^{-1} l_32`` the coordinates after ``j`` become ``D^{-1}(z_3 + u z_j)``, the
        others stay (:func:`rank_one_solve`): a rotation of which the last coordinate is
        thrown away.

        Args:
            Z: ``batch x n x m``, the embedded observations.
            index: Position of the point in the dictionary.

        Returns:
            The new factor, and the observations embedded in it (``batch x n x (m-1)``).
        """
        m = self.root.shape[-1]
        after = slice(index + 1, m)
        tail = self.root[..., after, after]
        u = solve_vector(tail, self.root[..., after, index])

        def rotate(rows: Tensor) -> Tensor:
            moved = rows[..., after] + rows[..., index, None] * u.unsqueeze(-2)
            return torch.cat([rows[..., :index], rank_one_solve(u, moved)], -1)

        root = _block_triangular(
            self.root[..., :index, :index],
            self.root[..., after, :index],
            rank_one_root(tail, u),
        )
        # A is rotated on both sides, Z' Lam^{-1} y = R c on one.
        gram = rotate(rotate(self.info_root @ self.info_root.mT).mT)
        rhs = rotate((self.info_root @ self.coef.unsqueeze(-1)).mT).squeeze(-2)
        info_root = psd_safe_cholesky(gram)
        return DTCFactor(root, info_root, solve_vector(info_root, rhs)), rotate(Z)


@dataclass(frozen=True)
class Conditional:
    r"""The exact conditional of the DTC process on ``q`` further observations.

    The process with the DTC mean and covariance is a Gaussian process like any other.
    Conditioned on ``(X_q, y_q)`` with ``M = cov(X_q, X_q) + Lam_q = T T'``:

    .. code-block:: text

        mean(x | q)   = mean(x) + cov(x, X_q) M^{-1} (y_q - mean(X_q))
        cov(x,x' | q) = cov(x, x') - cov(x, X_q) M^{-1} cov(X_q, x')

    A fixed-dictionary update could not do this: it leaves the residual variance off the
    dictionary's span where it was. ``O(m^2 q + q^3)``, whatever the number of observations.

    Attributes:
        embedding: Of the ``q`` points.
        root: ``... x q x q``, the lower factor ``T``.
        coef: ``... x q``, ``T^{-1}(y_q - mean(X_q))``; may have more batch dimensions (one
            for each fantasy of the outcomes) than ``root``.
    """

    embedding: Embedding
    root: Tensor
    coef: Tensor

    @classmethod
    def build(cls, e: Embedding, prior: Tensor, residual: Tensor, noise: Tensor) -> Conditional:
        r"""Condition on points with kernel matrix ``prior``.

        Args:
            e: Embedding of the points, ``... x q x m``.
            prior: Their kernel matrix, ``... x q x q``.
            residual: ``y_q - mean(X_q)``, ``... x q``.
            noise: Noise variances, ``... x q``.
        """
        root = psd_safe_cholesky(e.covariance(prior) + torch.diag_embed(noise))
        return cls(e, root, solve_vector(root, residual))

    def extend(
        self, e: Embedding, prior: Tensor, cross: Tensor, residual: Tensor, noise: Tensor
    ) -> Conditional:
        r"""Condition further: sequential conditioning equals joint conditioning.

        Args:
            e: Embedding of the ``k`` new points.
            prior: Their kernel matrix, ``... x k x k``.
            cross: Kernel between new and earlier points, ``... x k x q``.
            residual: ``y_k - mean(X_k)`` under the DTC posterior, ``... x k``.
            noise: Noise variances, ``... x k``.
        """
        left = solve_rows(self.root, e.posterior_covariance(self.embedding, cross))
        corner = e.covariance(prior) + torch.diag_embed(noise)
        tail = psd_safe_cholesky(corner - left @ left.mT)
        residual = residual - (left @ self.coef.unsqueeze(-1)).squeeze(-1)
        new = solve_vector(tail, residual)
        return Conditional(
            Embedding(*(_cat_rows(a, b) for a, b in zip(self.embedding, e, strict=True))),
            _block_triangular(self.root, left, tail),
            _cat_rows(self.coef.unsqueeze(-1), new.unsqueeze(-1)).squeeze(-1),
        )

    def project(self, e: Embedding, cross: Tensor) -> Tensor:
        r"""``cov(x, X_q) T^{-T}``, ``... x p x q``, for points with kernel ``cross``."""
        return solve_rows(self.root, e.posterior_covariance(self.embedding, cross))


def _cat_rows(first: Tensor, second: Tensor) -> Tensor:
    r"""Concatenate along the second last dimension, broadcasting the batch."""
    batch = torch.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    return torch.cat([t.expand(*batch, *t.shape[-2:]) for t in (first, second)], -2)


def map_tensors(value, function):
    r"""A copy of a (nested) dataclass or tuple of tensors with ``function`` applied to each."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple):
        items = (map_tensors(item, function) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if value is None:
        return None
    changes = {f.name: map_tensors(getattr(value, f.name), function) for f in fields(value)}
    return replace(value, **changes)
