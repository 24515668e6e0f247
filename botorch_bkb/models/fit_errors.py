r"""Reasons of failed fits.

``fit_gpytorch_mll`` makes another attempt after a ``NotPSDError``. After the last one it reports
only that all attempts have failed. Here the report says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError, ModelFittingError, UnsupportedError
from botorch.fit import _fit_fallback
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError

from botorch_bkb.models.noise import noise_variances

#: Rows of the data at which a failed fit looks for values that are not finite.
ROWS = 1000


def fit_with_reasons(
    mll: MarginalLogLikelihood,
    *,
    optimizer: Callable[..., Any] = fit_gpytorch_mll_scipy,
    **kwargs: Any,
) -> MarginalLogLikelihood:
    r"""Fit a model as ``fit_gpytorch_mll`` does, and say why if all attempts fail.

    Args:
        mll: The marginal log likelihood of the model.
        optimizer: As in ``fit_gpytorch_mll``.
        kwargs: Further arguments of ``fit_gpytorch_mll``.

    Raises:
        ModelFittingError: All attempts have failed. Its cause is the last attempt's error.
        UnsupportedError: All hyperparameters are frozen.
    """
    if not any(p.requires_grad for p in mll.parameters()):
        raise UnsupportedError(
            "A fit needs a hyperparameter that may change, got a model without one that requires "
            "a gradient: use the model as it is, or call requires_grad_(True) on a part of it."
        )
    reasons: list[NotPSDError] = []

    def remembering(*args: Any, **options: Any) -> Any:
        try:
            return optimizer(*args, **options)
        except NotPSDError as error:
            reasons.append(error)
            raise

    try:
        return _fit_fallback(mll, optimizer=remembering, **kwargs)
    except ModelFittingError as error:
        if reasons:
            reason = f"{error} The last one: {explained(reasons[-1])}"
            raise ModelFittingError(reason) from reasons[-1]
        if not_finite := parts_that_are_not_finite(mll.model):
            raise ModelFittingError(
                f"{error} At the initial hyperparameters {' and '.join(not_finite)} must be "
                "finite, got NaN or infinite values: check the modules on your inputs, or rescale "
                "these (Normalize)."
            ) from error
        raise


@torch.no_grad()
def parts_that_are_not_finite(model: Any) -> list[str]:
    r"""Return the names of those parts of a model's prior that are not finite at its data.

    Args:
        model: A GP with training data. The kernel is tried on at most :data:`ROWS` rows.
    """
    (X,) = model.train_inputs
    X = model.transform_inputs(X) if model.training else X
    parts = {
        "the kernel matrix": model.covar_module(X[..., :ROWS, :]).to_dense(),
        "the prior mean": model.mean_module(X),
        "the noise variances": noise_variances(model.likelihood, model.train_targets.shape, X),
    }
    return [name for name, part in parts.items() if not torch.isfinite(part).all()]


def explained(reason: NotPSDError) -> str:
    r"""Return why an attempt failed, with what to do about it."""
    if isinstance(reason, InputDataError):  # it says so itself
        return str(reason)
    return (
        "the covariance of the training data, noise included, must be finite and positive definite "
        f"({reason}). Likely causes: a kernel that is not positive definite, or inputs on very "
        "different scales (use Normalize)."
    )
