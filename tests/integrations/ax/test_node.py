r"""``BKBNode``: the algorithms inside Ax."""

import copy
import math

import pytest
import torch

pytest.importorskip("ax")

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, DerivedParameterConfig, RangeParameterConfig
from ax.api.protocols.metric import IMetric
from ax.api.protocols.runner import IRunner
from ax.core.trial_status import TrialStatus
from ax.exceptions.core import DataRequiredError, OptimizationComplete, UnsupportedError
from ax.generation_strategy.generation_strategy import GenerationStrategy
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.errors import UnsupportedError as BotorchUnsupportedError

import botorch_bkb
from botorch_bkb import InformationThreshold
from botorch_bkb.ax import BKBNode
from botorch_bkb.integrations.ax.space import AxSpace
from botorch_bkb.optimizers import ALGORITHMS
from tests.integrations.ax.helpers import (
    KIND,
    LAYERS,
    MIXED,
    QUICK,
    X,
    bowl,
    complete,
    make_client,
    mixed,
    node_of,
    optimizer_of,
    work,
)

BOUNDS = torch.tensor([[-1.0, 0.0], [2.0, 1.0]], dtype=torch.float64)


def as_rows(asked, names=("x", "y")):
    return torch.tensor([[p[name] for name in names] for p in asked], dtype=torch.float64)


@pytest.mark.parametrize("algorithm", sorted({*ALGORITHMS} - {"BatchedElimination"}))
def test_node_asks_what_the_bare_optimizer_asks(algorithm):
    is_tree = algorithm.startswith("Ada")
    options = {} if is_tree else QUICK
    if algorithm.startswith("Compressed"):
        options = {**options, "on_uninformative": "evaluate"}
    optimizer = getattr(botorch_bkb, algorithm)(bounds=BOUNDS, seed=0, **options)
    client = make_client(algorithm)
    for _ in range(9):
        trials = client.get_next_trials(1)
        suggestion = optimizer.ask(at_most=1)
        assert torch.equal(as_rows(trials.values()), suggestion.X)
        complete(client, trials)
        optimizer.tell(suggestion, [-bowl(p) for p in trials.values()])
    assert optimizer_of(client).num_observations == 8


def test_a_call_hands_out_the_batch_of_the_bare_optimizer():
    noisy = {"batch_threshold": 4.0, "noise_var": 0.5, **QUICK}
    optimizer = botorch_bkb.BBKB(bounds=BOUNDS, seed=0, **noisy)
    client = make_client(**noisy, lookahead=4)
    sizes = []
    for _ in range(4):
        trials = client.get_next_trials(max_trials=4)
        suggestion = optimizer.ask(at_most=4)
        assert torch.equal(as_rows(trials.values()), suggestion.X)
        complete(client, trials)
        optimizer.tell(suggestion, [-bowl(p) for p in trials.values()])
        sizes.append(len(trials))
    assert sizes[0] == 4 and min(sizes[2:]) > 1


def test_points_picked_ahead_are_not_pending_once_results_come():
    client = make_client(batch_threshold=4.0, noise_var=0.5)
    work(client, 3, at_once=2)
    trials = client.get_next_trials(2)
    run = node_of(client)._run
    assert run.ahead and len(run.optimizer.pending) == 2 + len(run.ahead)
    complete(client, {index: trials[index] for index in [min(trials)]})
    client.get_next_trials(1)
    assert not run.ahead and len(run.optimizer.pending) == 2


def test_a_closed_batch_needs_data():
    client = make_client("BKB", num_initial=2)
    trials = client.get_next_trials(5)
    assert len(trials) == 2
    for wanted in (1, 5):
        with pytest.raises(DataRequiredError, match="closed: complete some trials"):
            client.get_next_trials(wanted)
    assert len(client._experiment.trials) == 2
    complete(client, trials)
    assert len(client.get_next_trials(5)) == 1


