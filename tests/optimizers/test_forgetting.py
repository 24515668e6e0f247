r"""Rewards that drift: weights with a half-life, against the dense weighted posterior."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import RBFKernel

from botorch_bkb import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    AdaBBKB,
    AdaBKB,
    AllPoints,
    BatchCompleteError,
    BatchedElimination,
    InformationThreshold,
    MiniGPUCB,
    Optimizer,
    resume,
    run,
)
from botorch_bkb.domains import Arms
from botorch_bkb.models import Surrogate
from tests import naive
from tests.optimizers.inside import hyper_of, inputs_of
from tests.optimizers.support import Problem, kernel, takes
from tests.problems import rbf

BOUNDS = torch.tensor([[0.0, 0.0], [2.0, 2.0]], dtype=torch.float64)
QUICK = {"num_restarts": 1, "raw_samples": 8, "options": {"maxiter": 5}}
GIVEN = {"covar_module": kernel(), "noise_var": 0.1, "seed": 0}


class Diary:
    r"""Everything told to an optimizer, in order, and the dense belief that it makes."""

    def __init__(self, optimizer, half_life):
        self.optimizer, self.half_life = optimizer, half_life
        self.X, self.Y, self.noise = [], [], []

    def tell(self, points, Y, Yvar=None):
        X = points if isinstance(points, torch.Tensor) and points.dim() == 2 else None
        if X is None:
            X = points.X if hasattr(points, "X") else self.optimizer.arms[points]
        lam = self.optimizer.parts.model.noise_var
        self.X += list(X)
        self.Y += torch.as_tensor(Y, dtype=torch.float64).reshape(-1).tolist()
        self.noise += [lam] * len(X) if Yvar is None else list(Yvar)
        self.optimizer.tell(points, Y, Yvar)

    def weights(self):
        t = len(self.Y)
        powers = [2.0 ** max(-500.0, -(t - 1 - s) / self.half_life) for s in range(t)]
        return torch.tensor(powers, dtype=torch.float64)

    def moments(self, x):
        r"""The DTC posterior with noise ``v_s / w_s`` and the optimizer's dictionary."""
        X, S = torch.stack(self.X), self.optimizer.dictionary
        Y = torch.tensor(self.Y, dtype=torch.float64)
        noise = torch.tensor(self.noise, dtype=torch.float64) / self.weights()
        mean, cov = naive.dtc(rbf(S, S), rbf(X, S), rbf(x, S), rbf(x, x), Y, noise)
        return mean, cov.diagonal()

    def check(self, atol=1e-8):
        table = self.optimizer.table
        x = inputs_of(self.optimizer, torch.arange(len(table.X)))
        for ours, theirs in zip(table.moments(), self.moments(x), strict=True):
            torch.testing.assert_close(ours, theirs, atol=atol, rtol=0)


def f(X):
    return torch.sin(2 * X).sum(-1)


@pytest.mark.parametrize("half_life", [0.5, 3.0, 20.0, 1e4])
@pytest.mark.parametrize("algorithm", [BKB, BBKB, GPUCB, GPBUCB])
def test_the_table_is_the_dense_weighted_posterior_over_arms(algorithm, half_life):
    problem = Problem()
    options = problem.options(half_life=half_life)
    if takes(algorithm, "batch_threshold"):
        options["batch_threshold"] = 8.0
    optimizer = algorithm(problem.arms, **options)
    diary = Diary(optimizer, half_life)
    for step in range(25):
        suggestion = optimizer.ask(at_most=4)
        if step % 3 == 1 and len(suggestion) > 1:  # results in parts
            diary.tell(suggestion[:1], problem.rewards(suggestion[:1].indices))
            diary.check()
            suggestion = suggestion[1:]
        diary.tell(suggestion, problem.rewards(suggestion.indices))
        diary.check()
        if step % 7 == 2:  # unsolicited ones, with variances of their own, and not an arm
            rows = torch.tensor([3, 3, 8])
            diary.tell(rows, problem.rewards(rows), [0.05, 0.3, 2.0])
            diary.tell(torch.full((1, 2), 0.1 * step, dtype=torch.float64), [0.7])
            diary.check()
    assert optimizer.num_observations == len(diary.Y)


