r"""What ``ask`` does: it reads what the user wants, picks points, and records them as pending."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.batches import Batch, Elimination, OutOfCandidatesError, Request
from botorch_bkb.domains import Arms, Box, Domain, Suggestion
from botorch_bkb.optimizers.parts import Parts
from botorch_bkb.state.in_flight import Pending
from botorch_bkb.state.state import State
from botorch_bkb.validation import check_positive_integer


def read_request(
    parts: Parts,
    n: int | None,
    at_most: int | None,
    distinct: bool | None,
    exclude: Tensor | Sequence[int],
    context: Mapping[int, float] | None,
) -> Request:
    r"""Return what the user wants of an ask, checked.

    Args:
        parts: The parts of the optimizer.
        n: The number of points.
        at_most: The largest number of points.
        distinct: Whether no candidate is asked twice; by default where a number is given.
        exclude: What the user calls the arms that are left out.
        context: Coordinates of a box that are fixed.
    """
    check_positive_integer("n", n)
    check_positive_integer("at_most", at_most)
    if n is not None and at_most is not None:
        raise InputDataError(
            f"Pass n, for exactly so many points, or at_most, got n={n} and at_most={at_most}: "
            "leave one of them out."
        )
    if distinct is None:
        distinct = n is not None
    if isinstance(parts.batch, Elimination):
        distinct = False  # its batches are distinct as its rule says
    rows = _read_excluded(parts, exclude)
    return Request(n, at_most, bool(distinct), rows, _read_context(parts.domain, context))


def _read_excluded(parts: Parts, exclude: Tensor | Sequence[int]) -> tuple[int, ...]:
    if not isinstance(exclude, Sequence) and not hasattr(exclude, "shape"):
        raise InputDataError(
            f"exclude must be a list of rows of the arms, or q x d inputs, got {exclude!r}: leave "
            "it out to exclude none."
        )
    if not len(exclude):
        return ()
    domain = parts.domain
    if not isinstance(domain, Arms) or isinstance(parts.batch, Elimination):
        raise InputDataError(
            "exclude leaves arms out of an ask, got it for "
            f"{'an elimination' if isinstance(domain, Arms) else 'a ' + type(domain).__name__}: "
            "leave it out. (discrete_dims and constraints restrict a box.)"
        )
    none = torch.empty(0, domain.dim, dtype=domain.dtype, device=domain.device)
    return tuple(domain.read(exclude, none, {}).rows.tolist())


def _read_context(domain: Domain, context: Mapping[int, float] | None) -> dict[int, float]:
    if not context:
        return {}
    if not isinstance(domain, Box):
        raise InputDataError(
            f"context fixes coordinates of a box that is searched, got it for a "
            f"{type(domain).__name__}: use BKB(bounds=...) or BBKB(bounds=...)."
        )
    if not isinstance(context, Mapping):
        raise InputDataError(
            f"context must map coordinates to values, such as {{2: 0.5}}, got {context!r}."
        )
    low, high = domain.bounds.tolist()
    for i, value in context.items():
        if not (isinstance(i, int) and not isinstance(i, bool) and 0 <= i < domain.dim):
            raise InputDataError(f"context must name coordinates 0..{domain.dim - 1}, got {i!r}.")
        if not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise InputDataError(f"context must give coordinate {i} a number, got {value!r}.")
        if not low[i] <= value <= high[i]:
            raise InputDataError(
                f"context must lie within the bounds, [{low[i]}, {high[i]}] in coordinate {i}, "
                f"got {value}."
            )
    domain.check_context(context)
    return {i: float(value) for i, value in context.items()}


def check_enough(domain: Domain, batch: Batch, request: Request) -> None:
    r"""Raise if a batch has fewer candidates than the user wants.

    Args:
        domain: The domain.
        batch: The batch, before any pick for this ask.
        request: What the user wants.

    Raises:
        OutOfCandidatesError: There are too few.
    """
    wanted = request.n or 1
    if batch.candidates is None or batch.candidates.total >= wanted:
        return
    left = int(batch.candidates.total)
    reasons = ["pending"] if request.distinct else []
    reasons += ["excluded"] if request.exclude else []
    replicates = getattr(domain, "max_replicates", None)
    reasons += [f"evaluated as often as max_replicates={replicates} allows"] if replicates else []
    raise OutOfCandidatesError(
        f"There must be {wanted} candidates to ask for, got {left}: the others are "
        f"{' or '.join(reasons)}. Ask for fewer, tell results first, add candidates with set_arms, "
        "or relax distinct, exclude or max_replicates.",
        left,
    )


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
    domain: Domain,
    state: State,
    batch: Batch,
    start: int,
    picks: list[int],
    beyond: list[bool],
    *,
    skips: bool,
    ends_batch: bool,
) -> tuple[State, Suggestion]:
    r"""Return the picks as a suggestion, and a state in which their results are awaited.

    Args:
        domain: The domain.
        state: The state before the suggestion.
        batch: The batch.
        start: The number of picks of the batch before these.
        picks: The rows picked.
        beyond: Whether each of them lies beyond the batch rule.
        skips: Whether no result is expected for an uninformative pick.
        ends_batch: Whether the next ask begins a new batch.
    """
    rows = domain.first_equal(torch.tensor(picks, dtype=torch.long, device=domain.device))
    informative = batch.informative[start : start + len(picks)]
    expected = informative if skips else [True] * len(picks)
    next_id = state.in_flight.next_id
    ids: list[int] = []
    pending: dict[int, Pending] = {}
    scored = zip(rows.tolist(), batch.scores[start:], beyond, expected, strict=False)
    for row, score, is_beyond, awaited in scored:
        ids.append(next_id + len(pending) if awaited else -1)
        if awaited:
            pending[ids[-1]] = Pending(row, score, is_beyond)
    in_flight = state.in_flight.asked(
        picks, pending, is_design=batch.is_design, ends_batch=ends_batch or -1 in ids
    )
    observations = (
        state.observations.with_skipped(ids.count(-1)) if -1 in ids else state.observations
    )
    marks = (
        torch.tensor(flags, dtype=torch.bool, device=rows.device) for flags in (informative, beyond)
    )
    X = batch.inputs_of(rows, domain.index.X)
    suggestion = Suggestion(X, domain.indices(rows), tuple(ids), *marks)
    return replace(state, observations=observations, in_flight=in_flight), suggestion
