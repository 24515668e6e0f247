r"""BoTorch's input constructors: that of ``BudgetedUCB``, and acquisition functions from a class.

BoTorch's registry imports ``scipy.stats``, which takes as long as the rest of this package. So this
module is imported when it is needed, and not with the package.
"""

from __future__ import annotations

from typing import Any

from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import (
    acqf_input_constructor,
    get_acqf_input_constructor,
)
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import InputDataError
from botorch.models.model import Model
from botorch.sampling.pathwise.utils import get_train_inputs
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from botorch_bkb.acquisition.baseline import select_baseline
from botorch_bkb.acquisition.budgeted_ucb import BudgetedUCB
from botorch_bkb.models import DTCGP


@acqf_input_constructor(BudgetedUCB)
def _construct_budgeted_ucb(
    model: Model,
    posterior_transform: PosteriorTransform | None = None,
    width: float = 2.0,
    maximize: bool = True,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    return {
        "model": model,
        "posterior_transform": posterior_transform,
        "width": width,
        "maximize": maximize,
        "X_pending": X_pending,
    }


def check_constructor(kind: type[AcquisitionFunction]) -> None:
    r"""Raise unless BoTorch knows how to construct a class of acquisition functions."""
    try:
        get_acqf_input_constructor(kind)
    except RuntimeError as error:
        raise InputDataError(
            f"BoTorch has no input constructor for {kind.__name__}: pass a function that makes one "
            "of a model."
        ) from error


def construct(kind: type[AcquisitionFunction], model: DTCGP) -> AcquisitionFunction:
    r"""Construct an acquisition function over the unit cube by BoTorch's input constructor.

    Args:
        kind: A class that BoTorch knows how to construct.
        model: The model. The constructor gets its training data and a small baseline.
    """
    Y = model.train_targets.unsqueeze(-1)  # first: this merges observations appended lately
    (X,) = get_train_inputs(model, transformed=False)
    names = [f"x{i}" for i in range(X.shape[-1])]
    offered = {
        "model": model,
        "training_data": SupervisedDataset(X, Y, feature_names=names, outcome_names=["reward"]),
        "X_baseline": select_baseline(model),
        "bounds": [(0.0, 1.0)] * X.shape[-1],
    }
    return kind(**get_acqf_input_constructor(kind)(**offered))
