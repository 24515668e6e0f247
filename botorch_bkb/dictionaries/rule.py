r"""``DictionaryRule``: the base class of dictionary rules, and functions that rules share."""

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

from botorch_bkb.dictionaries.caps import capped, warn_capped
from botorch_bkb.dictionaries.observed import Draw, ObservedInputs
from botorch_bkb.validation import check_max_size


def largest_over_batch(scores: Tensor) -> Tensor:
    r"""Return the largest score of each input over the batches, ``batch x n -> n``."""
    return scores.flatten(end_dim=-2).amax(0) if scores.dim() > 1 else scores


def first_occurrences(X: Tensor) -> Tensor:
    r"""Return the sorted indices of the first row of each group of equal rows.

    Args:
        X: ``batch x n x d`` inputs. Rows are equal if they are equal in every batch.

    Example:
        >>> import torch
        >>> first_occurrences(torch.tensor([[0.0], [1.0], [0.0]]))
        tensor([0, 1])
    """
    return groups_of_equal_rows(X)[0].sort().values


def groups_of_equal_rows(X: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the first row of each group of equal rows, and the group of each row.

    Args:
        X: ``batch x n x d`` inputs. Rows are equal if they are equal in every batch.

    Example:
        >>> import torch
        >>> groups_of_equal_rows(torch.tensor([[2.0], [1.0], [2.0]]))
        (tensor([1, 0]), tensor([1, 0, 1]))
    """
    flat = X.movedim(-2, 0).flatten(1) if X.dim() > 2 else X
    _, group = torch.unique(flat, dim=0, return_inverse=True)
    n = flat.shape[0]
    first = torch.full((int(group.max()) + 1,), n, dtype=torch.long, device=X.device)
    return first.scatter_reduce(0, group, torch.arange(n, device=X.device), "amin"), group


def covers(indices: Tensor, X: Tensor) -> bool:
    r"""Return whether a dictionary contains every distinct row of ``X``.

    A model with such a dictionary is not sparse. With fewer than half of more than 2000 rows the
    answer is False, without a comparison of the rows.

    Args:
        indices: ``m`` rows of ``X`` that form the dictionary.
        X: ``batch x n x d`` inputs.

    Example:
        >>> import torch
        >>> X = torch.tensor([[0.0], [1.0], [0.0]])
        >>> covers(torch.tensor([0, 1]), X), covers(torch.tensor([0]), X)
        (True, False)
    """
    n, m = X.shape[-2], len(indices)
    if 2 * m < n and n > 2000:  # unlikely, and sorting at every step of a fit is slow
        return False
    return m == n or len(first_occurrences(X[..., indices, :])) == len(first_occurrences(X))


class Candidates(NamedTuple):
    r"""The arguments of a selection, as described in :meth:`DictionaryRule.select`."""

    X: Tensor
    kernel: Kernel
    noise: Tensor
    scores: Tensor | None = None
    counts: Tensor | None = None


class DictionaryRule(InducingPointAllocator):
    r"""A rule that chooses the dictionary among the inputs, for models and for optimizers.

    A rule implements ``_select``, which returns what :meth:`select` describes. It reads
    ``inputs.X`` (``batch x n x d``), ``inputs.kernel`` and ``inputs.noise`` (``batch x n``). Where
    they are given it may also use ``inputs.scores`` (``batch x n``) and ``inputs.counts`` (``n``).
    A rule also implements ``_capped``, so that it serves as a BoTorch allocator.

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

        An optimizer takes the same rule. It calls :meth:`draw`, which sees scores and counts, too:

        >>> from botorch_bkb import BKB
        >>> optimizer = BKB(X, dictionary=Newest(3), seed=0)
        >>> optimizer.tell(range(20), X.sin())
        >>> len(optimizer.dictionary)
        3
    """

    #: Noise variance assumed when used as a BoTorch allocator, where there is no likelihood.
    noise_var: float = 0.01

    @property
    def joins_at_once(self) -> bool:
        r"""Whether every observed point joins the dictionary at once.

        An optimizer then conditions on the picks of a batch exactly. It also updates its belief
        without waiting for the remaining results of a batch.
        """
        return False

    @property
    def keeps_coins(self) -> bool:
        r"""Whether an optimizer draws one coin per pull and keeps it for all later draws."""
        return True

    def belief_kernel(self, kernel: Kernel, X: Tensor) -> Kernel:
        r"""Return the kernel of the belief: by default the given one.

        Features in place of a dictionary return a :class:`~botorch_bkb.features.FeatureKernel`.

        Args:
            kernel: The covariance module of a model or an optimizer.
            X: ``batch x n x d`` inputs, whose ranges are those over which the kernel is used.
        """
        return kernel

    def draw(self, inputs: ObservedInputs, generator: torch.Generator) -> Draw:
        r"""Choose the dictionary of an optimizer after new results, by default with :meth:`choose`.

        Args:
            inputs: The inputs observed so far.
            generator: The optimizer's source of randomness.
        """
        X, kernel, noise = inputs.X, inputs.kernel, inputs.noise
        scores = inputs.scores if isinstance(inputs.scores, Tensor) else None
        return self.choose(Candidates(X, kernel, noise, scores, inputs.counts), generator)

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
        r"""Choose the dictionary among the inputs, with a warning if a largest size binds.

        Args:
            X: ``batch x n x d`` inputs, already transformed.
            kernel: The covariance module.
            noise: ``batch x n`` noise variances of single observations.
            scores: ``batch x n`` leverage scores under the current belief. Without them, a rule
                that needs scores computes its own.
            counts: ``n`` numbers of pulls of the inputs.
            generator: Source of randomness; torch's global one by default.

        Returns:
            ``m`` sorted indices of rows of ``X``, no two of which are equal.
        """
        chosen = self.choose(Candidates(X, kernel, noise, scores, counts), generator)
        warn_capped(chosen, X, kernel, "max_size", counts)
        return chosen.positions

    def choose(self, inputs: Candidates, generator: torch.Generator | None = None) -> Draw:
        r"""Choose as :meth:`select` does, and return the number drawn instead of a warning.

        Args:
            inputs: The arguments of :meth:`select`.
            generator: Source of randomness; torch's global one by default.
        """
        chosen = self._select(inputs, generator)
        return Draw(chosen, len(chosen))

    @abstractmethod
    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        r"""Choose the dictionary; :meth:`select` describes the arguments and the result."""

    def is_random(self, n: int) -> bool:
        r"""Return whether two selections among the same ``n`` inputs may differ."""
        return False

    def allocate_inducing_points(
        self, inputs: Tensor, covar_module: Kernel, num_inducing: int, input_batch_shape: torch.Size
    ) -> Tensor:
        r"""Return at most ``num_inducing`` of the inputs, ``batch x m x d``, as BoTorch expects."""
        noise = torch.full_like(inputs[..., 0], self.noise_var)
        with torch.no_grad():
            chosen = self._capped(num_inducing).choose(Candidates(inputs, covar_module, noise))
        own = getattr(self, "max_size", None)
        own_binds = own is not None and own < num_inducing
        argument = "max_size" if own_binds else "the number of inducing points"
        warn_capped(chosen, inputs, covar_module, argument)
        return inputs[..., chosen.positions, :]

    @abstractmethod
    def _capped(self, size: int) -> DictionaryRule:
        r"""Return the same rule with a dictionary of at most ``size`` points."""

    def _get_quality_function(self) -> QualityFunction:
        return UnitQualityFunction()


@dataclass(frozen=True)
class AllPoints(DictionaryRule):
    r"""A rule that takes every distinct input, which makes the Gaussian process exact.

    Args:
        max_size: The largest size. If there are more inputs, a model takes an evenly spaced subset.
            An optimizer takes the inputs of highest score over arms, and elsewhere a random part
            that changes little (:func:`~botorch_bkb.dictionaries.capped`).

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import AllPoints
        >>> X = torch.tensor([[0.0], [1.0], [0.0]], dtype=torch.float64)
        >>> AllPoints().select(X, RBFKernel(), torch.ones(3))
        tensor([0, 1])
    """

    max_size: int | None = None

    def __post_init__(self) -> None:
        check_max_size(self.max_size)

    @property
    def joins_at_once(self) -> bool:
        r"""True, since every observed point joins at once."""
        return True

    def draw(self, inputs: ObservedInputs, generator: torch.Generator) -> Draw:
        r"""Take all observed inputs, or as many as there may be."""
        everything = torch.arange(len(inputs.rows), device=inputs.rows.device)
        return capped(everything, inputs, inputs.coins, self.max_size)

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        indices = first_occurrences(inputs.X)
        if self.max_size is not None and len(indices) > self.max_size:
            steps = torch.arange(self.max_size, device=indices.device)
            indices = indices[(steps * len(indices)) // self.max_size]
        return indices

    def _capped(self, size: int) -> DictionaryRule:
        return AllPoints(max_size=min(size, self.max_size or size))