@pytest.mark.parametrize(("objective", "sign"), [("-loss", 1), ("loss", -1)])
def test_node_minimises_and_maximises(objective, sign):
    client = make_client(objective=objective)
    work(client, 20, lambda p: sign * bowl(p))
    best = client.get_best_parameterization()[0]
    assert bowl(best) < 0.01


def test_node_mixes_parameter_types():
    single = ChoiceParameterConfig(name="one", values=[7], parameter_type="int")
    double = DerivedParameterConfig(
        name="double", expression_str="2 * layers", parameter_type="float"
    )
    client = make_client(parameters=(*MIXED, single, double))
    asked = work(client, 16, mixed)
    assert {type(p["layers"]) for p in asked} == {int} and {p["one"] for p in asked} == {7}
    assert all(p["double"] == 2 * p["layers"] for p in asked)
    assert {p["kind"] for p in asked} == {"a", "b", "c"}
    assert all(1e-3 <= p["rate"] <= 1 for p in asked)
    design = [math.log10(p["rate"]) for p in asked[:8]]
    assert sum(value < -1.5 for value in design) == 4  # half of a Sobol design in log units
    assert mixed(client.get_best_parameterization()[0]) < 0.15


def test_integers_may_be_logarithmic_and_many():
    many = RangeParameterConfig(name="n", bounds=(1, 100_000), parameter_type="int", scaling="log")
    client = make_client(parameters=(many,))
    asked = work(client, 8, lambda p: (math.log10(p["n"]) - 2) ** 2)
    assert all(type(p["n"]) is int and 1 <= p["n"] <= 100_000 for p in asked)
    assert math.log10(min(p["n"] for p in asked)) < 2


def test_linear_constraints_hold():
    client = make_client(constraints=["x + y <= 0.5", "x >= y - 0.7"], num_initial=3)
    asked = work(client, 5)
    assert all(p["x"] + p["y"] <= 0.5 + 1e-6 and p["x"] >= p["y"] - 0.7 - 1e-6 for p in asked)


def test_linear_constraints_of_integers_hold():
    few = RangeParameterConfig(name="n", bounds=(1, 2), parameter_type="int")
    client = make_client(parameters=(X, few), constraints=["n <= 2 + x"], num_initial=3)
    asked = work(client, 4)
    assert all(p["n"] <= 2 + p["x"] + 1e-6 for p in asked)


def test_choices_in_equal_steps_are_numbers():
    steps = RangeParameterConfig(name="y", bounds=(0, 1), parameter_type="float", step_size=0.25)
    client = make_client(parameters=(X, steps), constraints=["y <= x"], num_initial=6)
    space = AxSpace(client._experiment.search_space)
    assert space.box.discrete_dims == {1: [0.0, 0.25, 0.5, 0.75, 1.0]}
    assert all(p["y"] <= p["x"] and p["y"] % 0.25 == 0 for p in work(client, 6))


def test_ax_orchestrates_the_node():
    class Run(IRunner):
        def run_trial(self, trial_index, parameterization):
            return {}

        def poll_trial(self, trial_index, trial_metadata):
            return TrialStatus.COMPLETED

        def stop_trial(self, trial_index, trial_metadata):
            return {}

    class Loss(IMetric):
        def fetch(self, trial_index, trial_metadata):
            parameters = client._experiment.trials[trial_index].arm.parameters
            return 0, bowl(parameters)

    client = make_client("BKB", num_initial=3)
    client.configure_runner(Run())
    client.configure_metrics([Loss(name="loss")])
    client.run_trials(max_trials=4, parallelism=2, initial_seconds_between_polls=0)
    assert len(client._experiment.trials) == 4
    assert optimizer_of(client).num_observations >= 2  # the last two may run together


