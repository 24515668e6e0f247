from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from botorch.acquisition.analytic import UpperConfidenceBound

from botorch_bkb import BBKB, InformationThreshold
from botorch_bkb.acquisition import EI, UCB, Greedy, InTurn, PureExploration, Thompson
from botorch_bkb.batches import BoxBatch, DesignBatch, OneAtATime, SumRule
from botorch_bkb.batches.box import BoxContext, hallucinated
from botorch_bkb.domains import Box
from botorch_bkb.units import UnitCube
from tests import naive
from tests.arms.support import NOISE, conditioned
from tests.batches.support import BOUNDS, UNIT, context_of, over_box
from tests.optimizers.inside import batch_of
from tests.problems import rbf

CUBE = UnitCube(BOUNDS)
GRID = CUBE.from_unit(UNIT)
LONG = SumRule(1e6)
IN_TURN = InTurn((UCB(), PureExploration()))


@pytest.fixture(autouse=True)
def _without_gradients():
    r"""Optimizers pick without gradients."""
    with torch.no_grad():
        yield


def dense_grid(optimizer):
    r"""Mean and joint covariance at all points of the grid, by the oracle."""
    state, S = optimizer.history, optimizer.dictionary
    X = optimizer.table.X[state.rows]
    noise = NOISE / state.weights
    return naive.dtc(rbf(S, S), rbf(X, S), rbf(GRID, S), rbf(GRID, GRID), state.means, noise)


def moments_of(batch):
    r"""Means and variances on the grid, in the model's units."""
    unit = batch.context.prior_deviation
    posterior = batch.marginals.posterior(UNIT.unsqueeze(-2))
    return unit * posterior.mean.flatten(), unit**2 * posterior.variance.flatten()


def places_of(X):
    r"""Which points of the grid these are."""
    equal = (X.unsqueeze(-2) == GRID).all(-1)
    assert equal.any(-1).all()
    return equal.long().argmax(-1).tolist()


# ---------------------------------------------------------------------- the design


def design_of(optimizer, size=6, is_initial=True, **options):
    return DesignBatch(optimizer.domain, context_of(optimizer, **options), size, is_initial)


def test_a_design_asks_its_points_in_order():
    optimizer = over_box(results=False)
    batch = design_of(optimizer)
    seed = optimizer.state_dict()["in_flight"]["design_seed"]
    points = optimizer.domain.design(0, 6, seed)
    rows = []
    while not batch.complete:
        rows.append(batch.pick())
    assert batch.is_design and rows == [1, 2, 3, 4, 5, 6]  # the centre is row 0
    assert torch.equal(batch.inputs_of(torch.tensor(rows), points), points)
    assert torch.equal(torch.cat(batch.added), points) and len(batch.table.X) == 7


def test_a_design_goes_on_where_it_stopped():
    optimizer = over_box(results=False)
    batch = design_of(optimizer, 2, designed=3)
    seed = optimizer.state_dict()["in_flight"]["design_seed"]
    expected = optimizer.domain.design(0, 6, seed)[3:5]
    rows = torch.tensor([batch.pick(), batch.pick()])
    assert torch.equal(batch.inputs_of(rows, expected), expected) and batch.complete


def test_following_a_design_gives_the_rest_of_it():
    optimizer = over_box(results=False)
    optimizer.ask(at_most=2)
    batch = batch_of(optimizer)
    assert isinstance(batch, DesignBatch) and batch.picks == [1, 2] and batch.added == []
    while not batch.complete:
        batch.pick()
    rest = optimizer.ask().X
    assert torch.equal(batch.inputs_of(torch.tensor(batch.picks[2:]), rest), rest)


def test_scores_of_a_design_are_those_of_the_prior():
    batch = design_of(over_box(results=False))
    for _ in range(6):
        batch.pick()
    assert batch.scores == pytest.approx([1 / NOISE] * 6)


@pytest.mark.parametrize("is_initial", [True, False])
def test_an_initial_design_is_evaluated_whatever_it_teaches(is_initial):
    optimizer = over_box(results=False)
    batch = design_of(optimizer, is_initial=is_initial, dictionary=InformationThreshold(5.0))
    batch.pick()
    assert batch.informative == [is_initial] and batch.complete == (not is_initial)


# ---------------------------------------------------------------------- picks


def test_picks_have_the_highest_bound_of_a_model_that_hallucinates():
    optimizer = over_box()
    mean, cov = dense_grid(optimizer)
    batch = BoxBatch(optimizer.domain, context_of(optimizer, width=2.0, rule=LONG))
    expected = []
    for _ in range(8):
        bounds = mean + 2.0 * conditioned(cov, expected).sqrt()
        expected.append(int(bounds.argmax()))
        batch.pick()
    assert places_of(batch.inputs_of(torch.tensor(batch.picks), GRID)) == expected
    start = cov.diagonal()[expected] / NOISE
    assert batch.scores == pytest.approx(start.tolist(), abs=1e-6)


