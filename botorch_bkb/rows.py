r"""Large tables of inputs: lookup of equal rows, and appending without copies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

#: Odd 64-bit multipliers of the hash, one per mixing round.
MIX = (-4658895280553007687, -7723592293110705685)


#: Mask that turns an arithmetic right shift by 29 into a logical one.
LOW = (1 << 35) - 1


class RowIndex:
    r"""A lookup table that finds equal rows by a 64-bit hash and a binary search.

    Args:
        X: ``A x d`` inputs, where ``0.0`` and ``-0.0`` count as equal.

    Attributes:
        first: ``A`` row numbers, for each row the first one that equals it.

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
        self.first = torch.where(found < 0, own, found)  # itself where two hashes collide

    def find(self, X: Tensor) -> Tensor:
        r"""Return the first equal row for each row of ``X``, or -1 if there is none."""
        place = torch.searchsorted(self._sorted, hashes(X)).clamp_max(len(self._sorted) - 1)
        rows = self._order[place]
        # If two different rows have the same hash, one of them counts as not found. Equal inputs
        # then have two entries, which is harmless. The chance is one in 2^64 for each pair.
        return torch.where((self.X[rows] == X).all(-1), rows, -1)

    @property
    def checksum(self) -> int:
        r"""A hash of the whole table, which tells tables apart."""
        places = torch.arange(len(self.X), device=self.X.device)
        return int(((hashes(self.X) ^ places) * MIX[1]).sum())


def hashes(X: Tensor) -> Tensor:
    r"""Return one 64-bit integer per row of ``X``, the same for equal rows."""
    bits = (X + 0.0).contiguous()
    bits = bits.view(torch.int64) if X.dtype == torch.float64 else bits.float().view(torch.int32)
    bits = bits.long() + torch.arange(X.shape[-1], device=X.device)
    for constant in MIX:
        bits = (bits ^ ((bits >> 29) & LOW)) * constant  # & LOW: no repeated sign bits
    total = torch.zeros_like(bits[:, 0])
    for column in bits.mT:  # the order of columns matters
        total = (total ^ ((total >> 29) & LOW)) * MIX[0] + column
    return total


class GrowingRows:
    r"""Named tensors with spare capacity, so that most appends copy only the new rows.

    Example:
        >>> import torch
        >>> growing, X = GrowingRows(), torch.zeros(2)
        >>> X = growing.append("X", X, torch.ones(1))
        >>> growing.append("X", X, torch.ones(1)), X
        (tensor([0., 0., 1., 1.]), tensor([0., 0., 1.]))
    """

    def __init__(self) -> None:
        self._whole: dict[str, Tensor] = {}
        self._used: dict[str, Tensor] = {}

    def append(self, name: str, rows: Tensor, more: Tensor) -> Tensor:
        r"""Return ``rows`` with ``more`` appended; both arguments stay unchanged.

        Args:
            name: Name of the tensor.
            rows: The result of the last call with this name. Any other tensor is copied.
            more: New rows, of the same shape.
        """
        n, end = len(rows), len(rows) + len(more)
        # Only the last result has free rows behind it: an older one may have later appends there.
        if self._used.get(name) is not rows or end > len(self._whole[name]):
            self._whole[name] = rows.new_empty(end + max(64, end // 8), *rows.shape[1:])
            self._whole[name][:n] = rows
        self._whole[name][n:end] = more
        self._used[name] = self._whole[name][:end]
        return self._used[name]


@dataclass(eq=False)
class Spare:
    r"""A tensor with rows to spare, of which the first ones are used."""

    whole: Tensor
    used: int


#: The tensors that :func:`appended` has returned, and what is behind their last row.
_SPARE = WeakTensorKeyDictionary()


def appended(rows: Tensor, more: Tensor) -> Tensor:
    r"""Return ``rows`` with ``more`` appended; both stay unchanged, and few rows are copied.

    The result has rows to spare behind its last one. The next append to it takes these, and copies
    only the new rows. An append to an earlier result copies all rows, since those behind it are
    taken. So states that share a history are values, as if everything had been copied.

    Args:
        rows: ``n x ...``, any tensor; the result of an earlier call makes it fast.
        more: ``h x ...`` new rows.

    Example:
        >>> import torch
        >>> first = appended(torch.zeros(2), torch.ones(1))
        >>> appended(first, torch.ones(1)), appended(first, torch.zeros(1)), first
        (tensor([0., 0., 1., 1.]), tensor([0., 0., 1., 0.]), tensor([0., 0., 1.]))
    """
    n, end = len(rows), len(rows) + len(more)
    spare = _SPARE.get(rows)
    if spare is None or spare.used != n or end > len(spare.whole):
        spare = Spare(rows.new_empty(end + max(64, end // 8), *rows.shape[1:]), n)
        spare.whole[:n] = rows
    spare.whole[n:end] = more
    spare.used, out = end, spare.whole[:end]
    _SPARE[out] = spare
    return out


def take_rows(first: Tensor, more: Tensor, rows: Tensor) -> Tensor:
    r"""Return the given rows of two stacked tables without concatenating the tables."""
    below = rows - len(first)
    X = first[rows.clamp_max(len(first) - 1)]
    is_below = below >= 0
    X[is_below] = more[below[is_below]]
    return X
