r"""Reasons of failed fits.

``fit_gpytorch_mll`` makes another attempt after a ``NotPSDError``. After the last one it reports
only that all attempts have failed. Here the report says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botorch.exceptions.errors import InputDataError, ModelFittingError
from botorch.fit import _fit_fallback
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError


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
    """
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
        if not reasons:
            raise
        raise ModelFittingError(f"{error} The last one: {explained(reasons[-1])}") from reasons[-1]


def explained(reason: NotPSDError) -> str:
    r"""Return why an attempt failed, with what to do about it."""
    if isinstance(reason, InputDataError):  # it says so itself
        return str(reason)
    return (
        "the covariance of the training data, noise included, must be finite and positive definite "
        f"({reason}). Likely causes: a kernel that is not positive definite, or inputs on very "
        "different scales (use Normalize)."
    )
