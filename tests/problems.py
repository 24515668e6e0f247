r"""Small random problems for the tests."""

from __future__ import annotations

import torch
from torch import Tensor


def rbf(A: Tensor, B: Tensor, lengthscale: float = 0.4) -> Tensor:
    return torch.exp(-0.5 * (torch.cdist(A, B) / lengthscale) ** 2)


def regression(
    n: int,
    d: int = 2,
    m: int = 1,
    batch: tuple[int, ...] = (),
    noise: float = 0.1,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Inputs in the unit cube and sums of sines with noise, ``batch x n x m``."""
    X = torch.rand(*batch, n, d, dtype=dtype)
    Y = torch.stack([torch.sin((3 + k) * X).sum(-1) for k in range(m)], -1)
    Y = Y + noise * torch.randn_like(Y)
    return X.to(device), Y.to(device)