@pytest.mark.parametrize("observations", [1, 2])
def test_acquisition_rules_take_turns(observations):
    optimizer = over_box()
    optimizer.tell(GRID[:observations], [5.0] * observations)
    mean, cov = dense_grid(optimizer)
    context = replace(context_of(optimizer, width=9.0, rule=LONG), acquisition=IN_TURN)
    batch = BoxBatch(optimizer.domain, context)
    expected = []
    for pick in range(3):
        var = conditioned(cov, expected)
        score = var if (observations + pick) % 2 else mean + 9.0 * var.sqrt()
        expected.append(int(score.argmax()))
        batch.pick()
    assert places_of(batch.inputs_of(torch.tensor(batch.picks), GRID)) == expected


@pytest.mark.parametrize("earlier", ["stragglers", "given_up"])
def test_while_points_are_outstanding_the_first_rule_picks(earlier):
    waiting = replace(context_of(over_box(), **{earlier: (0,)}), acquisition=IN_TURN)
    assert [waiting.acquisition_of(pick) for pick in range(3)] == [UCB()] * 3
    alone = replace(context_of(over_box()), acquisition=IN_TURN)
    assert {alone.acquisition_of(pick) for pick in range(2)} == set(IN_TURN.rules)


@pytest.mark.parametrize("earlier", ["stragglers", "given_up"])
def test_points_asked_earlier_count_as_picked(earlier):
    optimizer = over_box()
    first = optimizer.ask()
    if earlier == "given_up":
        optimizer.give_up(first)
    (place,) = places_of(first.X)
    mean, cov = dense_grid(optimizer)
    context = context_of(optimizer, width=2.0, rule=LONG)
    assert len(getattr(context.record, earlier)) == 1
    batch = BoxBatch(optimizer.domain, context)
    batch.pick()
    expected = int((mean + 2.0 * conditioned(cov, [place]).sqrt()).argmax())
    assert places_of(batch.inputs_of(torch.tensor(batch.picks), GRID)) == [expected] != [place]


def test_a_straggler_ends_a_batch_of_one_and_a_point_given_up_does_not():
    optimizer = over_box()
    suggestion = optimizer.ask()
    waiting = context_of(optimizer, rule=OneAtATime())
    assert BoxBatch(optimizer.domain, waiting).complete
    optimizer.give_up(suggestion)
    assert not BoxBatch(optimizer.domain, context_of(optimizer, rule=OneAtATime())).complete


def test_points_become_rows_of_the_table_once():
    r"""A small batch over few points picks some of them again."""

    class Corners(Box):
        def maximise(self, acquisition, starts, seed):
            X = UNIT[[0, 8]]
            return X[acquisition(X.unsqueeze(-2)).argmax()].unsqueeze(0)

    optimizer = over_box(Corners)
    batch = BoxBatch(optimizer.domain, context_of(optimizer, rule=LONG))
    before = len(batch.table.X)
    for _ in range(6):
        batch.pick()
    assert set(batch.picks) == {before, before + 1} and len(batch.table.X) == before + 2
    assert len(batch.added) == 2 and len(batch.inputs) == before + 2


@pytest.mark.parametrize("done", [1, 3])
def test_following_gives_the_same_further_picks(done):
    optimizer = over_box(batch=SumRule(20.0))
    optimizer.ask(at_most=done)
    batch = batch_of(optimizer)
    assert isinstance(batch, BoxBatch) and len(batch.picks) == done
    while not batch.complete:
        batch.pick()
    rest = optimizer.ask().X
    assert torch.equal(batch.inputs_of(torch.tensor(batch.picks[done:]), rest), rest)


def test_the_belief_of_the_table_stays():
    optimizer = over_box()
    context = context_of(optimizer, rule=LONG)
    n = len(context.table.X)
    before = [t.clone() for t in context.table.moments()]
    batch = BoxBatch(optimizer.domain, context)
    for _ in range(4):
        batch.pick()
    assert len(batch.table.X) > n
    for old, new in zip(before, batch.table.moments(), strict=True):
        # A product with more rows may be rounded in another way.
        torch.testing.assert_close(new[:n], old, rtol=1e-14, atol=1e-15)


# ---------------------------------------------------------------------- models


def test_hallucinated_models_keep_means_and_lower_variances():
    optimizer = over_box()
    batch = BoxBatch(optimizer.domain, context_of(optimizer))
    _, cov = dense_grid(optimizer)
    rows = [3, 40, 40, 77]
    model = hallucinated(batch.base, UNIT[rows], NOISE)
    mean, var = moments_of(batch)
    new_mean, new_var = model.marginals(UNIT)
    torch.testing.assert_close(new_mean, mean, atol=1e-8, rtol=0)
    assert (new_var <= var + 1e-9).all() and (new_var < var - 0.01).any()
    torch.testing.assert_close(new_var, conditioned(cov, rows), atol=1e-6, rtol=0)


