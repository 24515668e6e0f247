r"""What a dictionary rule sees of an optimizer, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


class ScoreBounds(NamedTuple):
    r"""Leverage scores that are computed where they matter, with bounds for all inputs.

    An input whose bound does not make it part of the dictionary is not part of it.
    """

    upper: Tensor  #: ``n`` numbers that are not below the scores
    exact: Callable[[Tensor], Tensor]  #: returns the scores at some positions

    def where(self, matters: Tensor) -> Tensor:
        r"""Return ``n`` numbers: scores where they matter, and bounds elsewhere.

        Args:
            matters: ``n`` booleans.
        """
        at = torch.nonzero(matters).squeeze(-1)
        return self.upper.index_copy(0, at, self.exact(at))


@dataclass(frozen=True, eq=False)
class ObservedInputs:
    r"""The distinct inputs that an optimizer has observed, from which a rule draws.

    Attributes:
        table: ``A x d`` inputs, of which some were observed.
        rows: ``n`` rows of ``table``: the distinct inputs that were observed.
        kernel: The covariance module.
        noise: ``n`` noise variances of single observations.
        counts: ``n`` numbers of pulls.
        scores: ``n`` leverage scores under the belief before the last results. None if many
            unsolicited results arrived at once, since these scores then say little. Only
            :class:`~botorch_bkb.dictionaries.RidgeLeverageSampling` itself may get bounds.
        coins: ``n`` coins, for each input the smallest of one uniform number per pull.
        newest: The position of the input that was observed last.
        informative: Positions of the inputs whose results exceeded an information threshold.
        recur: Whether the optimizer chooses among these inputs again, as it does over arms.
    """

    table: Tensor
    rows: Tensor
    kernel: Kernel
    noise: Tensor
    counts: Tensor
    scores: Tensor | ScoreBounds | None
    coins: Tensor
    newest: int
    informative: Tensor
    recur: bool = False

    @property
    def X(self) -> Tensor:
        r"""The ``n x d`` distinct inputs that were observed."""
        return self.table[self.rows]


class Draw(NamedTuple):
    r"""A dictionary and the number of points from which a cap left these."""

    positions: Tensor  #: sorted positions among the observed inputs
    num_drawn: int  #: number of points drawn, before a cap on the size

    @property
    def is_capped(self) -> bool:
        r"""Whether more points were drawn than were kept."""
        return len(self.positions) < self.num_drawn
