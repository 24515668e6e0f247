r"""Independent runs in parallel processes, with a cache to resume interrupted studies."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.report import Options

C = TypeVar("C", bound=NamedTuple)
R = TypeVar("R", bound=NamedTuple)


def play_all(
    play: Callable[[C], R], kind: type[R], cases: Sequence[C], options: Options
) -> dict[C, R]:
    r"""Run every case in a process with one thread.

    Args:
        play: Module-level function that runs one case.
        kind: Return type of ``play``, a named tuple of arrays and numbers.
        cases: Named tuples of strings and numbers, which also name the files in the cache.
        options: Options with the number of processes and the cache folder.
    """
    if options.cache:
        options.cache.mkdir(parents=True, exist_ok=True)
    one = partial(_play_or_load, play, kind, options.cache)
    with ProcessPoolExecutor(options.workers) as pool:
        results = tqdm(pool.map(one, cases), total=len(cases), unit="run", disable=None)
        return dict(zip(cases, results, strict=True))


def _play_or_load(play: Callable[[C], R], kind: type[R], cache: Path | None, case: C) -> R:
    name = re.sub(r"\W+", "_", "_".join(map(str, case)))
    file = None if cache is None else cache / f"{name}.npz"
    if file is not None and file.exists():
        with np.load(file) as saved:
            return kind(*(_plain(saved[field]) for field in kind._fields))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(getattr(case, "seed", 0))
    run = play(case)
    if file is not None:
        part = file.with_suffix(f".{id(run)}.part")
        with part.open("wb") as out:
            np.savez(out, **run._asdict())
        part.replace(file)
    return run


def _plain(array: np.ndarray) -> Any:
    return array if array.ndim else array.item()


def of(runs: dict[C, R], **which: Any) -> list[R]:
    r"""Return the runs of the matching cases, as in ``of(runs, method="BKB", steps=200)``."""
    return [
        run
        for case, run in runs.items()
        if all(getattr(case, name) == value for name, value in which.items())
    ]