@pytest.mark.parametrize("scale", [1.0, 7.0], ids=["given", "standardised"])
def test_the_model_in_rewards_hallucinates_as_well(scale):
    optimizer = over_box(scale=scale)
    optimizer.give_up(optimizer.ask())
    batch = BoxBatch(optimizer.domain, context_of(optimizer, rule=LONG))
    for _ in range(3):
        batch.pick()
    mean, var = moments_of(batch)
    ours = batch.reward_model().posterior(UNIT.unsqueeze(-2))
    units = batch.context.state.hyper.units
    expected = units.to_rewards(mean), units.scale**2 * var
    torch.testing.assert_close(ours.mean.flatten(), expected[0], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(ours.variance.flatten(), expected[1], atol=1e-6, rtol=1e-6)
    assert (var < batch.base.marginals(UNIT)[1] - 0.01).any()


def test_the_highest_bound_is_in_the_models_units():
    optimizer = over_box()
    mean, cov = dense_grid(optimizer)
    batch = BoxBatch(optimizer.domain, context_of(optimizer, width=2.0))
    expected = float((mean + 2.0 * cov.diagonal().sqrt()).max())
    assert batch.highest_bound() == pytest.approx(expected, abs=1e-6)


# ---------------------------------------------------------------------- acquisition


def test_the_context_of_a_pick():
    optimizer = over_box(scale=7.0)
    batch = BoxBatch(optimizer.domain, context_of(optimizer, width=2.5))
    context, rewards = BoxContext(batch, 0), optimizer.history.means
    best = (rewards.max() - rewards.mean()) / rewards.std(correction=0)
    assert context.width == 2.5
    assert context.best_reward == pytest.approx(float(best))
    mean = moments_of(batch)[0]
    assert context.best_mean == pytest.approx(float(mean.max()))
    bound = UpperConfidenceBound(context.marginals, beta=6.25)(UNIT.unsqueeze(-2))
    expected = mean + 2.5 * moments_of(batch)[1].sqrt()
    torch.testing.assert_close(bound, expected, atol=1e-6, rtol=0)


def test_sample_paths_are_draws_from_the_start_of_the_batch():
    optimizer = over_box()
    batch = BoxBatch(optimizer.domain, context_of(optimizer, rule=LONG))
    batch.pick()
    paths = [BoxContext(batch, seed).sample_path() for seed in (3, 3, 4)]
    values = [path.posterior(UNIT.unsqueeze(-2)).mean.flatten() for path in paths]
    assert torch.equal(values[0], values[1]) and not torch.allclose(values[0], values[2])
    mean, var = batch.base.marginals(UNIT)
    assert (values[0] - mean).abs().max() < 6 * math.sqrt(float(var.max()))


@pytest.mark.parametrize("rule", [EI(), Thompson(), Greedy(0.0)], ids=str)
def test_other_rules_pick_points_of_the_box(rule):
    optimizer = over_box()
    context = context_of(optimizer, acquisition=rule, rule=LONG)
    batch = BoxBatch(optimizer.domain, context)
    places = places_of(batch.inputs_of(torch.tensor([batch.pick(), batch.pick()]), GRID))
    if rule == Greedy(0.0):
        assert places == [int(dense_grid(optimizer)[0].argmax())] * 2


def test_greedy_takes_random_points_with_its_probability():
    optimizer = over_box()
    context = context_of(optimizer, acquisition=Greedy(1.0), rule=LONG)
    batch = BoxBatch(optimizer.domain, context)
    X = batch.inputs_of(torch.tensor([batch.pick() for _ in range(5)]), GRID)
    assert len(X.unique(dim=0)) == 5 and not (X.unsqueeze(-2) == GRID).all(-1).any()
    assert torch.equal(X.clamp(*BOUNDS), X)


def test_botorch_finds_a_point_no_worse_than_those_of_the_grid():
    optimizer = over_box(Box)
    batch = BoxBatch(optimizer.domain, context_of(optimizer, width=2.0))
    mean, var = moments_of(batch)
    X = batch.inputs_of(torch.tensor([batch.pick()]), GRID)
    got, sd = batch.base.marginals(CUBE.to_unit(X))
    assert float(got + 2 * sd.sqrt()) >= float((mean + 2 * var.sqrt()).max()) - 1e-3


def test_searches_start_at_the_best_point_and_at_the_last():
    optimizer = over_box()
    batch = BoxBatch(optimizer.domain, context_of(optimizer, rule=LONG))
    rows = optimizer.history.rows
    best = rows[optimizer.table.mean()[rows].argmax()]
    batch.pick()
    starts = CUBE.from_unit(batch.starts())
    assert torch.allclose(starts, batch.inputs[[int(best), len(batch.inputs) - 1]])


def test_much_noise_does_not_make_endless_batches():
    optimizer = BBKB(bounds=BOUNDS, seed=0)
    suggestion = optimizer.ask()
    optimizer.tell(
        suggestion, torch.rand(len(suggestion)), Yvar=torch.full((len(suggestion),), 1e4)
    )
    assert len(optimizer.ask(at_most=300)) == 200
