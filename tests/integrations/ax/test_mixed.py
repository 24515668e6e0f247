r"""The sparse models of categories, tasks and fidelities as surrogates of Ax."""

import pytest
import torch

pytest.importorskip("ax")

from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.search_space import SearchSpaceDigest
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import Surrogate, SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from botorch.utils.datasets import SupervisedDataset

import botorch_bkb.ax  # noqa: F401  registers the classes
from botorch_bkb import MixedDTCGP, MultiFidelityDTCGP, MultiTaskDTCGP, RidgeLeverageSampling

OPTIONS = {"dictionary": RidgeLeverageSampling(2.0), "trace_term": True}
KINDS = ["a", "b", "c"]


def spec(model_class):
    config = ModelConfig(botorch_model_class=model_class, model_options=OPTIONS)
    return SurrogateSpec(model_configs=[config])


def make_client():
    r"""A client that asks Sobol for six trials and then the mixed model."""
    quick = {"model_gen_options": {"optimizer_kwargs": {"num_restarts": 2, "raw_samples": 16}}}
    sobol = GeneratorSpec(Generators.SOBOL, {"seed": 0})
    model = GeneratorSpec(Generators.BO_MIXED, {"surrogate_spec": spec(MixedDTCGP)}, quick)
    after = MinTrials(threshold=6, transition_to="Model", use_all_trials_in_exp=True)
    nodes = [
        GenerationNode(name="Sobol", generator_specs=[sobol], transition_criteria=[after]),
        GenerationNode(name="Model", generator_specs=[model]),
    ]
    client = Client(random_seed=0)
    rate = RangeParameterConfig(name="rate", bounds=(0.0, 1.0), parameter_type="float")
    kind = ChoiceParameterConfig(name="kind", values=KINDS, parameter_type="str", is_ordered=False)
    client.configure_experiment(parameters=[rate, kind])
    client.configure_optimization(objective="-loss")
    client.set_generation_strategy(GenerationStrategy(name="Mixed", nodes=nodes))
    return client


def ask_and_tell(client, trials):
    for _ in range(trials):
        for index, p in client.get_next_trials(1).items():
            loss = (p["rate"] - 0.3) ** 2 + 0.2 * KINDS.index(p["kind"])
            client.complete_trial(index, raw_data={"loss": loss})
    return client._generation_strategy.adapter.generator.surrogate.model


def test_ax_asks_with_the_mixed_model():
    client = make_client()
    model = ask_and_tell(client, 10)
    assert type(model) is MixedDTCGP and model._rule == OPTIONS["dictionary"] and model._trace_term
    best, *_ = client.get_best_parameterization()
    assert best["kind"] == "a" and abs(best["rate"] - 0.3) < 0.3


def test_ax_resumes_the_mixed_model_from_json(tmp_path):
    client = make_client()
    ask_and_tell(client, 7)
    client.save_to_json_file(str(tmp_path / "client.json"))
    model = ask_and_tell(Client.load_from_json_file(str(tmp_path / "client.json")), 2)
    assert type(model) is MixedDTCGP and len(model.train_targets) == 8


def dataset(last):
    X = torch.cat([torch.rand(30, 2, dtype=torch.float64), last.double().unsqueeze(-1)], -1)
    return SupervisedDataset(
        X, X.sum(-1, keepdim=True), feature_names=["a", "b", "c"], outcome_names=["y"]
    )


@pytest.mark.parametrize(
    ("model_class", "last", "digest"),
    [
        (
            MultiTaskDTCGP,
            torch.arange(30).remainder(2),
            {"task_features": [2], "discrete_choices": {2: [0, 1]}},
        ),
        (MultiFidelityDTCGP, torch.linspace(0, 1, 30), {"fidelity_features": [2]}),
    ],
    ids=["tasks", "fidelities"],
)
def test_ax_fits_tasks_and_fidelities(model_class, last, digest):
    config = ModelConfig(
        botorch_model_class=model_class, model_options={"dictionary": torch.arange(30)}
    )
    surrogate = Surrogate(surrogate_spec=SurrogateSpec(model_configs=[config]))
    space = SearchSpaceDigest(
        feature_names=["a", "b", "c"],
        bounds=[(0, 1), (0, 1), (0, 1)],
        target_values={2: 1.0},
        **digest,
    )
    surrogate.fit([dataset(last)], search_space_digest=space)
    assert type(surrogate.model) is model_class
    mean, covariance = surrogate.predict(torch.rand(4, 3, dtype=torch.float64).round())
    assert mean.shape == (4, 1) and covariance.shape == (4, 1, 1)
