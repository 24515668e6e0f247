r"""What a study is asked for, and what it finds."""

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
    r"""What a study is asked for.

    Attributes:
        quick: Whether to make it as short as it can be while everything in it still happens.
        seeds: Repetitions, with seeds ``0`` to ``seeds - 1``.
        workers: Processes, of one thread each, where whole runs are independent.
        data: Folder with the tables some studies play on.
        out: Folder for the figures and pictures; without it they are only printed.
        cache: Folder of finished runs, with which an interrupted study goes on.
    """

    quick: bool = False
    seeds: int = 1
    workers: int = 2
    data: Path | None = None
    out: Path | None = None
    cache: Path | None = None


class Report:
    r"""Figures, claims and pictures of a study, shown as they come and written at the end.

    Args:
        name: Name of the study, and of its files.
        columns: Names of what is in a row.
        options: What was asked for.
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
        r"""A line on the screen, above the progress bar."""
        tqdm.write(line)

    def row(self, *values: Any) -> None:
        r"""One figure for the file."""
        assert len(values) == len(self.columns), (self.columns, values)
        self.rows.append([f"{v:.6g}" if isinstance(v, float) else str(v) for v in values])

    def claim(self, what: str, asked: str, value: float, holds: bool) -> None:
        r"""What was asked, what was measured, and whether it holds."""
        line = f"{what} | {asked} | {value:.3g} | {'holds' if holds else 'does not hold'}"
        self.claims.append(line)
        self.say(f"   {line}")

    @contextmanager
    def picture(self, name: str, rows: int, columns: int, **more: Any) -> Iterator[Any]:
        r"""Axes, ``rows x columns``, of a picture that is written when they are drawn on."""
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
        r"""Show the claims once more, and write the figures."""
        self.say("\nclaim | asked | measured | verdict")
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
