r"""What all benchmarks share: where a figure comes from, and how it is written down."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from pathlib import Path

import botorch
import gpytorch
import torch

import botorch_bkb


def circumstances(seed: int | str) -> list[str]:
    r"""Machine, versions, seed and date."""
    versions = (f"{m.__name__} {m.__version__}" for m in (torch, gpytorch, botorch, botorch_bkb))
    threads = f"{os.cpu_count()} cpus, {torch.get_num_threads()} torch threads"
    lines = [f"machine: {platform.platform()}, {threads}", f"versions: {', '.join(versions)}"]
    return [*lines, f"seed: {seed}, date: {time.strftime('%Y-%m-%d')}"]


def write_csv(path: Path, comments: list[str], header: str, rows: list[str]) -> None:
    r"""Rows under comments that say where they come from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*(f"# {line}" for line in comments), header, *rows, ""]))


def verdict(what: str, asked: str, value: float, holds: bool) -> str:
    r"""What was asked, what was measured, and whether it holds."""
    return f"{what} | {asked} | {value:.3g} | {'holds' if holds else 'does not hold'}"


def peak_memory() -> float:
    r"""Peak memory of this process in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
