r"""Searches that are confined to trust regions."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.exceptions.errors import InputDataError, UnsupportedError
from gpytorch.kernels import RBFKernel

from botorch_bkb import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    AllPoints,
    CompressedUCB,
    InformationThreshold,
    Optimizer,
    QuadratureFeatures,
    StopAtGap,
    run,
)
from botorch_bkb.confidence import Confidence
from botorch_bkb.domains import Box, TrustRegion
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import optimizer as optimizer_module
from botorch_bkb.state import in_flight
from tests import naive
from tests.optimizers.inside import inputs_of, state_of
from tests.problems import rbf

CUBE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
WIDE = torch.tensor([[-3.0, 10.0], [5.0, 30.0]], dtype=torch.float64)
NOISE, SCALE = 0.01, 0.3
#: Regions that shrink and begin anew within few results.
BRISK = TrustRegion(min_length=0.15, success_tolerance=2, failure_tolerance=2, num_initial=3)


def rough(X):
    r"""A function with many local maxima."""
    return torch.sin(9 * X[..., 0]) * torch.cos(7 * X[..., 1]) - (X - 0.6).square().sum(-1)


def given(algorithm=GPUCB, rule=BRISK, bounds=CUBE, **more):
    kernel = RBFKernel().double()
    kernel.lengthscale = SCALE
    options = {"covar_module": kernel, "noise_var": NOISE, "num_initial": 4, "seed": 0}
    return algorithm(bounds=bounds, trust_region=rule, **{**options, **more})


def noisy(X, generator, f=rough, scale=0.1):
    return f(X) + scale * torch.randn(len(X), generator=generator, dtype=torch.float64)


def play(optimizer, budget, n=None, **options):
    r"""Ask and tell noisy results; yields each suggestion before it is told."""
    generator = torch.Generator().manual_seed(1)
    while optimizer.num_observations < budget:
        suggestion = optimizer.ask(n)
        yield suggestion
        optimizer.tell(suggestion, noisy(suggestion.X, generator, **options))


def is_within(X, corners):
    return torch.allclose(X, X.clamp(*corners), rtol=0, atol=1e-9)


def regions_of(optimizer):
    return [SimpleNamespace(**region) for region in optimizer.state_dict()["regions"]]


def played(optimizer, budget, **options):
    return torch.cat([suggestion.X for suggestion in play(optimizer, budget, **options)])


class Regions:
    r"""The rules of trust regions, one point at a time, with a dense posterior over the cube."""

    def __init__(self, rule, num_initial):
        self.rule, self.num_observations = rule, 0
        self.X, self.Y = CUBE[:0], CUBE.new_empty(0)
        self.regions = [self.fresh(num_initial, 0) for _ in range(rule.num_regions)]

    def fresh(self, design, restarts):
        counts = {"design": design, "successes": 0, "failures": 0, "restarts": restarts}
        return {"length": self.rule.length, "points": [], "centre": None, **counts}

    def next_box(self):
        r"""The box of the next pick; None where it belongs to a design."""
        region = self.regions[self.num_observations % len(self.regions)]
        if region["design"] or region["centre"] is None:
            return None
        centre, half = self.X[region["centre"]], region["length"] / 2
        return torch.stack([centre - half, centre + half]).clamp(0, 1)

    def tell(self, x, y):
        turn, new = self.num_observations % len(self.regions), self.num_observations
        region, rule = self.regions[turn], self.rule
        self.X, self.Y = torch.cat([self.X, x]), torch.cat([self.Y, y])
        self.num_observations += 1
        region["points"].append(new)
        K = rbf(self.X, self.X, SCALE)
        means, _ = naive.exact(K, K, K, self.Y, torch.full_like(self.Y, NOISE))
        is_first = region["centre"] is None
        region["centre"] = region["points"][int(means[region["points"]].argmax())]
        if is_first or region["design"]:
            region["design"] = max(0, region["design"] - 1)
            return
        success = region["centre"] == new
        region["successes"] = region["successes"] + 1 if success else 0
        region["failures"] = 0 if success else region["failures"] + 1
        if region["successes"] == rule.success_tolerance:
            region["length"], region["successes"] = min(2 * region["length"], rule.max_length), 0
        elif region["failures"] == rule.failure_tolerance:
            region["length"], region["failures"] = region["length"] / 2, 0
        if region["length"] < rule.min_length:
            self.regions[turn] = self.fresh(rule.num_initial, region["restarts"] + 1)


@pytest.mark.parametrize(
    ("num_regions", "num_initial", "budget"), [(1, 3, 40), (1, 0, 40), (3, 3, 90)]
)
def test_regions_follow_the_plain_transcription_of_their_rules(num_regions, num_initial, budget):
    rule = replace(BRISK, num_regions=num_regions, num_initial=num_initial)
    optimizer = given(rule=rule, num_initial=3 * num_regions)
    transcription, generator = Regions(rule, 3), torch.Generator().manual_seed(1)
    for _ in range(budget):
        suggestion, within = optimizer.ask(1), transcription.next_box()
        if within is not None:
            assert is_within(suggestion.X, within)
        Y = noisy(suggestion.X, generator)
        optimizer.tell(suggestion, Y)
        transcription.tell(suggestion.X, Y)
        for region, expected in zip(regions_of(optimizer), transcription.regions, strict=True):
            for name in ("length", "successes", "failures", "restarts"):
                assert getattr(region, name) == expected[name]
    assert max(region.restarts for region in regions_of(optimizer)) > 0


@pytest.mark.parametrize("bounds", [CUBE, WIDE])
def test_regions_have_sides_like_lengthscales_in_any_units(bounds):
    kernel = RBFKernel(ard_num_dims=2).double()
    sides = bounds[1] - bounds[0]
    kernel.lengthscale = torch.tensor([0.1, 0.4], dtype=torch.float64) * sides
    optimizer = given(covar_module=kernel, bounds=bounds, rule=TrustRegion(length=0.2))
    for suggestion in play(optimizer, 30):
        region = regions_of(optimizer)[0]
        if region.centre < 0:
            continue
        centre = inputs_of(optimizer, torch.tensor([region.centre]))[0]
        half = region.length / 2 * torch.tensor([0.5, 2.0], dtype=torch.float64) * sides
        assert is_within(suggestion.X, torch.stack([centre - half, centre + half]))


@pytest.mark.parametrize(
    ("algorithm", "num_regions"), [(BKB, 1), (BKB, 2), (BBKB, 1), (GPUCB, 1), (GPBUCB, 2)]
)
def test_a_run_resumed_in_the_middle_goes_on_pick_for_pick(algorithm, num_regions):
    rule = replace(BRISK, num_regions=num_regions, min_length=0.3, failure_tolerance=1)

    def made():
        return algorithm(bounds=CUBE, trust_region=rule, seed=0)

    optimizer, steps = made(), []
    for suggestion in play(optimizer, 26):
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        steps.append((suggestion, file))
    assert max(region.restarts for region in regions_of(optimizer)) > 0
    generator = torch.Generator().manual_seed(1)
    rewards = [noisy(suggestion.X, generator) for suggestion, _ in steps]
    for start in (1, len(steps) // 2):
        another, (suggestion, file) = made(), steps[start]
        file.seek(0)
        another.load_state_dict(torch.load(file, weights_only=True))
        for (expected, _), Y in zip(steps[start:], rewards[start:], strict=True):
            assert torch.equal(suggestion.X, expected.X)
            another.tell(suggestion, Y)
            suggestion = another.ask()


def test_a_batch_interrupted_in_the_middle_goes_on_pick_for_pick():
    rule = replace(BRISK, num_regions=2)
    optimizer, another = (BBKB(bounds=CUBE, trust_region=rule, seed=0) for _ in range(2))
    whole = torch.cat([s.X for s in play(optimizer, 12)])
    start = optimizer.state_dict()
    first = optimizer.ask(at_most=1)
    another.load_state_dict(start)
    torch.testing.assert_close(another.ask(at_most=1).X, first.X, rtol=0, atol=0)
    middle = optimizer.state_dict()
    more = optimizer.ask(3).X
    another.load_state_dict(middle)
    assert torch.equal(another.ask(3).X, more)
    assert len(whole) >= 12


def test_the_number_of_regions_must_be_that_of_the_saved_state():
    optimizer = given(rule=TrustRegion(2))
    with pytest.raises(InputDataError, match="trust_regions should be 3, got 2"):
        given(rule=TrustRegion(3)).load_state_dict(optimizer.state_dict())
    with pytest.raises(InputDataError, match="trust_regions should be 0, got 2"):
        given(rule=None).load_state_dict(optimizer.state_dict())


def test_the_recommendation_is_over_all_results():
    optimizer = given(rule=BRISK)
    peak = torch.tensor([[0.87, 0.0]], dtype=torch.float64)
    optimizer.tell(peak.expand(5, 2), torch.full((5,), 9.0))
    played(optimizer, 45)
    assert regions_of(optimizer)[0].restarts > 0
    assert torch.equal(optimizer.best().X, peak[0])


def test_regions_keep_their_points_when_rows_are_renumbered(monkeypatch):
    monkeypatch.setattr(optimizer_module, "MOST_CHANGES", 0)
    monkeypatch.setattr(optimizer_module, "ROWS_PER_CHANGE", 10**9)
    monkeypatch.setattr(in_flight, "MOST_GIVEN_UP", 1)  # rows of others are dropped
    optimizer, told = given(rule=TrustRegion(failure_tolerance=50)), []
    rows = 0
    for suggestion in play(optimizer, 20):
        told.append(suggestion.X)
        optimizer.give_up(optimizer.ask(2))
        rows += len(suggestion) + 2
        centre = regions_of(optimizer)[0].centre
        if centre >= 0:
            X = torch.cat(told[:-1])
            best = X[optimizer.model.posterior(X).mean.argmax()]
            assert torch.equal(inputs_of(optimizer, torch.tensor([centre]))[0], best)
    assert len(optimizer.table.X) < rows


def test_several_regions_have_points_of_their_own():
    optimizer = given(rule=TrustRegion(3))
    played(optimizer, 30, n=1)
    owned = [set(region.rows.tolist()) for region in regions_of(optimizer)]
    assert [len(rows) for rows in owned] == [10, 10, 10]
    assert len(set.union(*owned)) == 30


def test_results_that_were_not_asked_for_are_shared_out_in_turn():
    together, one_by_one = given(rule=TrustRegion(3)), given(rule=TrustRegion(3))
    X = torch.rand(7, 2, dtype=torch.float64)
    together.tell(X, rough(X))
    for x in X.split(1):
        one_by_one.tell(x, rough(x))
    for optimizer in (together, one_by_one):
        assert [len(region.rows) for region in regions_of(optimizer)] == [3, 2, 2]


def test_late_results_do_not_belong_to_a_region_begun_since():
    optimizer = given(rule=replace(BRISK, failure_tolerance=1))
    optimizer.tell(optimizer.ask(), torch.tensor([0.0, 0.0, 0.0, 5.0]))
    late = optimizer.ask(1)
    while not regions_of(optimizer)[0].restarts:
        optimizer.tell(optimizer.ask(1), [-5.0])
    optimizer.tell(late, [0.0])
    assert len(regions_of(optimizer)[0].rows) == 0


def test_results_that_were_not_asked_for_move_a_region_and_are_not_counted():
    optimizer = given(rule=BRISK)
    played(optimizer, 5)
    before = regions_of(optimizer)[0]
    optimizer.tell(torch.rand(20, 2, dtype=torch.float64), [-9.0] * 20)
    x = torch.tensor([[0.11, 0.93]], dtype=torch.float64)
    optimizer.tell(x.expand(3, 2), [9.0] * 3)
    after = regions_of(optimizer)[0]
    assert (after.length, after.failures) == (before.length, before.failures)
    assert torch.equal(inputs_of(optimizer, torch.tensor([after.centre])), x)


@pytest.mark.parametrize("algorithm", [BKB, BBKB, GPUCB])
def test_constant_rewards_shrink_regions_until_they_begin_anew(algorithm):
    optimizer = algorithm(bounds=CUBE, trust_region=BRISK, seed=0)
    X = played(optimizer, 30, f=lambda X: 0 * X.sum(-1), scale=0.0)
    assert regions_of(optimizer)[0].restarts > 0
    assert ((X >= 0) & (X <= 1)).all()


def test_repeating_the_centre_is_a_failure():
    optimizer = given(rule=TrustRegion(failure_tolerance=9))
    optimizer.tell(optimizer.ask(), torch.tensor([0.0, 0.0, 0.0, 5.0]))
    for failures in range(1, 4):
        optimizer.tell(optimizer.ask(1), [-1.0])
        assert regions_of(optimizer)[0].failures == failures


def test_copies_of_points_are_no_problem():
    optimizer = given(rule=BRISK)
    x = torch.tensor([[0.2, 0.3]], dtype=torch.float64)
    optimizer.tell(x.expand(12, 2), torch.linspace(-1, 1, 12))
    X = played(optimizer, 30, n=1)
    assert len(X.unique(dim=0)) == len(X)


@pytest.mark.parametrize("num_regions", [1, 3])
@pytest.mark.parametrize("n", [3, 40])
def test_batches_of_a_given_size_lie_within_their_regions(num_regions, n):
    optimizer = given(BBKB, replace(BRISK, num_regions=num_regions))
    played(optimizer, 9)
    for _ in range(4):
        regions, state = regions_of(optimizer), state_of(optimizer)
        suggestion = optimizer.ask(n)
        assert len(suggestion.X.unique(dim=0)) == n
        for x, id_ in zip(suggestion.X, suggestion.ids, strict=True):
            region = regions[id_ % num_regions]
            in_design = region.restarts and id_ < region.first_id + 3 * num_regions
            if region.centre >= 0 and not in_design:
                centre = state.observations.inputs(
                    CUBE.mean(0, keepdim=True), torch.tensor([region.centre])
                )
                half = region.length / 2
                assert is_within(x, torch.cat([centre - half, centre + half]))
        optimizer.tell(suggestion, rough(suggestion.X))


def test_the_design_of_a_restart_fills_the_box():
    rule = TrustRegion(min_length=0.3, failure_tolerance=1, num_initial=8)
    optimizer, designed = given(rule=rule, bounds=WIDE), []
    while len(designed) < 8:
        designs = bool(regions_of(optimizer)[0].restarts)
        suggestion = optimizer.ask(1)
        designed += [suggestion.X] if designs else []
        optimizer.tell(suggestion, [0.0])
    eighths = ((torch.cat(designed) - WIDE[0]) / (WIDE[1] - WIDE[0]) * 8).floor()
    for column in eighths.T:  # a scrambled Sobol sequence has one of them in each eighth
        assert column.sort().values.tolist() == list(range(8))


@pytest.mark.parametrize(
    "acquisition", ["mpi", "ei", "thompson", "greedy", qLogNoisyExpectedImprovement]
)
def test_all_acquisitions_are_searched_within_the_region(acquisition):
    optimizer = given(BKB, TrustRegion(length=0.1, min_length=0.01), acquisition=acquisition)
    outside = 0
    for suggestion in play(optimizer, 12):
        region = regions_of(optimizer)[0]
        if region.centre >= 0:
            centre = inputs_of(optimizer, torch.tensor([region.centre]))
            half = region.length / 2
            outside += not is_within(suggestion.X, torch.cat([centre - half, centre + half]))
    assert outside == 0 or acquisition == "greedy"  # whose random points fill the box


def test_a_context_is_kept_within_a_region():
    optimizer = given(BKB, TrustRegion())
    played(optimizer, 8)
    assert optimizer.ask(3, context={1: 0.125}).X[:, 1].tolist() == [0.125] * 3


def test_features_have_regions_like_those_of_their_kernel():
    optimizer = given(BKB, BRISK, dictionary=QuadratureFeatures(12))
    assert len(played(optimizer, 12)) == 12


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ({"width": "theory", "norm_bound": 1.0}, "width='theory': no theorem"),
        ({"width": "paper", "norm_bound": 1.0}, "width='paper': no theorem"),
        ({"half_life": 20.0}, "half_life=20.0"),
        ({"dictionary": InformationThreshold(0.1)}, "an information threshold"),
        ({"discrete_dims": {0: [0.0, 1.0]}}, "leave trust_region out"),
    ],
)
def test_what_does_not_go_with_trust_regions_is_refused(refused, message):
    with pytest.raises(InputDataError, match=message):
        given(BKB, **refused)


def test_the_gap_is_refused():
    optimizer = given()
    played(optimizer, 6)
    with pytest.raises(UnsupportedError, match="leave trust_region out"):
        optimizer.gap()
    with pytest.raises(UnsupportedError, match="StopAtGap"):
        run(given(), rough, budget=9, callbacks=[StopAtGap(0.1)])


def test_trust_regions_belong_to_boxes():
    with pytest.raises(InputDataError, match="go with bounds, not arms"):
        BKB(torch.rand(9, 2, dtype=torch.float64), trust_region=TrustRegion())
    with pytest.raises(TypeError, match="BKB, BBKB, GPUCB and GPBUCB"):
        CompressedUCB(bounds=CUBE, epsilon=0.1, trust_region=TrustRegion())


def test_an_optimizer_of_parts_takes_the_region_with_its_box():
    kernel = RBFKernel().double()
    kernel.lengthscale = SCALE
    optimizer = Optimizer(
        Box(CUBE, num_initial=4, trust_region=BRISK),
        model=Surrogate(kernel, NOISE),
        dictionary=AllPoints(),
        confidence=Confidence(),
        seed=0,
    )
    assert torch.equal(played(optimizer, 20), played(given(), 20))