@pytest.mark.parametrize("algorithm", [BKB, BBKB, GPUCB])
def test_the_table_is_the_dense_weighted_posterior_over_a_box(algorithm):
    optimizer = algorithm(bounds=BOUNDS, half_life=5.0, acquisition_options=QUICK, **GIVEN)
    diary = Diary(optimizer, 5.0)
    for _ in range(12):
        suggestion = optimizer.ask(at_most=2)
        diary.tell(suggestion, f(suggestion.X))
        diary.check()
    X = BOUNDS[0] + torch.rand(20, 2, generator=torch.Generator().manual_seed(1)).double()
    posterior = optimizer.model.posterior(X)
    mean, var = diary.moments(X)
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-7, rtol=0)
    torch.testing.assert_close(posterior.variance.squeeze(-1), var, atol=1e-7, rtol=0)


@pytest.mark.parametrize("algorithm", [AdaBKB, AdaBBKB])
def test_the_table_is_the_dense_weighted_posterior_over_a_tree(algorithm):
    optimizer = algorithm(bounds=BOUNDS, half_life=5.0, **GIVEN)
    diary = Diary(optimizer, 5.0)
    for _ in range(20):
        suggestion = optimizer.ask(at_most=3)
        diary.tell(suggestion, f(suggestion.X))
        diary.check()
    assert len(optimizer.tree) > 10


@pytest.mark.parametrize("algorithm", [BKB, BBKB, GPUCB])
@pytest.mark.parametrize("half_life", [math.inf, 1e300])
def test_an_infinite_half_life_changes_nothing(algorithm, half_life):
    problem = Problem()
    never = algorithm(problem.arms, **problem.options())
    infinite = algorithm(problem.arms, **problem.options(half_life=half_life))
    for _ in range(30):
        a, b = never.ask(at_most=3), infinite.ask(at_most=3)
        assert a.indices.tolist() == b.indices.tolist()
        Y = problem.f[a.indices]
        never.tell(a, Y)
        infinite.tell(b, Y)
    for ours, theirs in zip(never.table.moments(), infinite.table.moments(), strict=True):
        assert torch.equal(ours, theirs)
    assert never.width_now == infinite.width_now
    saved, other = never.state_dict(), infinite.state_dict()
    assert torch.equal(saved["random"], other["random"]) and saved["believes"] == other["believes"]


