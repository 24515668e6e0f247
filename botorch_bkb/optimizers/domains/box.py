r"""A box, searched by BoTorch's optimizers.

The table of a run over a box has a row for each input ever asked or observed. Picks are made up
by maximising an acquisition function of the model and become rows then, so that scores, means and
dictionaries are kept current for a box as they are for arms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_bkb.batches import Batch
from botorch_bkb.optimizers.domains.box_batches import BoxBatch, BoxRows, DesignBatch
from botorch_bkb.optimizers.domains.domain import Domain, Situation, Strategy
from botorch_bkb.optimizers.domains.search import Search
from botorch_bkb.optimizers.reading import Points, read_points
from botorch_bkb.optimizers.state import State
from botorch_bkb.optimizers.suggestion import Suggestion
from botorch_bkb.rows import RowIndex
from botorch_bkb.validation import check_finite, check_positive_integer


def check_bounds(bounds: Any) -> None:
    r"""Raise unless ``bounds`` is a finite ``2 x d`` tensor, lower below upper."""
    expected = "bounds must be a 2 x d tensor, the lower ends in its first row"
    if not isinstance(bounds, Tensor):
        raise BotorchTensorDimensionError(
            f"{expected}, got {' '.join(repr(bounds).split())[:80]}: convert it with "
            "torch.as_tensor(bounds, dtype=torch.float64), and append .T if these are pairs "
            "(lower, upper)."
        )
    if bounds.dim() != 2 or bounds.shape[0] != 2:
        raise BotorchTensorDimensionError(
            f"{expected}, got shape {tuple(bounds.shape)}: if its rows are pairs (lower, upper), "
            "pass bounds.T; a table of candidates is the `arms` of BKB or BBKB."
        )
    if bounds.shape[1] == 0 or not bounds.is_floating_point():
        raise InputDataError(
            f"bounds must be floating point with at least one column, got {bounds.dtype} of shape "
            f"{tuple(bounds.shape)}: convert integers with .double()."
        )
    check_finite("bounds", bounds, "choose finite ends, and a logarithmic scale for wide ranges")
    if not (bounds[0] < bounds[1]).all():
        bad = int(torch.nonzero(bounds[0] >= bounds[1])[0])
        raise InputDataError(
            f"Lower bounds must be below upper ones, got {bounds[0, bad].item()} and "
            f"{bounds[1, bad].item()} in column {bad}: swap them, or leave out "
            "inputs that do not vary."
        )


class Box(Domain):
    r"""The box between two corners.

    Args:
        bounds: ``2 x d``.
        num_initial: Points of the initial design, scrambled Sobol; ``2 d + 2`` by default.
        discrete_dims: Values of coordinates that take only these.
        options: Arguments of BoTorch's ``optimize_acqf``.
    """

    #: Less regret and better recommendations than with two (``python -m benchmarks trade-off``).
    heuristic_width = 1.5

    def __init__(
        self,
        bounds: Tensor,
        num_initial: int | None = None,
        discrete_dims: Mapping[int, Sequence[float]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        check_bounds(bounds)
        check_positive_integer("num_initial", num_initial)
        self.bounds = self.extent = bounds.detach().clone()
        # A table needs a row to start with.
        self.index = RowIndex(self.bounds.mean(0, keepdim=True))
        self.num_arms = 0
        self.num_initial = num_initial or 2 * self.dim + 2
        self.search = Search(self.bounds, discrete_dims, options)

    @property
    def checksum(self) -> int:
        r"""Of the bounds."""
        return RowIndex(self.bounds).checksum

    def read(self, points: Suggestion | Tensor | Sequence, state: State) -> Points:
        r"""A suggestion, or inputs."""
        if not isinstance(points, Suggestion):
            points = self._as_inputs(points)
        return read_points(points, self.index, state.added, state.pending)

    def _as_inputs(self, points: Tensor | Sequence) -> Tensor:
        try:
            X = torch.as_tensor(points, dtype=self.bounds.dtype, device=self.bounds.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputDataError(
                f"Points must be a Suggestion or a q x {self.dim} tensor, got "
                f"{type(points).__name__}: {error}"
            ) from None
        if X.dim() == 2 and X.shape[-1] == self.dim:
            outside = (self.bounds[0] > X) | (self.bounds[1] < X)
            if outside.any():
                i, j = torch.nonzero(outside)[0].tolist()
                raise InputDataError(
                    f"Points must lie within the bounds, got {X[i, j].item()} in row {i}, column "
                    f"{j}: leave out results from outside, or widen the box."
                )
        return X

    def begin(self, strategy: Strategy, situation: Situation) -> Batch:
        r"""The rest of the initial design, and then batches by the acquisition function."""
        state, designed = situation.state, situation.record.designed
        observed = state.history.num_observations
        left = self.num_initial - max(designed, state.num_observations)
        if left > 0 or observed == 0:
            initial = left > 0 or state.num_observations == 0
            return DesignBatch(self.search, strategy, situation, max(1, left), initial)
        return BoxBatch(self.search, strategy, situation)

    def points(self, batch: Batch, rows: Tensor) -> Tensor:
        r"""Inputs of the picks, which need not be rows of the table."""
        assert isinstance(batch, BoxRows)
        return batch.inputs[rows]

    def indices(self, rows: Tensor) -> Tensor | None:
        r"""None: points of a box have no numbers."""
        return None

    def contenders(self, state: State) -> Tensor | slice:
        r"""What was observed; the centre before that."""
        return state.history.rows if len(state.history.rows) else slice(1)

    def highest_bound(self, strategy: Strategy, situation: Situation) -> float:
        r"""The highest one found."""
        if situation.state.history.num_observations == 0:
            return situation.record.width * situation.table.kernel_bound**0.5
        return BoxBatch(self.search, strategy, situation).highest_bound()
