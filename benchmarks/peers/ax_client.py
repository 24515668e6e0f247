r"""Timing of trials in Ax after many attached trials."""

from __future__ import annotations

import logging
import time
from typing import Any

from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from torch import Tensor


def client_after(bounds: Tensor, X: Tensor, Y: Tensor, strategy: Any = None) -> Client:
    r"""Return a client with ``n`` attached results. Without a ``strategy`` it uses Ax's default."""
    logging.disable(logging.WARNING)
    client = Client()
    names = [f"x{i}" for i in range(X.shape[-1])]
    client.configure_experiment(
        parameters=[
            RangeParameterConfig(name=name, parameter_type="float", bounds=(low, high))
            for name, (low, high) in zip(names, bounds.T.tolist(), strict=True)
        ]
    )
    client.configure_optimization(objective="y")
    if strategy is not None:
        client.set_generation_strategy(strategy)
    for x, y in zip(X.tolist(), Y.tolist(), strict=True):
        index = client.attach_trial(parameters=dict(zip(names, x, strict=True)))
        client.complete_trial(trial_index=index, raw_data={"y": y})
    return client


def seconds_a_trial(client: Client, reward: float, trials: int = 1) -> float:
    r"""Return the mean seconds to ask for and complete one trial, after an untimed first trial.

    In the first trial Ax's default strategy returns the centre of the box without a model. Ours
    fits the model to the attached results.
    """
    seconds = 0.0
    for i in range(trials + 1):
        start = time.perf_counter()
        for index in client.get_next_trials(max_trials=1):
            client.complete_trial(trial_index=index, raw_data={"y": reward})
        seconds += (time.perf_counter() - start) * (i > 0)
    return seconds / trials
