r"""The values that a user may pass as ``dictionary``: rules, allocators and indices."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.utils.inducing_point_allocators import InducingPointAllocator
from torch import Tensor

from botorch_bkb.dictionaries.leverage import RidgeLeverageSampling
from botorch_bkb.dictionaries.observed import Draw
from botorch_bkb.dictionaries.rule import (
    AllPoints,
    Candidates,
    DictionaryRule,
    first_occurrences,
)
from botorch_bkb.validation import check_indices, check_max_size


@dataclass(frozen=True)
class FromAllocator(DictionaryRule):
    r"""A dictionary rule that wraps a BoTorch ``InducingPointAllocator``.

    The allocator must return a subset of the inputs, as BoTorch's allocators do. These build the
    ``n x n`` kernel matrix, which takes much memory beyond about ten thousand points.

    Args:
        allocator: The BoTorch allocator.
        size: The number of points to ask for.

    Example:
        >>> import torch
        >>> from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import FromAllocator
        >>> X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
        >>> FromAllocator(GreedyVarianceReduction(), 2).select(X, RBFKernel(), torch.ones(9))
        tensor([0, 8])
    """

    allocator: InducingPointAllocator
    size: int = 200

    def __post_init__(self) -> None:
        check_max_size(self.size)

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        X, kernel = inputs.X, inputs.kernel
        flat = X.reshape(-1, *X.shape[-2:])[0] if X.dim() > 2 else X
        with torch.no_grad():
            points = self.allocator.allocate_inducing_points(
                flat, kernel, min(self.size, flat.shape[-2]), torch.Size()
            )
        equal = (points.unsqueeze(-2) == flat.unsqueeze(-3)).all(-1)
        if not equal.any(-1).all():
            raise InputDataError(
                f"{type(self.allocator).__name__} must choose its inducing points among the "
                "inputs to serve as a dictionary rule, got other points: use another allocator."
            )
        indices = equal.to(torch.uint8).argmax(-1).unique()
        return indices[first_occurrences(X[..., indices, :])]

    def _capped(self, size: int) -> DictionaryRule:
        return replace(self, size=min(size, self.size))


@dataclass(frozen=True)
class Automatic(DictionaryRule):
    r"""The default rule: all points while there are few, ridge leverage sampling beyond.

    If sampling takes more than half of the inputs, the dictionary is all of them as well. The exact
    process costs ``n^3 / 3``, a sparse one about ``n m^2``.

    Args:
        exact_up_to: The largest number of inputs for which the dictionary is all of them.
        sampling: The rule for more inputs.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import Automatic
        >>> X = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)
        >>> len(Automatic().select(X, RBFKernel().double(), torch.ones(30).double()))
        30
    """

    exact_up_to: int = 500
    sampling: DictionaryRule = field(default_factory=lambda: RidgeLeverageSampling(max_size=1000))

    def choose(self, inputs: Candidates, generator: torch.Generator | None = None) -> Draw:
        r"""Choose all inputs or a sample, and return the number drawn."""
        n = inputs.X.shape[-2]
        if n > self.exact_up_to:
            chosen = self.sampling.choose(inputs, generator)
            if 2 * len(chosen.positions) <= n:
                return chosen
        return AllPoints().choose(inputs, generator)

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        return self.choose(inputs, generator).positions

    def is_random(self, n: int) -> bool:
        r"""Return whether ``n`` exceeds ``exact_up_to`` and the rule used there is random."""
        return n > self.exact_up_to and self.sampling.is_random(n)

    def _capped(self, size: int) -> DictionaryRule:
        return replace(
            self, exact_up_to=min(size, self.exact_up_to), sampling=self.sampling._capped(size)
        )


def given_dictionary(indices: Tensor, X: Tensor) -> Tensor:
    r"""Check the indices of a dictionary, sort them and leave out repeated points.

    Args:
        indices: A LongTensor of row indices of ``X``.
        X: ``batch x n x d`` inputs.

    Example:
        >>> import torch
        >>> given_dictionary(torch.tensor([2, 0]), torch.tensor([[0.0], [1.0], [2.0]]))
        tensor([0, 2])
    """
    indices = check_indices(indices, X.shape[-2])
    distinct = first_occurrences(X[..., indices, :])
    if len(distinct) < len(indices):
        warnings.warn(
            f"{len(indices) - len(distinct)} of the {len(indices)} dictionary points equal others "
            "and were left out: they add nothing, and make the kernel matrix singular.",
            InputDataWarning,
            stacklevel=3,
        )
    return indices[distinct]


def as_rule(dictionary: DictionaryRule | InducingPointAllocator | None) -> DictionaryRule:
    r"""Convert the argument ``dictionary`` of a model to a dictionary rule.

    Args:
        dictionary: A rule, which is returned unchanged, a BoTorch allocator, which is wrapped, or
            None for :class:`Automatic`.

    Example:
        >>> from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction
        >>> from botorch_bkb.dictionaries import as_rule
        >>> type(as_rule(None)).__name__, type(as_rule(GreedyVarianceReduction())).__name__
        ('Automatic', 'FromAllocator')
    """
    if dictionary is None:
        return Automatic()
    if isinstance(dictionary, DictionaryRule):
        return dictionary
    if isinstance(dictionary, InducingPointAllocator):
        return FromAllocator(dictionary)
    raise InputDataError(
        "dictionary must be None, a LongTensor of indices, a rule such as "
        f"RidgeLeverageSampling(), or a BoTorch InducingPointAllocator, got {dictionary!r}: to "
        "limit the number of points pass RidgeLeverageSampling(max_size=...)."
    )
