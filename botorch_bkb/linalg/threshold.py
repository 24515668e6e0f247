r"""Which of some points, taken in order, would teach something."""

from __future__ import annotations

import torch
from torch import Tensor

from botorch_bkb.linalg.cholesky import block_triangular


def scan_informative(
    covariance: Tensor, noise: Tensor, threshold: float, limit: int | None = None
) -> tuple[Tensor, Tensor]:
    r"""Keep a point if its variance, given those kept so far, exceeds ``threshold * noise``.

    Each point kept is conditioned on, seen with its noise: with ``C`` the covariance given
    everything before, ``w = C e_i / sqrt(C_ii + lambda_i)`` and ``C <- C - w w'``. ``O(n k)`` for
    each of ``k`` points kept. In batch mode the largest score decides for all batches.

    Args:
        covariance: ``batch x n x n`` covariance of the function at the points.
        noise: ``batch x n`` noise variances.
        threshold: The least score ``tau = var / lambda`` that is *not* kept.
        limit: Stop after so many.

    Returns:
        Positions of the ``k`` points kept, and ``batch x n x k`` columns ``w``.

    Example:
        The second point is much like the first:

        >>> import torch
        >>> from botorch_bkb.linalg import scan_informative
        >>> K = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> kept, W = scan_informative(K, torch.full((3,), 0.1), threshold=3.0)
        >>> kept, W.shape
        (tensor([0, 2]), torch.Size([3, 2]))

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, eq. 2.11-2.12.)
    """
    n = covariance.shape[-1]
    var = covariance.diagonal(dim1=-2, dim2=-1).clone()
    W = torch.zeros_like(covariance)
    kept: list[int] = []
    start = 0
    while start < n and (limit is None or len(kept) < limit):
        scores = var[..., start:] / noise[..., start:]
        passing = torch.nonzero((scores > threshold).reshape(-1, n - start).any(0))
        if len(passing) == 0:
            break
        i, k = start + int(passing[0]), len(kept)
        pivot = (var[..., i].clamp_min(0) + noise[..., i]).sqrt().unsqueeze(-1)
        known = (W[..., :k] @ W[..., i, :k].unsqueeze(-1)).squeeze(-1)
        column = (covariance[..., i] - known) / pivot
        W[..., k] = column
        var = var - column.square()
        kept.append(i)
        start = i + 1
    return torch.tensor(kept, dtype=torch.long, device=covariance.device), W[..., : len(kept)]


def grow_root(root: Tensor, left: Tensor, W: Tensor, noise: Tensor) -> Tensor:
    r"""The factor of ``K + Lam`` for more points, from the columns of :func:`scan_informative`.

    Column ``j`` of ``W`` is ``cov(., x_j) / pivot_j``, so its diagonal holds ``var_j / pivot_j``;
    the factor has ``pivot_j`` there.

    Args:
        root: ``batch x m x m``, the factor so far.
        left: ``batch x k x m``, ``root^{-1}`` applied to the kernel of new and old points.
        W: ``batch x k x k``, the rows of the new points.
        noise: ``batch x k`` noise variances of the new points.
    """
    tail = W.tril()
    diagonal = tail.diagonal(dim1=-2, dim2=-1)
    # pivot^2 = var + lambda and diagonal = var / pivot  =>  pivot from the two
    pivot = 0.5 * (diagonal + (diagonal.square() + 4 * noise).sqrt())
    tail = tail - torch.diag_embed(diagonal) + torch.diag_embed(pivot)
    return block_triangular(root, left, tail)
