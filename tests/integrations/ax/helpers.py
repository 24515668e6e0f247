r"""A small experiment, and clients that work on it."""

import math

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from botorch_bkb.ax import bkb_generation_strategy

X = RangeParameterConfig(name="x", bounds=(-1.0, 2.0), parameter_type="float")
Y = RangeParameterConfig(name="y", bounds=(0.0, 1.0), parameter_type="float")
RATE = RangeParameterConfig(name="rate", bounds=(1e-3, 1.0), parameter_type="float", scaling="log")
LAYERS = RangeParameterConfig(name="layers", bounds=(1, 6), parameter_type="int")
KIND = ChoiceParameterConfig(
    name="kind", values=["a", "b", "c"], parameter_type="str", is_ordered=False
)
MIXED = (RATE, LAYERS, KIND)
QUICK = {"acquisition_options": {"num_restarts": 2, "raw_samples": 16}}


def bowl(p):
    return round((p["x"] - 0.3) ** 2 + (p.get("y", 0.5) - 0.5) ** 2, 10)  # as Ax stores it


def mixed(p):
    distance = (math.log10(p["rate"]) + 1) ** 2 + 0.1 * (p["layers"] - 3) ** 2
    return distance + 0.5 * "bac".index(p["kind"])


def make_client(
    algorithm="BBKB", parameters=(X, Y), objective="-loss", constraints=None, name=None, **options
):
    client = Client(storage_config=options.pop("storage", None))
    client.configure_experiment(
        parameters=list(parameters), parameter_constraints=constraints, name=name
    )
    client.configure_optimization(objective=objective)
    arguments = {"seed": 0, **options}
    if not algorithm.startswith("Ada"):
        arguments = {**QUICK, **arguments}
    client.set_generation_strategy(bkb_generation_strategy(algorithm, **arguments))
    return client


def node_of(client):
    return client._generation_strategy._nodes[0]


def optimizer_of(client):
    return node_of(client).optimizer


def complete(client, trials, function=bowl, sem=None):
    for index, parameters in trials.items():
        value = function(parameters)
        client.complete_trial(index, {"loss": value if sem is None else (value, sem)})


def work(client, calls, function=bowl, at_once=1, sem=None):
    r"""Parameters of all trials of some calls, each completed at once."""
    asked = []
    for _ in range(calls):
        trials = client.get_next_trials(at_once)
        asked.extend(trials.values())
        complete(client, trials, function, sem)
    return asked
