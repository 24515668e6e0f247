r"""The belief of a run as BoTorch models."""

from __future__ import annotations

import torch
from torch import Tensor

from botorch_bkb.acquisition.closed import ClosedMarginals
from botorch_bkb.arms import ArmTable
from botorch_bkb.closed_form import closed_form
from botorch_bkb.models import DTCGP
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import (
    Hyperparameters,
    reward_model,
    standardised_model,
)
from botorch_bkb.state.state import State
from botorch_bkb.units import UnitCube


class BeliefModels:
    r"""Makes BoTorch models of the belief; the last one for searching is kept while it is valid.

    Args:
        arms: The inputs with which the table started, as the user knows them.
    """

    def __init__(self, arms: Tensor) -> None:
        self.arms = arms
        self._last: tuple[State, DTCGP] | None = None
        self._closed: tuple[State, ClosedMarginals | None] | None = None

    def in_rewards(self, state: State, box: UnitCube | None = None) -> DTCGP:
        r"""Return the belief with outcomes in units of the rewards.

        Args:
            state: The state of the run.
            box: The box that is the unit cube for the model. By default the model takes inputs as
                the user knows them.
        """
        return reward_model(*self._data(state), box)

    def for_search(self, state: State, box: UnitCube, table: ArmTable) -> DTCGP:
        r"""Return the belief over the unit cube, in the units of the hyperparameters.

        Args:
            state: The state of the run.
            box: The box that is the unit cube for the model.
            table: The table of the state, which has done most of the work already.
        """
        last = self._last
        if last is None or not have_same_belief(last[0], state):
            model = standardised_model(*self._data(state), box)
            self._last = last = state, model.with_belief(table.belief())
        return last[1]

    def marginals(self, state: State, box: UnitCube, table: ArmTable) -> ClosedMarginals | None:
        r"""Return the marginals over the unit cube in closed form, or None if there is none.

        The arguments are those of :meth:`for_search`.
        """
        last = self._closed
        if last is None or not have_same_belief(last[0], state):
            self._closed = last = state, _marginals(state, box, table)
        return last[1]

    def _data(
        self, state: State
    ) -> tuple[Tensor, History, Hyperparameters, Tensor, UnitCube | None]:
        rows = state.history.rows
        positions = torch.searchsorted(rows, state.table.dictionary)
        X = state.observations.inputs(self.arms, rows)
        return X, state.history, state.hyper, positions, state.model.scale


def have_same_belief(one: State, other: State) -> bool:
    r"""Return whether two states have the same belief."""
    return (
        one.history is other.history
        and one.hyper is other.hyper
        and torch.equal(one.table.dictionary, other.table.dictionary)
    )


def _marginals(state: State, box: UnitCube, table: ArmTable) -> ClosedMarginals | None:
    kernel = state.hyper.kernel
    if closed_form(kernel) is None:
        return None
    found = ClosedMarginals.of_table(kernel, table.X, table.kernel_form())
    if found is None and (belief := table.belief()) is not None:
        found = ClosedMarginals.of_belief(kernel, belief)
    if found is None or state.model.scale is not None:  # the kernel sees the unit cube
        return found
    return found.in_cube(box)
