r"""The methods of the study ``search``, and how much of it each can afford."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

from benchmarks.peers import searchers
from benchmarks.search_runs import Method, Run, method, with_optimizer
from botorch_bkb import BBKB, BKB, AdaBKB

QLOGNEI = "SingleTaskGP + qLogNEI"


class Entry(NamedTuple):
    r"""A method of the study.

    Attributes:
        play: The method.
        package: Module that it needs beyond the extra ``benchmarks``.
        steps: Evaluations of a run.
        seeds: Largest number of runs per function.
        long: Number of them, the last, that go on to ``LONG_STEPS`` on the functions ``LONG``.
    """

    play: Method
    package: str = "optuna"
    steps: int = 200
    seeds: int = 10
    long: int = 0


#: Functions on which the last runs of a method that takes long go on, and how far.
LONG, LONG_STEPS = ("DrawRBF4", "Hartmann6"), 200


def slow(play: Callable[[Run], None], package: str = "optuna") -> Entry:
    return Entry(method(play), package, steps=100, seeds=3)


METHODS: dict[str, Entry] = {
    QLOGNEI: Entry(method(searchers.qlognei), steps=100, long=3),
    "BKB": Entry(with_optimizer(lambda b, seed: BKB(bounds=b, seed=seed))),
    "BBKB": Entry(with_optimizer(lambda b, seed: BBKB(bounds=b, seed=seed), at_once=None)),
    "AdaBKB": Entry(
        with_optimizer(lambda b, seed: AdaBKB(bounds=b, seed=seed), designed=False), seeds=5
    ),
    "SingleTaskGP + LogEI": slow(searchers.logei),
    "Optuna TPE": Entry(method(searchers.tpe)),
    "TuRBO-ENN": Entry(method(searchers.ennbo), "enn"),
    "TuRBO-1": slow(searchers.turbo),
    "CMA-ES": Entry(method(searchers.cma_es), "cma"),
    "Optuna GPSampler": slow(searchers.optuna_gp),
    "Ax default": slow(searchers.ax_default, package="ax"),
    "HEBO": slow(searchers.hebo, package="hebo"),
    "Sobol": Entry(method(searchers.sobol)),
}


def installed(name: str) -> bool:
    r"""Whether the package of a method is installed."""
    return find_spec(METHODS[name].package) is not None


def steps_of(name: str, function: str, seed: int) -> int:
    r"""Return the number of evaluations of a run."""
    entry = METHODS[name]
    is_long = function in LONG and seed >= entry.seeds - entry.long
    return LONG_STEPS if is_long else entry.steps
