r"""``Request``: what the user wants of one ask, besides the next points of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    r"""What the user wants of one ask.

    Attributes:
        n: The number of points, whatever the batch rule says; None where the rule decides.
        at_most: The largest number of points, where the rule decides.
        distinct: Whether no candidate may be picked that is pending or was picked before.
        exclude: Rows of the table that must not be picked.
        fixed: Coordinates of a box that are fixed, with their values.
    """

    n: int | None = None
    at_most: int | None = None
    distinct: bool = False
    exclude: tuple[int, ...] = ()
    fixed: Mapping[int, float] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        r"""Whether the batch that is being asked goes on.

        Otherwise the points are a batch of their own, in which pending points count as picked.
        """
        return self.n is None and not (self.distinct or self.exclude or self.fixed)

    def wants_more(self, picked: int, is_complete: bool) -> bool:
        r"""Return whether another point is to be picked.

        Args:
            picked: The number of points picked for this ask.
            is_complete: Whether the batch is complete by its rule.
        """
        if self.n is not None:
            return picked < self.n
        return not is_complete and (self.at_most is None or picked < self.at_most)
