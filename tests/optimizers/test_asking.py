r"""Batches of a size that the user chose, candidates left out, and coordinates fixed."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    AdaBBKB,
    AdaBKB,
    BatchCompleteError,
    BatchedElimination,
    CompressedUCB,
    EpsilonGreedy,
    MiniGPUCB,
    OutOfCandidatesError,
    Suggestion,
)
from botorch_bkb.designs import size_of_design
from tests import naive
from tests.batches.support import FAST
from tests.optimizers.support import NOISE, Problem, kernel

GIVEN = {"covar_module": kernel(), "noise_var": NOISE, "seed": 0}
SQUARE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
FEW = {"discrete_dims": {0: [0, 0.5, 1], 1: [0, 1]}, "acquisition_options": FAST}


@pytest.fixture
def problem():
    return Problem(num_arms=80)


def after_results(kind, problem, n=12, **options):
    optimizer = kind(problem.arms, **{**GIVEN, **options})
    optimizer.tell(torch.arange(n), problem.f[:n])
    return optimizer


def dense(optimizer):
    every = torch.arange(len(optimizer.arms))
    return optimizer.table.mean()[every], optimizer.table.covariance(every)


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or a != a


class TestOverArms:
    @pytest.mark.parametrize("kind", [BBKB, BKB, GPBUCB, GPUCB])
    def test_picks_equal_the_dense_transcription(self, kind, problem):
        optimizer = after_results(kind, problem)
        mean, cov = dense(optimizer)
        expected = naive.plate(mean, cov, NOISE, optimizer.width_now, 60)
        plate = optimizer.ask(60)
        assert plate.indices.tolist() == expected
        assert len(plate.indices.unique()) == 60

    def test_two_halves_are_the_whole(self, problem):
        whole, halves = (after_results(BBKB, problem) for _ in range(2))
        plate = whole.ask(30)
        parts = [halves.ask(13), halves.ask(17)]
        assert torch.cat([part.indices for part in parts]).tolist() == plate.indices.tolist()
        assert Suggestion.joined(parts).beyond.tolist() == plate.beyond.tolist()

    def test_points_beyond_the_rule_are_marked(self, problem):
        optimizer = after_results(BBKB, problem, batch_rule="sum", batch_threshold=4.0)
        tau = optimizer.table.scores()
        plate = optimizer.ask(20)
        spent = 1 + torch.cat([tau.new_zeros(1), tau[plate.indices].cumsum(0)[:-1]])
        assert plate.beyond.tolist() == (spent > 4.0).tolist()
        assert plate[5:].beyond.tolist() == plate.beyond[5:].tolist()
        assert optimizer.pending.beyond.tolist() == plate.beyond.tolist()
        with pytest.raises(BatchCompleteError, match="20 points wait"):
            optimizer.ask()

    def test_a_batch_by_the_rule_is_not_marked(self, problem):
        assert not after_results(BBKB, problem).ask().beyond.any()

    def test_scores_are_those_at_the_start_of_the_batch(self, problem):
        optimizer = after_results(BBKB, problem)
        tau, before = optimizer.table.scores(), optimizer.information_gain
        plate = optimizer.ask(20)
        optimizer.tell(plate, problem.rewards(plate.indices))
        expected = before + float(tau[plate.indices].log1p().sum()) / 2
        assert optimizer.information_gain == pytest.approx(expected)

    @pytest.mark.parametrize(
        "options", [{"acquisition": a} for a in ("ucb", "ei", "thompson", "greedy", "mpi")]
    )
    def test_every_acquisition_picks_distinct_arms(self, options, problem):
        plate = after_results(BBKB, problem, **options).ask(70)
        assert len(plate.indices.unique()) == 70

    def test_arms_may_repeat_where_the_user_allows_it(self, problem):
        plate = after_results(BBKB, problem).ask(200, distinct=False)
        assert len(plate) == 200 > len(plate.indices.unique())

    def test_adaptive_batches_are_distinct_on_demand(self, problem):
        optimizer = after_results(BBKB, problem, batch_threshold=200.0)
        some = optimizer.ask(distinct=True)
        assert len(some.indices.unique()) == len(some)
        many = after_results(BBKB, problem, batch_threshold=200.0).ask()
        assert len(many.indices.unique()) < len(many)

    def test_holding_does_not_repeat_distinct_picks(self, problem):
        optimizer = after_results(MiniGPUCB, problem)
        assert len(optimizer.ask(20).indices.unique()) == 20

    def test_excluded_arms_are_left_out_of_one_ask(self, problem):
        free = after_results(BBKB, problem).ask(10).indices
        optimizer = after_results(BBKB, problem)
        without = optimizer.ask(10, exclude=free[:3])
        assert not set(without.indices.tolist()) & set(free[:3].tolist())
        optimizer.give_up(optimizer.pending)
        by_inputs = after_results(BBKB, problem).ask(10, exclude=problem.arms[free[:3]])
        assert by_inputs.indices.tolist() == without.indices.tolist()
        adaptive = after_results(BBKB, problem).ask(exclude=free[:1].tolist())
        assert int(free[0]) not in adaptive.indices.tolist()

    def test_running_out_of_arms_changes_nothing(self, problem):
        optimizer = after_results(BBKB, problem)
        optimizer.ask(30)
        before = optimizer.state_dict()
        with pytest.raises(OutOfCandidatesError, match="51 candidates to ask for, got 50") as error:
            optimizer.ask(51)
        assert error.value.left == 50
        assert same(before, optimizer.state_dict())
        assert len(optimizer.ask(50)) == 50

    @pytest.mark.parametrize("kind", [BBKB, BKB, GPUCB, GPBUCB, EpsilonGreedy])
    def test_no_arm_is_evaluated_more_often_than_allowed(self, kind):
        problem = Problem(num_arms=12)
        optimizer = kind(problem.arms, max_replicates=2, **GIVEN)
        optimizer.tell([0, 0, 0, 1], torch.zeros(4))
        while True:
            try:
                suggestion = optimizer.ask()
            except OutOfCandidatesError:
                break
            optimizer.tell(suggestion, problem.rewards(suggestion.indices))
        assert optimizer.history.counts.tolist() == [3.0] + [2.0] * 11

    def test_equal_arms_are_one_candidate(self):
        X = torch.tensor([[0.0], [0.0], [1.0], [2.0]], dtype=torch.float64)
        optimizer = BBKB(X, **GIVEN)
        with pytest.raises(OutOfCandidatesError, match="got 3"):
            optimizer.ask(4)
        assert sorted(optimizer.ask(3).indices.tolist()) == [0, 2, 3]

    def test_a_saved_state_keeps_the_marks_and_goes_on(self, problem):
        first, second = (after_results(BBKB, problem) for _ in range(2))
        first.ask(7)
        second.load_state_dict(first.state_dict())
        assert second.pending.beyond.tolist() == first.pending.beyond.tolist()
        assert second.ask(5).indices.tolist() == first.ask(5).indices.tolist()

    def test_an_ask_apart_ends_the_batch_being_asked(self, problem):
        optimizer = after_results(BBKB, problem, batch_threshold=30.0)
        optimizer.ask(at_most=2)
        optimizer.ask(1)
        third = optimizer.ask(at_most=3)
        assert 1 <= len(third) <= 3 and len(optimizer.pending) == 3 + len(third)


class TestBeforeResults:
    def test_the_first_arm_is_drawn_and_the_others_fill_the_space(self, problem):
        optimizer = BBKB(problem.arms, **GIVEN)
        first = int(BBKB(problem.arms, **GIVEN).ask(at_most=1).indices)
        mean, cov = dense(optimizer)
        plate = optimizer.ask(20).indices.tolist()
        assert plate == naive.plate(mean, cov, NOISE, 1.0, 20, first=first)

    def test_a_design_comes_first_where_hyperparameters_are_fitted(self, problem):
        optimizer = BKB(problem.arms, seed=0)
        design = optimizer.ask()
        assert len(design) == len(design.indices.unique()) == size_of_design(2)
        assert not design.beyond.any()
        with pytest.raises(BatchCompleteError):
            optimizer.ask()
        optimizer.tell(design, problem.rewards(design.indices))
        assert len(optimizer.ask()) == 1

    def test_a_design_in_pieces_is_the_whole(self, problem):
        pieces = BBKB(problem.arms, seed=0)
        indices = torch.cat([pieces.ask(at_most=k).indices for k in (1, 2, 3)])
        assert indices.tolist() == BBKB(problem.arms, seed=0).ask().indices.tolist()

    def test_its_size_is_chosen_or_that_of_the_first_ask(self, problem):
        assert len(BBKB(problem.arms, num_initial=11, seed=0).ask()) == 11
        assert len(BBKB(problem.arms, num_initial=11, **GIVEN).ask()) == 11
        plate = BBKB(problem.arms, seed=0).ask(40)
        assert len(plate.indices.unique()) == 40 and not plate.beyond.any()
        assert len(BBKB(problem.arms[:3], seed=0).ask()) == 3

    def test_the_papers_begin_with_a_single_arm(self, problem):
        assert len(BBKB(problem.arms, **GIVEN).ask(at_most=5)) == 1

    def test_results_that_the_user_has_replace_the_design(self, problem):
        optimizer = BKB(problem.arms, num_initial=6, seed=0)
        optimizer.tell([0, 1, 2, 3], torch.randn(4))
        rest = optimizer.ask()
        assert len(rest) == 2 and not set(rest.indices.tolist()) & {0, 1, 2, 3}
        optimizer.tell(rest, torch.randn(2))
        assert len(optimizer.ask()) == 1

    def test_the_rest_of_a_design_and_what_follows_come_in_one_ask(self, problem):
        optimizer = BKB(problem.arms, num_initial=6, seed=0)
        optimizer.tell([0, 1, 2, 3], torch.randn(4))
        plate = optimizer.ask(9)
        assert plate.beyond.tolist() == [False] * 2 + [True] * 7
        assert len(plate.indices.unique()) == 9


class TestOverABox:
    def test_points_are_distinct_and_marked(self):
        optimizer = BBKB(bounds=SQUARE, acquisition_options=FAST, **GIVEN)
        design = optimizer.ask(9)
        assert len(design.X.unique(dim=0)) == 9 and not design.beyond.any()
        optimizer.tell(design, design.X.sum(-1))
        batch = optimizer.ask(12)
        assert len(batch.X.unique(dim=0)) == 12
        assert not batch.beyond[0] and batch.beyond[-1]

    def test_the_points_within_the_rule_are_those_of_the_adaptive_batch(self):
        optimizers = [BBKB(bounds=SQUARE, acquisition_options=FAST, **GIVEN) for _ in range(2)]
        for optimizer in optimizers:
            design = optimizer.ask()
            optimizer.tell(design, design.X.sum(-1))
        adaptive, exact = optimizers[0].ask(), optimizers[1].ask(10)
        within = exact[~exact.beyond]
        assert torch.equal(within.X, adaptive.X)

    def test_a_discrete_box_runs_out_with_a_clear_error(self):
        optimizer = BKB(bounds=SQUARE, **FEW, **GIVEN)
        before = optimizer.state_dict()
        with pytest.raises(OutOfCandidatesError, match=r"7 further points .* got 6"):
            optimizer.ask(7)
        assert same(before, optimizer.state_dict())
        every = optimizer.ask(6)
        assert len(every.X.unique(dim=0)) == 6
        optimizer.tell(every, every.X.sum(-1))
        again = optimizer.ask(6)
        assert len(again.X.unique(dim=0)) == 6
        before = optimizer.state_dict()
        with pytest.raises(OutOfCandidatesError):
            optimizer.ask(1)
        assert same(before, optimizer.state_dict())
        assert len(optimizer.ask(3, distinct=False)) == 3

    def test_it_goes_on_bit_for_bit(self):
        first = BBKB(bounds=SQUARE, acquisition_options=FAST, **GIVEN)
        design = first.ask()
        first.tell(design, design.X.sum(-1))
        first.ask(5)
        second = BBKB(bounds=SQUARE, acquisition_options=FAST, **GIVEN)
        second.load_state_dict(first.state_dict())
        assert torch.equal(first.ask(4).X, second.ask(4).X)


class TestOverATree:
    @pytest.mark.parametrize("kind", [AdaBKB, AdaBBKB])
    def test_points_are_distinct(self, kind):
        optimizer = kind(bounds=SQUARE, **GIVEN)
        for _ in range(3):
            batch = optimizer.ask(9)
            assert len(batch.X.unique(dim=0)) == 9 and batch.beyond[-1]
            optimizer.tell(batch, batch.X.sum(-1))

    def test_cells_that_cannot_be_split_run_out(self):
        optimizer = AdaBKB(bounds=SQUARE, max_depth=1, **GIVEN)
        with pytest.raises(OutOfCandidatesError):
            optimizer.ask(4)
        assert len(optimizer.pending) == 0
        assert len(optimizer.ask(3).X.unique(dim=0)) == 3


class TestContext:
    @pytest.mark.parametrize("kind", [BKB, BBKB, GPUCB])
    def test_coordinates_are_fixed_for_one_ask(self, kind):
        optimizer = kind(bounds=SQUARE, acquisition_options=FAST, **GIVEN)
        design = optimizer.ask(context={1: 0.25})
        assert design.X[:, 1].tolist() == [0.25] * len(design)
        optimizer.tell(design, design.X.sum(-1))
        assert optimizer.ask(3, context={0: 1.0}).X[:, 0].tolist() == [1.0] * 3
        optimizer.tell(optimizer.pending, torch.zeros(3))
        assert optimizer.ask(context={0: 1.0, 1: 0.0}).X.tolist()[0] == [1.0, 0.0]
        optimizer.tell(optimizer.pending, torch.zeros(len(optimizer.pending)))
        assert optimizer.ask().X[0].tolist() != [1.0, 0.0]

    def test_discrete_coordinates_take_their_own_values(self):
        optimizer = BKB(bounds=SQUARE, **FEW, **GIVEN)
        batch = optimizer.ask(3, context={1: 1})
        assert sorted(batch.X.tolist()) == [[0.0, 1.0], [0.5, 1.0], [1.0, 1.0]]
        with pytest.raises(InputDataError, match=r"one of its values, \[0.0, 0.5, 1.0\], got 0.3"):
            optimizer.ask(context={0: 0.3})

    def test_a_state_saved_in_between_goes_on(self):
        first = BBKB(bounds=SQUARE, batch_threshold=20.0, acquisition_options=FAST, **GIVEN)
        design = first.ask()
        first.tell(design, design.X.sum(-1))
        first.ask(at_most=1, context={0: 0.5})
        second = BBKB(bounds=SQUARE, batch_threshold=20.0, acquisition_options=FAST, **GIVEN)
        second.load_state_dict(first.state_dict())
        a, b = (o.ask(at_most=2, context={0: 0.75}) for o in (first, second))
        assert torch.equal(a.X, b.X)
        assert torch.equal(first.ask(2).X, second.ask(2).X)

    @pytest.mark.parametrize(
        ("context", "match"),
        [
            ({2: 0.5}, "coordinates 0..1, got 2"),
            ({0: 1.5}, r"within the bounds, \[0.0, 1.0\] in coordinate 0, got 1.5"),
            ({0: math.nan}, "a number, got nan"),
            ({0: "low"}, "a number, got 'low'"),
            ([(0, 0.5)], "must map coordinates to values"),
        ],
    )
    def test_bad_contexts_are_refused_and_change_nothing(self, context, match):
        optimizer = BKB(bounds=SQUARE, **GIVEN)
        before = optimizer.state_dict()
        with pytest.raises(InputDataError, match=match):
            optimizer.ask(context=context)
        assert same(before, optimizer.state_dict())

    def test_it_must_agree_with_fixed_features(self):
        options = {**FAST, "fixed_features": {0: 0.5}}
        optimizer = BKB(bounds=SQUARE, acquisition_options=options, **GIVEN)
        with pytest.raises(InputDataError, match=r"agree with fixed_features, 0.5 in"):
            optimizer.ask(context={0: 0.75})
        assert (
            optimizer.ask(2, context={0: 0.5, 1: 0.125}, distinct=False).X.tolist()
            == [[0.5, 0.125]] * 2
        )

    @pytest.mark.parametrize(
        "optimizer", [BKB(torch.eye(3).double(), seed=0), AdaBKB(bounds=SQUARE, seed=0)]
    )
    def test_only_a_box_that_is_searched_has_coordinates_to_fix(self, optimizer):
        with pytest.raises(InputDataError, match="context fixes coordinates of a box"):
            optimizer.ask(context={0: 0.5})


class TestRequests:
    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ({"n": 0}, "n must be a positive integer, got 0"),
            ({"at_most": -1}, "at_most must be a positive integer, got -1"),
            ({"n": 2, "at_most": 3}, "got n=2 and at_most=3"),
            ({"exclude": [99]}, "Indices must lie in 0..8"),
        ],
    )
    def test_bad_requests_are_refused(self, arguments, match):
        with pytest.raises(InputDataError, match=match):
            BKB(torch.eye(9).double(), seed=0).ask(**arguments)

    def test_a_box_has_no_arms_to_leave_out(self):
        with pytest.raises(InputDataError, match="exclude leaves arms out of an ask, got it for a"):
            BKB(bounds=SQUARE, seed=0).ask(exclude=[0])
        with pytest.raises(InputDataError, match="max_replicates goes with arms"):
            BKB(bounds=SQUARE, max_replicates=1)

    def test_what_is_asked_for_by_number_is_evaluated_whatever_it_teaches(self):
        arms = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)
        optimizer = CompressedUCB(arms, epsilon=1.0, **GIVEN)
        plate = optimizer.ask(20)
        assert plate.ids == tuple(range(20)) and not plate.informative.all()
        assert -1 in CompressedUCB(arms, epsilon=10.0, **GIVEN).ask().ids

    def test_a_fixed_batch_is_not_exceeded(self):
        optimizer = BatchedElimination(torch.eye(9).double(), batch_sizes=[5, 4], seed=0)
        assert len(optimizer.ask(3)) == 3
        before = optimizer.state_dict()
        with pytest.raises(InputDataError, match="its size is fixed"):
            optimizer.ask(3)
        assert same(before, optimizer.state_dict())
        assert len(optimizer.ask()) == 2


class TestIdentity:
    r"""Arms that are exchanged keep what the user calls them."""

    def test_indices_are_rows_of_the_first_table(self, problem):
        optimizer = after_results(BBKB, problem)
        waiting = optimizer.ask(4)
        new = torch.rand(7, 2, dtype=torch.float64) + 5
        table = torch.cat([problem.arms.flip(0)[:30], new])
        optimizer.set_arms(table)
        plate = optimizer.ask(20)
        every = torch.cat([problem.arms, new])
        assert torch.equal(plate.X, every[plate.indices])
        assert torch.equal(waiting.X, every[waiting.indices])
        best = optimizer.best()
        assert torch.equal(every[best.index], best.X)
        optimizer.tell(waiting, torch.zeros(4))
        counts = float(optimizer.history.counts.sum())
        optimizer.tell([79, 80], [1.0, 2.0])
        assert float(optimizer.history.counts.sum()) == counts + 2
        assert torch.equal(optimizer.model.train_inputs[0][-1:], new[:1]) or any(
            torch.equal(x, new[0]) for x in optimizer.model.train_inputs[0]
        )
        with pytest.raises(InputDataError, match=r"those of the present arms, got \[3\]"):
            optimizer.tell([3], [1.0])
        assert 84 not in optimizer.ask(30 - 20, exclude=[84]).indices.tolist()

    def test_arms_that_come_back_have_their_index_again(self, problem):
        optimizer = after_results(BBKB, problem)
        new = torch.tensor([[9.0, 9.0]], dtype=torch.float64)
        for table, expected in (
            (torch.cat([new, problem.arms[:2]]), {80, 0, 1}),
            (problem.arms[40:43], {40, 41, 42}),
            (torch.cat([problem.arms[41:43], new + 1, new]), {41, 42, 81, 80}),
        ):
            optimizer.set_arms(table)
            plate = optimizer.ask(len(table))
            assert set(plate.indices.tolist()) == expected
            optimizer.give_up(plate)

    def test_a_saved_state_keeps_them(self, problem):
        first = after_results(BBKB, problem)
        first.set_arms(problem.arms[50:])
        second = BBKB(problem.arms[50:], **GIVEN)
        second.load_state_dict(first.state_dict())
        assert second.ask(5).indices.tolist() == first.ask(5).indices.tolist()
        assert int(first.pending.indices.min()) >= 50
