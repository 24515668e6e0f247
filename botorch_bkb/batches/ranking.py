r"""``Ranking``: numbered values in falling order, read from a long tensor as far as is needed."""

from __future__ import annotations

import heapq
import math

import torch
from torch import Tensor

#: The number of values that are read first. Each later time there are four times as many.
FIRST = 16


class Ranking:
    r"""A queue that gives the highest of many values first, and takes new ones.

    Of equal values the one with the lowest number comes first, as with ``argmax``.

    Args:
        values: ``n`` values with the numbers 0 to ``n - 1``. Those of -inf are left out.

    Example:
        >>> import torch
        >>> from botorch_bkb.batches.ranking import Ranking
        >>> ranking = Ranking(torch.tensor([1.0, 3.0, 2.0]))
        >>> first = ranking.pop()
        >>> ranking.push(2.5, 7)
        >>> first, ranking.pop(), ranking.pop(), ranking.pop()
        ((3.0, 1), (2.5, 7), (2.0, 2), (1.0, 0))
        >>> bool(ranking)
        False
    """

    def __init__(self, values: Tensor) -> None:
        self._values = values.clone()
        self._heap: list[tuple[float, int]] = []
        self._size = FIRST
        self._floor = math.inf  # values from here on are in the heap, or were
        self._read()

    def push(self, value: float, number: int) -> None:
        r"""Add a value and its number."""
        heapq.heappush(self._heap, (-value, number))

    def __bool__(self) -> bool:
        r"""Return whether any value is left."""
        while not self._heap and self._floor > -math.inf:
            self._read()
        return bool(self._heap)

    def pop(self) -> tuple[float, int]:
        r"""Return the highest value and its number, and remove them."""
        while self._floor > -math.inf and (not self._heap or -self._heap[0][0] < self._floor):
            self._read()
        value, number = heapq.heappop(self._heap)
        return -value, number

    def _read(self) -> None:
        r"""Read the next values from the tensor, all equal ones together."""
        values, before = self._values, self._floor
        if self._size < len(values):
            self._floor = float(values.topk(self._size).values[-1])
        else:
            self._floor = -math.inf
        is_next = (values >= self._floor) & (values > -math.inf)
        if before < math.inf:
            is_next &= values < before
        numbers = torch.nonzero(is_next).squeeze(-1)
        negative = (-values[numbers]).tolist()
        self._heap += zip(negative, numbers.tolist(), strict=True)
        heapq.heapify(self._heap)
        self._size *= 4
