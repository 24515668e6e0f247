r"""Runs over a finite set of arms, with the problems and settings of the BBKB paper."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.problems.bandits import Bandit, generated, load, rbf
from botorch_bkb import BBKB, GPBUCB, GPUCB, MiniGPUCB
from botorch_bkb.optimizers import Optimizer

SQUARED_WIDTH, OVERSAMPLING = 5.0, 2.0
#: Optimizers that sample no dictionary.
EXACT = (GPUCB, GPBUCB, MiniGPUCB)


class Source(NamedTuple):
    r"""Where a bandit problem comes from, and the settings of its model."""

    table: str
    noise: float  #: standard deviation of the noise
    noise_var: float  #: noise variance in the model
    norm_bound: float
    in_unit_cube: bool = False  #: whether features are scaled to [0, 1] or standardised


#: The paper has a noise variance of 0.2 and a norm bound of 20. It does not say how it scales
#: features, nor how large the noise is. Standardised features are one reading, with a norm bound of
#: 5 for Cadata's smaller labels. Features in [0, 1] with the printed norm bound are another.
PROBLEMS = {
    "abalone": Source("abalone", 1.0, 1.0, 20.0),
    "abalone 0.2": Source("abalone", 1.0, 0.2, 20.0),
    "abalone [0,1]": Source("abalone", 1.0, 0.2, 20.0, in_unit_cube=True),
    "cadata": Source("cadata", 0.1, 0.2, 5.0),
    "cadata [0,1]": Source("cadata", 0.1, 0.2, 20.0, in_unit_cube=True),
}


class Setting(NamedTuple):
    r"""A bandit problem with the settings of the model."""

    name: str
    bandit: Bandit
    noise_var: float
    norm_bound: float
    squared_width: float = SQUARED_WIDTH

    @property
    def model(self) -> dict[str, Any]:
        r"""The kernel and noise variance, as arguments of an optimizer."""
        return {"covar_module": rbf(self.squared_width), "noise_var": self.noise_var}

    def bounds(self, horizon: int) -> dict[str, Any]:
        r"""Return what widths depend on, as arguments of an optimizer. Constant widths take none.

        With these arguments the default is the information width.
        """
        return {
            "norm_bound": self.norm_bound,
            "noise_bound": self.bandit.noise,
            "delta": 1 / horizon,
        }

    def make(self, kind: type[Optimizer], horizon: int, seed: int, **more: Any) -> Optimizer:
        r"""Return an optimizer for this problem, by default with the information width.

        Args:
            kind: Class of the optimizer.
            horizon: Number of pulls, of which ``delta`` is the inverse. The theorem's oversampling
                depends on it too.
            seed: Seed of the optimizer.
            more: Further arguments of the class.
        """
        sampled = {} if kind in EXACT else {"oversampling": OVERSAMPLING}
        bounds = {} if is_constant(more.get("width")) else self.bounds(horizon)
        if more.get("oversampling") == "theory":
            sampled = {"horizon": horizon}
        given = {**self.model, **bounds, **sampled, **more}
        return kind(self.bandit.arms, seed=seed, **given)


def is_constant(width: Any) -> bool:
    r"""Return whether a width, as given to an optimizer, is constant."""
    return isinstance(width, float) or width == "heuristic"


def setting(name: str, data: Path | None) -> Setting:
    r"""Load one of the problems; ``data`` is the folder with its table."""
    one = PROBLEMS[name]
    bandit = load(one.table, data, one.noise, one.in_unit_cube)
    return Setting(name, bandit, one.noise_var, one.norm_bound)


class Run(NamedTuple):
    r"""The outcome of one run, after each batch and at the end."""

    pulls: np.ndarray  #: cumulative number of pulls
    regret: np.ndarray  #: cumulative regret
    seconds: np.ndarray  #: cumulative time of the optimizer
    dictionary: np.ndarray  #: number of dictionary points
    distinct: int  #: number of distinct arms pulled
    dimension: float  #: effective dimension at the end

    @property
    def batches(self) -> np.ndarray:
        r"""The sizes of the batches."""
        return np.diff(self.pulls, prepend=0)


def play(
    optimizer: Optimizer,
    bandit: Bandit,
    budget: int,
    seed: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    r"""Ask and tell until there are ``budget`` observations, and time the optimizer alone."""
    generator = torch.Generator().manual_seed(seed)
    seconds, regret, rows, curve = 0.0, 0.0, set(), []
    while (left := budget - optimizer.num_observations) > 0:
        start = clock()
        suggestion = optimizer.ask(at_most=left)
        seconds += clock() - start
        rewards = bandit.rewards(suggestion.indices, generator)
        regret += float(bandit.regret(suggestion.indices).sum())
        rows.update(suggestion.indices.tolist())
        start = clock()
        optimizer.tell(suggestion, rewards)
        seconds += clock() - start
        m = len(optimizer.dictionary)
        curve.append((optimizer.num_observations, regret, seconds, m))
    pulls, *others = (np.array(column) for column in zip(*curve, strict=True))
    return Run(pulls, *others, len(rows), optimizer.effective_dimension)


def play_in_float32(num_arms: int, budget: int) -> Run:
    r"""Run BBKB in float32 on generated arms in eight dimensions."""
    bandit = generated(num_arms, 8, 0.1, 0, torch.float32)
    optimizer = BBKB(
        bandit.arms, covar_module=rbf(SQUARED_WIDTH, torch.float32), noise_var=0.05, norm_bound=2.0,
        noise_bound=0.1, oversampling=OVERSAMPLING, seed=0,
    )  # fmt: skip
    return play(optimizer, bandit, budget, 0)
