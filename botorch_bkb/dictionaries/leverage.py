r"""Ridge leverage scores and sampling by them."""

from __future__ import annotations

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
        inclusion = self.inclusion_probability(scores, counts)
        # In float64: float32 coins are multiples of 2^-24 and would favour rare points.
        coins = torch.rand(
            len(scores), generator=generator, device=_device(generator), dtype=torch.float64
        )
        drawn = torch.nonzero(coins.to(inclusion.device) < inclusion).squeeze(-1)
        if len(drawn) == 0:  # an empty dictionary explains nothing: keep the newest input
            drawn = torch.tensor([len(scores) - 1], device=scores.device)
        drawn = drawn[first_occurrences(X[..., candidates[drawn], :])]
        if self.max_size is not None and len(drawn) > self.max_size:
            if last:
                warnings.warn(
                    f"{len(drawn)} dictionary points were drawn and the {self.max_size} of highest "
                    "score kept: accuracy is no longer guaranteed. Little noise or a short "
                    "lengthscale makes the effective dimension this large; raise max_size if the "
                    "time (it grows with its square) allows, or lower oversampling.",
                    BotorchWarning,
                    stacklevel=2,
                )
            drawn = drawn[scores[drawn].topk(self.max_size).indices]
        return candidates[drawn].sort().values

    def inclusion_probability(self, scores: Tensor, counts: Tensor | None = None) -> Tensor:
        r"""``1 - (1 - min(1, q̄ tau))^c`` for each input (``c = 1`` without counts)."""
        p = (self.oversampling * scores).clamp(max=1.0)
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