def drifting_regret(steps, **options):
    r"""Mean regret in the last half of a run in which the best arm moves along a line."""
    arms = torch.linspace(0, 1, 80, dtype=torch.float64).unsqueeze(-1)
    narrow = RBFKernel().double()
    narrow.lengthscale = 0.1
    generator = torch.Generator().manual_seed(0)
    optimizer = BKB(arms, covar_module=narrow, noise_var=0.01, width=2.0, seed=0, **options)
    regrets = []
    for t in range(steps):
        values = torch.exp(-0.5 * ((arms.squeeze() - 0.1 - 0.8 * t / steps) / 0.1) ** 2)
        row = optimizer.ask().indices
        noise = 0.1 * torch.randn(1, generator=generator, dtype=torch.float64)
        optimizer.tell(row, values[row] + noise)
        regrets.append(float(values.max() - values[row]))
    best = abs(optimizer.best().X.item() - 0.9)
    return sum(regrets[steps // 2 :]) / (steps - steps // 2), best


def test_forgetting_tracks_an_optimum_that_moves():
    # The optimum moves by 0.8, eight of its widths, in 400 steps.
    forgetting, error = drifting_regret(400, half_life=20.0)
    remembering, far = drifting_regret(400)
    assert forgetting < 0.15 and error < 0.1
    assert remembering > 3 * forgetting and far > 2 * error


def test_the_recommendation_is_by_the_present_belief():
    arms = torch.tensor([[0.0], [10.0]], dtype=torch.float64)
    forgetting = GPUCB(arms, half_life=3.0, width=2.0, **GIVEN)
    remembering = GPUCB(arms, width=2.0, **GIVEN)
    for optimizer in (forgetting, remembering):
        optimizer.tell([0] * 50, [1.0] * 50)
        optimizer.tell([1] * 20, [0.5] * 20)
        optimizer.tell([0] * 10, [-1.0] * 10)
    assert remembering.best().index == 0 and forgetting.best().index == 1


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("algorithm", [BKB, BBKB, GPUCB])
@pytest.mark.parametrize("when", [0, 1, 7, 30])
def test_a_run_saved_and_resumed_goes_on_bit_for_bit(algorithm, when, fitted):
    problem = Problem()
    more = {"covar_module": None, "noise_var": None} if fitted else {}
    options = problem.options(half_life=4.0, **more)

    def steps(optimizer, start, stop):
        out = []
        for i in range(start, stop):
            try:
                suggestion = optimizer.ask(at_most=2)
            except BatchCompleteError:
                suggestion = optimizer.pending
            out.append(suggestion.indices.tolist())
            part = suggestion[:1] if i % 3 == 1 else suggestion
            optimizer.tell(part, problem.f[part.indices] + 0.1 * i)
            if i % 5 == 2:
                optimizer.tell(torch.full((1, 2), 0.1 * i, dtype=torch.float64), [0.5])
        return out

    whole, first, second = (algorithm(problem.arms, **options) for _ in range(3))
    steps(whole, 0, when)
    steps(first, 0, when)
    second.load_state_dict(first.state_dict())
    stop = when + 15
    assert steps(whole, when, stop) == steps(second, when, stop)
    for ours, theirs in zip(whole.table.moments(), second.table.moments(), strict=True):
        assert torch.equal(ours, theirs)
    assert whole.best().mean == second.best().mean and whole.width_now == second.width_now


def test_a_state_of_another_half_life_is_refused():
    problem = Problem()
    saved = BKB(problem.arms, **problem.options(half_life=4.0)).state_dict()
    for half_life in (None, 5.0):
        other = BKB(problem.arms, **problem.options(half_life=half_life))
        with pytest.raises(InputDataError, match="half-life of 4"):
            other.load_state_dict(saved)


def test_a_run_with_a_journal(tmp_path):
    problem = Problem()
    value = lambda rows: problem.f[rows]  # noqa: E731
    make = lambda: BKB(problem.arms, **problem.options(half_life=4.0))  # noqa: E731
    options = {"progress": False, "by_index": True}
    whole, path = run(make(), value, 25, **options), tmp_path / "run.journal"
    run(make(), value, 11, journal=path, **options)
    result = resume(path, value, budget=25, progress=False)
    assert torch.equal(result.X, whole.X)
    assert result.optimizer.parts.model.half_life == 4.0
    assert torch.equal(result.optimizer.table.mean(), whole.optimizer.table.mean())


def test_a_hundred_thousand_results_neither_overflow_nor_stay():
    problem = Problem(num_arms=500, d=6)
    optimizer = BKB(problem.arms, **problem.options(half_life=10.0))
    diary = Diary(optimizer, 10.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        rows = torch.randint(500, (10_000,), generator=generator)
        optimizer.tell(rows, Y := problem.rewards(rows))
        # Older results have weights below 2^-100.
        diary.X, diary.Y = list(problem.arms[rows[-1000:]]), Y[-1000:].tolist()
        diary.noise = [problem.noise] * 1000
        diary.check()
    assert optimizer.num_observations == 100_000
    assert len(optimizer.history.rows) < 400 and optimizer.history.forgotten > 80_000
    assert math.isfinite(optimizer.width_now) and len(optimizer.ask()) == 1


def test_extreme_half_lives():
    problem = Problem()
    for half_life in (1e-300, 1e-3, 1e15):
        optimizer = BKB(problem.arms, **problem.options(half_life=half_life))
        diary = Diary(optimizer, half_life)
        for _ in range(5):
            suggestion = optimizer.ask()
            diary.tell(suggestion, problem.rewards(suggestion.indices))
        diary.tell([3, 3, 9], [1.0, 2.0, 3.0])
        assert optimizer.table.mean().isfinite().all()
        diary.check()


@pytest.mark.parametrize("where", ["arms", "box"])
def test_what_is_dropped_changes_nothing(where):
    half_life, dropped = 2.0, 0
    if where == "arms":
        problem = Problem(num_arms=300)
        optimizer = GPUCB(problem.arms, **problem.options(half_life=half_life))
        X = problem.arms
    else:
        optimizer = GPUCB(bounds=BOUNDS, half_life=half_life, **GIVEN)
        X = 2 * torch.rand(300, 2, generator=torch.Generator().manual_seed(3)).double()
    diary = Diary(optimizer, half_life)
    for i in range(300):
        diary.tell(X[i : i + 1], f(X[i : i + 1]))
        if i % 20 == 19:
            dropped = max(dropped, optimizer.history.forgotten)
            x, seen = (
                inputs_of(optimizer, torch.arange(len(optimizer.table.X))),
                torch.stack(diary.X),
            )
            noise = 0.1 / diary.weights()
            Y = torch.tensor(diary.Y, dtype=torch.float64)
            # All that was ever told, in a dictionary of everything that is not quite forgotten.
            keep = diary.weights() > 1e-15
            mean, cov = naive.exact(
                rbf(seen[keep], seen[keep]), rbf(x, seen[keep]), rbf(x, x), Y[keep], noise[keep]
            )
            ours, var = optimizer.table.moments()
            torch.testing.assert_close(var, cov.diagonal(), atol=1e-8, rtol=0)
            torch.testing.assert_close(ours, mean, atol=1e-8, rtol=0)
    assert dropped > 150
    # Neither the history nor the table grows with the number of results.
    assert len(optimizer.history.rows) < 90
    if where == "box":
        assert len(optimizer.table.X) < 300


def test_rows_of_a_box_are_renumbered_while_points_are_pending():
    optimizer = BBKB(
        bounds=BOUNDS, half_life=0.5, batch_threshold=50.0, acquisition_options=QUICK, **GIVEN
    )
    X = 2 * torch.rand(150, 2, generator=torch.Generator().manual_seed(3)).double()
    optimizer.tell(X[:20], f(X[:20]))
    suggestion = optimizer.ask(at_most=3)
    for i in range(20, 150):
        optimizer.tell(X[i : i + 1], f(X[i : i + 1]))
    assert len(optimizer.table.X) < 150
    assert torch.equal(optimizer.pending.X, suggestion.X)
    optimizer.tell(suggestion, f(suggestion.X))
    assert len(optimizer.pending) == 0 and len(optimizer.ask()) >= 1
    assert optimizer.num_observations == 153


@pytest.mark.parametrize("noise", [None, 0.01])
def test_fits_use_the_decayed_weights(noise):
    # The first half has a large scale and much noise, the second is smooth with little noise.
    generator = torch.Generator().manual_seed(0)
    arms = torch.rand(150, 1, generator=generator, dtype=torch.float64)
    wild = 20 * torch.randn(150, generator=generator, dtype=torch.float64)
    smooth = torch.sin(4 * arms.squeeze())
    found = {}
    for half_life in (None, 8.0):
        optimizer = GPUCB(arms, half_life=half_life, noise_var=noise, seed=0)
        optimizer.tell(torch.arange(150), wild)
        optimizer.tell(torch.arange(150), smooth + 0.1 * wild / 20)
        found[half_life] = optimizer
    error = {h: float((o.table.mean() * hyper_of(o).units.scale + hyper_of(o).units.offset
                       - smooth).abs().mean()) for h, o in found.items()}  # fmt: skip
    assert error[8.0] < 0.2 < error[None]
    units = hyper_of(found[8.0]).units
    assert units.scale < 3 < hyper_of(found[None]).units.scale
    if noise is None:
        fitted = units.variance_to_rewards(hyper_of(found[8.0]).noise_var)
        assert 0.002 < fitted < 0.05  # 0.01


def test_hyperparameters_are_fitted_again_however_much_is_forgotten():
    problem = Problem(num_arms=200)
    optimizer = BKB(problem.arms, half_life=2.0, seed=0)
    scales = []
    for block in range(12):
        rows = torch.arange(30) + 10 * block
        optimizer.tell(rows, 10.0**block * problem.f[rows])
        scales.append(hyper_of(optimizer).units.scale)
    assert scales[-1] > 1e8 * scales[0]


def test_the_information_width_is_that_of_the_decayed_belief():
    problem = Problem()
    optimizer = GPUCB(
        problem.arms,
        **problem.options(half_life=5.0, width="information"),
    )
    widths = []
    for _ in range(120):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, problem.rewards(suggestion.indices))
        widths.append(optimizer.width_now)
    assert max(widths[60:]) < 1.3 * min(widths[60:])  # it does not grow with time
    gain = optimizer.table.log_determinant / 2
    assert optimizer.information_gain == pytest.approx(gain, rel=1e-12)


@pytest.mark.parametrize("half_life", [0, -1.0, math.nan, "long", True, [3.0]])
def test_wrong_half_lives(half_life):
    with pytest.raises(InputDataError, match="half_life must be a positive number"):
        BKB(BOUNDS, half_life=half_life)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: BKB(BOUNDS, **GIVEN, half_life=9, width="theory"), "does not change"),
        (
            lambda: BKB(BOUNDS, **GIVEN, half_life=9, norm_bound="double", width="information"),
            "larger norm",
        ),
        (lambda: BKB(BOUNDS, half_life=9, acquisition="ei"), "may be an old one"),
        (lambda: BKB(BOUNDS, half_life=9, acquisition="pi"), "may be an old one"),
        (lambda: BKB(BOUNDS, half_life=9, dictionary=InformationThreshold(0.1)), "count as time"),
        (
            lambda: Optimizer(
                Arms(BOUNDS),
                model=Surrogate(half_life=9.0),
                batch=BatchedElimination(BOUNDS, budget=9).parts.batch,
                acquisition=BatchedElimination(BOUNDS, budget=9).parts.acquisition,
            ),
            "may become the best",
        ),
    ],
)
def test_what_cannot_be_combined_is_refused(make, match):
    with pytest.raises(InputDataError, match=f"half_life=9 cannot be combined with .*{match}"):
        make()


