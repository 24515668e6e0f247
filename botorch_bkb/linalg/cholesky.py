r"""Cholesky factors with jitter, triangular solves, and updates without refactorisation."""

from __future__ import annotations

import math
import warnings

import torch
from botorch.exceptions.errors import InputDataError
from linear_operator import settings
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

#: The most negative eigenvalue, over the mean diagonal, of a kernel matrix that is still accepted.
SLIGHTLY_INDEFINITE = 0.05

#: Ten times the least jitter of :func:`safe_cholesky`, for entries in float64 and in others.
NEGLIGIBLE, NEGLIGIBLE_IN_SINGLE = 1e-11, 1e-5


def negligible(precision: torch.dtype) -> float:
    r"""Return the share of a mean ``k(x,x)`` that a factor with jitter leaves unexplained.

    The jitter ``j`` leaves up to ``j`` of the variance at the dictionary's own points.

    Args:
        precision: The dtype in which the kernel was computed.
    """
    return NEGLIGIBLE if precision == torch.float64 else NEGLIGIBLE_IN_SINGLE


class KernelNotPSDError(InputDataError, NotPSDError):
    r"""An error for a kernel matrix that no reasonable jitter makes positive definite.

    For users it is BoTorch's ``InputDataError``. It is also linear_operator's ``NotPSDError``,
    because ``fit_gpytorch_mll`` makes another attempt after that error.
    """


class InformationError(InputDataError, NotPSDError):
    r"""An error for data that are too precise for float64, for BoTorch and linear_operator."""


def safe_cholesky(
    matrix: Tensor, precision: torch.dtype | None = None, prior: Tensor | None = None
) -> Tensor:
    r"""Compute the Cholesky factor of a kernel matrix that may be singular up to rounding.

    The function adds a jitter of the size of the rounding errors in the entries. This is ``1e-12``
    of the mean diagonal, or ``1e-6`` for entries computed in float32. If the factorisation fails,
    it multiplies the jitter by ten and tries again. A Nyström posterior with jitter treats the
    dictionary values as observed with noise of that variance. It is still a valid Gaussian
    process, and its variance is never below the one without jitter.

    Args:
        matrix: A ``batch x m x m`` kernel matrix.
        precision: The dtype in which the entries were computed, if coarser than the matrix dtype.
        prior: If ``matrix`` is a Schur complement, the kernel matrix it comes from. Rounding is
            relative to the diagonal of that matrix.

    Returns:
        The ``batch x m x m`` lower factor. A jitter that may be visible in results (``1e-9``, or
        ``1e-5`` in float32) causes one warning.

    Raises:
        KernelNotPSDError: If the matrix is not positive semi-definite.

    Example:
        >>> import torch
        >>> from botorch_bkb.linalg import safe_cholesky
        >>> singular = torch.ones(2, 2, dtype=torch.float64)
        >>> root = safe_cholesky(singular)
        >>> torch.allclose(root @ root.mT, singular)
        True
    """
    base, tries = (1e-12, 5) if (precision or matrix.dtype) == torch.float64 else (1e-6, 3)
    reference = matrix if prior is None else prior
    scale = reference.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].detach()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    relative = matrix / scale + base * eye
    root, info = torch.linalg.cholesky_ex(relative)
    if settings.trace_mode.off() and info.any():
        root = _cholesky_with_more_jitter(relative, base, tries)
    return root * scale.sqrt()


def _cholesky_with_more_jitter(matrix: Tensor, base: float, tries: int) -> Tensor:
    try:
        # It warns at each try. One warning is enough, and only if the jitter may be visible.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            root = psd_safe_cholesky(matrix, jitter=10 * base, max_tries=tries)
    except (NotPSDError, NanError) as error:
        if torch.isfinite(matrix).all():
            low = torch.linalg.eigvalsh(matrix.detach())[..., 0]
            if (low >= -SLIGHTLY_INDEFINITE).all():
                return _cholesky_of_indefinite(matrix, low, base)
        raise KernelNotPSDError(
            "The kernel matrix of the dictionary must be finite and positive semi-definite, got "
            f"a matrix of shape {tuple(matrix.shape)} that is not, even with relative jitter "
            f"{base * 10**tries:.0e} ({error}). Likely causes: a kernel that is not positive "
            "definite, hyperparameters that overflowed, or inputs on very different scales "
            "(use Normalize)."
        ) from error
    if len(caught) >= tries - 2:
        warnings.warn(caught[-1].message, stacklevel=3)
    return root


def _cholesky_of_indefinite(matrix: Tensor, low: Tensor, base: float) -> Tensor:
    r"""Factorise a slightly indefinite matrix with a jitter of twice its lowest eigenvalue.

    A jitter of ``d`` gives an eigenvalue ``-e`` the Nyström variance ``e^2 / (d - e)``. It would be
    arbitrarily large for a jitter just above ``e``, and is ``e`` for ``d = 2e``.

    Args:
        matrix: ``batch x m x m``, with a mean diagonal of one.
        low: ``batch`` lowest eigenvalues.
        base: The least jitter.
    """
    jitter = (-2 * low).clamp_min(base)[..., None, None]
    warnings.warn(
        f"The kernel is not positive semi-definite: a relative jitter of {float(jitter.max()):.1e} "
        "was added to its matrix. LinearTruncatedFidelityKernel is such a kernel.",
        NumericalWarning,
        stacklevel=4,
    )
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return torch.linalg.cholesky(matrix + jitter * eye)


