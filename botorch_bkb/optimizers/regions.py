r"""Trust regions: how they begin, and how results move, lengthen and shorten them."""

from __future__ import annotations

from dataclasses import replace

import torch
from botorch.exceptions.errors import UnsupportedError
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.domains import Box, Domain, TrustRegion
from botorch_bkb.state.regions import Region
from botorch_bkb.state.state import State


def first_regions(domain: Domain) -> tuple[Region, ...]:
    r"""Return the trust regions before the first result; none where there is no trust region."""
    if not isinstance(domain, Box) or domain.trust_region is None:
        return ()
    rule = domain.trust_region
    return (Region.first(rule, domain.device),) * rule.num_regions


def check_searches_everywhere(domain: Domain) -> None:
    r"""Raise if the search is confined to trust regions.

    Raises:
        UnsupportedError: It is.
    """
    if isinstance(domain, Box) and domain.trust_region is not None:
        raise UnsupportedError(
            "A trust region searches a part of the box only, so that the gap to points elsewhere "
            "is not closed: leave trust_region out for gap() and StopAtGap."
        )


def with_regions_updated(
    domain: Domain, state: State, table: ArmTable, rows: Tensor, ids: tuple[int | None, ...]
) -> State:
    r"""Return the state with the trust regions after some results.

    The point with id ``i`` was asked from region ``i`` modulo their number. Results that were not
    asked for are shared out in turn, and count neither as successes nor as failures.

    Args:
        domain: The domain.
        state: The state after the results.
        table: Its table.
        rows: ``q`` rows of the results.
        ids: Ids of the points that they answer; None for others.
    """
    if not state.regions:
        return state
    assert isinstance(domain, Box) and domain.trust_region is not None
    first = state.observations.num_observations - len(ids)
    numbers = torch.tensor(
        [first + place if id_ is None else id_ for place, id_ in enumerate(ids)], device=rows.device
    )
    asked = torch.tensor([id_ is not None for id_ in ids], device=rows.device)
    turn, regions = numbers % len(state.regions), list(state.regions)
    for i, region in enumerate(regions):
        ours = (turn == i) & (~asked | (numbers >= region.first_id))
        counts = ours & asked & (numbers >= first_counted(domain.trust_region, state, region))
        region = region.with_rows(rows[ours])
        regions[i] = updated_region(domain, state, table, region, rows[counts])
    return replace(state, regions=tuple(regions))


def first_counted(rule: TrustRegion, state: State, region: Region) -> int:
    r"""Return the first id of a point that is not part of the design of a region."""
    if not region.restarts:
        return state.in_flight.designed
    return region.first_id + len(state.regions) * rule.num_initial


def updated_region(
    domain: Box, state: State, table: ArmTable, region: Region, rows: Tensor
) -> Region:
    r"""Return a region about its best point, and with another length if that is due.

    Args:
        domain: The box.
        state: The state.
        table: Its table.
        region: The region, with the rows of all its results.
        rows: The rows of those results that count as successes or failures.
    """
    rule = domain.trust_region
    assert rule is not None
    if not len(region.rows):
        return region
    before = region.centre
    region = region.with_centre(int(region.rows[table.mean()[region.rows].argmax()]))
    if before < 0 or not len(rows):
        return region
    success = region.centre != before and bool((rows == region.centre).any())
    region = region.counted(len(rows), success, rule, domain.dim)
    if region.length >= rule.min_length:
        return region
    return region.begun_anew(rule, state.in_flight.next_id)