def test_other_classes_say_where_it_belongs():
    with pytest.raises(TypeError, match="BKB, BBKB, GPUCB"):
        MiniGPUCB(BOUNDS, half_life=3.0)


@pytest.mark.filterwarnings("ignore:.* dictionary points were drawn")
@pytest.mark.parametrize("dictionary", [AllPoints(), AllPoints(max_size=5)])
def test_other_dictionaries(dictionary):
    problem = Problem()
    optimizer = BBKB(
        problem.arms,
        **problem.options(half_life=5.0, dictionary=dictionary),
    )
    diary = Diary(optimizer, 5.0)
    for _ in range(15):
        suggestion = optimizer.ask()
        diary.tell(suggestion, problem.rewards(suggestion.indices))
        diary.check()


def test_one_arm_and_duplicates():
    arms = torch.zeros(3, 2, dtype=torch.float64)
    optimizer = BKB(arms, half_life=2.0, **GIVEN)
    for i in range(200):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, [float(i)])
    assert optimizer.history.rows.tolist() == [0]
    w = 2.0 ** (-torch.arange(199, -1, -1).double() / 2)
    total = w.sum()
    expected = (w * torch.arange(200).double()).sum() / (total + 0.1)
    assert optimizer.table.mean()[0] == pytest.approx(float(expected), rel=1e-10)
    assert optimizer.table.variance()[0] == pytest.approx(0.1 / float(total + 0.1), rel=1e-8)


