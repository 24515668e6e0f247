r"""Tables that are large: which row equals a given input, and rows added at the end."""

from __future__ import annotations

import torch
from torch import Tensor

#: Odd 64-bit constants, one for each round of mixing.
MIX = (-4658895280553007687, -7723592293110705685)


#: What a logical shift by 29 leaves.
LOW = (1 << 35) - 1


class RowIndex:
    r"""Finds equal rows by a 64-bit hash and a binary search.

    Args:
        X: ``A x d`` inputs; ``0.0`` and ``-0.0`` are equal.

    Attributes:
        first: ``A`` row numbers: the first row that equals each row.

    Example:
        >>> import torch
        >>> X = torch.tensor([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]])
        >>> index = RowIndex(X)
        >>> index.first, index.find(torch.tensor([[2.0, 3.0], [9.0, 9.0]]))
        (tensor([0, 1, 0]), tensor([ 1, -1]))
    """

    def __init__(self, X: Tensor) -> None:
        self.X = X
        self._sorted, self._order = hashes(X).sort(stable=True)
        found = self.find(X)
        own = torch.arange(len(X), device=X.device)
        self.first = torch.where(found < 0, own, found)  # of its own where two hashes collide

    def find(self, X: Tensor) -> Tensor:
        r"""The first equal row for each row of ``X``, or -1."""
        place = torch.searchsorted(self._sorted, hashes(X)).clamp_max(len(self._sorted) - 1)
        rows = self._order[place]
        # Rows of equal hash that differ count as not found: then equal inputs merely have two
        # entries, which is harmless, and as rare as one in 2^64 for each pair.
        return torch.where((self.X[rows] == X).all(-1), rows, -1)

    @property
    def checksum(self) -> int:
        r"""A number that tells tables apart."""
        places = torch.arange(len(self.X), device=self.X.device)
        return int(((hashes(self.X) ^ places) * MIX[1]).sum())


def hashes(X: Tensor) -> Tensor:
    r"""``A`` 64-bit integers; equal rows have equal ones."""
    bits = (X + 0.0).contiguous()
    bits = bits.view(torch.int64) if X.dtype == torch.float64 else bits.float().view(torch.int32)
    bits = bits.long() + torch.arange(X.shape[-1], device=X.device)
    for constant in MIX:
        bits = (bits ^ ((bits >> 29) & LOW)) * constant  # without the sign, which would repeat
    total = torch.zeros_like(bits[:, 0])
    for column in bits.mT:  # the order of columns matters
        total = (total ^ ((total >> 29) & LOW)) * MIX[0] + column
    return total


class Room:
    r"""Spare room behind named tensors: most rows are added to them without copying the others.

    Example:
        >>> import torch
        >>> room, X = Room(), torch.zeros(2)
        >>> X = room.append("X", X, torch.ones(1))
        >>> room.append("X", X, torch.ones(1)), X
        (tensor([0., 0., 1., 1.]), tensor([0., 0., 1.]))
    """

    def __init__(self) -> None:
        self._whole: dict[str, Tensor] = {}
        self._used: dict[str, Tensor] = {}

    def append(self, name: str, rows: Tensor, more: Tensor) -> Tensor:
        r"""``rows`` with ``more`` below them; both keep what they are.

        Args:
            name: Of the tensor.
            rows: What this returned last under that name, or anything else, which is copied.
            more: Rows of the same shape.
        """
        n, end = len(rows), len(rows) + len(more)
        # Behind anything but the last that was returned there may be rows of somebody else.
        if self._used.get(name) is not rows or end > len(self._whole[name]):
            self._whole[name] = rows.new_empty(end + max(64, end // 8), *rows.shape[1:])
            self._whole[name][:n] = rows
        self._whole[name][n:end] = more
        self._used[name] = self._whole[name][:end]
        return self._used[name]


def take_rows(first: Tensor, more: Tensor, rows: Tensor) -> Tensor:
    r"""Rows of two tables, the second one below the first, without putting them together."""
    below = rows - len(first)
    X = first[rows.clamp_max(len(first) - 1)]
    is_below = below >= 0
    X[is_below] = more[below[is_below]]
    return X
