r"""The points of a run: from a suggestion to a reward, and telling it to the optimizer."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import torch
from botorch.exceptions.errors import BotorchError
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_bkb.domains import Suggestion
from botorch_bkb.domains.reading import LARGEST
from botorch_bkb.optimizers import Optimizer

logger = logging.getLogger("botorch_bkb")

#: The id of a point that the optimizer does not know.
UNKNOWN = -2


class Point(NamedTuple):
    r"""One point of a run."""

    number: int  #: position among all points of the run
    x: Tensor  #: ``d`` coordinates
    arm: int | None  #: row in the arms; None over a box
    id: int  #: the optimizer's id; -1 if it expects no result
    batch: int  #: number of tells before the point was asked
    beyond: bool = False  #: whether it lies beyond the batch rule


class Reward(NamedTuple):
    r"""A reward, and its noise variance if known."""

    value: float
    variance: float | None = None


def points_of(suggestion: Suggestion, first: int, batch: int) -> list[Point]:
    r"""Return the points of a suggestion, numbered from ``first``."""
    arms = [None] * len(suggestion) if suggestion.indices is None else suggestion.indices.tolist()
    return [
        Point(first + i, suggestion.X[i], arm, id_, batch, beyond)
        for i, (arm, id_, beyond) in enumerate(
            zip(arms, suggestion.ids, suggestion.beyond.tolist(), strict=True)
        )
    ]


def suggestion_of(points: list[Point]) -> Suggestion:
    r"""Return points as a suggestion of :meth:`~botorch_bkb.optimizers.Optimizer.ask`."""
    X = torch.stack([point.x for point in points])
    arms = [point.arm for point in points if point.arm is not None]
    indices = torch.tensor(arms, device=X.device) if len(arms) == len(points) else None
    return Suggestion(X, indices, tuple(point.id for point in points))


def tell(optimizer: Optimizer, results: list[tuple[Point, Reward | None]]) -> None:
    r"""Tell the optimizer the rewards of some points, and give up points without one.

    Variances are used where they are known. A result that the optimizer refuses is left out, with
    a warning.

    Args:
        optimizer: The optimizer.
        results: Points and their rewards; None for a point that failed.
    """
    known = set(optimizer.pending.ids)
    results = [(p if p.id in known else p._replace(id=UNKNOWN), reward) for p, reward in results]
    rewarded = [(point, reward) for point, reward in results if reward is not None]
    if not _try_to_tell(optimizer, rewarded):
        for pair in rewarded:
            if not _try_to_tell(optimizer, [pair]):
                logger.warning("Point %d is left out: %s", pair[0].number, pair[1])
    left = set(optimizer.pending.ids)
    lost = [point for point, _ in results if point.id in left]
    if lost:
        optimizer.give_up(suggestion_of(lost))


def _try_to_tell(optimizer: Optimizer, group: list[tuple[Point, Reward]]) -> bool:
    r"""Tell a group of results; return whether the optimizer took all of them, or else none."""
    if not group:
        return True
    known = [reward.variance for _, reward in group]
    is_first = not optimizer.num_observations and None not in known
    # Where results are forgotten, variances must be known for all of them.
    left_out = optimizer.parts.model.forgets and not (is_first or optimizer.noise_is_known)
    variances = None if left_out else known
    suggestion = suggestion_of([point for point, _ in group])
    try:
        optimizer.tell(suggestion, [reward.value for _, reward in group], variances)
    except (BotorchError, NotPSDError, torch.linalg.LinAlgError) as error:
        logger.warning("The optimizer refused %d results: %s", len(group), error)
        return False
    return True


def read_reward(value: Any) -> Reward:
    r"""Convert what an objective returned for one point to a reward.

    Args:
        value: A number, or a number and its noise variance.

    Raises:
        ValueError: The value is neither.
    """
    pair = value if isinstance(value, (tuple, list)) else (value,)
    try:
        numbers = [float(v) + 0.0 for v in pair]  # no negative zero
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"the objective returned {value!r}, not a number ({error})") from None
    if len(numbers) not in (1, 2) or not all(abs(number) < LARGEST for number in numbers):
        raise ValueError(
            f"the objective must return a number below {LARGEST:g}, or such a reward and its "
            f"noise variance, got {value!r}"
        )
    if len(numbers) == 2 and numbers[1] <= 0:
        raise ValueError(f"the objective must return a positive noise variance, got {numbers[1]}")
    return Reward(*numbers)
