r"""What ``ask`` and ``best`` hand out."""

from __future__ import annotations

from dataclasses import dataclass

from botorch.exceptions.errors import BotorchError
from torch import Tensor


class BatchCompleteError(BotorchError):
    r"""Feedback is needed before the next suggestion."""


@dataclass(frozen=True, eq=False)
class Suggestion:
    r"""Points to be evaluated.

    Attributes:
        X: ``q x d`` inputs.
        indices: ``q`` rows of ``arms``.
        ids: One number for each point, by which its result is recognised.

    A part of it is one too, for results that arrive one by one:

    Example:
        >>> import torch
        >>> s = Suggestion(torch.rand(3, 2), torch.tensor([4, 7, 4]), (0, 1, 2))
        >>> len(s), s[1].indices, s[1:].ids
        (3, tensor([7]), (1, 2))
    """

    X: Tensor
    indices: Tensor
    ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: int | slice) -> Suggestion:
        if isinstance(part, int):
            part = range(len(self))[part]  # IndexError where there is none
            part = slice(part, part + 1)
        return Suggestion(self.X[part], self.indices[part], self.ids[part])


@dataclass(frozen=True, eq=False)
class Best:
    r"""The arm of highest posterior mean.

    Attributes:
        index: Its row in ``arms``.
        X: Its ``d`` features.
        mean: Posterior mean of its expected reward.
        lower: Lower end of its confidence interval, ``mean - width sd``.
        upper: Upper end.
    """

    index: int
    X: Tensor
    mean: float
    lower: float
    upper: float
