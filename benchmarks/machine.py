r"""Measurement of time and memory, and a description of the machine."""

from __future__ import annotations

import math
import multiprocessing
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import torch

import botorch_bkb

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

PACKAGES = ("torch", "gpytorch", "botorch", "scikit-learn", "optuna", "ax-platform", "ennbo", "cma")


def circumstances(seeds: int) -> list[str]:
    r"""Describe the machine, the package versions, the seeds and the date."""
    versions = [f"botorch_bkb {botorch_bkb.__version__}", *filter(None, map(_version, PACKAGES))]
    threads = f"{os.cpu_count()} cpus, {torch.get_num_threads()} torch threads"
    return [
        f"machine: {platform.platform()}, {threads}",
        f"versions: {', '.join(versions)}",
        f"seeds: {'0' if seeds == 1 else f'0..{seeds - 1}'}, date: {time.strftime('%Y-%m-%d')}",
    ]


def _version(package: str) -> str | None:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return None


def stopwatch(
    function: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    r"""Return the seconds that a call takes by a clock."""
    before = clock()
    function()
    return clock() - before


class CPUClock:
    r"""A context manager that adds up the CPU time of its blocks in ``seconds``."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._start


def best_of(
    cases: Mapping[K, Callable[[], object]],
    repeats: int,
    budget: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[K, float]:
    r"""Return the least seconds of each case. The cases take turns of 20 ms or one call.

    Args:
        cases: Functions to time.
        repeats: Number of turns per case.
        budget: Seconds after which a case has no more turns.
        clock: Clock that gives the seconds, such as ``time.process_time`` for CPU time.
    """
    best, spent = dict.fromkeys(cases, math.inf), dict.fromkeys(cases, 0.0)
    for _ in range(repeats):
        for key, function in cases.items():
            end = min(budget, spent[key] + 0.02)
            while spent[key] <= end:
                seconds = stopwatch(function, clock)
                best[key] = min(best[key], seconds)
                spent[key] += seconds
    return best


def peak_memory() -> float:
    r"""Return the peak resident memory of this process in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # the value of getrusage is inherited from the parent process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def in_a_process(function: Callable[..., T], *args: object) -> T:
    r"""Call a function in a fresh process, so that its memory can be measured alone."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()
