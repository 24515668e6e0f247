r"""Large batches over a box, picked from a pool of candidates.

A search for each of a thousand points would take minutes. Here a pool of candidates is drawn once:
points that fill the box, points near the best ones observed, and maximisers of the bound. The picks
are those of greedy upper bounds over the pool, conditioned exactly on each pick. With ``w_b`` the
coordinates of candidates in the span of the first ``b`` picks

.. code-block:: text

    c(x) = cov_0(x, s) - w_b(x)'w_b(s),     w_{b+1}(x) = (w_b(x), c(x) / sqrt(c(s) + lambda))
    var_{b+1}(x) = var_b(x) - c(x)^2 / (c(s) + lambda)

for a pick ``s``. This costs ``O(m + b)`` per candidate and pick. The covariances of several likely
picks with all candidates are one product.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_bkb.acquisition import UCB
from botorch_bkb.acquisition.closed import ClosedMarginals
from botorch_bkb.acquisition.scores import UpperBound
from botorch_bkb.batches.box import BoxBatch
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.regions import RegionOfPick, designed_points
from botorch_bkb.belief import chunks
from botorch_bkb.closed_form import correlation
from botorch_bkb.domains import Box
from botorch_bkb.rows import RowIndex, appended

#: Number of points from which a batch is picked from a pool.
LARGE = 32
#: Number of candidates that fill the box, at least, and per point of the batch.
LEAST, PER_POINT = 2048, 4
#: Number of the best points observed that have candidates near them.
INCUMBENTS = 8
#: Number of candidates that are embedded at a time.
CHUNK = 1024
#: Number of likely picks whose covariances with all candidates are computed at a time.
COLUMNS = 64


class ConditionedBounds:
    r"""Upper bounds at some points, conditioned exactly on picks among them; the means stay.

    Args:
        marginals: The belief.
        X: ``C x d`` points.
        width: The width of the bounds in posterior standard deviations.
        noise_var: The noise variance of a pick.
        most: The largest number of picks.

    Attributes:
        upper: ``C`` upper bounds; minus infinity where a point may not be picked.
    """

    def __init__(
        self, marginals: ClosedMarginals, X: Tensor, width: float, noise_var: float, most: int
    ) -> None:
        self.marginals, self.width, self.noise_var = marginals, width, noise_var
        at = [marginals.evaluate(X[rows]) for rows in chunks(len(X), CHUNK)]
        self._a, self._mean, self._var, self._slope = (
            torch.cat(parts)
            for parts in zip(*((e.a, e.mean, e.var, e.slope) for e in at), strict=True)
        )
        self._phi = correlation(marginals.profile, self._a, marginals.points)[0]
        self._known = self._mean.new_zeros(most, len(X))  # the coordinates w, by picks
        self._picked = 0
        self._columns: dict[int, tuple[Tensor, int]] = {}  # covariances after so many picks
        self._open = torch.ones_like(self._mean, dtype=torch.bool)
        self.upper = self._mean + width * self._var.sqrt()

    @property
    def variances(self) -> Tensor:
        r"""The variances at all points, ``C``."""
        return self._var

    def pick(self, place: int) -> None:
        r"""Condition on the point at a place."""
        c = self._covariances(place)
        c /= (self._var[place] + self.noise_var).sqrt()
        self._known[self._picked] = c
        self._picked += 1
        self._var = (self._var - c.square()).clamp_min(0)
        upper = self._mean + self.width * self._var.sqrt()
        self.upper = torch.where(self._open, upper, -torch.inf)

    def _covariances(self, place: int) -> Tensor:
        r"""Return the covariances of all points with the one at a place."""
        if place not in self._columns:
            self._compute_columns(place)
        column, since = self._columns.pop(place)
        known = self._known[since : self._picked]
        return torch.addmv(column, known.mT, known[:, place], alpha=-1)

    def _compute_columns(self, place: int) -> None:
        r"""Compute the covariances with a place and with those of the highest bounds."""
        likely = self.upper.topk(min(COLUMNS, len(self.upper))).indices
        places = torch.cat([likely.new_tensor([place]), likely[likely != place]])
        own = correlation(self.marginals.profile, self._a, self._a[places])[0]
        c = torch.addmm(self.marginals.prior * own, self._phi, self._slope[places].mT)
        known = self._known[: self._picked]
        columns = c.addmm_(known.mT, known[:, places], alpha=-1).mT.contiguous()
        self._columns = {p: (columns[i], self._picked) for i, p in enumerate(places.tolist())}

    def leave_out(self, places: Tensor) -> None:
        r"""Let points at some places never be picked."""
        self._open[places] = False
        self.upper[places] = -torch.inf


class PoolBatch(BoxBatch):
    r"""Picks the highest upper bounds of a pool of candidates, conditioned on each pick.

    Args:
        domain: The box.
        context: What the batch is picked from.

    Attributes:
        pool: The candidates, after the points that were asked earlier, as the user knows them.

    Reference:
        Desautels, Krause, Burdick, JMLR 2014. (GP-BUCB.)
    """

    def __init__(self, domain: Box, context: BatchContext) -> None:
        super().__init__(domain, context)
        n, outstanding = context.request.n or 0, [*self.stragglers, *self.given_up]
        bound = UpperBound(self.marginals, context.record.width)
        found = self._found(bound, max(LEAST, PER_POINT * n))
        designed = designed_points(domain, context.state, n)
        self.pool = torch.cat([self.inputs[outstanding], *designed, *found])
        # Designed points are chosen by their inputs, and the first ones were asked for already.
        first = len(outstanding) + len(designed)
        sizes = [first, *map(len, found)]
        self._owner = torch.repeat_interleave(torch.tensor(sizes, device=self.inputs.device)) - 1
        # The first row that equals a candidate, or the number it would have below all rows.
        self._first = RowIndex(torch.cat([self.inputs, self.pool])).first[len(self.inputs) :]
        self._known = self._num_rows = len(self.inputs)  # the latter with picks that wait
        self._new: dict[int, int] = {}  # rows of the picks that are not among the known ones
        closed, unit = self._base_closed, domain.cube.to_unit(self.pool)
        assert closed is not None  # see suits
        bounds = ConditionedBounds(
            closed, unit, context.record.width, self._noise_var, n + len(outstanding)
        )
        self._at_start = bounds.variances
        for place in range(len(outstanding)):
            bounds.pick(place)
        bounds.leave_out(torch.arange(len(outstanding), device=unit.device))
        self._bounds = bounds

    @staticmethod
    def suits(domain: Box, context: BatchContext) -> bool:
        r"""Return whether a batch is large, by upper bounds, over a box without constraints."""
        n = context.request.n
        is_large = n is not None and n >= LARGE and context.acquisition.turn(0) == UCB()
        if not (is_large and domain.search.is_plain):
            return False
        marginals = context.models.marginals(context.state, domain.cube, context.table)
        return marginals is not None

    def _found(self, bound: UpperBound, n: int) -> list[Tensor]:
        r"""Return candidates, as the user knows them: of the box, or of each trust region.

        Args:
            bound: The upper bound over the unit cube.
            n: The number of candidates that fill the unit cube, or all regions together.
        """
        domain, state, seed = self.domain, self.context.state, self.context.record.seed
        pool, rows = domain.search.pool, state.history.rows
        if domain.trust_region is None:
            return [domain.from_unit(pool(bound, self.observed(INCUMBENTS, rows), n, seed))]
        found = []
        for i, region in enumerate(state.regions):
            within = RegionOfPick(domain, state, i).corners(self.inputs)
            incumbents = self.observed(INCUMBENTS, region.rows if len(region.rows) else rows)
            more = pool(bound, incumbents, math.ceil(n / len(state.regions)), seed + i, within)
            found.append(domain.from_unit(more))
        return found

    def _choose(self) -> int:
        region, upper = self.region, self._bounds.upper
        if region is not None and (designed := region.design_point()) is not None:
            return self._row_of(designed)
        number = 0 if region is None else region.number
        place = int(torch.where(self._owner == number, upper, -torch.inf).argmax())
        return self._row_at(place)

    def _row_at(self, place: int) -> int:
        r"""Return the row that the candidate at a place has, or would have."""
        first = int(self._first[place])
        if first < self._known:
            return first
        if first not in self._new:
            self._new[first] = len(self.inputs)
            self.inputs = appended(self.inputs, self.pool[place : place + 1])
        return self._new[first]

    def _row_of(self, X: Tensor) -> int:
        return self._row_at(int(torch.nonzero((self.pool == X).all(-1))[0]))

    def _places(self, row: int) -> Tensor:
        r"""Return the places of the candidates that equal a row."""
        return torch.nonzero((self.pool == self.inputs[row]).all(-1)).squeeze(-1)

    def _score_at_start(self, row: int) -> float:
        return float(self._at_start[self._places(row)[0]]) / self.table.noise_var

    def _score_now(self, row: int) -> float:
        return float(self._bounds.variances[self._places(row)[0]]) / self.table.noise_var

    def _hallucinate(self, row: int) -> None:
        self._num_rows = max(self._num_rows, row + 1)
        if self._spent <= self.rule.limit:  # the rule reads the rows of the picks
            self.add_waiting()
        places = self._places(row)
        self._bounds.pick(int(places[0]))
        if self.context.request.distinct:
            self._bounds.leave_out(places)

    def add_waiting(self) -> None:
        r"""Add the picks to the table that are not in it yet, in one block."""
        if self._num_rows > len(self.table.X):
            self._add(self.inputs[len(self.table.X) : self._num_rows])
