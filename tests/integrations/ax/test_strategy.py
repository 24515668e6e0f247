r"""``dtcgp_generation_strategy``: Ax's own generator with our model."""

import json
from dataclasses import is_dataclass

import pytest
import torch

pytest.importorskip("ax")

from ax.api.client import Client
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction

from botorch_bkb import (
    DTCGP,
    AllPoints,
    Automatic,
    InformationThreshold,
    QuadratureFeatures,
    RandomFeatures,
    RandomlyPivotedCholesky,
    RidgeLeverageSampling,
)
from botorch_bkb.ax import SmallBaselineAcquisition, dtcgp_generation_strategy
from botorch_bkb.dictionaries import DictionaryRule, FromAllocator
from tests.integrations.ax.helpers import KIND, X, Y, bowl, complete, work

QUICK = {"model_gen_options": {"optimizer_kwargs": {"num_restarts": 2, "raw_samples": 16}}}


def make_client(objective="-loss", constraints=None, parameters=(X, Y), **options):
    client = Client(random_seed=0)
    client.configure_experiment(parameters=list(parameters))
    client.configure_optimization(objective=objective, outcome_constraints=constraints)
    strategy = dtcgp_generation_strategy(generator_gen_kwargs=QUICK, seed=0, **options)
    client.set_generation_strategy(strategy)
    return client


def observe(client, n, metrics=("loss",)):
    for x, y in torch.rand(n, 2).tolist():
        point = {"x": 3 * x - 1, "y": y}
        index = client.attach_trial(point)
        noise = 0.1 * torch.randn(()).item()
        client.complete_trial(index, {metric: bowl(point) + noise for metric in metrics})


@pytest.fixture
def baselines(monkeypatch):
    r"""The baselines of all acquisition functions made."""
    seen = []
    original = qLogNoisyExpectedImprovement.__init__

    def spy(self, *args, X_baseline, **kwargs):
        seen.append(X_baseline)
        original(self, *args, X_baseline=X_baseline, **kwargs)

    monkeypatch.setattr(qLogNoisyExpectedImprovement, "__init__", spy)
    return seen


def surrogate_of(client):
    return client._generation_strategy.adapter.generator.surrogate


def test_sobol_comes_first_and_then_the_model():
    client = make_client(num_initialization_trials=4)
    work(client, 7)
    trials = client._experiment.trials.values()
    nodes = [trial.generator_run._generation_node_name for trial in trials]
    assert nodes == 4 * ["Sobol"] + 3 * ["DTCGP"]
    assert type(surrogate_of(client).model) is DTCGP


def test_the_baseline_is_small_and_has_the_best_points(baselines):
    client = make_client(max_baseline=10, dictionary=RidgeLeverageSampling(2.0))
    observe(client, 60)
    client.get_next_trials(1)
    (baseline,) = baselines
    assert len(baseline) <= 10 and len(surrogate_of(client).model.dictionary_indices) < 60
    model = surrogate_of(client).model
    (inputs,) = surrogate_of(client).Xs
    best = model.posterior(inputs).mean.argmin()  # the loss is minimised
    assert (baseline == inputs[best]).all(-1).any()


def test_few_observations_are_all_in_the_baseline(baselines):
    client = make_client(max_baseline=10)
    observe(client, 8)
    client.get_next_trials(1)
    assert len(baselines[0]) == 8


def test_with_outcome_constraints_the_baseline_is_whole(baselines):
    client = make_client(constraints=["weight <= 9"], max_baseline=10)
    observe(client, 20, ("loss", "weight"))
    client.get_next_trials(1)
    assert len(baselines[0]) == 20


def test_choices_work():
    client = make_client(parameters=(X, KIND), num_initialization_trials=3)
    assert {p["kind"] for p in work(client, 4)} <= {"a", "b", "c"}


def test_several_objectives_work():
    client = make_client("-loss, -weight", num_initialization_trials=3)
    for _ in range(4):
        for index, p in client.get_next_trials(1).items():
            client.complete_trial(index, {"loss": bowl(p), "weight": p["x"] ** 2})
    assert client.get_pareto_frontier()


RULES = [
    AllPoints(max_size=7),
    Automatic(exact_up_to=9, sampling=RandomlyPivotedCholesky(4)),
    FromAllocator(GreedyVarianceReduction(), size=5),
    InformationThreshold(0.1),
    QuadratureFeatures(6),
    RandomFeatures(20, seed=3),
    RandomlyPivotedCholesky(5),
    RidgeLeverageSampling(3.0, max_size=8),
]


def rules_of(base):
    for rule in base.__subclasses__():
        yield from ([rule] if is_dataclass(rule) else rules_of(rule))


def test_every_dictionary_rule_of_the_package_is_tried():
    named = {rule for rule in rules_of(DictionaryRule) if rule.__module__.startswith("botorch_bkb")}
    assert named == {type(rule) for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_dictionary_rules_survive_json(rule):
    saved = json.loads(json.dumps(object_to_json(dtcgp_generation_strategy(dictionary=rule))))
    again = object_from_json(saved)
    (spec,) = again.nodes_by_name["DTCGP"].generator_specs
    (config,) = spec.generator_kwargs["surrogate_spec"].model_configs
    loaded = config.model_options["dictionary"]
    assert type(loaded) is type(rule)
    if isinstance(rule, FromAllocator):  # allocators do not compare
        assert (type(loaded.allocator), loaded.size) == (type(rule.allocator), rule.size)
    else:
        assert loaded == rule


def test_the_strategy_resumes_from_json(tmp_path):
    client = make_client(max_baseline=3, dictionary=RidgeLeverageSampling(2.0))
    work(client, 6)
    path = str(tmp_path / "client.json")
    client.save_to_json_file(path)
    again = Client.load_from_json_file(path)
    complete(again, again.get_next_trials(1))
    generator = again._generation_strategy.adapter.generator
    assert generator.acquisition_class is SmallBaselineAcquisition
    assert generator.acquisition_options == {"max_baseline": 3}
    assert surrogate_of(again).model._rule == RidgeLeverageSampling(2.0)
