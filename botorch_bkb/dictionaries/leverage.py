r"""Ridge leverage scores and sampling by them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace

import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import BotorchWarning
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_bkb.belief import chunks, dictionary_root, kernel_diagonal, kernel_matrix
from botorch_bkb.dictionaries.rule import (
    Candidates,
    DictionaryRule,
    first_occurrences,
    largest_over_batch,
)
from botorch_bkb.linalg import Embedding, gram, solve_rows
from botorch_bkb.validation import check_max_size


@torch.no_grad()
def data_leverage(
    kernel: Kernel, points: Tensor, X: Tensor, noise: Tensor, counts: Tensor | None = None
) -> Tensor:
    r"""Leverage scores of the data themselves, ``tau(x_i) = var(x_i) / noise_i``.

    ``O(n m^2)`` time, ``O(n m)`` memory.

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
    A = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device).expand_as(root)
    blocks = []
    for rows in chunks(X.shape[-2]):
        Z = solve_rows(root, kernel_matrix(kernel, X[..., rows, :], points))
        A = A + gram(Z, noise[..., rows], None if counts is None else counts[rows])
        blocks.append((rows, Z))
    info_root = psd_safe_cholesky(A)
    scores = [
        Embedding(Z, solve_rows(info_root, Z)).variance(kernel_diagonal(kernel, X[..., rows, :]))
        / noise[..., rows]
        for rows, Z in blocks
    ]
    return torch.cat(scores, -1)


def smallest_coins(counts: Tensor, generator: torch.Generator | None) -> Tensor:
    r"""For each input the smallest of ``c`` uniform numbers, one for each pull; 1 without pulls.

    An input is in the dictionary as soon as one of its pulls is, so its smallest coin decides:
    below ``p`` with probability ``1 - (1 - p)^c``. Kept from one draw to the next, and lowered
    only by new pulls, the same coins make a coupling: the law of each draw is the same, and two
    draws in a row differ less.

    Args:
        counts: ``n`` numbers of pulls.
        generator: Source of randomness; torch's global one by default.
    """
    # In float64: float32 coins are multiples of 2^-24 and would favour rare points.
    coins = torch.rand(
        len(counts), generator=generator, device=_device(generator), dtype=torch.float64
    )
    return -torch.expm1(torch.log1p(-coins.to(counts.device)) / counts.double())


def highest(drawn: Tensor, scores: Tensor, max_size: int | None) -> Tensor:
    r"""At most ``max_size`` of the positions ``drawn``, those of highest score."""
    if max_size is None or len(drawn) <= max_size:
        return drawn
    return drawn[scores[drawn].topk(max_size).indices]


def warn_capped(drawn: int, kept: int, argument: str) -> None:
    r"""Say that the cap binds, and what that costs."""
    warnings.warn(
        f"{drawn} dictionary points were drawn and the {kept} of highest score kept: accuracy is "
        "no longer guaranteed. Little noise or a short lengthscale makes the effective dimension "
        f"this large; raise {argument} if the time (it grows with its square) allows, or lower "
        "oversampling.",
        BotorchWarning,
        stacklevel=2,
    )


