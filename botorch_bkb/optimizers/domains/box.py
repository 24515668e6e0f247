r"""A box, searched by BoTorch's optimizers.

The table of a run over a box has a row for each input ever asked or observed. Picks are made up
by maximising an acquisition function of the model and become rows then, so that scores, means and
dictionaries are kept current for a box as they are for arms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from botorch.utils.sampling import manual_seed
from torch import Tensor

from botorch_bkb.acquisition import BudgetedUCB
from botorch_bkb.batches import Batch
from botorch_bkb.models import DTCGP
from botorch_bkb.optimizers.acquisitions import NAMED, Marginals, Standing, from_model
from botorch_bkb.optimizers.domains.domain import Domain, Situation, Strategy, batch_options
from botorch_bkb.optimizers.domains.search import Search
from botorch_bkb.optimizers.reading import Points, read_points
from botorch_bkb.optimizers.state import State
from botorch_bkb.optimizers.suggestion import Suggestion
from botorch_bkb.rows import RowIndex
from botorch_bkb.validation import check_finite, check_positive_integer


def check_bounds(bounds: Any) -> None:
    r"""Raise unless ``bounds`` is a finite ``2 x d`` tensor, lower below upper."""
    if not isinstance(bounds, Tensor) or bounds.dim() != 2 or bounds.shape[0] != 2:
        got = f"shape {tuple(bounds.shape)}" if isinstance(bounds, Tensor) else type(bounds)
        raise BotorchTensorDimensionError(
            f"bounds must be a 2 x d tensor, lower bounds above upper ones, got {got}."
        )
    if bounds.shape[1] == 0 or not bounds.is_floating_point():
        raise InputDataError(
            f"bounds must be floating point with at least one column, got {bounds.dtype} of shape "
            f"{tuple(bounds.shape)}."
        )
    check_finite("bounds", bounds)
    if not (bounds[0] < bounds[1]).all():
        bad = int(torch.nonzero(bounds[0] >= bounds[1])[0])
        raise InputDataError(
            f"Lower bounds must be below upper ones, got {bounds[0, bad].item()} and "
            f"{bounds[1, bad].item()} in column {bad}: leave out inputs that do not vary."
        )


class Box(Domain):
    r"""The box between two corners.

    Args:
        bounds: ``2 x d``.
        num_initial: Points of the initial design, scrambled Sobol; ``2 d + 2`` by default.
        discrete_dims: Values of coordinates that take only these.
        options: Arguments of BoTorch's ``optimize_acqf``.
    """

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
        self.rows = self.bounds.mean(0, keepdim=True)  # a table needs a row to start with
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
        return read_points(points, RowIndex(self.rows), state.added, state.pending)

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
            return DesignBatch(self, strategy, situation, max(1, left))
        return BoxBatch(self, strategy, situation)

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
        return BoxBatch(self, strategy, situation).highest_bound()


class BoxRows(Batch):
    r"""What batches over a box share: picks become rows of the table when they are taken.

    Args:
        box: The box.
        strategy: How picks are made.
        situation: What the batch is made from.

    Attributes:
        inputs: Inputs of all rows of the table, and of a pick that may become one.
    """

    def __init__(self, box: Box, strategy: Strategy, situation: Situation) -> None:
        self.box, self.situation = box, situation
        self.inputs = torch.cat([box.rows, situation.state.added])
        super().__init__(
            situation.table, strategy.rule, num_arms=0, **batch_options(strategy, situation)
        )

    def _row_of(self, X: Tensor) -> int:
        r"""The row a ``1 x d`` input has, or would have."""
        equal = torch.nonzero((self.inputs == X).all(-1))
        if len(equal):
            return int(equal[0])
        self.inputs = torch.cat([self.inputs, X])
        return len(self.inputs) - 1

    def _hallucinate(self, row: int) -> None:
        if row == len(self.table.X):
            X = self.inputs[row : row + 1]
            self.table.extend(self.situation.tables.tuning.inputs(X))
            self.added.append(X)


class DesignBatch(BoxRows):
    r"""Points of the initial design.

    Args:
        box: The box.
        strategy: How picks are made.
        situation: What the batch is made from.
        size: How many.
    """

    is_design = True

    def __init__(self, box: Box, strategy: Strategy, situation: Situation, size: int) -> None:
        super().__init__(box, strategy, situation)
        seed = situation.state.design_seed
        self._points = box.search.design(situation.record.designed, size, seed)

    @property
    def complete(self) -> bool:
        r"""Whether the design is handed out."""
        return len(self.picks) >= len(self._points)

    def _choose(self) -> int:
        return self._row_of(self._points[len(self.picks)].unsqueeze(0))

    def _score_at_start(self, row: int) -> float:
        self._hallucinate(row)
        rows = torch.tensor([row], device=self.inputs.device)
        return float(self.table.moments_at(rows)[1]) / self.table.noise_var

    def _score_now(self, row: int) -> float:
        return float("inf")  # a design is evaluated, whatever it teaches


class BoxBatch(BoxRows):
    r"""Maximises the acquisition function of a model that hallucinates earlier picks.

    Conditioned on its own mean at the picks, the model keeps its means and its variances fall.

    Args:
        box: The box.
        strategy: How picks are made.
        situation: What the batch is made from.
    """

    def __init__(self, box: Box, strategy: Strategy, situation: Situation) -> None:
        self.acquisition, self.epsilon = strategy.acquisition, strategy.epsilon
        self._base = self._model = situation.tables.search_model(situation.state, box.bounds)
        super().__init__(box, strategy, situation)
        self._imagined = list(self.stragglers)  # to be conditioned on when somebody asks

    @property
    def model(self) -> DTCGP:
        r"""Over the unit cube, in units of the rewards."""
        if self._imagined:
            hyper, X = self.situation.state.hyper, self._unit(self._imagined)
            mean = self._model.posterior(X).mean
            noise = torch.full_like(mean, hyper.noise_var * hyper.scale**2)
            self._model = self._model.condition_on_observations(X, mean, noise=noise)
            self._imagined = []
        return self._model

    def follow(self, picks: Sequence[int]) -> None:
        r"""Take what was picked before; maximising again would give the same."""
        for row in picks:
            self._take(row)

    def _choose(self) -> int:
        seed, search = self.situation.record.seed + len(self.picks), self.box.search
        if self.acquisition == "greedy" and _coin(seed) < self.epsilon:
            return self._row_of(search.design(0, 1, seed % 2**31))
        X = search.maximise(self._acquisition(seed), self.starts(), seed)
        return self._row_of(search.from_unit(X))

    def starts(self) -> Tensor:
        r"""Where to begin: at the best of what was observed, and at the previous maximiser."""
        state = self.situation.state
        mean = self.table.mean()
        best = state.history.rows[mean[state.history.rows].argmax()]
        return self._unit(sorted({int(best), len(self.inputs) - 1}))

    def _unit(self, rows: list[int]) -> Tensor:
        X = self.inputs[torch.tensor(rows, device=self.inputs.device)]
        return self.box.search.to_unit(X)

    def _acquisition(self, seed: int) -> AcquisitionFunction:
        if self.acquisition == "thompson":
            with manual_seed(seed):
                return PosteriorMean(get_matheron_path_model(self._base))
        if not isinstance(self.acquisition, str):
            return from_model(self.acquisition, self.model)
        marginals, best_mean = self.marginals, 0.0
        if self.acquisition == "greedy":
            return PosteriorMean(marginals)
        if self.acquisition == "mpi":
            highest = PosteriorMean(marginals)
            X = self.box.search.maximise(highest, self.starts(), seed)
            best_mean = float(highest(X))
        incumbent = self.situation.incumbent / self._prior_deviation
        standing = Standing(self.situation.record.width, incumbent, best_mean)
        return NAMED[self.acquisition](marginals, standing)

    @property
    def marginals(self) -> Marginals:
        r"""In units in which the prior has a deviation of one: BoTorch's floors are absolute."""
        hyper = self.situation.state.hyper
        return Marginals(self.model, hyper.offset, hyper.scale * self._prior_deviation)

    @property
    def _prior_deviation(self) -> float:
        return math.sqrt(self.table.kernel_bound) or 1.0

    def highest_bound(self) -> float:
        r"""The highest upper confidence bound found, in the model's units."""
        record = self.situation.record
        bound = BudgetedUCB(self.marginals, record.width)
        X = self.box.search.maximise(bound, self.starts(), record.seed)
        return float(bound(X)) * self._prior_deviation

    def _score_at_start(self, row: int) -> float:
        return self._score(self._base, row)

    def _score_now(self, row: int) -> float:
        return self._score(self.model, row)

    def _score(self, model: DTCGP, row: int) -> float:
        hyper = self.situation.state.hyper
        variance = model.marginals(self._unit([row]))[1]
        return float(variance) / (hyper.noise_var * hyper.scale**2)

    def _hallucinate(self, row: int) -> None:
        super()._hallucinate(row)
        self._imagined.append(row)


def _coin(seed: int) -> float:
    return float(torch.rand((), generator=torch.Generator().manual_seed(seed)))
