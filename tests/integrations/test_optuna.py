r"""``BKBSampler``: the algorithms inside Optuna."""

import math
import pickle

import pytest
import torch

pytest.importorskip("optuna")

import optuna
from botorch.exceptions.errors import InputDataError, UnsupportedError
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from botorch_bkb import BBKB, BKB, InformationThreshold
from botorch_bkb.optuna import BKBSampler

optuna.logging.set_verbosity(optuna.logging.WARNING)

QUICK = {"acquisition_options": {"num_restarts": 2, "raw_samples": 16}}
X = {"x": FloatDistribution(-1.0, 2.0), "y": FloatDistribution(0.0, 1.0)}
BOUNDS = torch.tensor([[-1.0, 0.0], [2.0, 1.0]], dtype=torch.float64)


def bowl(p):
    return (p["x"] - 0.3) ** 2 + (p["y"] - 0.5) ** 2


def objective(trial):
    return bowl({"x": trial.suggest_float("x", -1, 2), "y": trial.suggest_float("y", 0, 1)})


def make_study(algorithm="BBKB", direction="minimize", **options):
    sampler = BKBSampler(algorithm, **{"seed": 0, **QUICK, **options})
    return optuna.create_study(sampler=sampler, direction=direction)


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1), ("maximize", -1)])
def test_sampler_asks_what_the_bare_optimizer_asks(direction, sign):
    study = make_study(direction=direction, search_space=X)
    study.optimize(lambda trial: sign * objective(trial), n_trials=9)
    optimizer = BBKB(bounds=BOUNDS, seed=0, **QUICK)
    for trial in study.trials:
        suggestion = optimizer.ask(at_most=1)
        assert suggestion.X.tolist() == [[trial.params["x"], trial.params["y"]]]
        optimizer.tell(suggestion, [-bowl(trial.params)])


def test_sampler_finds_the_optimum():
    study = make_study()
    study.optimize(objective, n_trials=16)
    assert study.best_value < 0.01


def test_all_kinds_of_parameters():
    def mixed(trial):
        rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
        half = trial.suggest_float("half", 0.0, 2.0, step=0.5)
        width = trial.suggest_int("width", 8, 4096, log=True)
        even = trial.suggest_int("even", 2, 8, step=2)
        kind = trial.suggest_categorical("kind", ["a", None, 3])
        trial.suggest_float("fixed", 1.0, 1.0)
        assert half in (0, 0.5, 1, 1.5, 2) and even in (2, 4, 6, 8) and kind in ("a", None, 3)
        assert 1e-4 <= rate <= 1 and isinstance(width, int) and 8 <= width <= 4096
        return (math.log10(rate) + 2) ** 2 + half + abs(even - 4) + (kind is not None)

    study = make_study(num_initial=4)
    study.optimize(mixed, n_trials=7)
    assert study.sampler.optimizer.num_observations == 6
    assert len(study.sampler.optimizer.dictionary[0]) == 5


def test_failed_and_pruned_trials_are_given_up():
    study = make_study("BKB", search_space=X, num_initial=1)
    study.tell(study.ask(X), state=TrialState.FAIL)
    study.tell(study.ask(X), state=TrialState.PRUNED)
    study.ask(X)
    optimizer = study.sampler.optimizer
    assert optimizer.num_observations == 0 and optimizer.pending.ids == (2,)


def test_trials_of_the_study_are_told():
    points = [{"x": 0.1 * i, "y": 0.2} for i in range(4)]
    study = make_study("BKB", num_initial=4)
    for p in points:
        study.add_trial(create_trial(params=p, distributions=X, value=bowl(p)))
    asked = study.ask(X).params
    optimizer = BKB(bounds=BOUNDS, seed=0, num_initial=4, **QUICK)
    rows = torch.tensor([[p["x"], p["y"]] for p in points], dtype=torch.float64)
    optimizer.tell(rows, [-bowl(p) for p in points])
    assert optimizer.ask(at_most=1).X.tolist() == [[asked["x"], asked["y"]]]


def test_enqueued_points_are_told_where_they_were_evaluated():
    study = make_study("BKB", search_space=X, num_initial=1)
    study.enqueue_trial({"x": 0.25, "y": 0.75})
    study.optimize(objective, n_trials=1)
    study.ask(X)
    assert study.sampler.optimizer.best().X.tolist() == [0.25, 0.75]


