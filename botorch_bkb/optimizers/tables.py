r"""The arms, and the table of arms that belongs to a state."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.models import DTCGP
from botorch_bkb.optimizers.history import History
from botorch_bkb.optimizers.hyperparameters import Tuning
from botorch_bkb.optimizers.state import Change, Recipe, State
from botorch_bkb.rows import RowIndex, take_rows


class Tables:
    r"""Makes the table of a state, the very same one to the last bit each time.

    Args:
        index: The ``A x d`` arms.
        tuning: How inputs are scaled.
        keep: Whether tables keep the coordinates of all arms.
    """

    def __init__(self, index: RowIndex, tuning: Tuning, keep: bool) -> None:
        self.index, self.tuning, self.keep = index, tuning, keep
        self.arms = index.X
        self._searched: tuple[State, DTCGP] | None = None

    def points(self, state: State, rows: Tensor) -> Tensor:
        r"""Inputs of some rows, as the user gave them."""
        return take_rows(self.arms, state.added, rows)

    def model(self, state: State, box: Tensor | None = None, standardised: bool = False) -> DTCGP:
        r"""The belief as a BoTorch model: distinct inputs, mean rewards, their noise variances.

        Args:
            state: The state.
            box: ``2 x d`` bounds that are the unit cube for the model; inputs as the user knows
                them by default.
            standardised: Whether outcomes are in the units of the hyperparameters.
        """
        rows = state.history.rows
        positions = torch.searchsorted(rows, state.recipe.final_dictionary)
        X = self.points(state, rows)
        return self.tuning.model(X, state.history, state.hyper, positions, box, standardised)

    def search_model(self, state: State, box: Tensor, table: ArmTable) -> DTCGP:
        r"""The same over the unit cube and standardised; kept while the belief stays.

        Args:
            state: The state.
            box: ``2 x d`` bounds.
            table: The table of the state, which has done most of the work already.
        """
        last = self._searched
        if (
            last is None
            or last[0].history is not state.history
            or last[0].hyper is not state.hyper
            or not torch.equal(last[0].recipe.final_dictionary, state.recipe.final_dictionary)
        ):
            model = self.model(state, box, standardised=True)
            self._searched = last = state, model.with_belief(table.belief())
        return last[1]

    def follow(self, state: State) -> ArmTable:
        r"""The table of a state, by its recipe."""
        recipe = state.recipe
        table = self._build(state, recipe.base, recipe.dictionary, recipe.num_added)
        for change in recipe.changes:
            if len(change.dictionary):
                table.slide(change.dictionary)
                continue
            if len(change.added):
                table.extend(self.tuning.inputs(change.added))
            if len(change.rows):
                table.observe(change.rows, state.hyper.to_model(change.rewards), change.weights)
        return table

    def rebuilt(self, state: State, dictionary: Tensor) -> tuple[State, ArmTable]:
        r"""A new table with this dictionary, and the state whose recipe starts from it."""
        recipe = Recipe(state.history, len(state.added), dictionary)
        table = self._build(state, state.history, dictionary, len(state.added))
        return replace(state, recipe=recipe), table

    def exchanged(
        self, state: State, table: ArmTable, dictionary: Tensor
    ) -> tuple[State, ArmTable]:
        r"""The table with another dictionary, changed in place if that is cheaper."""
        if table.rebuild_is_better(dictionary):
            return self.rebuilt(state, dictionary)
        table.slide(dictionary)
        change = Change.of_dictionary(dictionary, state.added)
        return replace(state, recipe=state.recipe.followed_by(change)), table

    def _build(
        self, state: State, history: History, dictionary: Tensor, num_added: int
    ) -> ArmTable:
        X = self.tuning.inputs(torch.cat([self.arms, state.added[:num_added]]))
        counts, sums = torch.zeros(2, len(X), dtype=torch.float64, device=X.device)
        counts[history.rows] = history.weights
        sums[history.rows] = history.weights * state.hyper.to_model(history.means)
        kernel, noise = state.hyper.kernel, state.hyper.noise_var
        return ArmTable(X, kernel, noise, dictionary, counts, sums, keep=self.keep)

    def compacted(self, state: State) -> State:
        r"""The same state with a recipe that starts anew, without added rows nobody needs."""
        if state.tree is None:
            return self._moved_to(self, state)
        dictionary = state.recipe.final_dictionary
        return replace(state, recipe=Recipe(state.history, len(state.added), dictionary))

    def with_arms(self, index: RowIndex, state: State) -> tuple[Tables, State]:
        r"""The same for other arms, and the state with its rows renumbered.

        Whatever was observed or is pending and is no arm any more stays as an added row.
        """
        tables = Tables(index, self.tuning, self.keep)
        return tables, replace(self._moved_to(tables, state), batch=None)

    def _moved_to(self, tables: Tables, state: State) -> State:
        arms, device = tables.arms, tables.arms.device
        ids = list(state.pending)
        pending = torch.tensor([state.pending[id_].row for id_ in ids], device=device).long()
        lost = torch.tensor(state.lost, device=device).long()
        known = torch.cat([state.history.rows, pending, lost]).unique()
        points = self.points(state, known)
        rows = tables.index.find(points)
        absent = torch.nonzero(rows < 0).squeeze(-1)
        rows[absent] = len(arms) + torch.arange(len(absent), device=device)

        def renumbered(old: Tensor) -> Tensor:
            return rows[torch.searchsorted(known, old)]

        moved = renumbered(state.history.rows)
        history, order = state.history.renumbered(moved), moved.argsort()
        dictionary, newest = state.recipe.final_dictionary, -1
        if len(moved):
            dictionary = renumbered(dictionary).sort().values
            newest = int(renumbered(torch.tensor([state.newest], device=device)))
        places = zip(ids, renumbered(pending).tolist(), strict=True)
        return replace(
            state,
            history=history,
            added=points[absent],
            coins=state.coins[order] if len(state.coins) else state.coins,
            recipe=Recipe(history, len(absent), dictionary),
            newest=newest,
            kept=renumbered(state.kept).sort().values,
            lost=tuple(renumbered(lost).tolist()),
            pending={id_: state.pending[id_]._replace(row=row) for id_, row in places},
        )
