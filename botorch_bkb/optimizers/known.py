r"""What an optimizer knows: everything that reads its state and changes nothing."""

from __future__ import annotations

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.models import DTCGP
from botorch_bkb.optimizers.domains import Domain, Situation, Strategy
from botorch_bkb.optimizers.hyperparameters import Tuning
from botorch_bkb.optimizers.state import BatchRecord, State
from botorch_bkb.optimizers.suggestion import Best, Suggestion
from botorch_bkb.optimizers.tables import Tables
from botorch_bkb.optimizers.width import Widths


class Known:
    r"""What all optimizers can tell: the recommendation, the belief, and how far they are.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB
        >>> optimizer = BKB(torch.eye(9, dtype=torch.float64), seed=0)
        >>> optimizer.tell([3, 4, 3], [1.0, 2.0, 1.5])
        >>> optimizer.num_observations, len(optimizer.pending), len(optimizer.dictionary)
        (3, 0, 2)
    """

    domain: Domain
    strategy: Strategy
    tuning: Tuning
    widths: Widths
    tables: Tables
    _state: State
    _cached_table: ArmTable | None

    def __repr__(self) -> str:
        r"""What it optimises, and how far it is."""
        where = f"{self.domain.num_arms:,} arms in" if self.domain.num_arms else "a box of"
        return (
            f"<{type(self).__name__} over {where} {self.domain.dim} dimensions, "
            f"{self.num_observations:,} observations, {len(self._state.pending):,} pending>"
        )

    @property
    def device(self) -> torch.device:
        r"""The device of the arms or bounds, on which everything is computed."""
        return self.domain.extent.device

    @property
    def dtype(self) -> torch.dtype:
        r"""The dtype of the arms or bounds, and of every suggestion."""
        return self.domain.extent.dtype

    @property
    def arms(self) -> Tensor:
        r"""``A x d``."""
        if not self.domain.num_arms:
            raise UnsupportedError("An optimizer over a box has no arms; see `domain.bounds`.")
        return self.tables.arms

    def best(self) -> Best:
        r"""The arm of highest posterior mean, with its confidence interval.

        Over a box it is the best of what was observed.

        Example:
            >>> import torch
            >>> from botorch_bkb import GPUCB
            >>> optimizer = GPUCB(torch.eye(9, dtype=torch.float64), seed=0)
            >>> optimizer.tell([3, 4], [1.0, 2.0])
            >>> optimizer.best().index
            4
        """
        if not self.num_observations:
            raise InputDataError("There is no best point before the first result: tell one first.")
        state, table = self._state, self._table()
        rows = torch.arange(len(table.X), device=table.X.device)[self.domain.contenders(state)]
        mean, var = (t[rows] for t in table.moments())
        i = int(mean.argmax())
        half = self.width_now * var[i].sqrt()
        ends = torch.stack([mean[i], mean[i] - half, mean[i] + half])
        middle, lower, upper = state.hyper.to_rewards(ends).tolist()
        X = self.tables.points(state, rows[i : i + 1]).squeeze(0)
        index = self.domain.indices(rows[i])
        return Best(None if index is None else int(index), X, middle, lower, upper)

    @torch.no_grad()
    def gap(self) -> float:
        r"""The highest upper confidence bound less the best lower one, in units of the rewards.

        No point is better by more than the one with that lower bound, when all intervals hold:
        with probability ``1 - delta`` for a width with a guarantee. Over a box the highest bound
        is the highest one that BoTorch's optimizer finds.
        """
        state, table, width = self._state, self._table(), self.width_now
        rows = self.domain.contenders(state)
        mean, var = (t[rows] for t in table.moments())
        record = state.batch or BatchRecord(width, 0, (), cells=state.num_cells)
        situation = Situation(state, table, record._replace(stragglers=(), lost=()), self.tables)
        highest = self.domain.highest_bound(self.strategy, situation)
        return max(0.0, highest - float((mean - width * var.sqrt()).max())) * state.hyper.scale

    @property
    def model(self) -> DTCGP:
        r"""The belief as a BoTorch model: distinct inputs, mean rewards, their noise variances."""
        if not self._state.history.num_observations:
            raise InputDataError("There is no model before the first result: tell one first.")
        return self.tables.model(self._state)

    @property
    def pending(self) -> Suggestion:
        r"""Points asked and not told."""
        points = self._state.pending
        rows = torch.tensor(
            [point.row for point in points.values()],
            dtype=torch.long,
            device=self.tables.arms.device,
        )
        X = self.tables.points(self._state, rows)
        return Suggestion(X, self.domain.indices(rows), tuple(points))

    @property
    def num_observations(self) -> int:
        r"""Results told so far."""
        return self._state.num_observations

    @property
    def num_steps(self) -> int:
        r"""Results told and steps skipped so far: the papers' ``t``."""
        return self._state.num_steps

    @property
    def model_order(self) -> int:
        r"""``M``: how many results were informative; all, without an information threshold."""
        return self._state.num_kept

    @property
    def dictionary(self) -> Tensor:
        r"""``m x d`` points that the belief stands on; none before the first result."""
        if not self._state.history.num_observations:
            return self.tables.arms[:0]
        return self.tables.points(self._state, self._state.recipe.final_dictionary)

    @property
    def effective_dimension(self) -> float:
        r"""``d_eff = sum_s tau(x_s)`` over the pulls, under the present belief."""
        return self._table().effective_dimension

    @property
    def information_gain(self) -> float:
        r"""``1/2 sum_s log(1 + tau(x_s))``, each score the one its point had when chosen."""
        return self._state.log_sum / 2

    @property
    def width_now(self) -> float:
        r"""Width of the bounds in posterior standard deviations: of the batch, or of the next."""
        if self._state.batch is not None:
            return self._state.batch.width
        return self.widths.now(self._state, self._table())

    @property
    def noise_is_known(self) -> bool:
        r"""Whether results may come with variances of their own: they do, or it was given."""
        return self.tuning.noise_fixed or self._state.noise_known is not None

    @property
    def norm_bound(self) -> float:
        r"""``F``, as doubled so far, in the model's units."""
        return self._state.norm_bound

    @property
    def oversampling(self) -> float:
        r"""``q̄``, as raised so far."""
        return self._state.oversampling

    def _table(self) -> ArmTable:
        self._cached_table = table = self._take_table()
        return table

    def _take_table(self) -> ArmTable:
        r"""The table of the present state; the cache is emptied until it is put back."""
        table, self._cached_table = self._cached_table, None
        if table is None:
            table = self.tables.follow(self._state)
        return table