def test_a_closed_batch_is_exceeded():
    study = make_study("BKB", search_space=X, num_initial=1)
    first, second = study.ask(X), study.ask(X)
    assert len(study.sampler.optimizer.pending) == 2
    assert first.params != second.params
    study.tell(first, bowl(first.params))
    study.tell(second, bowl(second.params))
    study.ask(X)
    assert study.sampler.optimizer.num_observations == 2


def test_two_trials_of_one_point_count_twice():
    study = make_study("BKB", search_space=X, num_initial=1)
    first = study.ask(X)
    study.add_trial(create_trial(params=first.params, distributions=X, value=1.0))
    study.ask(X)
    study.tell(first, 1.0)
    study.ask(X)
    assert study.sampler.optimizer.num_observations == 2


def test_conditional_parameters_are_random_and_the_rest_is_not():
    def conditional(trial):
        kind = trial.suggest_categorical("kind", ["a", "b"])
        x = trial.suggest_float("x" if trial.number % 2 else "z", 0, 1)
        return x + (kind == "a")

    study = make_study(num_initial=3)
    study.optimize(conditional, n_trials=6)
    assert study.sampler._space.dimensions[0].name == "kind"
    assert len(study.sampler._space.dimensions) == 1
    assert study.sampler.optimizer.num_observations == 5


def test_threads_share_a_sampler():
    study = make_study(search_space=X, num_initial=6)
    study.optimize(objective, n_trials=8, n_jobs=2)
    assert len(study.trials) == 8


def test_several_objectives_are_refused():
    study = optuna.create_study(sampler=BKBSampler(search_space=X), directions=["minimize"] * 2)
    with pytest.raises(ValueError, match="multi-objective"):
        study.ask(X)


def test_wrong_arguments_are_refused():
    with pytest.raises(InputDataError, match="algorithm must be one of"):
        BKBSampler("Nothing")
    with pytest.raises(UnsupportedError, match="evaluates every trial"):
        BKBSampler("CompressedEI", on_uninformative="skip")
    for treatment in ("skip", "stop"):
        rule = InformationThreshold(0.1, on_uninformative=treatment)
        with pytest.raises(UnsupportedError, match=f"evaluates every trial.*{treatment}"):
            BKBSampler("BKB", dictionary=rule)
    study = make_study(
        "AdaBKB", search_space={"k": IntDistribution(1, 3)}, acquisition_options=None
    )
    with pytest.raises(UnsupportedError, match="takes neither discrete"):
        study.ask({"k": IntDistribution(1, 3)})
    assert BKBSampler(search_space={"c": CategoricalDistribution([1, 2])}).optimizer is None


def test_a_huge_value_is_left_out_and_nothing_else():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(square, n_trials=8)
    huge = optuna.trial.create_trial(
        params={"x": 0.5}, distributions={"x": FloatDistribution(0, 1)}, value=1e200
    )
    study.add_trial(huge)
    study.sampler = BKBSampler("BBKB", seed=0)
    study.optimize(square, n_trials=1)
    assert study.sampler.optimizer.num_observations == 8


@pytest.mark.parametrize("grid", [(0, 0.3, 0.1), (0, 0.7, 0.1), (0.1, 0.9, 0.1), (0, 0.35, 0.05)])
def test_steps_end_at_the_upper_end(grid):
    low, high, step = grid
    study = optuna.create_study(sampler=BKBSampler("BBKB", seed=0), direction="maximize")
    study.optimize(lambda t: t.suggest_float("x", low, high, step=step), n_trials=5)
    assert all(low <= t.params["x"] <= high for t in study.trials)


def test_a_sampler_begins_anew_with_another_study():
    sampler = BKBSampler("BBKB", search_space={"x": FloatDistribution(0, 1)}, seed=0)
    optuna.create_study(sampler=sampler).optimize(square, n_trials=5)
    second = optuna.create_study(sampler=sampler, direction="maximize")
    second.optimize(square, n_trials=6)
    assert sampler.optimizer.num_observations == 5
    assert max(t.params["x"] for t in second.trials) > 0.7


def test_a_sampler_can_be_pickled_in_the_middle():
    study = optuna.create_study(sampler=BKBSampler("BBKB", seed=0))
    study.optimize(square, n_trials=6)
    study.sampler = pickle.loads(pickle.dumps(study.sampler))
    study.optimize(square, n_trials=2)
    assert study.sampler.optimizer.num_observations >= 6


def square(trial):
    return (trial.suggest_float("x", 0, 1) - 0.3) ** 2
