r"""Where the trust region of a pick lies, and the design with which it was begun."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from botorch_bkb.closed_form import LINEAR, closed_form
from botorch_bkb.domains import Box
from botorch_bkb.domains.trust_region import corners
from botorch_bkb.features import approximated
from botorch_bkb.state.regions import Region
from botorch_bkb.state.state import State


@dataclass(frozen=True, eq=False)
class RegionOfPick:
    r"""The trust region from which the point with some id is asked.

    Args:
        domain: The box.
        state: The state of the run.
        id_: The id of the point.
    """

    domain: Box
    state: State
    id_: int

    @property
    def number(self) -> int:
        r"""The number of the region: points are shared out in turn."""
        return self.id_ % len(self.state.regions)

    @property
    def region(self) -> Region:
        r"""The region."""
        return self.state.regions[self.number]

    def centre(self, inputs: Tensor) -> Tensor | None:
        r"""Return the centre in the unit cube, ``1 x d``; None before the first result.

        Args:
            inputs: The inputs of all rows of the table, as the user knows them.
        """
        row = self.region.centre
        return None if row < 0 else self.domain.cube.to_unit(inputs[row : row + 1])

    def corners(self, inputs: Tensor) -> Tensor | None:
        r"""Return the corners in the unit cube, ``2 x d``; None where all of it is searched.

        Args:
            inputs: The inputs of all rows of the table, as the user knows them.
        """
        centre = self.centre(inputs)
        if centre is None:
            return None
        return corners(centre.squeeze(0), self.region.length, lengthscales(self.domain, self.state))

    def scaled(self, X: Tensor, inputs: Tensor) -> Tensor:
        r"""Return points of the box as points of the region, in the units of the user.

        Args:
            X: ``n x d`` points of the box.
            inputs: The inputs of all rows of the table.
        """
        within = self.corners(inputs)
        if within is None:
            return X
        unit = self.domain.cube.to_unit(X)
        return self.domain.from_unit(within[0] + unit * (within[1] - within[0]))

    def design_point(self) -> Tensor | None:
        r"""Return the point if it is one of the design of a restart, ``1 x d``; else None."""
        region, rule = self.region, self.domain.trust_region
        place = (self.id_ - region.first_id) // len(self.state.regions)
        if rule is None or not region.restarts or place >= rule.num_initial:
            return None
        others = region.restarts * len(self.state.regions) + self.number
        seed = self.state.in_flight.design_seed + 1 + others
        return self.domain.design(place, 1, seed % 2**31)


def lengthscales(domain: Box, state: State) -> Tensor:
    r"""Return the length-scales of the kernel in the unit cube, ``d``, or ones if it has none."""
    form = closed_form(approximated(state.hyper.kernel))
    if form is None or form.profile == LINEAR or form.dims is not None:
        return domain.bounds.new_ones(domain.dim)
    scales = form.weights.flatten().to(domain.bounds)
    if state.model.scale is None:  # the kernel sees the user's units
        scales = scales / (domain.bounds[1] - domain.bounds[0])
    return scales.expand(domain.dim)


def designed_points(domain: Box, state: State, n: int) -> list[Tensor]:
    r"""Return the points of designs of restarts among the next points, ``1 x d`` each.

    Args:
        domain: The box.
        state: The state of the run.
        n: The number of next points.
    """
    if not state.regions:
        return []
    first = state.in_flight.next_id
    points = (RegionOfPick(domain, state, first + i).design_point() for i in range(n))
    return [point for point in points if point is not None]
