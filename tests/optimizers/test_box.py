r"""Optimisation over a box, with BoTorch's optimizers inside."""

from __future__ import annotations

import io
import math

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, qUpperConfidenceBound
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError, UnsupportedError
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import RBFKernel

from botorch_bkb import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    BatchCompleteError,
    CompressedEI,
    CompressedMPI,
    CompressedUCB,
    ConvergedError,
    EpsilonGreedy,
)
from botorch_bkb.batches import BeliefModels
from botorch_bkb.domains.search import Search
from botorch_bkb.encoding import encode
from botorch_bkb.units import UnitCube
from tests.domains.support import BOUNDS, FAST, f, noisy, play
from tests.optimizers.inside import inputs_of, state_of


@pytest.mark.parametrize(
    "algorithm", [GPUCB, BKB, BBKB, GPBUCB, CompressedUCB, CompressedEI, CompressedMPI]
)
def test_a_known_optimum_is_found(algorithm):
    optimizer = algorithm(bounds=BOUNDS, seed=0, acquisition_options=FAST)
    for suggestion in play(optimizer, 30):
        assert suggestion.indices is None
        assert (BOUNDS[0] <= suggestion.X).all() and (BOUNDS[1] >= suggestion.X).all()
    best = optimizer.best()
    assert best.index is None and float(f(best.X.unsqueeze(0))) > -0.02
    assert best.lower <= best.mean <= best.upper
    assert 0 <= optimizer.gap() < 1


def test_the_initial_design_is_a_scrambled_sobol_sequence():
    optimizer = BKB(bounds=BOUNDS, seed=3, num_initial=5)
    seed = optimizer.state_dict()["in_flight"]["design_seed"]
    expected = draw_sobol_samples(BOUNDS, n=5, q=1, seed=seed).squeeze(1)
    first, second = optimizer.ask(at_most=2), optimizer.ask()
    torch.testing.assert_close(torch.cat([first.X, second.X]), expected)
    optimizer.tell(first, f(first.X))
    with pytest.raises(BatchCompleteError):  # the rest is pending
        optimizer.ask()
    assert len(GPUCB(bounds=BOUNDS, seed=0).ask()) == 6


def test_a_design_is_handed_out_once():
    optimizer = BKB(bounds=BOUNDS, seed=0)
    optimizer.ask()
    with pytest.raises(BatchCompleteError):
        optimizer.ask()
    assert len(optimizer.pending.X.unique(dim=0)) == 6


def test_results_of_ones_own_replace_the_design():
    optimizer = GPUCB(bounds=BOUNDS, seed=0, acquisition_options=FAST)
    X = draw_sobol_samples(BOUNDS, n=10, q=1, seed=1).squeeze(1)
    optimizer.tell(X, f(X))
    assert len(optimizer.ask()) == 1 and optimizer.state_dict()["in_flight"]["designed"] == 0


