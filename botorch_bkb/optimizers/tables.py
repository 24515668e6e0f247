r"""The table of a state: building it, exchanging its dictionary, renumbering its rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.arms import ArmTable, WatchedTable
from botorch_bkb.domains import Box, Domain
from botorch_bkb.features import has_features
from botorch_bkb.state.state import State


def build_table(domain: Domain, state: State) -> ArmTable:
    r"""Rebuild the table of a state from its log, the same to the last bit each time.

    Args:
        domain: The domain, with whose rows the table started.
        state: The state.
    """
    X = _inputs(domain, state, state.table.num_rows)
    hyper, keep = state.hyper, domain.keep_coordinates
    kind = _kind(domain, hyper.kernel)
    return kind.from_log(X, hyper.kernel, hyper.noise_var, state.table, keep=keep)


def new_table(domain: Domain, state: State, dictionary: Tensor) -> ArmTable:
    r"""Build a table from the history, with a given dictionary.

    Args:
        domain: The domain.
        state: The state.
        dictionary: Rows of the dictionary.
    """
    history, hyper = state.history, state.hyper
    X = _inputs(domain, state, len(domain.index.X) + len(state.observations.added))
    counts, sums = torch.zeros(2, len(X), dtype=torch.float64, device=X.device)
    counts[history.rows] = history.weights
    sums[history.rows] = history.weights * hyper.units.to_model(history.means)
    keep, kind = domain.keep_coordinates, _kind(domain, hyper.kernel)
    return kind(X, hyper.kernel, hyper.noise_var, dictionary, counts, sums, keep=keep)


def _kind(domain: Domain, kernel: Kernel) -> type[ArmTable]:
    r"""Return the kind of table: over a box few rows need to be current."""
    is_watched = isinstance(domain, Box) and domain.keep_coordinates and not has_features(kernel)
    return WatchedTable if is_watched else ArmTable


def _inputs(domain: Domain, state: State, num_rows: int) -> Tensor:
    r"""Return the first rows of the table, as the model sees them."""
    first = domain.index.X
    added = state.observations.added[: num_rows - len(first)]
    return state.model.inputs(torch.cat([first, added]))


def exchange_dictionary(
    domain: Domain, state: State, table: ArmTable, dictionary: Tensor
) -> ArmTable:
    r"""Return the table with another dictionary: changed in place, or new if that is cheaper."""
    if table.rebuild_is_better(dictionary):
        return new_table(domain, state, dictionary)
    table.slide(dictionary)
    return table


def compacted(domain: Domain, state: State, table: ArmTable) -> tuple[State, ArmTable]:
    r"""Return state and table with a short log, and without added rows that are not needed.

    Rows of a tree stay: the cells know them by number.
    """
    if state.tree is None:
        return moved(domain, state, table, domain)
    return state, new_table(domain, state, table.log.dictionary)


def moved(domain: Domain, state: State, table: ArmTable, target: Domain) -> tuple[State, ArmTable]:
    r"""Return a state whose rows are those of another domain, and its table.

    Whatever was observed, is pending or was given up and is not in the other domain stays as an
    added row.

    Args:
        domain: The domain of the state.
        state: The state.
        table: Its table.
        target: The other domain.
    """
    observations, history, in_flight = state.observations, state.history, state.in_flight
    outstanding = history.rows.new_tensor([*in_flight.rows.values(), *in_flight.given_up])
    known = torch.cat([history.rows, outstanding]).unique()
    points = observations.inputs(domain.index.X, known)
    rows = target.index.find(points)
    absent = torch.nonzero(rows < 0).squeeze(-1)
    rows[absent] = len(target.index.X) + torch.arange(len(absent), device=rows.device)

    def new_rows(old: Tensor) -> Tensor:
        return rows[torch.searchsorted(known, old)]

    dictionary = table.log.dictionary
    if len(history.rows):
        dictionary = new_rows(dictionary).sort().values
    else:  # the row that is pulled first
        dictionary = dictionary % len(target.index.X)
    state = replace(
        state,
        observations=observations.renumbered(new_rows, points[absent]),
        in_flight=in_flight.renumbered(new_rows, history.rows),
        dictionary=state.dictionary.reordered(new_rows(history.rows).argsort()),
        regions=tuple(region.renumbered(new_rows) for region in state.regions),
    )
    return state, new_table(target, state, dictionary)