@dataclass(frozen=True)
class RidgeLeverageSampling(DictionaryRule):
    r"""Each pull enters independently with probability ``min(1, oversampling * tau)``.

    With counts an input is in with probability ``1 - (1 - p)^c``, exactly the law of ``c``
    separate coins. BKB Theorem 1: with ``oversampling >= 6 alpha log(4T/delta) / eps^2`` all
    variances are within a factor ``alpha = (1+eps)/(1-eps)`` of the exact ones, and the
    dictionary has ``O(d_eff)`` points; in practice 1 to 10 does.

    Without scores they are found by doubling: the exact scores of a random block of the data
    give a dictionary, with which twice as many inputs are scored, and so on. ``n`` inputs
    cost ``O(n m^2)``; nothing is ever ``n x n``.

    A draw that misses a direction makes the next scores, and with them the next draw, too large.
    On the example below an oversampling of 2 did so for one seed in twelve (1,765 points instead
    of some ten); 4 and 8 for none.

    Args:
        oversampling: The papers' ``q̄``.
        max_size: Keep the highest scores where more points were drawn, with a warning. The
            accuracy theorem no longer applies then.
        noise_var: Noise variance assumed when used as a BoTorch allocator.
        generator: Source of randomness where a call gives none.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import RidgeLeverageSampling
        >>> X = torch.linspace(0, 1, 2000, dtype=torch.float64).unsqueeze(-1)
        >>> rule = RidgeLeverageSampling(oversampling=8.0)
        >>> noise, seeded = torch.full((2000,), 0.1).double(), torch.Generator().manual_seed(0)
        >>> len(rule.select(X, RBFKernel().double(), noise, generator=seeded)) < 100
        True

    Reference:
        Calandriello et al., COLT 2019. (BKB, Algorithm 1, Theorem 1.) The doubling: after Musco,
        Musco: Recursive sampling for the Nyström method. NeurIPS 2017.
    """

    oversampling: float = 4.0
    max_size: int | None = None
    noise_var: float = 0.01
    generator: torch.Generator | None = field(default=None, compare=False, repr=False)

    #: The first block, whose scores are exact.
    first_block = 512

    def __post_init__(self) -> None:
        if not self.oversampling > 0:
            raise InputDataError(
                f"oversampling must be positive, got {self.oversampling}: 1 to 10 is usual."
            )
        check_max_size(self.max_size)

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        X, kernel, noise, scores, counts = inputs
        generator = generator or self.generator
        n = X.shape[-2]
        everything = torch.arange(n, device=X.device)
        if scores is not None:
            return self._draw(X, everything, scores, counts, generator)
        order = torch.randperm(n, generator=generator, device=_device(generator)).to(X.device)
        size = min(self.first_block, n)
        chosen = order[:size]
        while True:
            seen = everything if size == n else order[:size]
            weight = None if counts is None else counts[seen]
            scores = data_leverage(
                kernel, X[..., chosen, :], X[..., seen, :], noise[..., seen], weight
            )
            chosen = self._draw(X, seen, scores, weight, generator, last=size == n)
            if size == n:
                return chosen
            size = min(2 * size, n)

    def _draw(self, X, candidates, scores, counts, generator, last=True):
        scores = largest_over_batch(scores)
        coins = smallest_coins(torch.ones_like(scores) if counts is None else counts, generator)
        drawn = self.drawn(scores, coins)
        drawn = drawn[first_occurrences(X[..., candidates[drawn], :])]
        capped = highest(drawn, scores, self.max_size)
        if last and len(capped) < len(drawn):
            warn_capped(len(drawn), len(capped), "max_size")
        return candidates[capped].sort().values

    def drawn(self, scores: Tensor, coins: Tensor, newest: int | None = None) -> Tensor:
        r"""Positions of the inputs whose smallest coin falls below ``min(1, q̄ tau)``.

        Args:
            scores: ``n`` leverage scores of single pulls.
            coins: ``n`` smallest coins of the pulls of each input (:func:`smallest_coins`).
            newest: The input kept if there is none: an empty dictionary explains nothing.
        """
        drawn = torch.nonzero(coins < self._probability(scores)).squeeze(-1)
        if len(drawn) == 0:
            newest = len(scores) - 1 if newest is None else newest
            drawn = torch.tensor([newest], device=scores.device)
        return drawn

    def _probability(self, scores: Tensor) -> Tensor:
        if math.isinf(self.oversampling):  # everything, scores of zero included
            return torch.ones_like(scores)
        return (self.oversampling * scores).clamp(max=1.0)

    def inclusion_probability(self, scores: Tensor, counts: Tensor | None = None) -> Tensor:
        r"""``1 - (1 - min(1, q̄ tau))^c`` for each input (``c = 1`` without counts)."""
        p = self._probability(scores)
        if counts is None:
            return p
        return torch.where(counts > 0, -torch.expm1(counts * torch.log1p(-p)), 0.0)

    def is_random(self, n: int) -> bool:
        r"""Always."""
        return True

    def _capped(self, size: int) -> DictionaryRule:
        return replace(self, max_size=min(size, self.max_size or size))


def _device(generator: torch.Generator | None) -> torch.device:
    r"""Where to draw: on the generator's device, so that a seed means one thing."""
    return torch.device("cpu") if generator is None else generator.device
