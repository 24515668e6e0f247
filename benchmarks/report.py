r"""The options of a study and the report that it writes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.machine import circumstances


@dataclass(frozen=True)
class Options:
    r"""The options of a study.

    Attributes:
        quick: Whether to run every part of the study at the smallest size.
        seeds: Number of repetitions, with seeds ``0`` to ``seeds - 1``.
        workers: Number of processes for independent runs, one thread each.
        data: Folder with the tables that some studies need.
        out: Folder for the CSV file and the plots; without it figures are only printed.
        cache: Folder of finished runs, from which an interrupted study resumes.
        half: Half of the problems to run, in studies with two halves; None for both.
        only: Methods to run, in studies that can leave methods out; empty for all.
    """

    quick: bool = False
    seeds: int = 1
    workers: int = 2
    data: Path | None = None
    out: Path | None = None
    cache: Path | None = None
    half: str | None = None
    only: tuple[str, ...] = ()


class Report:
    r"""The figures, claims and plots of a study.

    Claims are printed as they come. The figures and claims are written to a file at the end.

    Args:
        name: Name of the study and of its files.
        columns: Names of the columns.
        options: Options of the study.
    """

    def __init__(self, name: str, columns: tuple[str, ...], options: Options) -> None:
        self.name, self.columns, self.options = name, columns, options
        self.header = circumstances(options.seeds)
        if options.quick:
            self.header.append("quick: shows that everything runs, says nothing about the claims")
        self.rows: list[list[str]] = []
        self.claims: list[str] = []
        for line in self.header:
            self.say(line)

    def say(self, line: str) -> None:
        r"""Print a line above the progress bar."""
        tqdm.write(line)

    def row(self, *values: Any) -> None:
        r"""Add a row to the CSV file."""
        assert len(values) == len(self.columns), (self.columns, values)
        self.rows.append([f"{v:.6g}" if isinstance(v, float) else str(v) for v in values])

    def claim(self, what: str, asked: str, value: float, holds: bool) -> None:
        r"""Print and record a claim with its target, the measured value, and whether it holds."""
        line = f"{what} | {asked} | {value:.3g} | {'holds' if holds else 'does not hold'}"
        self.claims.append(line)
        self.say(f"   {line}")

    @contextmanager
    def picture(self, name: str, rows: int, columns: int, **more: Any) -> Iterator[Any]:
        r"""Yield the ``rows x columns`` axes of a plot, which is saved on exit."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

        more = {"figsize": (4.2 * columns, 3.2 * rows), "layout": "constrained", **more}
        figure, axes = plt.subplots(rows, columns, squeeze=False, **more)
        try:
            yield axes
            if self.options.out:
                self.options.out.mkdir(parents=True, exist_ok=True)
                figure.savefig(self.options.out / f"{name}.png", dpi=80)
        finally:
            plt.close(figure)

    def finish(self) -> None:
        r"""Print all claims, and write the CSV file."""
        self.say("\nclaim | target | measured | verdict")
        for line in self.claims:
            self.say(line)
        if not self.options.out:
            return
        text = io.StringIO()
        text.writelines(f"# {line}\n" for line in self.header + self.claims)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        self.options.out.mkdir(parents=True, exist_ok=True)
        path = self.options.out / f"{self.name}.csv"
        path.write_text(text.getvalue())
        self.say(f"\nwritten to {path}")
