r"""Selection of informative points from a sequence, by a threshold on their variance."""

from __future__ import annotations

import torch
from torch import Tensor

from botorch_bkb.linalg.cholesky import block_triangular


def scan_informative(
    covariance: Tensor, noise: Tensor, threshold: float, limit: int | None = None
) -> tuple[Tensor, Tensor]:
    r"""Select points whose variance, given those kept so far, exceeds ``threshold * noise``.

    Points are taken in order. The function conditions on a noisy observation of each point that
    it keeps: with ``C`` the covariance given the points kept before,
    ``w = C e_i / sqrt(C_ii + lambda_i)`` and ``C <- C - w w'``. The cost is ``O(n k)`` for each of
    ``k`` points kept. In batch mode the largest score decides for all batches.

    Args:
        covariance: ``batch x n x n`` covariance of the function at the points.
        noise: ``batch x n`` noise variances.
        threshold: The largest score ``tau = var / lambda`` that is *not* kept.
        limit: The maximum number of points to keep; None for no limit.

    Returns:
        The positions of the ``k`` points kept, and the ``batch x n x k`` columns ``w``.

    Example:
        The second point is close to the first and is not kept:

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
    r"""Extend the factor of ``K + Lam`` by points that :func:`scan_informative` kept.

    Column ``j`` of ``W`` is ``cov(., x_j) / pivot_j``. So the diagonal of ``W`` holds
    ``var_j / pivot_j``, where the factor has ``pivot_j``.

    Args:
        root: ``batch x m x m``, the factor of the old points.
        left: ``batch x k x m``, ``root^{-1}`` applied to the kernel of new and old points.
        W: ``batch x k x k``, rows of the columns ``w`` at the new points.
        noise: ``batch x k`` noise variances of the new points.
    """
    tail = W.tril()
    diagonal = tail.diagonal(dim1=-2, dim2=-1)
    # pivot^2 = var + lambda and diagonal = var / pivot  =>  a quadratic equation for the pivot
    pivot = 0.5 * (diagonal + (diagonal.square() + 4 * noise).sqrt())
    tail = tail - torch.diag_embed(diagonal) + torch.diag_embed(pivot)
    return block_triangular(root, left, tail)
