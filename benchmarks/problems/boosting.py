r"""Tuning of gradient boosting on scikit-learn's digits: eight mixed parameters, noisy scores."""

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
#: Number of training images, and of test images. It is small, so that a score is fast and noisy.
IMAGES = 200
#: The split on which the current task is evaluated.
SPLIT: ContextVar[int] = ContextVar("split")


@cache
def images() -> tuple[np.ndarray, np.ndarray]:
    r"""Return all images and their labels."""
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def score(parameters: Mapping[str, Any], split: int) -> float:
    r"""Train on some images, and return the mean log-likelihood of others in nats.

    Args:
        parameters: Parameters of the classifier.
        split: Number of the split, which is also the seed of the classifier.
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
    r"""Return the score on the split of the current task."""
    return score(parameters, SPLIT.get())


def score_at(x: Tensor) -> float:
    r"""Return the score at coordinates of the box, on the split of the current task."""
    return score_now(SPACE.decode(x))


def on_split(split: int, task: Callable[..., T], *args: Any) -> T:
    r"""Run a task with this split as the current one, and return its result."""
    SPLIT.set(split)
    return task(*args)


def prepare() -> None:
    r"""Load the data and limit an evaluating process to one thread."""
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import threadpool_limits

    images()
    threadpool_limits(1)
