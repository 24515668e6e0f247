r"""Batches over a box: an initial design, then maximisers of an acquisition function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from botorch.models.model import Model
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from botorch.utils.sampling import manual_seed
from torch import Tensor

from botorch_bkb.acquisition import AcquisitionContext, Greedy
from botorch_bkb.acquisition.closed import ClosedMarginals
from botorch_bkb.acquisition.moments import ClosedModel, Marginals
from botorch_bkb.acquisition.noisy import OBSERVED
from botorch_bkb.acquisition.scores import UpperBound
from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.candidates import OutOfCandidatesError
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.regions import RegionOfPick
from botorch_bkb.domains import Box
from botorch_bkb.models import DTCGP
from botorch_bkb.rows import RowIndex

#: Points among which another one is sought where the best one was asked for already.
MORE = 256


class BatchOverBox(Batch):
    r"""Base class of batches over a box: picks become rows of the table when they are taken.

    Args:
        context: What the batch is picked from.

    Attributes:
        inputs: Inputs of all rows of the table, and of a pick that may become one, as the user
            knows them.
    """

    everywhere = True

    def __init__(self, context: BatchContext) -> None:
        self.context = context
        self.inputs = torch.cat([context.models.arms, context.state.observations.added])
        options = {"num_arms": 0, **context.options, "joins": True}
        super().__init__(context.table, context.rule, **options)

    def follow(self, picks: Sequence[int]) -> None:
        r"""Repeat the picks of an interrupted run; choosing again would give the same."""
        for row in picks:
            if self._held >= 1:
                self.pick()
            else:
                self._take(row)

    def inputs_of(self, rows: Tensor, arms: Tensor) -> Tensor:
        r"""Return the inputs of some picks, which need not be rows of the table."""
        return self.inputs[rows]

    @property
    def _taken(self) -> list[int]:
        r"""Rows that may not be picked again."""
        return [*self.stragglers, *self.picks] if self.context.request.distinct else []

    def _without_taken(self, X: Tensor) -> Tensor:
        r"""Return those of some inputs that may still be picked, without repetition."""
        rows = torch.tensor(self._taken, dtype=torch.long, device=X.device)
        taken = RowIndex(torch.cat([self.inputs[rows], X])).first < len(rows)
        X = X[~taken[len(rows) :]]
        return X[RowIndex(X).first == torch.arange(len(X), device=X.device)] if len(X) else X

    def _row_of(self, X: Tensor) -> int:
        r"""Return the row that a ``1 x d`` input has, or would have."""
        equal = torch.nonzero((self.inputs == X).all(-1))
        if len(equal):
            return int(equal[0])
        self.inputs = torch.cat([self.inputs, X])
        return len(self.inputs) - 1

    def _hallucinate(self, row: int) -> None:
        if row == len(self.table.X):
            self._add(self.inputs[row : row + 1])

    def _add(self, X: Tensor) -> None:
        r"""Add ``h x d`` inputs at the end of the table."""
        self.table.extend(self.context.state.model.inputs(X))
        self.added.append(X)


class DesignBatch(BatchOverBox):
    r"""The points of the initial design.

    Args:
        domain: The box.
        context: What the batch is picked from.
        size: The number of points.
        is_initial: Whether they belong to the initial design. Otherwise more of its points are
            asked, since nothing is believed yet.
    """

    def __init__(
        self, domain: Box, context: BatchContext, size: int, is_initial: bool = True
    ) -> None:
        super().__init__(context)
        self._is_initial = is_initial
        self._points = self._design(domain, size)

    def _design(self, domain: Box, size: int) -> Tensor:
        r"""Return the points of the design; where discrete ones repeat, others take their place."""
        seed = self.context.state.in_flight.design_seed
        start = self.context.record.designed
        X = domain.design(start, size, seed)
        if not self.context.request.distinct or len(self._without_taken(X)) == size:
            return X
        more = domain.design(start, MORE * size, seed) if domain.grid is None else domain.grid
        X = self._without_taken(torch.cat([X, more]))
        if len(X) < size:
            raise out_of_points(size, len(X))
        return X[:size]

    @property
    def is_design(self) -> bool:
        r"""Whether the picks are those of an initial design."""
        return True

    @property
    def complete(self) -> bool:
        r"""Whether all points of the design were asked."""
        return self.exhausted

    @property
    def exhausted(self) -> bool:
        r"""Whether all points of the design were asked."""
        return self._ended or len(self.picks) >= len(self._points)

    def _spend(self, picks: Sequence[tuple[int, float]]) -> None:
        return  # a design is asked as a whole, whatever the rule says

    def _choose(self) -> int:
        return self._row_of(self._points[len(self.picks)].unsqueeze(0))

    def _score_at_start(self, row: int) -> float:
        self._hallucinate(row)
        rows = torch.tensor([row], device=self.inputs.device)
        return float(self.table.moments_at(rows)[1]) / self.table.noise_var

    def _score_now(self, row: int) -> float:
        if self._is_initial:
            return float("inf")  # a design is evaluated, whatever it teaches
        return self._score_at_start(row)


class BoxBatch(BatchOverBox):
    r"""Maximises the acquisition function of a model that hallucinates earlier picks.

    Conditioned on its own mean at the picks, the model keeps its means, and its variances fall.

    Args:
        domain: The box.
        context: What the batch is picked from.
    """

    def __init__(self, domain: Box, context: BatchContext) -> None:
        self.domain = domain
        self._where = context.state, domain.cube, context.table
        self._closed = self._base_closed = context.models.marginals(*self._where)
        self._model: DTCGP | None = None
        self._noise_var = context.state.hyper.noise_var
        super().__init__(context)
        # Conditioned on when it is needed, in the same portions after an interruption.
        outstanding = [*self.stragglers, *self.given_up]
        self._waiting = [outstanding] if outstanding else []

    @cached_property
    def base(self) -> DTCGP:
        r"""The model over the unit cube at the start of the batch."""
        return self.context.models.for_search(*self._where)

    @property
    def marginals(self) -> Model:
        r"""A model of single points over the unit cube, in units of the prior deviation."""
        unit = self.context.prior_deviation
        self._catch_up()
        if self._closed is None:
            return Marginals(self._model or self.base, unit)
        return ClosedModel(self._closed.in_units(unit))

    def _catch_up(self) -> None:
        r"""Condition on the picks that wait."""
        for rows in self._waiting:
            X = self._unit(rows)
            if self._closed is None:
                self._model = hallucinated(self._model or self.base, X, self._noise_var)
            else:
                self._closed = self._closed.hallucinated(X, self._noise_var)
        self._waiting = []

    def reward_model(self) -> DTCGP:
        r"""Return the model over the unit cube, in units of the rewards."""
        state = self.context.state
        model = self.context.models.in_rewards(state, self.domain.cube)
        rows = [*self.stragglers, *self.given_up, *self.picks]
        if not rows:
            return model
        noise_var = state.hyper.units.variance_to_rewards(state.hyper.noise_var)
        return hallucinated(model, self._unit(rows), noise_var)

    def _choose(self) -> int:
        seed = self.context.record.seed + len(self.picks)
        acquisition = self.context.acquisition_of(len(self.picks))
        if isinstance(acquisition, Greedy) and _coin(seed) < acquisition.probability:
            return self._row_of(self.domain.design(0, 1, seed % 2**31))
        region = self.region
        if region is not None and (designed := region.design_point()) is not None:
            return self._row_of(designed)
        function = acquisition.function(BoxContext(self, seed))
        X = self.domain.from_unit(self.maximise(function, seed))
        if self._taken and not len(self._without_taken(X)):
            X = self._another(function, seed)
        return self._row_of(X)

    @property
    def region(self) -> RegionOfPick | None:
        r"""The trust region of the next pick; None where the whole box is searched."""
        if self.domain.trust_region is None:
            return None
        state, record = self.context.state, self.context.record
        first_id = state.in_flight.next_id - len(record.picks)
        return RegionOfPick(self.domain, state, first_id + len(self.picks))

    def maximise(self, function: AcquisitionFunction, seed: int) -> Tensor:
        r"""Return the best point found for the next pick, ``1 x d`` in the unit cube."""
        within = None if self.region is None else self.region.corners(self.inputs)
        if within is None:
            return self.domain.maximise(function, self.starts(), seed)
        return self.domain.maximise(function, self.starts(), seed, within)

    def _another(self, function: AcquisitionFunction, seed: int) -> Tensor:
        r"""Return the best point that is not taken: of all points, or of a design."""
        domain = self.domain
        every = domain.design(0, MORE, seed % 2**31) if domain.grid is None else domain.grid
        if self.region is not None:
            every = self.region.scaled(every, self.inputs)
        X = self._without_taken(every)
        if not len(X):
            raise out_of_points(1, 0)
        values = [function(domain.cube.to_unit(x).unsqueeze(-2)) for x in X.split(MORE)]
        return X[torch.cat(values).argmax()].unsqueeze(0)

    def starts(self) -> Tensor:
        r"""Return where to look, too: near the best observed point and the previous maximiser.

        The best point of a trust region is its centre.
        """
        region = None if self.region is None else self.region.region
        if region is not None and region.centre >= 0:
            best = region.centre
        else:
            best = self.table.highest_mean(self.context.state.history.rows)
        return self._unit(sorted({best, len(self.inputs) - 1}))

    def observed(self, most: int, rows: Tensor | None = None) -> Tensor:
        r"""Return the observed points of highest posterior mean, in the unit cube.

        Args:
            most: Their largest number.
            rows: The rows among which they are; all that were observed by default.
        """
        rows = self.context.state.history.rows if rows is None else rows.unique()
        best = self.table.mean()[rows].topk(min(most, len(rows))).indices
        return self._unit(rows[best].tolist())

    def _unit(self, rows: list[int]) -> Tensor:
        X = self.inputs[torch.tensor(rows, device=self.inputs.device)]
        return self.domain.cube.to_unit(X)

    def highest_bound(self) -> float:
        r"""Return the highest upper confidence bound found, in the model's units."""
        record, deviation = self.context.record, self.context.prior_deviation
        bound = UpperBound(self.marginals, record.width)
        X = self.domain.maximise(bound, self.starts(), record.seed)
        return float(bound(X)) * deviation

    def _score_at_start(self, row: int) -> float:
        return self._scores_at_start([row])[0]

    def _scores_at_start(self, rows: Sequence[int]) -> list[float]:
        return self._scores(self._base_closed or self.base, rows)

    def _score_now(self, row: int) -> float:
        self._catch_up()
        return self._scores(self._closed or self._model or self.base, [row])[0]

    def _scores(self, belief: ClosedMarginals | DTCGP, rows: Sequence[int]) -> list[float]:
        X = self._unit(list(rows))
        if isinstance(belief, DTCGP):
            var = belief.marginals(X)[1]
        else:
            closed: Any = belief
            var = closed.evaluate(X).var
        return (var / self.table.noise_var).tolist()

    def _hallucinate(self, row: int) -> None:
        super()._hallucinate(row)
        self._waiting.append([row])


