r"""What a dictionary rule is, and what all of them need."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from botorch.models.utils.inducing_point_allocators import (
    InducingPointAllocator,
    QualityFunction,
    UnitQualityFunction,
)
from gpytorch.kernels import Kernel
from torch import Tensor


def largest_over_batch(scores: Tensor) -> Tensor:
    r"""``batch x n -> n``: the score that makes one dictionary serve every batch."""
    return scores.flatten(end_dim=-2).amax(0) if scores.dim() > 1 else scores


def first_occurrences(X: Tensor) -> Tensor:
    r"""Sorted indices of the first of each group of equal rows.

    Args:
        X: ``batch x n x d``; rows are equal if they are in every batch.

    Example:
        >>> import torch
        >>> first_occurrences(torch.tensor([[0.0], [1.0], [0.0]]))
        tensor([0, 1])
    """
    flat = X.movedim(-2, 0).flatten(1) if X.dim() > 2 else X
    _, group = torch.unique(flat, dim=0, return_inverse=True)
    n = flat.shape[0]
    first = torch.full((int(group.max()) + 1,), n, dtype=torch.long, device=X.device)
    first = first.scatter_reduce(0, group, torch.arange(n, device=X.device), "amin")
    return first.sort().values


def covers(indices: Tensor, X: Tensor) -> bool:
    r"""Whether every distinct row of ``X`` is in the dictionary: nothing is sparse then.

    With fewer than half of more than 2000 rows the answer is no, without a look at them.

    Args:
        indices: ``m`` rows of ``X``.
        X: ``batch x n x d``.

    Example:
        >>> import torch
        >>> X = torch.tensor([[0.0], [1.0], [0.0]])
        >>> covers(torch.tensor([0, 1]), X), covers(torch.tensor([0]), X)
        (True, False)
    """
    n, m = X.shape[-2], len(indices)
    if 2 * m < n and n > 2000:  # hardly; and not worth sorting the data at every step of a fit
        return False
    return m == n or len(first_occurrences(X[..., indices, :])) == len(first_occurrences(X))


class Candidates(NamedTuple):
    r"""What a rule looks at; :meth:`DictionaryRule.select` says what each is."""

    X: Tensor
    kernel: Kernel
    noise: Tensor
    scores: Tensor | None = None
    counts: Tensor | None = None


class DictionaryRule(InducingPointAllocator):
    r"""Chooses the dictionary among the inputs.

    A rule implements ``_select``, which looks at ``inputs.X`` (``batch x n x d``),
    ``inputs.kernel``, ``inputs.noise`` (``batch x n``) and, where they are given,
    ``inputs.scores`` (``batch x n``) and ``inputs.counts`` (``n``), and returns what :meth:`select`
    says; and ``_capped``, by which it serves as a BoTorch allocator.

    Example:
        >>> from dataclasses import dataclass
        >>> import torch
        >>> from botorch_bkb import DTCGP
        >>> from botorch_bkb.dictionaries import DictionaryRule, first_occurrences
        >>> @dataclass(frozen=True)
        ... class Newest(DictionaryRule):
        ...     size: int = 100
        ...
        ...     def _select(self, inputs, generator):
        ...         return first_occurrences(inputs.X)[-self.size :]
        ...
        ...     def _capped(self, size):
        ...         return Newest(min(size, self.size))
        >>> X = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1)
        >>> DTCGP(X, X.sin(), dictionary=Newest(3)).dictionary_indices
        tensor([17, 18, 19])
    """

    #: Noise variance assumed where there is no likelihood to ask: as a BoTorch allocator.
    noise_var: float = 0.01

    def select(
        self,
        X: Tensor,
        kernel: Kernel,
        noise: Tensor,
        *,
        scores: Tensor | None = None,
        counts: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Choose the dictionary.

        Args:
            X: ``batch x n x d`` inputs, already transformed.
            kernel: The covariance module.
            noise: ``batch x n`` noise variances of single observations.
            scores: ``batch x n`` leverage scores under the current belief. Without them a
                rule that needs scores finds its own.
            counts: ``n`` numbers of pulls of each input.
            generator: Source of randomness; torch's global one by default.

        Returns:
            Sorted ``m`` indices into the rows of ``X``, no two of them of equal rows.
        """
        return self._select(Candidates(X, kernel, noise, scores, counts), generator)

    @abstractmethod
    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        r"""What a rule implements; see :meth:`select`."""

    def is_random(self, n: int) -> bool:
        r"""Whether two selections among the same ``n`` inputs may differ."""
        return False

    def allocate_inducing_points(
        self, inputs: Tensor, covar_module: Kernel, num_inducing: int, input_batch_shape: torch.Size
    ) -> Tensor:
        r"""BoTorch's interface: at most ``num_inducing`` of the inputs, ``batch x m x d``."""
        noise = torch.full_like(inputs[..., 0], self.noise_var)
        with torch.no_grad():
            indices = self._capped(num_inducing).select(inputs, covar_module, noise)
        return inputs[..., indices, :]

    @abstractmethod
    def _capped(self, size: int) -> DictionaryRule:
        r"""The same rule with a dictionary of at most ``size``."""

    def _get_quality_function(self) -> QualityFunction:
        return UnitQualityFunction()


@dataclass(frozen=True)
class AllPoints(DictionaryRule):
    r"""Every distinct input: the exact Gaussian process.

    Args:
        max_size: Take an evenly spaced subset of this size where there are more.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import AllPoints
        >>> X = torch.tensor([[0.0], [1.0], [0.0]], dtype=torch.float64)
        >>> AllPoints().select(X, RBFKernel(), torch.ones(3))
        tensor([0, 1])
    """

    max_size: int | None = None

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        indices = first_occurrences(inputs.X)
        if self.max_size is not None and len(indices) > self.max_size:
            steps = torch.arange(self.max_size, device=indices.device)
            indices = indices[(steps * len(indices)) // self.max_size]
        return indices

    def _capped(self, size: int) -> DictionaryRule:
        return AllPoints(max_size=min(size, self.max_size or size))
