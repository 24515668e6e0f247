r"""``DTCGP`` as the surrogate of Ax."""

from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("ax")

from ax.adapter.cross_validation import compute_diagnostics, cross_validate
from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.observation import ObservationFeatures
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from botorch.models import ModelListGP, SingleTaskGP

import botorch_bkb.ax  # noqa: F401  registers the classes
from botorch_bkb import DTCGP, AllPoints, Automatic, InformationThreshold, RidgeLeverageSampling

X0 = RangeParameterConfig(name="x0", bounds=(-1.0, 2.0), parameter_type="float")
X1 = RangeParameterConfig(name="x1", bounds=(-1.0, 2.0), parameter_type="float")
RULES = [AllPoints(), Automatic(), InformationThreshold(1e-3), RidgeLeverageSampling(3.0)]
SPARSE = {"dictionary": RidgeLeverageSampling(2.0)}
both = pytest.mark.parametrize("options", [{}, SPARSE], ids=["exact", "sparse"])


def loss(p):
    return (p["x0"] - 0.3) ** 2 + (p["x1"] + 0.2) ** 2


def weight(p):
    return (p["x0"] - 1.0) ** 2 + p["x1"] ** 2


def measure(p, metrics=(loss,)):
    return {metric.__name__: metric(p) + 0.1 * torch.randn(()).item() for metric in metrics}


measure_both = partial(measure, metrics=(loss, weight))


def surrogate(options=None, model_class=DTCGP, **kwargs):
    config = ModelConfig(botorch_model_class=model_class, model_options=options or {})
    return SurrogateSpec(model_configs=[config], **kwargs)


def make_client(spec, parameters=(X0, X1), objective="-loss", constraints=None):
    r"""A client that asks Sobol for five trials and then the surrogate."""
    quick = {"model_gen_options": {"optimizer_kwargs": {"num_restarts": 2, "raw_samples": 16}}}
    sobol = GeneratorSpec(Generators.SOBOL, {"seed": 0})
    model = GeneratorSpec(Generators.BOTORCH_MODULAR, {"surrogate_spec": spec}, quick)
    after = MinTrials(threshold=5, transition_to="Model", use_all_trials_in_exp=True)
    nodes = [
        GenerationNode(name="Sobol", generator_specs=[sobol], transition_criteria=[after]),
        GenerationNode(name="Model", generator_specs=[model]),
    ]
    client = Client(random_seed=0)
    client.configure_experiment(parameters=parameters)
    client.configure_optimization(objective=objective, outcome_constraints=constraints)
    client.set_generation_strategy(GenerationStrategy(name="Sobol+DTCGP", nodes=nodes))
    return client


def ask_and_tell(client, trials, measure=measure):
    for _ in range(trials):
        for index, parameters in client.get_next_trials(1).items():
            client.complete_trial(index, raw_data=measure(parameters))
    return client._generation_strategy.adapter.generator.surrogate.model


def observe(client, n, measure=measure):
    r"""Complete ``n`` trials at random points."""
    for x0, x1 in (3 * torch.rand(n, 2) - 1).tolist():
        index = client.attach_trial({"x0": x0, "x1": x1})
        client.complete_trial(index, raw_data=measure({"x0": x0, "x1": x1}))
    return client


def worst_correlation(results):
    return min(compute_diagnostics(results)["Correlation coefficient"].values())


@pytest.fixture(scope="module")
def fit():
    r"""Fits a surrogate to the same sixty noisy observations."""
    torch.manual_seed(0)
    client = observe(make_client(surrogate()), 60)
    return partial(Generators.BOTORCH_MODULAR, experiment=client._experiment)


@both
def test_ax_fits_and_asks_with_dtcgp(options):
    client = make_client(surrogate(options))
    assert type(ask_and_tell(client, 9)) is DTCGP
    trials = client._experiment.trials.values()
    nodes = [trial.generator_run._generation_node_name for trial in trials]
    assert nodes == 5 * ["Sobol"] + 4 * ["Model"]
    losses = [loss(trial.arm.parameters) for trial in trials]
    assert min(losses[5:]) < min(losses[:5])
    pending = [*client.get_next_trials(2).values(), *client.get_next_trials(1).values()]
    assert len({tuple(parameters.values()) for parameters in pending}) == 3


def test_ax_predicts_with_few_points_as_with_single_task_gp(fit):
    points = [ObservationFeatures({"x0": 0.3 * i, "x1": -0.1 * i}) for i in range(6)]
    specs = [surrogate(model_class=model_class) for model_class in (DTCGP, SingleTaskGP)]
    (mean, cov), (exact_mean, exact_cov) = (fit(surrogate_spec=s).predict(points) for s in specs)
    np.testing.assert_allclose(mean["loss"], exact_mean["loss"], atol=1e-3)
    np.testing.assert_allclose(cov["loss"]["loss"], exact_cov["loss"]["loss"], atol=1e-4)


