r"""Leverage scores of data, and the coins by which a dictionary is drawn."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.belief import chunks, dictionary_root, kernel_diagonal, kernel_matrix
from botorch_bkb.linalg import Embedding, gram, information_root, solve_rows


@torch.no_grad()
def data_leverage(
    kernel: Kernel, points: Tensor, X: Tensor, noise: Tensor, counts: Tensor | None = None
) -> Tensor:
    r"""Compute the leverage scores of the data, ``tau(x_i) = var(x_i) / noise_i``.

    This takes ``O(n m^2)`` time and ``O(n m)`` memory.

    Args:
        kernel: The covariance module.
        points: Dictionary inputs, ``batch x m x d``.
        X: Inputs, ``batch x n x d``.
        noise: Noise variances of single observations, ``batch x n``.
        counts: Numbers of pulls, ``n``.

    Returns:
        ``batch x n`` scores, float64.

    Example:
        Two points far apart, each seen once: ``tau = k / (k + lambda)``.

        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.dictionaries import data_leverage
        >>> X = torch.tensor([[0.0], [100.0]], dtype=torch.float64)
        >>> data_leverage(RBFKernel().double(), X, X, torch.full((2,), 0.25))
        tensor([0.8000, 0.8000], dtype=torch.float64)

    Reference:
        Calandriello et al., COLT 2019. (BKB, eq. 4; the variance is that of DTC.)
    """
    root = dictionary_root(kernel, points)
    noise = noise.double()
    total = torch.zeros_like(root)
    blocks = []
    for rows in chunks(X.shape[-2]):
        Z = solve_rows(root, kernel_matrix(kernel, X[..., rows, :], points))
        total = total + gram(Z, noise[..., rows], None if counts is None else counts[rows])
        blocks.append((rows, Z))
    info_root = information_root(total)
    scores = [
        Embedding(Z, solve_rows(info_root, Z)).variance(kernel_diagonal(kernel, X[..., rows, :]))
        / noise[..., rows]
        for rows, Z in blocks
    ]
    return torch.cat(scores, -1)


def smallest_coins(counts: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""Draw a uniform number, or coin, for each of ``c`` pulls and return the smallest per input.

    The value is 1 without pulls. An input is in the dictionary as soon as one of its pulls is, so
    its smallest coin decides. It is below ``p`` with probability ``1 - (1 - p)^c``. If coins are
    kept from one draw to the next and lowered only by new pulls, the draws are coupled. Each draw
    has the same law, and consecutive draws differ less.

    Args:
        counts: ``n`` numbers of pulls.
        generator: Source of randomness; torch's global one by default.
    """
    # In float64: float32 coins are multiples of 2^-24 and would favour rare points.
    coins = torch.rand(
        len(counts), generator=generator, device=device_of(generator), dtype=torch.float64
    )
    return -torch.expm1(torch.log1p(-coins.to(counts.device)) / counts.double())


def device_of(generator: torch.Generator | None) -> torch.device:
    r"""Return the generator's device to draw on, so that a seed always gives the same draws."""
    return torch.device("cpu") if generator is None else generator.device