def test_failed_and_abandoned_trials_are_given_up():
    client = make_client(num_initial=4, noise_var=1.0, batch_threshold=9.0)
    first, second, third, fourth = trials = client.get_next_trials(4)
    client.mark_trial_failed(first)
    client.mark_trial_abandoned(second)
    complete(client, {third: trials[third]})
    (fifth,) = client.get_next_trials(1)
    optimizer = optimizer_of(client)
    assert optimizer.num_observations == 1 and optimizer.pending.ids == (3, 4)
    complete(client, {fourth: trials[fourth]})
    client.get_next_trials(1)
    assert optimizer.num_observations == 2 and optimizer.pending.ids == (4, 5)
    assert set(node_of(client)._run.ledger.open) == {fifth}


def test_giving_up_all_of_a_batch_opens_the_next():
    client = make_client("BKB", num_initial=1)
    for _ in range(3):
        (index,) = client.get_next_trials(1)
        client.mark_trial_failed(index)
    assert optimizer_of(client).num_observations == 0


def test_data_that_come_after_completion_are_told():
    client = make_client("BKB", num_initial=1)
    ((index, parameters),) = client.get_next_trials(1).items()
    client.complete_trial(index)
    ((second, _),) = client.get_next_trials(1).items()
    assert optimizer_of(client).num_observations == 0
    client.attach_data(index, {"loss": bowl(parameters)})
    client.mark_trial_failed(second)
    client.get_next_trials(1)
    assert optimizer_of(client).num_observations == 1
    assert not node_of(client)._run.ledger.open


def test_running_trials_with_partial_data_are_not_told():
    client = make_client()
    (index, *_) = client.get_next_trials(2)
    client.attach_data(index, {"loss": 1.0})
    client.get_next_trials(1)
    assert optimizer_of(client).num_observations == 0


def test_attached_trials_are_told():
    client = make_client(num_initial=4)
    points = [{"x": 0.1 * i, "y": 0.5} for i in range(4)]
    for point in points:
        complete(client, {client.attach_trial(point): point})
    work(client, 1)
    optimizer = optimizer_of(client)
    assert optimizer.num_observations == 4
    bare = botorch_bkb.BBKB(bounds=BOUNDS, seed=0, num_initial=4, **QUICK)
    bare.tell(as_rows(points), [-bowl(p) for p in points])
    assert torch.equal(
        bare.ask(at_most=1).X, as_rows([client._experiment.trials[4].arm.parameters])
    )


def test_an_attached_copy_of_a_running_trial_counts_beside_it():
    client = make_client()
    ((index, parameters),) = client.get_next_trials(1).items()
    copied = client.attach_trial(parameters)
    complete(client, {copied: parameters})
    client.get_next_trials(1)
    complete(client, {index: parameters})
    client.get_next_trials(1)
    assert optimizer_of(client).num_observations == 2
    assert len(optimizer_of(client).pending) == 2


def test_trials_outside_of_the_space_are_left_out(caplog):
    client = make_client()
    outside = {"x": 5.0, "y": 0.5}
    with pytest.warns(RuntimeWarning, match="out-of-design"):
        index = client.attach_trial(outside)
    complete(client, {index: outside})
    client.get_next_trials(1)
    assert optimizer_of(client).num_observations == 0
    assert "left out" in caplog.text


@pytest.mark.parametrize(
    ("sems", "noise"),
    [
        ([0.1, 0.3, 0.1], 0.05),  # known from the first results on
        ([0.1, 0.3, None], 0.05),  # one that is missing gets the mean
        ([0.1, 0.3, 0.0], 0.05),
        ([None, 0.3, 0.1], None),  # the first ones lack it: fitted
        ([0.0, 0.3, 0.1], None),
    ],
)
def test_standard_errors_become_variances(sems, noise):
    client = make_client(num_initial=3)
    trials = client.get_next_trials(3)
    first, last = dict(list(trials.items())[:2]), dict(list(trials.items())[2:])
    for (index, p), sem in zip(first.items(), sems, strict=False):
        client.complete_trial(index, {"loss": (bowl(p), sem)})
    node, experiment = node_of(client), client._experiment
    node.update_generator_state(experiment, experiment.lookup_data())
    for index, p in last.items():
        client.complete_trial(index, {"loss": (bowl(p), sems[-1])})
    node.update_generator_state(experiment, experiment.lookup_data())
    optimizer = node.optimizer
    assert optimizer.num_observations == 3
    known = optimizer.state_dict()["model"]["noise_known"]
    assert known == (None if noise is None else pytest.approx(noise))
    if noise is not None:
        weights = optimizer.history.weights
        expected = [noise / (sem**2 if sem else noise) for sem in sems]
        assert sorted(weights.tolist()) == pytest.approx(sorted(expected))


