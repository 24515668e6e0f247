r"""What happens once results are in: a new dictionary is drawn, hyperparameters are fitted."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable, WatchedTable
from botorch_bkb.dictionaries import (
    DictionaryRule,
    FourierFeatures,
    ObservedInputs,
    RidgeLeverageSampling,
    ScoreBounds,
    warn_capped,
)
from botorch_bkb.dictionaries.scores import smallest_coins
from botorch_bkb.features import approximated
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.models.surrogate import REFIT_COST
from botorch_bkb.optimizers.parts import Parts
from botorch_bkb.optimizers.tables import exchange_dictionary, moved, new_table
from botorch_bkb.rows import appended
from botorch_bkb.state.components import ModelState
from botorch_bkb.state.state import State

#: Unsolicited results beyond which the scores of the old model say too little about them.
WARM_START = 512
#: The largest dictionary with which hyperparameters are fitted.
MOST_FITTED = 500
#: Number of distinct inputs up to which fits use all of them: the exact evidence is cheaper then.
FEW = 256
#: What all results together that were dropped would teach, at most, relative to the prior.
NEGLIGIBLE = 1e-9
#: Rows of dropped results that may stay in the table, beside as many as there are others.
SPARE_ROWS = 64


class Updater:
    r"""Draws dictionaries and fits hyperparameters for one optimizer.

    Args:
        parts: The parts of the optimizer.
        generator: The optimizer's source of randomness. Every state has a state of it.
    """

    def __init__(self, parts: Parts, generator: torch.Generator) -> None:
        self.parts, self.generator = parts, generator
        self._warned = False

    def update(self, state: State, table: ArmTable) -> tuple[State, ArmTable]:
        r"""Return state and table with a new dictionary, and new hyperparameters if due."""
        self.generator.set_state(state.random)
        if self.parts.model.forgets:
            state = without_negligible(state, table)
        is_due = self._fit_is_due(state)
        draw = self._draw_for_fitting if is_due else self._draw
        dictionary = draw(state, table)
        before = state.hyper
        # A fit restores all cells of a tree, also those that were pruned: it is never cheap.
        num_rows = len(table.X) if state.tree is None else REFIT_COST
        state = replace(state, model=self._updated_model(state, dictionary, num_rows))
        if state.hyper != before:
            noise_var = state.hyper.units.variance_to_rewards(state.hyper.noise_var)
            state = replace(state, observations=state.observations.weighted(noise_var))
            table = new_table(self.parts.domain, state, dictionary)
            # The models that chose earlier points are gone; this one scores them all at once.
            confidence = state.confidence.rescored(table.log_determinant, self.parts.alpha)
            state = replace(state, confidence=confidence).with_bounds_from_scratch()
        if is_due or state.hyper != before:
            dictionary = self._draw(state, table)
        state = replace(
            state,
            dictionary=state.dictionary.drawn(),
            in_flight=state.in_flight.without_batch(),
            random=self.generator.get_state(),
        )
        if self.parts.model.forgets:
            return self._reweighted(state, dictionary)
        return state, exchange_dictionary(self.parts.domain, state, table, dictionary)

    def _reweighted(self, state: State, dictionary: Tensor) -> tuple[State, ArmTable]:
        r"""Return state and table where the weights of all results have changed."""
        domain, observations = self.parts.domain, state.observations
        table = new_table(domain, state, dictionary)
        confidence = state.confidence.rescored(table.log_determinant, self.parts.alpha)
        tree = None if state.tree is None else state.tree.unpruned()
        state = replace(state, confidence=confidence, tree=tree)
        needed = len(observations.history.rows) + len(state.in_flight.pending)
        if state.tree is None and len(observations.added) > 2 * needed + SPARE_ROWS:
            return moved(domain, state, table, domain)
        return state, table

    def coins_after(self, state: State, history: History) -> Tensor:
        r"""Return the coins after more pulls: for each row the smallest of one coin per pull.

        Args:
            state: The state before the pulls; the generator is set to its random state.
            history: The history after them.
        """
        old, coins = state.history, state.dictionary.coins
        if not self.parts.dictionary.keeps_coins:
            return coins
        first = len(old.rows)
        new, later = history.num_observations - old.num_observations, history.counts[first:]
        if int(later.sum()) == new and (not first or history.rows[first - 1] == old.rows[-1]):
            return appended(coins, smallest_coins(later, self.generator))
        place = torch.searchsorted(history.rows, old.rows)
        pulls = history.counts.index_add(0, place, old.counts, alpha=-1)
        kept = torch.ones_like(pulls).index_copy(0, place, coins)
        pulled = torch.nonzero(pulls).squeeze(-1)
        drawn = smallest_coins(pulls[pulled], self.generator)
        return kept.index_copy(0, pulled, torch.minimum(kept[pulled], drawn))

    def _draw(self, state: State, table: ArmTable) -> Tensor:
        r"""Draw rows of the next dictionary."""
        observations, history, rows = state.observations, state.history, state.history.rows
        if isinstance(self.parts.dictionary, FourierFeatures):
            return rows[:0]
        rule = self.parts.dictionary_after(history.num_observations)
        noise = table.noise_var * history.counts / history.weights
        scores: Tensor | ScoreBounds | None = None
        if rule.joins_at_once or state.dictionary.num_unsolicited <= WARM_START:
            scores = _scores(rule, table, rows, noise)
        inputs = ObservedInputs(
            table=table.X,
            rows=rows,
            kernel=table.kernel,
            noise=noise,
            counts=history.counts,
            scores=scores,
            coins=state.dictionary.coins,
            newest=int(torch.searchsorted(rows, observations.newest)),
            informative=torch.searchsorted(rows, observations.informative),
            recur=self.parts.domain.recurs,
        )
        draw = rule.draw(inputs, self.generator)
        if draw.is_capped and not self._warned:
            warn_capped(draw, inputs.X, inputs.kernel, "max_dictionary", inputs.counts)
            self._warned = True
        return rows[draw.positions]

    def _draw_for_fitting(self, state: State, table: ArmTable) -> Tensor:
        r"""Draw a dictionary of bounded size: present hyperparameters may ask for thousands.

        Where there are too many points they are thinned at random. The points of highest score are
        the outlying ones, and a fit to these predicted worse. Features are fitted like the exact
        GP: to the kernel that they approximate, with all rows or a random part as a dictionary.
        """
        rows = state.history.rows
        if len(rows) <= FEW:
            return rows
        has_features = isinstance(self.parts.dictionary, FourierFeatures)
        if not has_features and state.dictionary.num_unsolicited <= WARM_START:
            rows = self._draw(state, table)
        if len(rows) <= MOST_FITTED:
            return rows
        generator = self.generator
        some = torch.randperm(len(rows), generator=generator, device=generator.device)
        return rows[some[:MOST_FITTED].sort().values.to(rows.device)]

    def _fit_is_due(self, state: State) -> bool:
        r"""Return whether hyperparameters are to be fitted now."""
        surrogate, t = self.parts.model, state.history.num_observations
        first = surrogate.first_fit(self.parts.domain.dim)
        return surrogate.fits and t >= max(first, state.model.next_fit)

    def _updated_model(self, state: State, dictionary: Tensor, num_rows: int) -> ModelState:
        r"""Return hyperparameters for what is known now, and when to fit again.

        Args:
            state: The state.
            dictionary: The dictionary for the fit.
            num_rows: The number of rows of the table.
        """
        surrogate, model, history = self.parts.model, state.model, state.history
        t, first = history.num_observations, surrogate.first_fit(self.parts.domain.dim)
        if not surrogate.standardises or first <= t < model.next_fit:
            return model
        hyper = surrogate.restandardised(model.hyper, history, model.noise_known)
        if t < first:
            return model.with_hyperparameters(hyper)
        if surrogate.fits and len(history.rows) > 1:
            fitted = self._fitted(state, dictionary)
            hyper = model.hyper if fitted is None else fitted
        return model.with_fit(hyper, t, surrogate.next_fit(t, num_rows))

    def _fitted(self, state: State, dictionary: Tensor) -> Hyperparameters | None:
        t, model = state.history.num_observations, state.model
        generator = self.generator
        seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
        history, positions, known = _to_fit(state, dictionary)
        X = state.observations.inputs(self.parts.domain.index.X, history.rows)
        last = None
        if model.fitted_at:
            last = replace(model.hyper, kernel=approximated(model.hyper.kernel))
        fitted = self.parts.model.fit(
            model.inputs(X),
            history,
            positions,
            model.noise_known,
            seed,
            last=last,
            afresh=self.parts.model.begins_afresh(model.fitted_at, t),
            known=known,
        )
        return None if fitted is None else self.parts.believed(fitted)


def _scores(
    rule: DictionaryRule, table: ArmTable, rows: Tensor, noise: Tensor
) -> Tensor | ScoreBounds:
    r"""Return the scores before the last observations; bounds where these are cheaper.

    Args:
        rule: The rule that draws.
        table: The belief.
        rows: ``n`` rows.
        noise: ``n`` noise variances of single observations.
    """
    if not (isinstance(table, WatchedTable) and type(rule) is RidgeLeverageSampling):
        return table.settled_variance(rows) / noise
    upper = table.settled_bounds(rows) / noise
    return ScoreBounds(upper, lambda at: table.settled_variance(rows[at]) / noise[at])


def _to_fit(state: State, dictionary: Tensor) -> tuple[History, Tensor, Tensor | None]:
    r"""Return the history to fit to, the dictionary's positions in it, and known variances.

    Results with variances of their own are entries of their own while the noise of others is
    fitted.

    Args:
        state: The state.
        dictionary: Rows of the dictionary.
    """
    measured, plain = state.observations.measured, state.observations.plain
    if measured is None or plain is None:
        return state.history, torch.searchsorted(state.history.rows, dictionary), None
    noise_var = state.hyper.units.variance_to_rewards(state.hyper.noise_var)
    history = plain.beside(measured.relative_to(noise_var))
    places = (history.rows == dictionary.unsqueeze(-1)).int().argmax(-1)
    known = torch.cat([torch.zeros_like(plain.weights), measured.weights.reciprocal()])
    return history, places, known


def without_negligible(state: State, table: ArmTable) -> State:
    r"""Return the state without results whose weights are negligible.

    Without rows ``D`` the information ``Z'WZ / lambda + I`` falls by at most ``sum_D w kappa^2 /
    lambda``, relative to the identity. So variances grow by no more than that, relatively.

    Args:
        state: The state.
        table: A table of the same hyperparameters.
    """
    history = state.history
    if not table.kernel_bound > 0:
        return state
    dropped = history.negligible(NEGLIGIBLE * table.noise_var / table.kernel_bound)
    dropped &= history.rows != state.observations.newest
    if not dropped.any():
        return state
    kept = torch.nonzero(~dropped).squeeze(-1)
    return replace(
        state,
        observations=state.observations.without(dropped),
        dictionary=state.dictionary.reordered(kept),
    )
