r"""Gradient boosting on scikit-learn's digits: eight settings of all kinds, seen with noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from botorch_bkb.integrations.spaces import Dimension, Space

T = TypeVar("T")

SPACE = Space(
    (
        Dimension("learning_rate", 0.01, 0.3, log=True),
        Dimension("l2_regularization", 1e-4, 1e2, log=True),
        Dimension("max_features", 0.05, 1.0),
        Dimension.grid("max_iter", 2, 12),
        Dimension.grid("max_leaf_nodes", 2, 32, log=True),
        Dimension.grid("min_samples_leaf", 1, 60, log=True),
        Dimension.grid("max_bins", 2, 64, log=True),
        Dimension.choices("interaction_cst", ("no_interactions", "pairwise", None)),
    )
)
#: Images to learn from, and as many others to be judged by: few, so that it is quick and noisy.
IMAGES = 200
#: The split on which the present task is to be evaluated.
SPLIT: ContextVar[int] = ContextVar("split")


@cache
def images() -> tuple[np.ndarray, np.ndarray]:
    r"""All images and what they show."""
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def score(parameters: Mapping[str, Any], split: int) -> float:
    r"""Learn from some images and return the average log-likelihood of others, in nats.

    Args:
        parameters: A point of the space.
        split: Number of the split, which is also the seed of the learner.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    X, y = images()
    X, held_out, y, truth = train_test_split(
        X, y, train_size=IMAGES, test_size=IMAGES, stratify=y, random_state=split
    )
    learner = HistGradientBoostingClassifier(
        early_stopping=False, random_state=split, **parameters
    ).fit(X, y)
    return -float(log_loss(truth, learner.predict_proba(held_out)))


def score_now(parameters: Mapping[str, Any]) -> float:
    r"""The score on the split of the present task."""
    return score(parameters, SPLIT.get())


def score_at(x: Tensor) -> float:
    r"""The same at coordinates of the box."""
    return score_now(SPACE.decode(x))


def on_split(split: int, task: Callable[..., T], *args: Any) -> T:
    r"""What a task returns that is evaluated on this split."""
    SPLIT.set(split)
    return task(*args)


def prepare() -> None:
    r"""Load everything, and take one thread: for a process that evaluates."""
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import threadpool_limits

    images()
    threadpool_limits(1)
