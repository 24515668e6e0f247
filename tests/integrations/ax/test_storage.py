r"""A reloaded client goes on as if it had never stopped."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("ax")

from ax.api.client import Client
from ax.api.configs import StorageConfig
from ax.exceptions.storage import JSONEncodeError
from ax.generation_strategy.generation_strategy import GenerationStrategy
from gpytorch.kernels import RBFKernel, ScaleKernel

from botorch_bkb import AllPoints
from botorch_bkb.acquisition import Greedy
from botorch_bkb.ax import BKBNode
from botorch_bkb.batches import SumRule
from tests.integrations.ax.helpers import (
    MIXED,
    X,
    Y,
    bowl,
    complete,
    make_client,
    mixed,
    node_of,
    work,
)

OPEN = {"noise_var": 0.5, "batch_threshold": 4.0, "num_initial": 4, "lookahead": 4}
PARTS = {
    "dictionary": AllPoints(),
    "batch_rule": SumRule(4.0, max_size=5),
    "acquisition": Greedy(0.2),
    "num_initial": 3,
}
RBF = ScaleKernel(RBFKernel())
RUNS = [
    ("BBKB", (X, Y), bowl, OPEN),
    ("BBKB", MIXED, mixed, {"num_initial": 6, "seed": None}),
    ("AdaBBKB", (X, Y), bowl, {"batch_threshold": 20.0}),
    ("CompressedUCB", (X, Y), bowl, {"num_initial": 4}),
    ("BKB", (X,), bowl, {"covar_module": RBF, "noise_var": 0.01, "width": "theory"}),
    ("BKB", (X, Y), bowl, PARTS),
]


def finish(client, trials, function):
    r"""What is asked after a reload: the rest of the batch is completed last to first."""
    asked = []
    for index in reversed(list(trials)):
        client.complete_trial(index, {"loss": function(trials[index])})
    for _ in range(2):
        trials = client.get_next_trials(2)
        asked.append(trials)
        complete(client, trials, function)
    return asked


def in_the_middle(function, *args, **kwargs):
    r"""A client with one trial of its batch told, one running and one failed."""
    client = make_client(*args, **kwargs)
    work(client, 3, function, at_once=3)
    trials = client.get_next_trials(3)
    if len(trials) > 1:
        (first, parameters), *_, (last, _) = trials.items()
        complete(client, {first: parameters}, function)
        client.mark_trial_failed(last)
        trials = {i: p for i, p in trials.items() if i not in (first, last)}
    return client, trials


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[0] + str(len(run[1])))
def test_json_resumes_in_the_middle_of_a_batch(run, tmp_path):
    algorithm, parameters, function, options = run
    client, trials = in_the_middle(function, algorithm, parameters, **options)
    path = str(tmp_path / "client.json")
    client.save_to_json_file(path)
    again = Client.load_from_json_file(path)
    assert node_of(again) == node_of(client)
    again.save_to_json_file(path)  # before anything was resumed
    again = Client.load_from_json_file(path)
    expected = finish(client, trials, function)
    assert finish(again, trials, function) == expected
    assert any(expected) and node_of(again) == node_of(client)


def test_json_resumes_before_the_first_trial(tmp_path):
    path = str(tmp_path / "client.json")
    client = make_client()
    client.save_to_json_file(path)
    assert work(Client.load_from_json_file(path), 3) == work(client, 3)


def test_json_forgets_what_was_only_picked_ahead(tmp_path):
    client = make_client(**OPEN)
    work(client, 3, at_once=2)
    client.get_next_trials(2)
    assert node_of(client)._run.ahead
    path = tmp_path / "client.json"
    client.save_to_json_file(str(path))
    again = Client.load_from_json_file(str(path))
    assert again.get_next_trials(2) == client.get_next_trials(2)
    assert "pickle" not in path.read_text()


def test_a_fresh_process_loads_what_was_saved(tmp_path):
    path = str(tmp_path / "client.json")
    client = make_client(num_initial=2)
    work(client, 3)
    client.save_to_json_file(path)
    code = (
        "import sys, json, botorch_bkb.ax\n"
        "from ax.api.client import Client\n"
        "trials = Client.load_from_json_file(sys.argv[1]).get_next_trials(1)\n"
        "print(json.dumps(trials))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    got = json.loads(done.stdout.splitlines()[-1])
    assert {int(i): p for i, p in got.items()} == client.get_next_trials(1)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[0] + str(len(run[1])))
def test_sql_resumes_in_the_middle_of_a_batch(run, tmp_path):
    pytest.importorskip("sqlalchemy")
    from ax.storage.sqa_store.db import create_all_tables, get_engine
    from ax.storage.sqa_store.db import init_engine_and_session_factory as connect

    url = f"sqlite:///{tmp_path}/ax.db"
    connect(url=url, force_init=True)
    create_all_tables(get_engine())
    algorithm, parameters, function, options = run
    storage = StorageConfig(url=url)
    client, trials = in_the_middle(
        function, algorithm, parameters, name="saved", storage=storage, **options
    )
    again = Client.load_from_database("saved", storage_config=storage)
    client._db_settings = None  # goes on in memory only
    arms = [trial.arm.parameters for trial in client._experiment.trials.values()]
    assert [trial.arm.parameters for trial in again._experiment.trials.values()] == arms
    expected = finish(client, trials, function)
    assert finish(again, trials, function) == expected
    third = Client.load_from_database("saved", storage_config=storage)
    assert third.get_next_trials(1) == client.get_next_trials(1)
    get_engine().dispose()


def test_what_cannot_be_saved_is_named(tmp_path):
    client = make_client(width=lambda progress: 2.0)
    work(client, 1)
    with pytest.raises(JSONEncodeError, match="cannot be saved with function"):
        client.save_to_json_file(str(tmp_path / "client.json"))


def test_nodes_of_the_same_arguments_are_equal():
    assert BKBNode("BKB", seed=1) == BKBNode("BKB", seed=1) != BKBNode("BKB", seed=2)
    one, other = (GenerationStrategy(name="s", nodes=[BKBNode(seed=1)]) for _ in range(2))
    assert one == other
