r"""``Region``: how far a trust region has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from botorch_bkb.domains.trust_region import TrustRegion
from botorch_bkb.rows import appended


@dataclass(frozen=True, eq=False)
class Region:
    r"""A trust region: its length, what it has counted, and its points.

    Attributes:
        length: The length, in sides of the unit cube.
        rows: The rows of its results since it was begun, in the order of the results.
        centre: The row of its centre; -1 before the first result.
        successes: The number of successes in a row.
        failures: The number of failures in a row.
        restarts: How often it was begun anew.
        first_id: Points with smaller ids were asked before it was begun.
    """

    length: float
    rows: Tensor
    centre: int = -1
    successes: int = 0
    failures: int = 0
    restarts: int = 0
    first_id: int = 0

    @classmethod
    def first(cls, rule: TrustRegion, device: torch.device) -> Region:
        r"""Return a region before the first result."""
        return cls(rule.length, torch.empty(0, dtype=torch.long, device=device))

    def renumbered(self, new_rows: Callable[[Tensor], Tensor]) -> Region:
        r"""Return the same region with other row numbers."""
        if self.centre < 0:
            return self
        centre = int(new_rows(self.rows.new_tensor([self.centre])))
        return replace(self, rows=new_rows(self.rows), centre=centre)

    def with_rows(self, rows: Tensor) -> Region:
        r"""Return the region with the rows of more results."""
        return replace(self, rows=appended(self.rows, rows)) if len(rows) else self

    def with_centre(self, centre: int) -> Region:
        r"""Return the region about another of its points."""
        return replace(self, centre=centre)

    def counted(self, num_results: int, success: bool, rule: TrustRegion, dim: int) -> Region:
        r"""Return the region after results that it had asked for: longer, shorter or as it was.

        Args:
            num_results: The number of results, at least one.
            success: Whether the point of one of them is the new centre.
            rule: The rule.
            dim: The number of dimensions.
        """
        if not success:
            failures = self.failures + num_results
            if failures < rule.failures_allowed(dim):
                return replace(self, successes=0, failures=failures)
            return replace(self, length=self.length / 2, successes=0, failures=0)
        if self.successes + 1 < rule.success_tolerance:
            return replace(self, successes=self.successes + 1, failures=0)
        length = min(2 * self.length, rule.max_length)
        return replace(self, length=length, successes=0, failures=0)

    def begun_anew(self, rule: TrustRegion, next_id: int) -> Region:
        r"""Return a region without points, after one that has become too small.

        Args:
            rule: The rule.
            next_id: The id of the next point asked.
        """
        return Region(rule.length, self.rows[:0], restarts=self.restarts + 1, first_id=next_id)
