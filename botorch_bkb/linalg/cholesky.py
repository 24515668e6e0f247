r"""Triangular factors: safe ones, solves, and updates that factorise nothing again."""

from __future__ import annotations

import math
import warnings

import torch
from botorch.exceptions.errors import InputDataError
from linear_operator import settings
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

    Adds a jitter of the size of the rounding in the entries: ``1e-12`` of the mean diagonal,
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
        # It warns at each try; one warning is enough, and only where the jitter may be seen.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            root = psd_safe_cholesky(matrix, jitter=10 * base, max_tries=tries)
    except (NotPSDError, NanError) as error:
        raise KernelNotPSDError(
            "The kernel matrix of the dictionary must be finite and positive semi-definite, got "
            f"one of shape {tuple(matrix.shape)} that is not, even with relative jitter "
            f"{base * 10**tries:.0e} ({error}). Likely causes: a kernel that is not positive "
            "definite, hyperparameters that overflowed, or inputs on very different scales "
            "(use Normalize)."
        ) from error
    if len(caught) >= tries - 2:
        warnings.warn(caught[-1].message, stacklevel=3)
    return root


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
        # Row-major rows are the column-major matrix the solver wants: no copy but the result.
        return torch.linalg.solve_triangular(root, rows.mT, upper=False).mT
    lead = math.prod(rows.shape[:extra])
    folded = rows.reshape(lead, *rows.shape[extra:]).movedim(0, -3).flatten(-3, -2)
    out = solve_rows(root, folded).unflatten(-2, (lead, rows.shape[-2])).movedim(-3, 0)
    return out.reshape(rows.shape)


def solve_vector(root: Tensor, vector: Tensor) -> Tensor:
    r"""``root^{-1} vector`` for a ``... x batch x m`` vector."""
    return solve_rows(root, vector.unsqueeze(-2)).squeeze(-2)


def extend_cholesky(
    root: Tensor, cross: Tensor, corner: Tensor, precision: torch.dtype | None = None
) -> Tensor:
    r"""Cholesky factor of ``[[M, cross'], [cross, corner]]`` from that of ``M``.

    Costs ``O(m^2 k)`` for ``k`` new rows; nothing is factorised again.

    Args:
        root: The ``batch x m x m`` lower factor of ``M``.
        cross: ``batch x k x m``.
        corner: ``batch x k x k``.
        precision: The dtype in which the entries were computed, if coarser.
    """
    left = solve_rows(root, cross)
    tail = safe_cholesky(corner - left @ left.mT, precision, corner)
    return block_triangular(root, left, tail)


def block_triangular(root: Tensor, left: Tensor, tail: Tensor) -> Tensor:
    r"""``[[root, 0], [left, tail]]``, broadcasting the batch."""
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