def test_given_up_points_and_refused_results_leave_the_clock_alone():
    problem = Problem()
    optimizer = BKB(problem.arms, **problem.options(half_life=3.0))
    diary = Diary(optimizer, 3.0)
    diary.tell([0, 1, 2], [1.0, 2.0, 3.0])
    optimizer.give_up(optimizer.ask())
    with pytest.raises(InputDataError):
        optimizer.tell([4], [math.nan])
    diary.check()
    diary.tell([5], [1.0])
    diary.check()


def test_exchanged_arms():
    problem, other = Problem(), Problem(seed=1)
    optimizer = BKB(problem.arms, **problem.options(half_life=4.0))
    diary = Diary(optimizer, 4.0)
    for step in range(60):
        suggestion = optimizer.ask()
        diary.tell(suggestion, f(suggestion.X))
        if step == 20:
            optimizer.set_arms(other.arms)
            diary.check()
    diary.check()


def test_single_precision():
    problem = Problem()
    with pytest.warns(InputDataWarning, match="Double precision"):
        narrow = BKB(problem.arms.float(), **problem.options(half_life=4.0))
    wide = BKB(problem.arms, **problem.options(half_life=4.0))
    rows = torch.arange(60).repeat(4)
    Y = problem.rewards(rows)
    for optimizer in (narrow, wide):
        optimizer.tell(rows, Y)
        optimizer.tell(rows[:5], Y[:5])
    S, ours, theirs = wide.table.dictionary, narrow.table.mean(), wide.table.mean()
    assert torch.equal(S, narrow.table.dictionary)
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=0)
