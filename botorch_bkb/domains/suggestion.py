r"""``Suggestion``: the points that an optimizer asks to be evaluated."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import SupportsIndex

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Suggestion:
    r"""Points that an optimizer asks to be evaluated. A part of a suggestion is one, too.

    Attributes:
        X: ``q x d`` inputs.
        indices: ``q`` rows of ``arms``; None over a box.
        ids: One number per point, by which its result is recognised; -1 where no result is
            expected, since the point would teach too little (``on_uninformative="skip"``).
        informative: ``q`` booleans: whether a result would teach more than the information
            threshold. Without a threshold all are True.
        beyond: ``q`` booleans: whether a point lies beyond the batch rule, and so beyond its
            guarantee. Such points are asked only where their number was given.

    Example:
        Results that arrive one by one are told with parts of the suggestion:

        >>> import torch
        >>> s = Suggestion(torch.rand(3, 2), torch.tensor([4, 7, 4]), (0, 1, 2))
        >>> len(s), s[1].indices, s[1:].ids, s[s.informative].ids
        (3, tensor([7]), (1, 2), (0, 1, 2))
    """

    X: Tensor
    indices: Tensor | None
    ids: tuple[int, ...]
    informative: Tensor = field(default=None)  # type: ignore[assignment]  # set below
    beyond: Tensor = field(default=None)  # type: ignore[assignment]  # set below

    def __post_init__(self) -> None:
        every = torch.ones(len(self.ids), dtype=torch.bool, device=self.X.device)
        if self.informative is None:
            object.__setattr__(self, "informative", every)
        if self.beyond is None:
            object.__setattr__(self, "beyond", ~every)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: SupportsIndex | slice | Tensor) -> Suggestion:
        if not isinstance(part, (slice, bool)) and (not isinstance(part, Tensor) or not part.dim()):
            place = range(len(self))[operator.index(part)]  # IndexError where there is none
            part = slice(place, place + 1)
        rows = torch.arange(len(self), device=self.X.device)[part]
        indices = None if self.indices is None else self.indices[rows]
        ids = tuple(self.ids[i] for i in rows.tolist())
        return Suggestion(self.X[rows], indices, ids, self.informative[rows], self.beyond[rows])

    @classmethod
    def joined(cls, parts: Sequence[Suggestion]) -> Suggestion:
        r"""Return the points of several suggestions of one optimizer as one, at least one."""
        indices = [part.indices for part in parts if part.indices is not None]
        return cls(
            torch.cat([part.X for part in parts]),
            torch.cat(indices) if indices else None,
            tuple(id_ for part in parts for id_ in part.ids),
            torch.cat([part.informative for part in parts]),
            torch.cat([part.beyond for part in parts]),
        )
