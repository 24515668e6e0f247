r"""``TrustRegion``: a search over a box that is confined to a smaller one around the best point.

A region is a box in the unit cube, about the observed point of highest posterior mean. With the
length-scales ``l_i`` of the kernel and the length ``L`` of the region, its sides are

.. code-block:: text

    s_i = L l_i / (l_1 ... l_d)^(1/d)

so that its volume is ``L^d``, as far as it lies in the cube. It grows with successes and shrinks
with failures. When it is too small it is begun anew, where the whole box looks best.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.validation import check_positive_integer


@dataclass(frozen=True)
class TrustRegion:
    r"""How a search over a box is confined to regions around good points.

    A result for a point that was asked from a region is a success if its point becomes the centre,
    the point of highest posterior mean among those of the region. Otherwise it is a failure. After
    ``success_tolerance`` successes in a row the length doubles, and after ``failure_tolerance``
    failures in a row it halves. Below ``min_length`` the region is begun anew: its next point is
    picked from the whole box, and its centre is one of its points from there on. The belief has all
    results all the time.

    This is for runs in which every evaluation counts: evaluations have less regret on average than
    in a search of the whole box. Recommendations are about as good. No theorem holds with it.

    Args:
        num_regions: The number of regions, between which the points are shared out in turn. Each
            has points of its own, among which its centre is.
        length: The length of a region at first, in sides of the unit cube.
        min_length: The length below which a region is begun anew.
        max_length: The largest length.
        success_tolerance: The number of successes in a row after which the length doubles.
        failure_tolerance: The number of failures in a row after which it halves; by default the
            number of dimensions, but at least 4.
        num_initial: The number of points of a Sobol design with which a region is begun anew. By
            default there is none, since the belief knows the whole box already.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB
        >>> from botorch_bkb.domains import TrustRegion
        >>> bounds = torch.tensor([[-5.0] * 5, [5.0] * 5], dtype=torch.float64)
        >>> optimizer = BKB(bounds=bounds, trust_region=TrustRegion(), seed=0)
        >>> for _ in range(3):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -suggestion.X.square().sum(-1))
        >>> optimizer.num_observations
        14

    Reference:
        Eriksson, Pearce, Gardner, Turner, Poloczek: Scalable global optimization via local Bayesian
        optimization. NeurIPS 2019. (TuRBO.) There a region has a model of its own points and is
        begun anew with a design, and a success is a reward above the best one. With noise the best
        reward is mostly luck and not beaten, so that regions shrink too early.
    """

    num_regions: int = 1
    _: KW_ONLY
    length: float = 0.4
    min_length: float = 2.0**-7
    max_length: float = 1.6
    success_tolerance: int = 3
    failure_tolerance: int | None = None
    num_initial: int = 0

    def __post_init__(self) -> None:
        check_positive_integer("failure_tolerance", self.failure_tolerance)
        for name in ("num_regions", "success_tolerance"):
            check_positive_integer(name, getattr(self, name) or 0)
        if not (isinstance(self.num_initial, int) and self.num_initial >= 0):
            raise InputDataError(
                f"num_initial must be a number of points, got {self.num_initial!r}: pass 0 to "
                "begin anew without a design."
            )
        lengths = self.min_length, self.length, self.max_length
        are_numbers = all(isinstance(value, (int, float)) for value in lengths)
        if not (are_numbers and 0 < lengths[0] <= lengths[1] <= lengths[2] < math.inf):
            raise InputDataError(
                "A trust region must have 0 < min_length <= length <= max_length, got "
                f"{lengths[0]}, {lengths[1]} and {lengths[2]}."
            )

    def failures_allowed(self, dim: int) -> int:
        r"""Return the number of failures in a row after which a region shrinks.

        Args:
            dim: The number of dimensions.
        """
        return self.failure_tolerance or max(4, dim)


def corners(centre: Tensor, length: float, lengthscales: Tensor) -> Tensor:
    r"""Return the corners of a region in the unit cube, ``2 x d``.

    Args:
        centre: The ``d`` coordinates of its centre.
        length: Its length.
        lengthscales: ``d`` length-scales of the kernel in the unit cube, or one for all.

    Example:
        >>> import torch
        >>> corners(torch.tensor([0.5, 0.9]), 0.2, torch.tensor([2.0, 0.5]))
        tensor([[0.3000, 0.8500],
                [0.7000, 0.9500]])
    """
    half = length / 2 * (lengthscales / lengthscales.log().mean().exp())
    return torch.stack([centre - half, centre + half]).clamp(0, 1)
