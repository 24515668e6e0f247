from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from botorch_bkb import BBKB
from botorch_bkb.batches import BeliefModels
from botorch_bkb.optimizers.tables import build_table
from botorch_bkb.state.observations import Results
from botorch_bkb.units import UnitCube
from tests.batches.support import BOUNDS, FAST, over_arms
from tests.optimizers.inside import state_of


def over_box(**options):
    r"""An optimizer over a box after some results, in rewards far from standardised."""
    optimizer = BBKB(bounds=BOUNDS, num_initial=6, acquisition_options=FAST, seed=0, **options)
    suggestion = optimizer.ask()
    optimizer.tell(suggestion, 100 - 20 * suggestion.X.square().sum(-1))
    return optimizer


def models_of(optimizer) -> BeliefModels:
    return BeliefModels(optimizer.domain.index.X)


def moments(model, X):
    posterior = model.posterior(X.unsqueeze(-2))
    return posterior.mean.flatten(), posterior.variance.flatten()


@pytest.mark.parametrize("scale", [1.0, 7.0], ids=["given", "standardised"])
def test_in_rewards_is_the_model_of_the_optimizer_and_of_its_table(scale):
    optimizer = over_arms(scale=scale)
    state = state_of(optimizer)
    model = models_of(optimizer).in_rewards(state)
    for ours, theirs in zip(
        moments(model, optimizer.arms), moments(optimizer.model, optimizer.arms), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    mean, var = optimizer.table.moments()
    units = state.hyper.units
    ours = moments(model, optimizer.arms)
    torch.testing.assert_close(ours[0], units.to_rewards(mean), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(ours[1], units.scale**2 * var, atol=1e-6, rtol=1e-6)


def test_over_a_box_inputs_are_in_the_unit_cube():
    optimizer = over_box()
    state, cube = state_of(optimizer), UnitCube(BOUNDS)
    model = models_of(optimizer).in_rewards(state, cube)
    unit = torch.rand(9, 2, dtype=torch.float64)
    for ours, theirs in zip(
        moments(model, unit), moments(optimizer.model, cube.from_unit(unit)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_the_model_for_searching_is_the_same_belief_in_the_models_units():
    optimizer = over_box()
    state, cube, unit = state_of(optimizer), UnitCube(BOUNDS), torch.rand(9, 2).double()
    table = build_table(optimizer.domain, state)
    mean, var = moments(models_of(optimizer).for_search(state, cube, table), unit)
    units = state.hyper.units
    assert units.scale > 5
    expected = moments(optimizer.model, cube.from_unit(unit))
    torch.testing.assert_close(units.to_rewards(mean), expected[0], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(units.scale**2 * var, expected[1], atol=1e-6, rtol=1e-6)


def test_the_model_for_searching_is_kept_while_the_belief_stays():
    optimizer = over_box()
    models, cube, state = models_of(optimizer), UnitCube(BOUNDS), state_of(optimizer)

    def model_for(state):
        return models.for_search(state, cube, build_table(optimizer.domain, state))

    first = model_for(state)
    begun = replace(state, in_flight=state.in_flight.begun(1.5, 3, 0))
    wider = replace(begun, confidence=replace(state.confidence, norm_bound=9.0))
    assert model_for(state) is model_for(begun) is model_for(wider) is first

    optimizer.tell(optimizer.ask(), [90.0])
    after = state_of(optimizer)
    assert model_for(after) is not first
    assert len(model_for(after).train_targets) == len(first.train_targets) + 1
    assert model_for(state) is not first  # only the last one is kept


@pytest.mark.parametrize("part", ["history", "hyper", "dictionary"])
def test_it_is_made_anew_where_only_one_part_of_the_belief_changes(part):
    optimizer = over_box()
    models, cube, state = models_of(optimizer), UnitCube(BOUNDS), state_of(optimizer)
    first = models.for_search(state, cube, build_table(optimizer.domain, state))
    table, other = build_table(optimizer.domain, state), state
    if part == "history":
        rows, values = state.history.rows[:1], torch.ones(1, dtype=torch.float64)
        results = Results(rows, (None,), state.hyper.units.to_rewards(values), values)
        told = state.observations.with_results(results, torch.tensor([True]), True)
        table.observe(rows, values)
        other = replace(state, observations=told, table=table.log)
    elif part == "hyper":
        hyper = replace(state.hyper, noise_var=2 * state.hyper.noise_var)
        other = replace(state, model=replace(state.model, hyper=hyper))
    else:
        table.set_dictionary(table.dictionary[:-1])
        other = replace(state, table=table.log)
    second = models.for_search(other, cube, build_table(optimizer.domain, other))
    assert second is not first
    unit = torch.rand(9, 2, dtype=torch.float64)
    assert not torch.allclose(moments(first, unit)[1], moments(second, unit)[1])