def test_given_noise_stands_for_missing_standard_errors():
    client = make_client(num_initial=3, noise_var=0.2)
    for (index, p), sem in zip(client.get_next_trials(3).items(), [None, 0.4, 0.0], strict=True):
        client.complete_trial(index, {"loss": (bowl(p), sem)})
    client.get_next_trials(1)
    weights = optimizer_of(client).history.weights
    assert sorted(weights.tolist()) == pytest.approx([1.0, 1.0, 0.2 / 0.16])


def test_early_stopped_trials_count():
    client = make_client("BKB", num_initial=1)
    ((index, _),) = client.get_next_trials(1).items()
    for step in (1, 2):
        client.attach_data(index, {"loss": float(step)}, progression=step)
    client.mark_trial_early_stopped(index)
    client.get_next_trials(1)
    assert optimizer_of(client).history.means.tolist() == [-2.0]


def test_points_without_a_trial_are_offered_again():
    client = make_client("BKB", num_initial=1)
    strategy, experiment = client._generation_strategy, client._experiment
    (((run,),)) = strategy.gen(experiment, n=1)
    ((again,),) = strategy.gen(experiment, n=1)
    assert run.arms[0].parameters == again.arms[0].parameters
    assert len(client.get_next_trials(1)) == 1
    with pytest.raises(DataRequiredError):
        client.get_next_trials(1)


def test_reading_costs_only_what_is_open():
    client = make_client(num_initial=30)
    work(client, 12)
    ledger = node_of(client)._run.ledger
    assert ledger.seen == 11 and list(ledger.open) == [] and len(ledger.loose) == 1


def test_stop_completes_the_optimisation():
    client = make_client("CompressedUCB", on_uninformative="stop", epsilon=2.0, num_initial=3)
    with pytest.raises(OptimizationComplete, match="Converged"):
        work(client, 40, at_once=2)
    assert len(client._experiment.trials) >= 3


def test_a_clone_starts_anew_on_another_experiment():
    client = make_client(name="one")
    asked = work(client, 3)
    other = make_client(name="two")
    other._maybe_generation_strategy = client._generation_strategy.clone_reset()
    other._generation_strategy._experiment = None
    assert work(other, 3) == asked


def test_a_node_may_follow_another():
    first = make_client()
    copied = copy.deepcopy(node_of(first))
    assert copied == node_of(first)
    client = make_client(num_initial=3)
    for i in range(3):
        point = {"x": 0.5 * i, "y": 0.2}
        complete(client, {client.attach_trial(point): point})
    nodes = [BKBNode("BKB", seed=0, num_initial=3, **QUICK)]
    client.set_generation_strategy(GenerationStrategy(name="late", nodes=nodes))
    work(client, 2)
    assert optimizer_of(client).num_observations == 4


# ---------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize("objective", ["loss, weight", "loss + 2*weight"])
def test_several_metrics_are_refused(objective):
    with pytest.raises(UnsupportedError, match="optimises one metric"):
        make_client(objective=objective).get_next_trials(1)


def test_outcome_constraints_are_refused():
    client = make_client()
    client.configure_optimization(objective="-loss", outcome_constraints=["weight <= 1"])
    with pytest.raises(UnsupportedError, match="no outcome constraints"):
        client.get_next_trials(1)


def test_fixing_parameters_of_one_trial_is_refused():
    with pytest.raises(UnsupportedError, match="single trials"):
        make_client().get_next_trials(1, fixed_parameters={"x": 0.0})


