r"""Objectives that executors can import, and a small problem."""

from __future__ import annotations

import os
import time

import torch
from gpytorch.kernels import RBFKernel

from botorch_bkb import BBKB, GPBUCB

ARMS = torch.linspace(0, 4, 40, dtype=torch.float64).unsqueeze(-1)
BOUNDS = torch.tensor([[0.0, -1.0], [4.0, 1.0]], dtype=torch.float64)


def bbkb(cls=BBKB, **more):
    options = {"covar_module": RBFKernel(), "noise_var": 0.01, "seed": 3}
    if issubclass(cls, (BBKB, GPBUCB)):
        options["batch_threshold"] = 4.0
    return cls(ARMS, **{**options, **more})


def value(X):
    r"""Of ``... x d`` inputs."""
    return torch.sin(3 * X[..., 0])


def one(x):
    return float(value(x))


def slow(x):
    time.sleep(0.02 + 0.05 * float(x[0] > 2))
    return one(x)


def raising(x):
    if float(x[0]) > 2:
        raise ValueError("too far right")
    return one(x)


def hanging(x):
    if float(x[0]) > 3.5:
        time.sleep(1.5)
    return one(x)


def deadly(x):
    r"""Kills its worker beyond 3.5."""
    if float(x[0]) > 3.5:
        os._exit(1)
    return one(x)


def in_a_worker(x):
    time.sleep(0.05)
    return one(x), 0.01