def test_the_model_of_the_search_is_the_model_of_the_user():
    for options in ({}, {"covar_module": RBFKernel(), "noise_var": 0.01}):
        optimizer = GPUCB(bounds=BOUNDS, seed=0, acquisition_options=FAST, **options)
        for _ in play(optimizer, 9):
            pass
        X = draw_sobol_samples(BOUNDS, n=7, q=1, seed=1).squeeze(1)
        ours = optimizer.model.posterior(X)
        state = state_of(optimizer)
        unit = BeliefModels(optimizer.domain.index.X).in_rewards(state, UnitCube(BOUNDS))
        theirs = unit.posterior((X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0]))
        torch.testing.assert_close(ours.mean, theirs.mean)
        torch.testing.assert_close(ours.variance, theirs.variance)
        rows, units = optimizer.history.rows, state.hyper.units
        at_data = optimizer.model.posterior(inputs_of(optimizer, rows))
        mean, var = (t[rows] for t in optimizer.table.moments())
        mean, var = units.to_rewards(mean), units.variance_to_rewards(var)
        torch.testing.assert_close(at_data.mean.squeeze(-1), mean, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(at_data.variance.squeeze(-1), var, atol=1e-6, rtol=1e-6)


def test_picks_of_a_batch_differ_and_variances_fall():
    optimizer = GPBUCB(bounds=BOUNDS, seed=0, batch_threshold=1e30, max_batch_size=5,
                       acquisition_options=FAST)  # fmt: skip
    first = optimizer.ask()
    optimizer.tell(first, f(first.X))
    batch = optimizer.ask()
    assert len(batch) == 5
    assert torch.cdist(batch.X, batch.X).fill_diagonal_(1).min() > 1e-6


def test_a_factory_of_acquisition_functions():
    def make(model):
        return LogExpectedImprovement(model, best_f=0.0)

    optimizer = GPUCB(bounds=BOUNDS, seed=0, acquisition=make, acquisition_options=FAST)
    for _ in play(optimizer, 8):
        pass
    assert optimizer.num_observations == 8


def test_stopping_on_a_box():
    optimizer = CompressedUCB(
        bounds=BOUNDS, epsilon=0.3, on_uninformative="stop", seed=0, acquisition_options=FAST
    )
    with pytest.raises(ConvergedError) as caught:
        for _ in play(optimizer, 200):
            pass
    assert math.isfinite(caught.value.convergence.gap)


def test_the_papers_width_over_a_box_grows_with_time():
    optimizer = CompressedUCB(bounds=BOUNDS, width="paper", seed=0)
    early = optimizer.width_now
    first = optimizer.ask()
    optimizer.tell(first, f(first.X))
    assert optimizer.width_now > early > 1


CASES = [
    (BKB, {}),
    (BBKB, {"batch_threshold": 20.0, "max_batch_size": 4}),
    (CompressedUCB, {"epsilon": 0.3}),
    (CompressedEI, {"epsilon": 0.3, "discard": False}),
    (GPUCB, {"covar_module": RBFKernel(), "noise_var": 0.01}),
]


@pytest.mark.parametrize(("algorithm", "options"), CASES, ids=str)
@pytest.mark.parametrize("when", [0, 1, 4])
def test_a_run_saved_and_resumed_goes_on_bit_for_bit(algorithm, options, when):
    def make():
        return algorithm(bounds=BOUNDS, seed=0, acquisition_options=FAST, **options)

    def steps(optimizer, n, start):
        out = []
        for i in range(n):
            try:
                suggestion = optimizer.ask(at_most=2)
            except BatchCompleteError:
                optimizer.tell(optimizer.pending, f(optimizer.pending.X))
                suggestion = optimizer.ask(at_most=2)
            out.append(suggestion.X)
            to_do = suggestion[suggestion.informative]
            to_do = to_do[:1] if i % 3 == 1 else to_do
            optimizer.tell(to_do, f(to_do.X) + 0.01 * (start + i))
            if i % 3 != 1:
                optimizer.tell(optimizer.pending, f(optimizer.pending.X))
        return torch.cat(out) if out else None

    whole, first, second = make(), make(), make()
    for o in (whole, first):
        steps(o, when, 0)
        if when == 4:
            o.ask(at_most=1)  # the middle of a batch
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    for o in (whole, second):
        o.tell(o.pending, f(o.pending.X))
    assert torch.equal(steps(whole, 4, when), steps(second, 4, when))
    for ours, theirs in zip(whole.table.moments(), second.table.moments(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("bounds", "error", "match"),
    [
        (torch.zeros(2, 3), InputDataError, "below upper"),
        (torch.tensor([[1.0], [0.0]]), InputDataError, "below upper"),
        (torch.tensor([[0.0], [math.nan]]), InputDataError, "finite"),
        (torch.tensor([[0.0], [math.inf]]), InputDataError, "finite"),
        (torch.rand(3, 2), BotorchTensorDimensionError, "2 x d"),
        ([[0.0], [1.0]], BotorchTensorDimensionError, "2 x d"),
        (torch.tensor([[0], [1]]), InputDataError, "floating"),
    ],
)
def test_bad_bounds(bounds, error, match):
    with pytest.raises(error, match=match):
        BKB(bounds=bounds)


def test_arms_or_bounds_and_not_both():
    with pytest.raises(InputDataError, match="neither"):
        BKB()
    with pytest.raises(InputDataError, match="both"):
        BKB(BOUNDS, bounds=BOUNDS)
    with pytest.raises(InputDataError, match="bounds, not arms"):
        BKB(BOUNDS, discrete_dims={0: [0.0]})


def test_a_box_has_no_arms():
    optimizer = BKB(bounds=BOUNDS, seed=0)
    with pytest.raises(UnsupportedError, match="no arms"):
        optimizer.set_arms(BOUNDS)
    assert len(optimizer.dictionary) == 0


@pytest.mark.parametrize("points", [[[0.5, 11.0]], [[0.5]], [0.5, 1.0], [[math.nan, 0.0]], "no"])
def test_bad_points_leave_everything_as_it_was(points):
    optimizer = BKB(bounds=BOUNDS, seed=0)
    before = encode(optimizer.state_dict())
    with pytest.raises((InputDataError, BotorchTensorDimensionError)):
        optimizer.tell(points, [1.0])
    assert encode(optimizer.state_dict()) == before


@pytest.mark.parametrize("dim", [1, 6])
def test_dimensions_and_float32(dim):
    bounds = torch.tensor([[-1.0], [1.0]]).expand(2, dim)
    optimizer = BBKB(bounds=bounds, seed=0, acquisition_options=FAST)
    for _ in range(3):
        suggestion = optimizer.ask()
        assert suggestion.X.dtype == torch.float32
        optimizer.tell(suggestion, -suggestion.X.square().sum(-1))
    assert math.isfinite(optimizer.best().mean)


def test_a_constant_function():
    optimizer = CompressedEI(bounds=BOUNDS, seed=0, acquisition_options=FAST)
    for _ in range(4):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, torch.full((len(suggestion),), 7.0))
    assert optimizer.best().mean == pytest.approx(7.0, abs=1e-6)


@pytest.mark.parametrize(
    "acquisition",
    [
        "thompson",
        "pi",
        LogExpectedImprovement,
        qLogNoisyExpectedImprovement,
        lambda model: qUpperConfidenceBound(model, beta=4.0),
    ],
    ids=["thompson", "pi", "LogEI", "qLogNEI", "qUCB"],
)
def test_other_acquisition_functions(acquisition):
    optimizer = BKB(bounds=BOUNDS, seed=0, acquisition=acquisition, acquisition_options=FAST)
    for _ in play(optimizer, 25):
        pass
    assert float(f(optimizer.best().X.unsqueeze(0))) > -0.1


def test_epsilon_greedy():
    optimizer = EpsilonGreedy(bounds=BOUNDS, probability=1.0, seed=0, batch_threshold=1e9,
                              max_batch_size=6)  # fmt: skip
    first = optimizer.ask()
    optimizer.tell(first, f(first.X))
    random = optimizer.ask()
    assert random.X.std(0)[1] > 1  # all over the box
    greedy = EpsilonGreedy(bounds=BOUNDS, probability=0.0, seed=0, acquisition_options=FAST)
    first = greedy.ask()
    greedy.tell(first, f(first.X))
    X = greedy.ask(at_most=1).X
    mean = greedy.model.posterior(X).mean
    assert (mean >= greedy.model.posterior(first.X).mean - 1e-6).all()


def test_thompson_picks_differ_within_a_batch():
    optimizer = BBKB(bounds=BOUNDS, seed=0, acquisition="thompson", batch_threshold=1e6,
                     max_batch_size=4, acquisition_options=FAST)  # fmt: skip
    first = optimizer.ask()
    optimizer.tell(first, noisy(first.X, torch.Generator().manual_seed(0)))
    assert len(optimizer.ask().X.unique(dim=0)) == 4


def test_infinite_and_huge_rewards():
    optimizer = BKB(bounds=BOUNDS, seed=0, acquisition_options=FAST)
    first = optimizer.ask()
    before = encode(optimizer.state_dict())
    with pytest.raises(InputDataError, match="finite"):
        optimizer.tell(first, [math.inf] * len(first))
    assert encode(optimizer.state_dict()) == before
    optimizer.tell(first, 1e12 * f(first.X))
    assert len(optimizer.ask()) == 1


def test_an_interrupted_ask_leaves_nothing_behind(monkeypatch):
    def make():
        optimizer = BBKB(bounds=BOUNDS, seed=0, batch_threshold=1e6, max_batch_size=3,
                         acquisition_options=FAST)  # fmt: skip
        first = optimizer.ask()
        optimizer.tell(first, f(first.X))
        return optimizer

    interrupted, other = make(), make()
    maximise, calls = Search.maximise, []

    def interrupt(self, *args):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return maximise(self, *args)

    monkeypatch.setattr(Search, "maximise", interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupted.ask()
    monkeypatch.undo()
    assert torch.equal(interrupted.ask().X, other.ask().X)
    assert len(interrupted.table.X) == len(other.table.X)