def test_ax_hands_model_options_to_dtcgp(fit):
    spec = surrogate({**SPARSE, "trace_term": True})
    model = fit(surrogate_spec=spec).generator.surrogate.model
    assert model._rule == SPARSE["dictionary"] and model._trace_term
    assert len(model.dictionary_indices) < 60


def test_ax_recommends_by_predictions_of_dtcgp():
    client = observe(make_client(surrogate(SPARSE)), 30)
    client.get_next_trials(1)
    best, prediction, index, _ = client.get_best_parameterization()
    data = client._experiment.lookup_data().df
    assert loss(best) < 0.3
    assert prediction["loss"][0] == pytest.approx(client.predict([best])[0]["loss"][0])
    assert prediction["loss"][0] != data[data["trial_index"] == index]["mean"].item()


@both
@pytest.mark.parametrize(
    ("folds", "refit", "untransform"), [(-1, False, True), (4, False, False), (4, True, True)]
)
def test_ax_cross_validates_dtcgp(fit, options, folds, refit, untransform):
    adapter = fit(surrogate_spec=surrogate(options), refit_on_cv=refit, warm_start_refit=False)
    results = cross_validate(adapter, folds=folds, untransform=untransform)
    assert len(results) == 60 and worst_correlation(results) > 0.9


def test_ax_cross_validates_the_sparse_model_by_default(fit):
    adapter = fit(surrogate_spec=surrogate({"dictionary": torch.arange(3)}))
    means = []
    for select in (None, lambda _: True):
        results = cross_validate(adapter, test_selector=select)
        by_trial = {r.observed.features.trial_index: r.predicted.means[0] for r in results}
        means.append([by_trial[i] for i in range(3, 60)])
    np.testing.assert_allclose(*means, atol=1e-4)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "list"])
def test_ax_optimizes_two_objectives_with_dtcgp(batched):
    spec = surrogate(SPARSE, allow_batched_models=batched)
    client = observe(make_client(spec, objective="-loss, -weight"), 30, measure_both)
    model = ask_and_tell(client, 2, measure_both)
    assert type(model) is (DTCGP if batched else ModelListGP) and model.num_outputs == 2
    assert all(type(m) is DTCGP for m in getattr(model, "models", [model]))
    assert client.get_pareto_frontier()
    assert worst_correlation(cross_validate(client._generation_strategy.adapter, folds=3)) > 0.8


def test_ax_heeds_an_outcome_constraint_with_dtcgp():
    client = make_client(surrogate(SPARSE), constraints=["weight <= 0.3"])
    ask_and_tell(observe(client, 30, measure_both), 3, measure_both)
    best, prediction, _, _ = client.get_best_parameterization()
    assert weight(best) < 0.5 and set(prediction) == {"loss", "weight"}


def test_ax_ignores_a_tracking_metric_with_trace_term():
    client = make_client(surrogate({"trace_term": True}))
    assert ask_and_tell(client, 6, measure_both).num_outputs == 2


def test_ax_mixes_parameter_types_with_dtcgp():
    integer = RangeParameterConfig(name="x1", bounds=(-3, 3), parameter_type="int")
    choice = ChoiceParameterConfig(name="kind", values=["a", "b", "c"], parameter_type="str")
    client = make_client(surrogate(), (X0, integer, choice))
    model = ask_and_tell(client, 8, lambda p: {"loss": loss(p) + "abc".index(p["kind"])})
    best = client.get_best_parameterization()[0]
    assert type(model) is DTCGP and type(best["x1"]) is int and best["kind"] in ("a", "b", "c")


def test_ax_takes_observations_without_noise():
    ask_and_tell(make_client(surrogate()), 7, lambda p: {"loss": (loss(p), 0.0)})


@pytest.mark.parametrize("dictionary", RULES, ids=lambda rule: type(rule).__name__)
def test_ax_resumes_from_json_with_dtcgp(tmp_path, dictionary):
    client = make_client(surrogate({"trace_term": True, "dictionary": dictionary}))
    ask_and_tell(client, 7)
    client.save_to_json_file(str(tmp_path / "client.json"))
    model = ask_and_tell(Client.load_from_json_file(str(tmp_path / "client.json")), 2)
    assert type(model) is DTCGP and model._trace_term and len(model.train_targets) == 8
    assert model._rule == dictionary
