r"""``Candidates``: how often the arms of a batch may still be picked."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor


class OutOfCandidatesError(InputDataError):
    r"""Raised by ``ask`` when there are fewer candidates than points were asked for.

    Attributes:
        left: How many points can be asked for now.

    Example:
        >>> import torch
        >>> from botorch_bkb import BBKB, OutOfCandidatesError
        >>> optimizer = BBKB(torch.eye(5, dtype=torch.float64), max_replicates=1, seed=0)
        >>> try:
        ...     optimizer.ask(6)
        ... except OutOfCandidatesError as error:
        ...     print(error.left, len(optimizer.ask(error.left)))
        5 5
    """

    def __init__(self, message: str, left: int) -> None:
        super().__init__(message)
        self.left = left


class Candidates:
    r"""How often each arm may still be picked in a batch.

    Args:
        left: ``A`` numbers, infinite where there is no limit.

    Example:
        >>> import torch
        >>> candidates = Candidates(torch.tensor([1.0, 2.0, 0.0]))
        >>> candidates.take(0), candidates.take(1), candidates.is_open.tolist(), candidates.total
        (True, False, [False, True, False], 1.0)
    """

    def __init__(self, left: Tensor) -> None:
        self._left = left
        self.total = float(left.sum())

    @classmethod
    def of(
        cls,
        first: Tensor,
        *,
        evaluated: Tensor,
        max_replicates: int | None,
        taken: Iterable[int],
        distinct: bool,
        exclude: Iterable[int],
    ) -> Candidates | None:
        r"""Return how often the arms may be picked; None where there are no limits at all.

        Equal arms are one candidate: the first of them.

        Args:
            first: ``A`` row numbers, for each arm the first one that equals it.
            evaluated: How often each arm was evaluated.
            max_replicates: How often a candidate may be evaluated in all, or None.
            taken: Rows that are pending.
            distinct: Whether a candidate may be picked once, and not if it is pending.
            exclude: Rows that must not be picked.
        """
        exclude = list(exclude)
        if max_replicates is None and not distinct and not exclude:
            return None
        limit = torch.inf if max_replicates is None else float(max_replicates)
        left = torch.full(first.shape, limit, dtype=torch.float64, device=first.device)
        pending = [row for row in taken if row < len(first)]
        rows = torch.tensor(pending, dtype=torch.long, device=first.device)
        asked = torch.zeros_like(left).index_add(0, first[rows], left.new_ones(len(rows)))
        left = (left - evaluated - asked).clamp_min(0)
        if distinct:
            left = torch.where(asked > 0, 0.0, left.clamp_max(1))
        left[first != torch.arange(len(first), device=first.device)] = 0
        left[first[torch.tensor(exclude, dtype=torch.long, device=first.device)]] = 0
        return cls(left)

    @property
    def is_open(self) -> Tensor:
        r"""``A`` booleans: whether an arm may be picked."""
        return self._left > 0

    def among(self, values: Tensor, otherwise: float = -torch.inf) -> Tensor:
        r"""Return ``A`` values, with another one for arms that may not be picked."""
        return torch.where(self.is_open, values, otherwise)

    def allows(self, row: int) -> bool:
        r"""Return whether an arm may be picked."""
        return bool(self._left[row] > 0)

    def take(self, row: int) -> bool:
        r"""Note that an arm was picked; return whether it may not be picked again."""
        self._left[row] -= 1
        self.total -= 1
        return not self.allows(row)
