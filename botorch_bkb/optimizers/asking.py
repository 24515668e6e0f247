r"""What ``ask`` does: it picks points of a batch and records them as pending."""

from __future__ import annotations

from dataclasses import replace

import torch

from botorch_bkb.batches import Batch
from botorch_bkb.domains import Domain, Suggestion
from botorch_bkb.state.in_flight import Pending
from botorch_bkb.state.state import State


def with_new_rows(state: State, batch: Batch, since: int) -> State:
    r"""Return a state that knows the rows and cells that picks have added to the table.

    Args:
        state: The state before the picks.
        batch: The batch.
        since: The number of entries of ``batch.added`` that the state knows already.
    """
    added = batch.added[since:]
    if added:
        state = replace(state, observations=state.observations.with_rows(torch.cat(added)))
    return state if batch.tree is None else replace(state, tree=batch.tree)


def suggest(
    domain: Domain, state: State, batch: Batch, start: int, picks: list[int], skips: bool
) -> tuple[State, Suggestion]:
    r"""Return the picks as a suggestion, and a state in which their results are awaited.

    Args:
        domain: The domain.
        state: The state before the suggestion.
        batch: The batch.
        start: The number of picks of the batch before these.
        picks: The rows picked.
        skips: Whether no result is expected for an uninformative pick.
    """
    rows = domain.first_equal(torch.tensor(picks, dtype=torch.long, device=domain.device))
    informative = batch.informative[start : start + len(picks)]
    expected = informative if skips else [True] * len(picks)
    next_id = state.in_flight.next_id
    ids: list[int] = []
    pending: dict[int, Pending] = {}
    for row, score, awaited in zip(rows.tolist(), batch.scores[start:], expected, strict=False):
        ids.append(next_id + len(pending) if awaited else -1)
        if awaited:
            pending[ids[-1]] = Pending(row, score)
    in_flight = state.in_flight.asked(
        picks, pending, is_design=batch.is_design, ends_batch=-1 in ids
    )
    observations = (
        state.observations.with_skipped(ids.count(-1)) if -1 in ids else state.observations
    )
    marks = torch.tensor(informative, dtype=torch.bool, device=rows.device)
    X = batch.inputs_of(rows, domain.index.X)
    suggestion = Suggestion(X, domain.indices(rows), tuple(ids), marks)
    return replace(state, observations=observations, in_flight=in_flight), suggestion
