r"""Batches over a box: an initial design, then maximisers of an acquisition function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import PosteriorMean
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from botorch.utils.sampling import manual_seed
from torch import Tensor

from botorch_bkb.acquisition import BudgetedUCB
from botorch_bkb.batches import Batch
from botorch_bkb.models import DTCGP
from botorch_bkb.optimizers.acquisitions import NAMED, Marginals, Standing, from_model
from botorch_bkb.optimizers.domains.domain import Situation, Strategy, batch_options
from botorch_bkb.optimizers.domains.search import Search


class BoxRows(Batch):
    r"""What batches over a box share: picks become rows of the table when they are taken.

    Args:
        search: How the box is searched.
        strategy: How picks are made.
        situation: What the batch is made from.

    Attributes:
        inputs: Inputs of all rows of the table, and of a pick that may become one.
    """

    def __init__(self, search: Search, strategy: Strategy, situation: Situation) -> None:
        self.search, self.situation = search, situation
        self.inputs = torch.cat([situation.tables.arms, situation.state.added])
        super().__init__(
            situation.table, strategy.rule, num_arms=0, **batch_options(strategy, situation)
        )

    def follow(self, picks: Sequence[int]) -> None:
        r"""Take what was picked before; choosing again would give the same."""
        for row in picks:
            if self._held >= 1:
                self.pick()
            else:
                self._take(row)

    def _row_of(self, X: Tensor) -> int:
        r"""The row a ``1 x d`` input has, or would have."""
        equal = torch.nonzero((self.inputs == X).all(-1))
        if len(equal):
            return int(equal[0])
        self.inputs = torch.cat([self.inputs, X])
        return len(self.inputs) - 1

    def _hallucinate(self, row: int) -> None:
        if row == len(self.table.X):
            self._add(self.inputs[row : row + 1])

    def _add(self, X: Tensor) -> None:
        r"""Put ``h x d`` inputs at the end of the table."""
        self.table.extend(self.situation.tables.tuning.inputs(X))
        self.added.append(X)


class DesignBatch(BoxRows):
    r"""Points of the initial design.

    Args:
        search: How the box is searched.
        strategy: How picks are made.
        situation: What the batch is made from.
        size: How many.
        initial: Whether they belong to the initial design; otherwise nothing is believed yet.
    """

    is_design = True

    def __init__(
        self,
        search: Search,
        strategy: Strategy,
        situation: Situation,
        size: int,
        initial: bool = True,
    ) -> None:
        super().__init__(search, strategy, situation)
        seed = situation.state.design_seed
        self._is_initial = initial
        self._points = search.design(situation.record.designed, size, seed)

    @property
    def complete(self) -> bool:
        r"""Whether the design is handed out."""
        return self._ended or len(self.picks) >= len(self._points)

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


class BoxBatch(BoxRows):
    r"""Maximises the acquisition function of a model that hallucinates earlier picks.

    Conditioned on its own mean at the picks, the model keeps its means and its variances fall.

    Args:
        search: How the box is searched.
        strategy: How picks are made.
        situation: What the batch is made from.
    """

    def __init__(self, search: Search, strategy: Strategy, situation: Situation) -> None:
        self.acquisition, self.epsilon = strategy.acquisition, strategy.epsilon
        self._base = self._model = situation.tables.search_model(
            situation.state, search.bounds, situation.table
        )
        super().__init__(search, strategy, situation)
        # To be conditioned on when somebody asks, in the same portions after an interruption.
        unanswered = [*self.stragglers, *self.lost]
        self._imagined = [unanswered] if unanswered else []

    @property
    def model(self) -> DTCGP:
        r"""Over the unit cube, in the units of the hyperparameters."""
        noise_var = self.situation.state.hyper.noise_var
        for rows in self._imagined:
            self._model = hallucinated(self._model, self._unit(rows), noise_var)
        self._imagined = []
        return self._model

    def reward_model(self) -> DTCGP:
        r"""Over the unit cube, in units of the rewards: for acquisition functions of the user."""
        state, tables = self.situation.state, self.situation.tables
        model = tables.model(state, self.search.bounds)
        rows = [*self.stragglers, *self.lost, *self.picks]
        if not rows:
            return model
        return hallucinated(model, self._unit(rows), state.hyper.noise_var * state.hyper.scale**2)

    def _choose(self) -> int:
        seed, search = self.situation.record.seed + len(self.picks), self.search
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
        return self.search.to_unit(X)

    def _acquisition(self, seed: int) -> AcquisitionFunction:
        if self.acquisition == "thompson":
            with manual_seed(seed):
                return PosteriorMean(get_matheron_path_model(self._base))
        if not isinstance(self.acquisition, str):
            return from_model(self.acquisition, self.reward_model())
        marginals, best_mean = self.marginals, 0.0
        if self.acquisition == "greedy":
            return PosteriorMean(marginals)
        if self.acquisition == "mpi":
            highest = PosteriorMean(marginals)
            X = self.search.maximise(highest, self.starts(), seed)
            best_mean = float(highest(X))
        incumbent = self.situation.incumbent / self._prior_deviation
        if not math.isfinite(incumbent):  # nothing to improve on yet
            return BudgetedUCB(marginals, 1.0)
        standing = Standing(self.situation.record.width, incumbent, best_mean)
        return NAMED[self.acquisition](marginals, standing)

    @property
    def marginals(self) -> Marginals:
        r"""In units in which the prior has a deviation of one: BoTorch's floors are absolute."""
        return Marginals(self.model, self._prior_deviation)

    @property
    def _prior_deviation(self) -> float:
        return math.sqrt(self.table.kernel_bound) or 1.0

    def highest_bound(self) -> float:
        r"""The highest upper confidence bound found, in the model's units."""
        record = self.situation.record
        bound = BudgetedUCB(self.marginals, record.width)
        X = self.search.maximise(bound, self.starts(), record.seed)
        return float(bound(X)) * self._prior_deviation

    def _score_at_start(self, row: int) -> float:
        return self._score(self._base, row)

    def _score_now(self, row: int) -> float:
        return self._score(self.model, row)

    def _score(self, model: DTCGP, row: int) -> float:
        return float(model.marginals(self._unit([row]))[1]) / self.table.noise_var

    def _hallucinate(self, row: int) -> None:
        super()._hallucinate(row)
        self._imagined.append([row])


def hallucinated(model: DTCGP, X: Tensor, noise_var: float) -> DTCGP:
    r"""The model conditioned on its own means at ``q x d`` points: variances fall, means stay."""
    mean = model.marginals(X)[0].unsqueeze(-1).to(X)
    return model.condition_on_observations(X, mean, noise=torch.full_like(mean, noise_var))


def _coin(seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    return float(torch.rand((), generator=generator, device=generator.device))
