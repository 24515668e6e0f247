r"""``BoundedDomain``: the base class of domains that are given by bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_bkb.domains.domain import Domain
from botorch_bkb.domains.reading import Points, as_real, read_points
from botorch_bkb.domains.suggestion import Suggestion
from botorch_bkb.rows import RowIndex
from botorch_bkb.units import UnitCube
from botorch_bkb.validation import check_finite, check_precision


def check_bounds(bounds: Any) -> None:
    r"""Raise unless ``bounds`` is a finite ``2 x d`` tensor with lower below upper bounds."""
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
    check_precision("bounds", bounds)
    if bounds.shape[1] == 0:
        raise InputDataError(
            f"bounds must have at least one column, got shape {tuple(bounds.shape)}."
        )
    check_finite("bounds", bounds, "choose finite ends, and a logarithmic scale for wide ranges")
    if not (bounds[0] < bounds[1]).all():
        bad = int(torch.nonzero(bounds[0] >= bounds[1])[0])
        raise InputDataError(
            f"Lower bounds must be below upper ones, got {bounds[0, bad].item()} and "
            f"{bounds[1, bad].item()} in column {bad}: swap them, or leave out "
            "inputs that do not vary."
        )


@dataclass(frozen=True, eq=False)
class BoundedDomain(Domain):
    r"""Base class of domains that are given by bounds.

    Args:
        bounds: A ``2 x d`` tensor with the lower and the upper corner.
        keep_coordinates: Whether the table keeps the coordinates of all its rows.
    """

    bounds: Tensor
    _: KW_ONLY
    keep_coordinates: bool = True

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        # A copy: later changes of the user's tensor must not change the domain.
        object.__setattr__(self, "bounds", self.bounds.detach().clone())

    @property
    def extent(self) -> Tensor:
        r"""The lower and the upper corner."""
        return self.bounds

    @cached_property
    def index(self) -> RowIndex:
        r"""An index of one row, the centre, since a table needs a row to start with."""
        return RowIndex(self.bounds.mean(0, keepdim=True))

    @cached_property
    def cube(self) -> UnitCube:
        r"""The map between the box and the unit cube."""
        return UnitCube(self.bounds)

    @property
    def default_oversampling(self) -> float:
        r"""The default oversampling of 2, since points of a box are hardly ever repeated."""
        return 2.0

    @property
    def checksum(self) -> int:
        r"""A checksum of the bounds."""
        return RowIndex(self.bounds).checksum

    def read(
        self, points: Suggestion | Tensor | Sequence, added: Tensor, pending: Mapping[int, int]
    ) -> Points:
        r"""Convert a suggestion, or inputs within the bounds, to rows of the table."""
        if not isinstance(points, Suggestion):
            points = self._as_inputs(points)
        return read_points(points, self.index, added, pending)

    def _as_inputs(self, points: Tensor | Sequence) -> Tensor:
        try:
            X = as_real("Points", points, dtype=self.bounds.dtype, device=self.bounds.device)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
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

    def first_equal(self, rows: Tensor) -> Tensor:
        r"""Return the rows unchanged, since equal points of a box share a row."""
        return rows

    def indices(self, rows: Tensor) -> Tensor | None:
        r"""Return None, since points of a box have no indices."""
        return None

    def candidates(self, observed: Tensor) -> Tensor | slice:
        r"""Return the observed rows, or the centre before the first result."""
        return observed if len(observed) else slice(1)
