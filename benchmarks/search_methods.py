r"""The methods of the study ``search``, and how much of it each can afford."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

from benchmarks.peers import searchers
from benchmarks.problems.search import CHOOSE, FUNCTIONS, REPORT
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
        halves: Halves of the functions on which it runs.
        long: Number of them, the last, that go on to ``LONG_STEPS`` on the functions ``LONG``.
    """

    play: Method
    package: str = "optuna"
    steps: int = 200
    seeds: int = 10
    halves: tuple[str, ...] = (CHOOSE, REPORT)
    long: int = 0


#: Functions on which the last runs of a method that takes long go on, and how far.
LONG, LONG_STEPS = ("DrawRBF4", "Hartmann6"), 200


def slow(play: Callable[[Run], None], package: str = "optuna") -> Entry:
    r"""Return a method that takes about as long as the reference; it runs on few problems."""
    return Entry(method(play), package, steps=100, seeds=3, halves=(REPORT,))


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
    "Sobol": Entry(method(searchers.sobol)),
}


def installed(name: str) -> bool:
    r"""Whether the package of a method is installed."""
    return find_spec(METHODS[name].package) is not None


def steps_of(name: str, function: str, seed: int) -> int:
    r"""Return the number of evaluations of a run, 0 if it is not made."""
    entry = METHODS[name]
    if seed >= entry.seeds or FUNCTIONS[function].half not in entry.halves:
        return 0
    is_long = function in LONG and seed >= entry.seeds - entry.long
    return LONG_STEPS if is_long else entry.steps
