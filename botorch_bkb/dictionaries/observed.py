r"""What a dictionary rule sees of an optimizer, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpytorch.kernels import Kernel
from torch import Tensor


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
            unsolicited results arrived at once, since these scores then say little.
        coins: ``n`` coins, for each input the smallest of one uniform number per pull.
        newest: The position of the input that was observed last.
        informative: Positions of the inputs whose results exceeded an information threshold.
    """

    table: Tensor
    rows: Tensor
    kernel: Kernel
    noise: Tensor
    counts: Tensor
    scores: Tensor | None
    coins: Tensor
    newest: int
    informative: Tensor

    @property
    def X(self) -> Tensor:
        r"""The ``n x d`` distinct inputs that were observed."""
        return self.table[self.rows]


class Draw(NamedTuple):
    r"""A dictionary drawn for an optimizer."""

    positions: Tensor  #: sorted positions among the observed inputs
    num_drawn: int  #: number of points drawn, before a cap on the size


def highest_scores(drawn: Tensor, scores: Tensor | None, max_size: int | None) -> Draw:
    r"""Keep at most ``max_size`` of the positions ``drawn``, those of highest score."""
    if max_size is None or len(drawn) <= max_size:
        return Draw(drawn, len(drawn))
    assert scores is not None
    kept = drawn[scores[drawn].topk(max_size).indices]
    return Draw(kept.sort().values, len(drawn))
