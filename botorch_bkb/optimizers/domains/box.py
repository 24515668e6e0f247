r"""A box, searched by BoTorch's optimizers.

The table of a run over a box has a row for each input ever asked or observed. Picks are made up
by maximising an acquisition function of the model and become rows then, so that scores, means and
dictionaries are kept current for a box as they are for arms.

The search takes place in the unit cube, whatever the scales of the box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean, UpperConfidenceBound
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples, manual_seed
from torch import Tensor

from botorch_bkb.batches import Batch
from botorch_bkb.optimizers.acquisitions import NAMED, Standing
from botorch_bkb.optimizers.domains.domain import Domain, Situation, Strategy, batch_options
from botorch_bkb.optimizers.reading import Points, read_points
from botorch_bkb.optimizers.state import State
from botorch_bkb.optimizers.suggestion import Suggestion
from botorch_bkb.rows import RowIndex
from botorch_bkb.validation import check_finite, check_positive_integer

#: How the acquisition function is maximised, unless the user says otherwise.
OPTIONS: dict[str, Any] = {"num_restarts": 4, "raw_samples": 128}


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
        options: Arguments of BoTorch's ``optimize_acqf``, in the unit cube.
    """

    def __init__(
        self, bounds: Tensor, num_initial: int | None, options: Mapping[str, Any] | None
    ) -> None:
        check_bounds(bounds)
        check_positive_integer("num_initial", num_initial)
        self.bounds = self.extent = bounds.detach().clone()
        self.rows = self.bounds.mean(0, keepdim=True)  # a table needs a row to start with
        self.num_arms = 0
        self.num_initial = num_initial or 2 * self.dim + 2
        self.options = {**OPTIONS, **(options or {})}

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

    def design(self, start: int, n: int, seed: int) -> Tensor:
        r"""Points ``start .. start + n`` of the initial design, ``n x d``."""
        samples = draw_sobol_samples(self.bounds, n=start + n, q=1, seed=seed)
        return samples[start:].squeeze(-2)

    def to_unit(self, X: Tensor) -> Tensor:
        r"""From the box to the unit cube."""
        lower, upper = self.bounds
        return (X - lower) / (upper - lower)

    def from_unit(self, X: Tensor) -> Tensor:
        r"""From the unit cube to the box, never beyond it."""
        lower, upper = self.bounds
        return (lower + X.to(lower) * (upper - lower)).clamp(lower, upper)

    @torch.enable_grad()
    def maximise(self, acquisition: AcquisitionFunction, starts: Tensor, seed: int) -> Tensor:
        r"""The best point found, ``1 x d`` in the unit cube.

        Args:
            acquisition: Over the unit cube.
            starts: ``k x d`` points of the unit cube to start from, among others.
            seed: For the other starting points.
        """
        cube = torch.zeros_like(self.bounds)
        cube[1] = 1
        with manual_seed(seed):
            X, _ = optimize_acqf(
                acquisition,
                cube,
                q=1,
                batch_initial_conditions=starts[: self.options["num_restarts"] - 1].unsqueeze(-2),
                **self.options,
            )
        return X.detach()

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
        batch = BoxBatch(self, strategy, situation)
        bound = UpperConfidenceBound(batch.model, beta=situation.record.width**2)
        X = self.maximise(bound, batch.starts(), situation.record.seed)
        hyper = situation.state.hyper
        return (float(bound(X)) - hyper.offset) / hyper.scale


class BoxRows(Batch):
    r"""What batches over a box share: picks are new rows of the table.

    Args:
        box: The box.
        strategy: How picks are made.
        situation: What the batch is made from.
    """

    def __init__(self, box: Box, strategy: Strategy, situation: Situation) -> None:
        self.box, self.situation = box, situation
        #: Inputs of all rows of the table, as the user knows them.
        self.inputs = torch.cat([box.rows, situation.state.added])
        super().__init__(
            situation.table, strategy.rule, num_arms=0, **batch_options(strategy, situation)
        )

    def _score_at_start(self, row: int) -> float:
        rows = torch.tensor([row], device=self.inputs.device)
        return float(self.table.moments_at(rows)[1]) / self.table.noise_var

    def _row_of(self, X: Tensor) -> int:
        r"""The row of a ``1 x d`` input, added to the table if it is not there."""
        equal = torch.nonzero((self.inputs == X).all(-1))
        if len(equal):
            return int(equal[0])
        self.table.extend(self.situation.tables.tuning.inputs(X))
        self.added.append(X)
        self.inputs = torch.cat([self.inputs, X])
        return len(self.inputs) - 1


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
        self._points = box.design(situation.record.designed, size, seed)

    @property
    def complete(self) -> bool:
        r"""Whether the design is handed out."""
        return len(self.picks) >= len(self._points)

    def _choose(self) -> int:
        return self._row_of(self._points[len(self.picks)].unsqueeze(0))

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
        super().__init__(box, strategy, situation)
        state = situation.state
        self.acquisition = strategy.acquisition
        self.model = situation.tables.model(state, box.bounds)
        self.noise_var = state.hyper.noise_var * state.hyper.scale**2
        if self.stragglers:
            self._condition(list(self.stragglers))

    def follow(self, picks: Sequence[int]) -> None:
        r"""Take what was picked before; maximising again would give the same."""
        for row in picks:
            self._take(row)

    def _choose(self) -> int:
        seed = self.situation.record.seed + len(self.picks)
        X = self.box.maximise(self._acquisition(seed), self.starts(), seed)
        return self._row_of(self.box.from_unit(X))

    def starts(self) -> Tensor:
        r"""Where to begin: at the best of what was observed, and at the previous maximiser."""
        state = self.situation.state
        mean = self.table.mean()
        best = state.history.rows[mean[state.history.rows].argmax()].reshape(1)
        last = torch.tensor([len(self.inputs) - 1], device=best.device)
        return self.box.to_unit(self.inputs[torch.cat([best, last]).unique()])

    def _acquisition(self, seed: int) -> AcquisitionFunction:
        if not isinstance(self.acquisition, str):
            return self.acquisition(self.model)
        state, best_mean = self.situation.state, 0.0
        if self.acquisition == "mpi":
            highest = PosteriorMean(self.model)
            best_mean = float(highest(self.box.maximise(highest, self.starts(), seed)))
        width = self.situation.record.width
        return NAMED[self.acquisition](self.model, Standing(width, state.incumbent, best_mean))

    def _score_now(self, row: int) -> float:
        X = self.box.to_unit(self.inputs[row : row + 1])
        return float(self.model.posterior(X).variance) / self.noise_var

    def _hallucinate(self, row: int) -> None:
        self._condition([row])

    def _condition(self, rows: list[int]) -> None:
        X = self.box.to_unit(self.inputs[torch.tensor(rows, device=self.inputs.device)])
        mean = self.model.posterior(X).mean
        noise = torch.full_like(mean, self.noise_var)
        self.model = self.model.condition_on_observations(X, mean, noise=noise)