def information_root(information: Tensor) -> Tensor:
    r"""Compute the Cholesky factor of ``A = I + Z' Lam^{-1} Z``.

    Its eigenvalues are at least one, unless rounding in larger ones hides that.

    Args:
        information: ``Z' Lam^{-1} Z``, ``batch x m x m``.

    Raises:
        InformationError: The factorisation fails.

    Example:
        >>> import torch
        >>> information_root(torch.full((1, 1), 3.0, dtype=torch.float64))
        tensor([[2.]], dtype=torch.float64)
    """
    eye = torch.eye(information.shape[-1], dtype=information.dtype, device=information.device)
    try:
        return psd_safe_cholesky(information + eye)
    except (NotPSDError, NanError) as error:
        largest = information.detach().diagonal(dim1=-2, dim2=-1).max()
        raise InformationError(
            "Kernel values over noise variances must be below about 1e16, so that rounding errors "
            f"of their sums are below one, got about {float(largest):.1g} ({error}): rescale the "
            "inputs (Normalize) if the kernel grows with them, or use a larger noise variance."
        ) from error


def solve_rows(root: Tensor, rows: Tensor) -> Tensor:
    r"""Apply ``root^{-1}`` to each row: ``rows root^{-T}``.

    Leading dimensions of ``rows`` that ``root`` lacks are folded into the rows. This avoids a
    copy of the factor for each t-batch.

    Args:
        root: A ``batch x m x m`` lower-triangular matrix.
        rows: A ``... x batch x q x m`` tensor.
    """
    extra = rows.dim() - root.dim()
    if extra <= 0 or rows.shape[extra:-2] != root.shape[:-2]:
        # The solver expects column-major matrices. Row-major rows are one: no copy but the result.
        return torch.linalg.solve_triangular(root, rows.mT, upper=False).mT
    lead = math.prod(rows.shape[:extra])
    folded = rows.reshape(lead, *rows.shape[extra:]).movedim(0, -3).flatten(-3, -2)
    out = solve_rows(root, folded).unflatten(-2, (lead, rows.shape[-2])).movedim(-3, 0)
    return out.reshape(rows.shape)


def solve_vector(root: Tensor, vector: Tensor) -> Tensor:
    r"""Return ``root^{-1} vector`` for a ``... x batch x m`` vector."""
    return solve_rows(root, vector.unsqueeze(-2)).squeeze(-2)


def extend_cholesky(
    root: Tensor, cross: Tensor, corner: Tensor, precision: torch.dtype | None = None
) -> Tensor:
    r"""Compute the Cholesky factor of ``[[M, cross'], [cross, corner]]`` from that of ``M``.

    The cost is ``O(m^2 k)`` for ``k`` new rows, because ``M`` is not factorised again.

    Args:
        root: The ``batch x m x m`` lower factor of ``M``.
        cross: ``batch x k x m``, the new rows against the old ones.
        corner: ``batch x k x k``, the new rows against each other.
        precision: The dtype in which the entries were computed, if coarser.
    """
    left = solve_rows(root, cross)
    tail = safe_cholesky(corner - left @ left.mT, precision, corner)
    return block_triangular(root, left, tail)


def block_triangular(root: Tensor, left: Tensor, tail: Tensor) -> Tensor:
    r"""Assemble ``[[root, 0], [left, tail]]`` with broadcast batch dimensions."""
    batch = torch.broadcast_shapes(root.shape[:-2], left.shape[:-2], tail.shape[:-2])
    top = torch.nn.functional.pad(root.expand(*batch, *root.shape[-2:]), (0, tail.shape[-1]))
    bottom = torch.cat(
        [left.expand(*batch, *left.shape[-2:]), tail.expand(*batch, *tail.shape[-2:])], -1
    )
    return torch.cat([top, bottom], -2)


def _running_energy(u: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return ``t_k = 1 + u_1^2 + ... + u_k^2`` and ``t_{k-1}`` for all ``k``."""
    after = 1 + u.square().cumsum(-1)
    return after, torch.cat([torch.ones_like(after[..., :1]), after[..., :-1]], -1)


def rank_one_root(root: Tensor, u: Tensor) -> Tensor:
    r"""Compute the lower factor of ``root (I + u u') root'`` in ``O(m^2)``, without a loop.

    ``I + uu'`` has the semi-separable Cholesky factor ``D_kk = sqrt(t_k / t_{k-1})``,
    ``D_jk = u_j u_k / sqrt(t_k t_{k-1})`` for ``j > k``. So each column of ``root D`` is a scaled
    column of ``root`` plus a scaled sum of the columns to its right.

    Args:
        root: A ``batch x m x m`` lower-triangular matrix.
        u: The ``batch x m`` update vector.
    """
    after, before = _running_energy(u)
    scaled = root * u.unsqueeze(-2)
    to_the_right = scaled.flip(-1).cumsum(-1).flip(-1) - scaled
    gain = u / (after * before).sqrt()
    updated = root * (after / before).sqrt().unsqueeze(-2) + to_the_right * gain.unsqueeze(-2)
    return updated.tril()


def rank_one_solve(u: Tensor, rows: Tensor) -> Tensor:
    r"""Apply ``D^{-1}`` of :func:`rank_one_root` to each row, in ``O(m)`` per row.

    Args:
        u: The ``batch x m`` update vector.
        rows: A ``batch x n x m`` tensor.
    """
    after, before = (t.unsqueeze(-2) for t in _running_energy(u))
    u = u.unsqueeze(-2)
    weighted = rows * u
    to_the_left = weighted.cumsum(-1) - weighted
    return (rows - u * to_the_left / before) * (before / after).sqrt()
