r"""Elimination in fixed batches: against a plain transcription, and what is proved of it."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from botorch.exceptions.errors import BotorchError, InputDataError, UnsupportedError
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

from botorch_bkb import (
    BBKB,
    BatchCompleteError,
    BatchedElimination,
    FinishedError,
    Optimizer,
    resume,
    run,
)
from botorch_bkb.acquisition import PureExploration
from botorch_bkb.batches import Elimination
from botorch_bkb.confidence import Confidence
from botorch_bkb.dictionaries import AllPoints
from botorch_bkb.domains import Arms, Box
from botorch_bkb.models import Surrogate
from tests import naive
from tests.optimizers.support import Problem, kernel

BOUNDS = torch.tensor([[0.0], [1.0]], dtype=torch.float64)


def make(problem, sizes=(20, 20, 20), **more):
    return BatchedElimination(problem.arms, batch_sizes=sizes, **problem.options(**more))


def play(optimizer, problem):
    r"""All batches, as far as there are any."""
    batches = []
    while True:
        try:
            suggestion = optimizer.ask()
        except FinishedError:
            return batches
        batches.append(suggestion)
        optimizer.tell(suggestion, problem.rewards(suggestion.indices))


@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("sizes", [(20, 20, 20), (5, 30), (90,), (1, 2, 3, 40)])
def test_every_pick_and_every_elimination_equal_the_plain_transcription(sizes, distinct):
    for seed in range(5):
        problem = Problem(norm=6.0, noise=0.02, seed=seed)
        optimizer = make(problem, sizes, delta=0.2, distinct=distinct)
        oracle = naive.EliminationRun(problem.K, 0.02, 6.0, math.sqrt(0.02), 0.2, len(sizes))
        for size in sizes:
            if len(oracle.alive) == 1:
                break
            assert optimizer.width_now == pytest.approx(oracle.width(), rel=1e-12)
            suggestion = optimizer.ask()
            picks = suggestion.indices.tolist()
            assert len(picks) == size
            for i in range(1, size):  # the first pick is drawn from all survivors
                assert picks[i] == oracle.next_point(picks[:i], distinct)
            assert picks[0] in oracle.alive
            rewards = problem.rewards(suggestion.indices)
            optimizer.tell(suggestion, rewards)
            oracle.eliminate(picks, rewards.tolist())
            assert optimizer.survivors.tolist() == oracle.alive
            best, width = optimizer.best(), optimizer.gap()
            assert best.lower == pytest.approx(oracle.lower[best.index], abs=1e-8)
            assert best.upper == pytest.approx(oracle.upper[best.index], abs=1e-8)
            alive = oracle.alive
            gap = max(oracle.upper[x] for x in alive) - max(oracle.lower[x] for x in alive)
            assert width == pytest.approx(max(0.0, gap), abs=1e-8)


def test_something_is_eliminated_and_the_recommendation_is_good():
    problem = Problem(num_arms=200, norm=6.0, noise=0.01, seed=1)
    optimizer = make(problem, (50, 50, 50))
    play(optimizer, problem)
    assert len(optimizer.survivors) < 40 and int(problem.f.argmax()) in optimizer.survivors
    best = optimizer.best()
    assert best.lower <= problem.f[best.index] <= best.upper
    assert problem.f.max() - problem.f[best.index] < 0.1 * (problem.f.max() - problem.f.mean())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_bounds_hold_and_the_best_arm_survives(share):
    # The noise has the full constant, and the function its full norm.
    runs, delta, lost, outside = 200, 0.2, 0, 0
    for seed in range(runs):
        problem = Problem(num_arms=30, norm=3.0, noise=0.5, seed=seed)
        noise_var = problem.noise * share  # the model's noise need not be the true one
        optimizer = make(
            problem, (10, 10, 10), delta=delta, noise_var=noise_var, noise_bound=0.5**0.5
        )
        failed = False
        for _ in range(3):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, problem.rewards(suggestion.indices))
            best = optimizer.best()
            failed |= not best.lower <= float(problem.f[best.index]) <= best.upper
            if len(optimizer.survivors) == 1:
                break
        outside += failed
        lost += int(problem.f.argmax()) not in optimizer.survivors.tolist()
    assert lost <= delta * runs and outside <= delta * runs


def test_a_width_that_is_far_too_small_loses_the_best_arm():
    # So the test above can fail.
    lost = 0
    for seed in range(50):
        problem = Problem(num_arms=30, norm=3.0, noise=0.5, seed=seed)
        optimizer = make(problem, (10, 10, 10), width=0.3)
        play(optimizer, problem)
        lost += int(problem.f.argmax()) not in optimizer.survivors.tolist()
    assert lost > 15


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"budget": 288}, (96, 96, 96)),
        ({"budget": 288, "num_batches": 3}, (96, 96, 96)),
        ({"budget": 10, "num_batches": 4}, (3, 3, 2, 2)),
        ({"budget": 2, "num_batches": 3}, (1, 1)),
        ({"budget": 7, "num_batches": 1}, (7,)),
        ({"batch_sizes": [4, 9]}, (4, 9)),
        ({"budget": 288, "num_batches": 3, "batch_sizes": "growing"}, (26, 129, 133)),
        ({"budget": 288, "batch_sizes": "growing"}, (17, 70, 142, 59)),
        ({"budget": 2, "num_batches": 3, "batch_sizes": "growing"}, (2,)),
        ({"budget": 1, "batch_sizes": "growing"}, (1,)),
    ],
    ids=str,
)
def test_batches_have_the_sizes_asked_for(options, sizes):
    problem = Problem(num_arms=300, norm=1.0, noise=1.0)  # nothing can be eliminated
    optimizer = BatchedElimination(problem.arms, **problem.options(**options))
    assert optimizer.parts.batch.sizes == sizes
    assert [len(batch) for batch in play(optimizer, problem)] == list(sizes)
    assert optimizer.num_observations == sum(sizes)


def test_growing_batches_depend_on_the_smoothness():
    arms = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    options = {"budget": 1000, "num_batches": 3, "batch_sizes": "growing"}
    rough = BatchedElimination(arms, covar_module=ScaleKernel(MaternKernel(nu=0.5)), **options)
    eta = 0.5 / (2 * 0.5 + 2)
    expected = math.ceil(1000 ** ((1 - eta) / (1 - eta**3)))
    assert rough.parts.batch.sizes[0] == expected
    smooth = BatchedElimination(arms, covar_module=RBFKernel(), **options)
    assert smooth.parts.batch.sizes[0] < expected


def test_candidates_are_distinct_where_possible():
    problem = Problem(num_arms=400, noise=0.01)
    batch = make(problem, (96, 96, 96)).ask()
    assert len(set(batch.indices.tolist())) == 96
    free = make(problem, (96, 96, 96), distinct=False).ask()
    assert len(set(free.indices.tolist())) < 96  # corners have the highest variance again
    few = Problem(num_arms=5, noise=0.01)
    batch = make(few, (97,)).ask()
    assert torch.bincount(batch.indices).sort().values.tolist() == [19, 19, 19, 20, 20]


def test_results_of_a_batch_do_not_change_its_picks():
    problem = Problem(noise=0.01)
    whole = make(problem).ask().indices.tolist()
    for values in (0.0, 100.0):
        parts, optimizer = [], make(problem)
        while len(parts) < 20:
            suggestion = optimizer.ask(at_most=7)
            parts += suggestion.indices.tolist()
            optimizer.tell(suggestion[:3], [values] * min(3, len(suggestion)))
        assert parts == whole
        assert optimizer.survivors.tolist() == list(range(60))  # until all are told
        with pytest.raises(BatchCompleteError):
            optimizer.ask()
        optimizer.tell(optimizer.pending, [values] * len(optimizer.pending))
        assert len(optimizer.ask()) == 20


def test_unsolicited_results_inform_the_recommendation_but_no_bounds():
    problem = Problem()
    plain, informed = make(problem), make(problem)
    first = torch.arange(30)
    informed.tell(first, 5 + problem.f[first])
    assert informed.best().mean != 0
    for optimizer in (plain, informed):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, problem.f[suggestion.indices])
    row = informed.best().index
    outside = torch.full((1, 2), 5.0, dtype=torch.float64)
    informed.tell(outside, [3.0])
    assert informed.gap() == plain.gap()
    assert informed.survivors.tolist() == plain.survivors.tolist()
    best = informed.best()
    assert best.index == row and best.lower <= best.mean <= best.upper
    assert informed.num_observations == 51


def test_the_gap_bounds_the_regret_of_the_best_lower_bound():
    differ = 0
    for seed in range(8):
        problem = Problem(norm=2.0, noise=0.05, seed=seed)
        optimizer = make(problem, (15, 15, 15))
        for _ in range(3):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, problem.rewards(suggestion.indices))
            best = optimizer.best(by="lower")
            assert best.index in optimizer.survivors.tolist() and best.lower <= best.mean
            # The highest upper bound of a survivor is above the best lower one by the gap.
            mean = optimizer.best()
            assert best.lower >= mean.lower
            assert mean.upper - best.lower <= optimizer.gap() * (1 + 1e-9)
            assert best.mean <= best.upper <= best.lower + optimizer.gap() * (1 + 1e-9)
            assert float(problem.f.max() - problem.f[best.index]) <= optimizer.gap()
            differ += best.index != mean.index
    assert differ > 0


def test_points_that_are_given_up_count_as_asked():
    problem = Problem()
    optimizer = make(problem, (20, 20))
    suggestion = optimizer.ask()
    optimizer.tell(suggestion[:10], problem.rewards(suggestion[:10].indices))
    assert optimizer.gap() > 0
    optimizer.give_up(suggestion[10:])
    second = optimizer.ask()
    optimizer.give_up(second)  # a batch without any result eliminates nothing
    with pytest.raises(FinishedError, match="2 batches are complete"):
        optimizer.ask()
    assert optimizer.num_observations == 10 and optimizer.best().mean


def test_one_arm():
    arms = torch.ones(1, 2, dtype=torch.float64)
    optimizer = BatchedElimination(arms, budget=6, covar_module=kernel(), noise_var=0.1)
    suggestion = optimizer.ask()
    assert suggestion.indices.tolist() == [0, 0]
    optimizer.tell(suggestion, [1.0, 1.2])
    assert optimizer.best().index == 0 and optimizer.survivors.tolist() == [0]
    with pytest.raises(FinishedError, match="One arm is left after 1 of 3"):
        optimizer.ask()


def test_duplicates_live_and_die_together():
    problem = Problem(norm=6.0, noise=0.01)
    arms = torch.cat([problem.arms, problem.arms])
    optimizer = BatchedElimination(arms, batch_sizes=(30, 30), **problem.options())
    suggestion = optimizer.ask()
    assert len(set(suggestion.indices.tolist())) == 30 and int(suggestion.indices.max()) < 60
    optimizer.tell(suggestion, problem.f[suggestion.indices])
    alive = optimizer.survivors.tolist()
    assert 1 < len(alive) < 30 and max(alive) < 60
    # Once all survivors were picked they are repeated, and never by their duplicates.
    assert set(optimizer.ask().indices.tolist()) == set(alive)


def test_an_arm_is_left_where_bounds_contradict_each_other():
    problem = Problem()
    optimizer = make(problem, (20, 20, 20), norm_bound=0.001, noise_bound=1e-9)
    optimizer.tell(optimizer.ask(), [0.0] * 20)
    assert len(optimizer.survivors) == 60
    optimizer.tell(optimizer.ask(), [-1000.0] * 20)
    assert len(optimizer.survivors) == 1 and optimizer.gap() == 0
    assert math.isfinite(optimizer.best().mean)


def test_fitted_hyperparameters():
    problem = Problem(num_arms=300, noise=1e-4, seed=2)
    optimizer = BatchedElimination(problem.arms, budget=90, seed=0)
    assert optimizer.width_now == 2.0
    play(optimizer, problem)
    simple = problem.f.max() - problem.f[optimizer.best().index]
    assert simple < 0.05 * (problem.f.max() - problem.f.mean())
    assert len(optimizer.survivors) < 100


def test_rewards_in_other_units_eliminate_the_same_arms():
    problem = Problem(num_arms=100, noise=1e-4)
    plain, scaled = (BatchedElimination(problem.arms, budget=60, seed=0) for _ in range(2))
    for _ in range(2):
        a, b = plain.ask(), scaled.ask()
        assert a.indices.tolist() == b.indices.tolist()
        plain.tell(a, problem.f[a.indices])
        scaled.tell(b, 3e8 + 1e6 * problem.f[b.indices])
    assert plain.survivors.tolist() == scaled.survivors.tolist()
    assert plain.best().index == scaled.best().index
    assert scaled.gap() == pytest.approx(1e6 * plain.gap(), rel=1e-4)


def test_noise_variances_of_results():
    problem = Problem(norm=6.0, noise=0.02)
    one, two = make(problem, (30,)), make(problem, (30,))
    a, b = one.ask(), two.ask()
    one.tell(a, problem.f[a.indices])
    two.tell(b, problem.f[b.indices], [2.0] * 30)
    assert two.gap() > one.gap()


def test_single_precision():
    problem = Problem(norm=6.0, noise=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        narrow = BatchedElimination(
            problem.arms.float(), batch_sizes=(30, 30), **problem.options(covar_module=kernel())
        )
    wide = make(problem, (30, 30))
    for optimizer in (narrow, wide):
        for _ in range(2):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, problem.f[suggestion.indices])
    assert narrow.best().X.dtype == torch.float32 and narrow.best().index == wide.best().index
    assert narrow.gap() == pytest.approx(wide.gap(), rel=0.05)


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("when", [0, 3, 20, 27, 40])
def test_a_run_saved_and_resumed_goes_on_bit_for_bit(when, fitted):
    problem = Problem(norm=6.0, noise=0.02)
    model = {"covar_module": None, "noise_var": None} if fitted else {}

    def new():
        return make(problem, (20, 20, 20), **model)

    def on(optimizer, start, stop):
        picks = []
        for i in range(start, stop):
            try:
                suggestion = optimizer.ask(at_most=1)
            except FinishedError:
                break
            picks += suggestion.indices.tolist()
            if i % 3:
                optimizer.tell(suggestion, problem.f[suggestion.indices])
            if i % 20 == 19:
                optimizer.tell(optimizer.pending, problem.f[optimizer.pending.indices])
        return picks

    whole, first, second = new(), new(), new()
    on(whole, 0, when)
    on(first, 0, when)
    second.load_state_dict(first.state_dict())
    assert on(whole, when, 60) == on(second, when, 60)
    assert whole.survivors.tolist() == second.survivors.tolist()
    assert whole.gap() == second.gap() and whole.best().mean == second.best().mean


def test_a_run_with_a_journal(tmp_path):
    problem = Problem(norm=6.0, noise=0.02)
    f = lambda rows: problem.f[rows]  # noqa: E731
    options = {"progress": False, "by_index": True}
    result = run(make(problem), f, 500, **options)
    assert result.stopped.startswith("finished: All 3 batches") and len(result.Y) == 60
    path = tmp_path / "run.journal"
    part = run(make(problem), f, 33, journal=path, **options)
    assert part.stopped == "budget spent"
    again = resume(path, f, budget=500, progress=False)
    assert torch.equal(again.X, result.X) and again.stopped == result.stopped
    assert again.optimizer.survivors.tolist() == result.optimizer.survivors.tolist()


def test_flat_arguments_are_a_shorthand_for_parts():
    problem = Problem(norm=6.0, noise=0.02)
    flat = make(problem)
    composed = Optimizer(
        Arms(problem.arms),
        model=Surrogate(kernel(), 0.02),
        dictionary=AllPoints(),
        confidence=Confidence("theory", norm_bound=6.0),
        batch=Elimination((20, 20, 20)),
        acquisition=PureExploration(),
        seed=0,
    )
    for _ in range(3):
        a, b = flat.ask(), composed.ask()
        assert a.indices.tolist() == b.indices.tolist()
        flat.tell(a, problem.f[a.indices])
        composed.tell(b, problem.f[b.indices])
    assert flat.gap() == composed.gap()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "budget must be given, got None"),
        ({"budget": 0}, "budget must be a positive integer"),
        ({"budget": 2.5}, "budget must be a positive integer"),
        ({"budget": 9, "num_batches": 0}, "num_batches must be a positive integer"),
        ({"budget": 9, "batch_sizes": (3, 3)}, "no effect beside batch_sizes"),
        ({"batch_sizes": ()}, "list of positive integers, got \\(\\)"),
        ({"batch_sizes": (3, 0)}, "size of a batch must be a positive integer"),
        ({"batch_sizes": (3, None)}, "size of a batch must be a positive integer"),
        ({"batch_sizes": 96}, "list of positive integers, got 96"),
        ({"budget": 9, "batch_sizes": "doubling"}, 'must be "equal", "growing"'),
        ({"budget": 9, "delta": 0.01}, "delta has no effect"),
        ({"budget": 9, "width": "wide"}, "width must be"),
    ],
    ids=str,
)
def test_wrong_arguments(options, match):
    with pytest.raises(InputDataError, match=match):
        BatchedElimination(torch.eye(5, dtype=torch.float64), **options)


def test_only_arms_are_eliminated_and_only_by_exploration():
    rule = Elimination((3, 3))
    with pytest.raises(InputDataError, match="Only arms can be eliminated, got a Box"):
        Optimizer(Box(BOUNDS), batch=rule, acquisition=PureExploration())
    with pytest.raises(InputDataError, match=r"pass PureExploration\(\)"):
        Optimizer(Arms(torch.eye(5, dtype=torch.float64)), batch=rule)
    with pytest.raises(UnsupportedError, match="BBKB eliminates no arms"):
        BBKB(torch.eye(5, dtype=torch.float64)).survivors  # noqa: B018
    with pytest.raises(UnsupportedError, match="cannot be exchanged"):
        BatchedElimination(torch.eye(5, dtype=torch.float64), budget=9).set_arms(
            torch.eye(5, dtype=torch.float64)
        )


def test_bad_results_leave_everything_as_it_was():
    problem = Problem()
    optimizer = make(problem)
    suggestion = optimizer.ask()
    for Y in ([math.nan] * 20, [1.0] * 3, "rewards"):
        with pytest.raises(BotorchError, match="Y must"):
            optimizer.tell(suggestion, Y)
    assert len(optimizer.pending) == 20 and optimizer.num_observations == 0
    optimizer.tell(suggestion, problem.f[suggestion.indices])
    with pytest.raises(InputDataError, match="are not pending"):
        optimizer.tell(suggestion, problem.f[suggestion.indices])
    assert optimizer.num_observations == 20


def test_a_linear_kernel_and_more_points_than_dimensions():
    arms = torch.linspace(-1, 1, 21, dtype=torch.float64).unsqueeze(-1)
    optimizer = BatchedElimination(
        arms, batch_sizes=(30, 30), covar_module=LinearKernel(), noise_var=0.01, norm_bound=5.0,
        distinct=False,
    )  # fmt: skip
    suggestion = optimizer.ask()
    assert set(suggestion.indices.tolist()) <= {0, 20}  # both ends teach most, and equally much
    optimizer.tell(suggestion, 2 * suggestion.X)
    assert 10 not in optimizer.survivors.tolist() and optimizer.best().index == 20


def test_huge_rewards():
    problem = Problem()
    optimizer = BatchedElimination(problem.arms, budget=30, seed=0)
    for _ in range(2):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, 1e140 * problem.f[suggestion.indices])
    assert problem.f[optimizer.best().index] > 0.5 * problem.f.max()


def test_batches_that_contradict_each_other_leave_an_interval():
    problem = Problem()
    optimizer = make(problem, sizes=(5, 5))
    for level in (0.0, 1e6):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, torch.full((5,), level))
    best = optimizer.best()
    assert best.lower < 10 < 1e5 < best.upper and best.lower <= best.mean <= best.upper