def test_constraints_of_ranks_are_refused():
    size = ChoiceParameterConfig(
        name="size", values=[1, 2, 5], parameter_type="int", is_ordered=True
    )
    client = make_client(parameters=(size, X), constraints=["size + x <= 1"])
    with pytest.raises(UnsupportedError, match="in which size is"):
        client.get_next_trials(1)


@pytest.mark.parametrize("parameter", [LAYERS, KIND], ids=["integer", "choice"])
def test_trees_refuse_discrete_parameters(parameter):
    client = make_client("AdaBKB", parameters=(X, parameter))
    with pytest.raises(BotorchUnsupportedError, match='use "BKB"'):
        client.get_next_trials(1)


def test_a_changed_objective_is_refused():
    client = make_client()
    work(client, 1)
    client.configure_optimization(objective="loss")
    with pytest.raises(UnsupportedError, match="has changed"):
        client.get_next_trials(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "Nothing"}, "algorithm must be one of"),
        ({"algorithm": "BatchedElimination"}, "which chooses among arms"),
        ({"bounds": BOUNDS}, "must not contain bounds"),
        ({"lookahead": 0}, "lookahead must be a positive integer"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(InputDataError, match=message):
        BKBNode(**arguments)


def test_skipping_is_refused():
    with pytest.raises(UnsupportedError, match="Ax evaluates every trial"):
        BKBNode("CompressedEI", on_uninformative="skip")
    with pytest.raises(UnsupportedError, match="Ax evaluates every trial"):
        BKBNode("BKB", dictionary=InformationThreshold(0.1))
    BKBNode("BKB", dictionary=InformationThreshold(0.1, on_uninformative="stop"))


@pytest.mark.parametrize("bad", [1e200, (0.5, 1e200), (0.5, 1e-170), (0.5, 1e100), float("nan")])
def test_a_result_nobody_can_use_loses_nothing_else(bad):
    client = make_client(parameters=(X,))
    work(client, 1, bowl, at_once=3)
    for i, (index, parameters) in enumerate(client.get_next_trials(3).items()):
        raw = bad if i == 1 else bowl(parameters)
        client.complete_trial(index, raw_data={"loss": raw})
    told = node_of(client).optimizer.num_observations
    client.get_next_trials(1)
    assert node_of(client).optimizer.num_observations >= told


def test_a_changed_objective_is_noticed_after_a_reload(tmp_path):
    client = make_client(parameters=(X,))
    work(client, 2, bowl)
    client.save_to_json_file(str(tmp_path / "client.json"))
    again = Client.load_from_json_file(str(tmp_path / "client.json"))
    again.configure_optimization(objective="loss")
    with pytest.raises(UnsupportedError, match="has changed"):
        again.get_next_trials(1)


def test_a_strategy_moved_to_another_experiment_begins_anew():
    client = make_client(parameters=(X,))
    work(client, 2, bowl)
    client.get_next_trials(1)
    other = make_client(parameters=(X,))
    for i in range(12):
        index = other.attach_trial({"x": i / 20})
        other.complete_trial(index, raw_data={"loss": 100.0})
    other.set_generation_strategy(client._generation_strategy.clone_reset())
    other.get_next_trials(1)
    assert node_of(other).optimizer.num_observations == 12


@pytest.mark.parametrize("algorithm", ["BKB", "BBKB", "GPUCB"])
def test_as_many_trials_as_are_asked_for_where_batches_may_be_exceeded(algorithm):
    client = make_client(algorithm, lookahead=4, beyond=True)
    for _ in range(4):
        trials = client.get_next_trials(max_trials=4)
        assert len(trials) == 4 and len(as_rows(trials.values()).unique(dim=0)) == 4
        complete(client, trials)
    client.get_next_trials(max_trials=1)  # results are told with the next request
    assert optimizer_of(client).num_observations == 16
    node = node_of(client)
    assert BKBNode.from_dict(**{k: v for k, v in node.to_dict().items() if k != "__type"}) == node
