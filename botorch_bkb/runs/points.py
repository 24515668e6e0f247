r"""Points on their way from a suggestion to an outcome."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import torch
from botorch.exceptions.errors import BotorchError
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_bkb.optimizers import Optimizer, Suggestion
from botorch_bkb.optimizers.reading import LARGEST

logger = logging.getLogger("botorch_bkb")

#: The id of a point that the optimizer does not know of.
UNKNOWN = -2


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

    Variances are used if the noise is given or they came with the first results. A result the
    optimizer refuses is left out.
    """
    known = set(optimizer.pending.ids)
    results = [(p if p.id in known else p._replace(id=UNKNOWN), reward) for p, reward in results]
    rewarded = [(point, reward) for point, reward in results if reward is not None]
    # First those with a variance: it is what the noise is known by from then on.
    for has_variance in (True, False):
        group = [pair for pair in rewarded if (pair[1].variance is not None) is has_variance]
        if not _told(optimizer, group):
            for pair in group:
                if not _told(optimizer, [pair]):
                    logger.warning("Point %d is left out: %s", pair[0].number, pair[1])
    left = set(optimizer.pending.ids)
    lost = [point for point, _ in results if point.id in left]
    if lost:
        optimizer.give_up(suggestion_of(lost))


def _told(optimizer: Optimizer, group: list[tuple[Point, Reward]]) -> bool:
    r"""Whether the optimizer has taken all of it; it has taken nothing otherwise."""
    if not group:
        return True
    variances: list[float | None] | None = [reward.variance for _, reward in group]
    if group[0][1].variance is None or (
        optimizer.num_observations and not optimizer.noise_is_known
    ):
        variances = None
    suggestion = suggestion_of([point for point, _ in group])
    try:
        optimizer.tell(suggestion, [reward.value for _, reward in group], variances)
    except (BotorchError, NotPSDError, torch.linalg.LinAlgError) as error:
        logger.warning("The optimizer refuses %d results: %s", len(group), error)
        return False
    return True


def read_reward(value: Any) -> Reward:
    r"""What an objective returned for one point: a reward, or a reward and its noise variance.

    Raises:
        ValueError: It is neither.
    """
    pair = value if isinstance(value, (tuple, list)) else (value,)
    try:
        numbers = [float(v) + 0.0 for v in pair]  # no negative zero
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"the objective returned {value!r}, not a number ({error})") from None
    if len(numbers) not in (1, 2) or not all(abs(number) < LARGEST for number in numbers):
        raise ValueError(
            f"the objective returned {value!r}: a number below {LARGEST:g} is expected, or a "
            "reward and its noise variance"
        )
    if len(numbers) == 2 and numbers[1] <= 0:
        raise ValueError(f"the objective returned a noise variance of {numbers[1]}, not positive")
    return Reward(*numbers)
