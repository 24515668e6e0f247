r"""Points on their way from a suggestion to an outcome."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from botorch_bkb.optimizers import Optimizer, Suggestion


class Point(NamedTuple):
    r"""One point of a run."""

    number: int  #: its place among all points of the run
    x: Tensor  #: ``d`` coordinates
    arm: int | None  #: its row in the arms; None over a box
    id: int  #: by which the optimizer knows it; -1 if it expects no result of it
    batch: int  #: how often the optimizer had been told results when it was asked


class Reward(NamedTuple):
    r"""A result that can be told."""

    value: float
    variance: float | None = None


def points_of(suggestion: Suggestion, first: int, batch: int) -> list[Point]:
    r"""The points of a suggestion, numbered from ``first``."""
    arms = [None] * len(suggestion) if suggestion.indices is None else suggestion.indices.tolist()
    return [
        Point(first + i, suggestion.X[i], arm, id_, batch)
        for i, (arm, id_) in enumerate(zip(arms, suggestion.ids, strict=True))
    ]


def suggestion_of(points: list[Point]) -> Suggestion:
    r"""What :meth:`~botorch_bkb.optimizers.Optimizer.ask` returned, or part of it."""
    X = torch.stack([point.x for point in points])
    arms = [point.arm for point in points if point.arm is not None]
    indices = torch.tensor(arms, device=X.device) if len(arms) == len(points) else None
    return Suggestion(X, indices, tuple(point.id for point in points))


def tell(optimizer: Optimizer, results: list[tuple[Point, Reward | None]]) -> None:
    r"""Tell the optimizer what came of some points; None where nothing did.

    Variances are used if the noise is given or they came with the first results.
    """
    known = set(optimizer.pending.ids)
    lost = [point for point, reward in results if reward is None and point.id in known]
    rewarded = [(point, reward) for point, reward in results if reward is not None]
    if optimizer.num_observations and not optimizer.noise_is_known:
        rewarded = [(point, Reward(reward.value)) for point, reward in rewarded]
    # First those with a variance: it is what the noise is known by from then on.
    groups: dict[tuple[bool, bool], list[tuple[Point, Reward]]] = {}
    for point, reward in sorted(rewarded, key=lambda pair: pair[1].variance is None):
        kind = (point.id in known, reward.variance is not None)
        groups.setdefault(kind, []).append((point, reward))
    for (asked, has_variance), group in groups.items():
        told = suggestion_of([point for point, _ in group])
        values = [reward.value for _, reward in group]
        variances = [reward.variance for _, reward in group] if has_variance else None
        optimizer.tell(told if asked else told.X, values, variances)
    if lost:
        optimizer.give_up(suggestion_of(lost))


def read_reward(value: Any) -> Reward:
    r"""What an objective returned for one point: a reward, or a reward and its noise variance.

    Raises:
        ValueError: It is neither.
    """
    pair = value if isinstance(value, (tuple, list)) else (value,)
    try:
        numbers = [float(v) for v in pair]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the objective returned {value!r}, not a number ({error})") from None
    if len(numbers) not in (1, 2) or not all(map(math.isfinite, numbers)):
        raise ValueError(
            f"the objective returned {value!r}: a finite number is expected, or a reward and its "
            "noise variance"
        )
    if len(numbers) == 2 and numbers[1] <= 0:
        raise ValueError(f"the objective returned a noise variance of {numbers[1]}, not positive")
    return Reward(*numbers)
