r"""Ratios of paired runs, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: Number of bootstrap samples, and the part of them inside an interval.
SAMPLES, INSIDE = 2_000, 0.95


class Ratio(NamedTuple):
    r"""A geometric mean of ratios with its interval."""

    value: float
    low: float
    high: float
    runs: int


def ratio(logarithms: Sequence[np.ndarray]) -> Ratio:
    r"""Return the geometric mean of ratios over problems, each of which counts the same.

    The interval is that of a bootstrap over the paired runs of each problem. The problems are
    given.

    Args:
        logarithms: Logarithms of the ratios of paired runs, one array per problem.

    Example:
        >>> import numpy as np
        >>> from benchmarks.paired import ratio
        >>> round(ratio([np.log([2.0, 2.0]), np.log([0.5])]).value, 3)
        1.0
    """
    rng = np.random.default_rng(0)
    mean = np.mean([some.mean() for some in logarithms])
    means = np.zeros(SAMPLES)
    for some in logarithms:
        means += some[rng.integers(len(some), size=(SAMPLES, len(some)))].mean(1)
    outside = (1 - INSIDE) / 2
    low, high = np.quantile(means / len(logarithms), [outside, 1 - outside])
    runs = sum(map(len, logarithms))
    return Ratio(*map(float, np.exp([mean, low, high])), runs)