class BoxContext(AcquisitionContext):
    r"""The belief over the unit cube, for one pick.

    Args:
        batch: The batch.
        seed: Seed of the pick.
    """

    def __init__(self, batch: BoxBatch, seed: int) -> None:
        self.batch, self.seed = batch, seed
        self.width = batch.context.record.width

    @cached_property
    def marginals(self) -> Model:
        r"""The model of single points, in units of the prior standard deviation."""
        return self.batch.marginals

    @property
    def best_reward(self) -> float:
        r"""The best reward in the belief, in units of the prior standard deviation."""
        context = self.batch.context
        best = context.best_reward / context.prior_deviation
        assert math.isfinite(best)  # before the first result there is a design
        return best

    @property
    def best_mean(self) -> float:
        r"""The highest posterior mean found, in units of the prior standard deviation."""
        mean = PosteriorMean(self.marginals)
        return float(mean(self.batch.maximise(mean, self.seed)))

    @property
    def model(self) -> DTCGP:
        r"""The model in units of the rewards."""
        return self.batch.reward_model()

    @property
    def observed(self) -> Tensor:
        r"""The observed points of highest posterior mean, in the unit cube."""
        return self.batch.observed(OBSERVED)

    def sample_path(self) -> Model:
        r"""Draw a function from the posterior at the start of the batch."""
        with manual_seed(self.seed):
            return get_matheron_path_model(self.batch.base)


def hallucinated(model: DTCGP, X: Tensor, noise_var: float) -> DTCGP:
    r"""Condition a model on its own means at ``q x d`` points: variances fall, means stay."""
    mean = model.marginals(X)[0].unsqueeze(-1).to(X)
    return model.condition_on_observations(X, mean, noise=torch.full_like(mean, noise_var))


def out_of_points(asked: int, left: int) -> OutOfCandidatesError:
    r"""Return the error for a box that has too few points that are not pending."""
    return OutOfCandidatesError(
        f"The box must have {asked} further points that are not pending, got {left}: all others "
        "are asked for. Tell their results first, ask for fewer points, or pass distinct=False.",
        left,
    )


def _coin(seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    return float(torch.rand((), generator=generator, device=generator.device))
