r"""Curves of costs against sizes, with their slopes on logarithmic axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.report import Report

#: As many distinct colors as one panel needs.
COLORS = [f"C{i}" for i in range(10)] + ["black", "gold"]

Key = tuple[str, str, str]  # part, what, figure


def power(sizes: list[int], values: list[float]) -> float:
    r"""Return the slope of the least squares line through the logarithms; NaN for one size."""
    if len(sizes) < 2:
        return math.nan
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class Curves:
    r"""Figures by size, which are also written to a report.

    Args:
        report: Report with columns for the part of the study, what was measured, its size, the name
            of the figure, and its value.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self._curves: dict[Key, dict[int, float]] = {}
        self._bounds: set[tuple[Key, int]] = set()

    def add(
        self, part: str, what: str, size: int, figures: dict[str, float], bound: bool = False
    ) -> None:
        r"""Add the figures of one size.

        Args:
            part: Part of the study.
            what: Name of what was measured.
            size: Size at which it was measured.
            figures: Figures by name.
            bound: Whether the figures are lower bounds, because something was stopped. Plots show
                them as hollow markers, and slopes leave them out.
        """
        for figure, value in figures.items():
            key = part, what, figure
            self._curves.setdefault(key, {})[size] = float(value)
            self.report.row(part, what, size, figure + " at least" * bound, float(value))
            if bound:
                self._bounds.add((key, size))
        said = ", ".join(f"{figure} {value:.4g}" for figure, value in figures.items())
        self.report.say(f"{part}, {what}, {size}: {'at least ' * bound}{said}")

    def at(self, part: str, what: str, figure: str) -> dict[int, float]:
        r"""Return a figure by size, empty if nothing was measured."""
        return self._curves.get((part, what, figure), {})

    def slope(self, part: str, what: str, figure: str) -> float:
        r"""Return the power of the size with which a figure grows."""
        key = part, what, figure
        curve = {
            size: value for size, value in self.at(*key).items() if (key, size) not in self._bounds
        }
        return power(list(curve), list(curve.values()))

    def record_slopes(self, *figures: str) -> None:
        r"""Write the slope of each curve of these figures to the report."""
        for part, what, figure in self._curves:
            slope = self.slope(part, what, figure)
            if figure in figures and math.isfinite(slope):
                self.report.row(part, what, "", f"slope of {figure}", slope)

    def draw(self, ax: Any, part: str, figure: str, only: tuple[str, ...] = ()) -> None:
        r"""Plot the curves of a part with this figure, with their slopes in the legend."""
        for key, curve in self._curves.items():
            if (key[0], key[2]) != (part, figure) or (only and key[1] not in only):
                continue
            slope, color = self.slope(*key), COLORS[len(ax.lines) % len(COLORS)]
            label = key[1] + (f" ({slope:.2f})" if math.isfinite(slope) else "")
            faces = ["white" if (key, size) in self._bounds else color for size in curve]
            ax.plot(list(curve), list(curve.values()), color=color, lw=1.3, label=label)
            ax.scatter(list(curve), list(curve.values()), 14, faces, edgecolors=color, zorder=3)
