r"""Which point a run recommends."""

from __future__ import annotations

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.state.state import State

#: How a recommendation may be chosen.
RULES = ("mean", "lower", "past")


def recommended(by: str, rows: Tensor, table: ArmTable, width: float, state: State) -> Tensor:
    r"""Return the row that is recommended.

    Args:
        by: ``"mean"``, ``"lower"`` or ``"past"``.
        rows: The rows among which means and lower bounds are compared.
        table: The belief.
        width: The width of the bounds, in posterior standard deviations.
        state: The state of the run.

    Reference:
        A uniformly drawn past pull: Calandriello et al., COLT 2019 (BKB), after Theorem 2. With
        regret ``R_T`` its expected regret is ``R_T / T``.
    """
    if by == "past":
        generator = torch.Generator()
        generator.set_state(state.random)
        past = state.history
        drawn = past.counts.cpu().multinomial(1, generator=generator)
        return past.rows[drawn.to(past.rows.device)]
    mean, var = (t[rows] for t in table.moments())
    return rows[highest_of(by, mean, mean - width * var.sqrt())]


def highest_of(by: str, mean: Tensor, lower: Tensor) -> Tensor:
    r"""Return the position of the highest mean, or of the highest lower bound.

    Args:
        by: ``"mean"`` or ``"lower"``.
        mean: Posterior means.
        lower: Lower bounds.
    """
    if by not in RULES:
        raise InputDataError(f"by must be one of {', '.join(RULES)}, got {by!r}.")
    return (lower if by == "lower" else mean).argmax()
