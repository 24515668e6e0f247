r"""Checks of user input, with errors of the form: expected, got, remedy."""

from __future__ import annotations

import math
import sys
import warnings
from numbers import Integral
from typing import Any

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import Kernel
from torch import Tensor

#: Packages whose frames are not the user's: fits come through BoTorch, decorators through torch.
INSIDE = frozenset({"botorch_bkb", "botorch", "gpytorch", "linear_operator", "torch"})


def check_finite(name: str, value: Tensor, remedy: str = "drop or impute these rows") -> None:
    r"""Raise if ``value`` has NaN or infinite entries."""
    bad = ~torch.isfinite(value)
    if bad.any():
        first = tuple(torch.nonzero(bad)[0].tolist())
        raise InputDataError(
            f"{name} must be finite, got {value[first].item()} at {first} and "
            f"{int(bad.sum())} such values in total: {remedy}."
        )


def check_dense(name: str, value: Tensor) -> None:
    r"""Raise unless ``value`` has real numbers in memory, one for each entry."""
    if value.layout != torch.strided or value.is_meta:
        kind = "a meta tensor" if value.is_meta else f"one of layout {value.layout}"
        raise InputDataError(
            f"{name} must be a dense tensor with values, got {kind}: convert a sparse one with "
            "to_dense()."
        )
    if value.is_complex():
        raise InputDataError(
            f"{name} must be real, got {value.dtype}: pass the real part, or the modulus."
        )


def check_precision(name: str, value: Tensor) -> None:
    r"""Raise unless ``value`` is dense, and float32 or float64."""
    check_dense(name, value)
    if value.dtype not in (torch.float32, torch.float64):
        raise InputDataError(
            f"{name} must be floating point, float32 or float64, got {value.dtype}: convert with "
            ".double()."
        )


def check_squares(name: str, value: Tensor, terms: int | None = None) -> None:
    r"""Raise if ``value`` is not finite, or if sums of squared differences would overflow.

    Distances and variances are such sums.

    Args:
        name: What the error calls the values.
        value: A floating point tensor.
        terms: The number of squares in a sum; the size of the last dimension by default.
    """
    terms = value.shape[-1] if terms is None else terms
    largest = math.sqrt(torch.finfo(value.dtype).max / max(terms, 1)) / 4
    if value.numel() == 0 or bool(value.detach().abs().max() <= largest):
        return
    check_finite(name, value)
    raise InputDataError(
        f"{name} must be below {largest:.1g} in absolute value, so that squares fit "
        f"{value.dtype}, got {value.detach().abs().max().item():g}: rescale it (Normalize for "
        "inputs, Standardize for outcomes of moderate size)."
    )


class BroadcastError(BotorchTensorDimensionError, RuntimeError):
    r"""An error for shapes that do not broadcast, which torch reports as a ``RuntimeError``."""


def check_query(X: Tensor, columns: int, batch_shape: torch.Size) -> None:
    r"""Raise if a model cannot be evaluated at ``X``.

    Args:
        X: A ``... x q x d`` tensor, as the kernel sees it.
        columns: The number ``d`` of columns that the kernel takes.
        batch_shape: The batch shape of the model, with its outputs.
    """
    if X.dim() < 2:
        raise BotorchTensorDimensionError(
            f"X must be a q x {columns} tensor, or batches of such, got shape {tuple(X.shape)}."
        )
    check_squares("X", X)
    if X.shape[-1] != columns:
        raise BotorchTensorDimensionError(
            f"X must have {columns} columns, as train_X, got shape {tuple(X.shape)}."
        )
    check_broadcast("X", X.shape[:-2], "the model and its outputs", batch_shape)


def check_broadcast(name: str, shape: torch.Size, other: str, expected: torch.Size) -> None:
    r"""Raise if two batch shapes do not broadcast."""
    for size, length in zip(reversed(shape), reversed(expected), strict=False):
        if size != length and 1 not in (size, length):
            raise BroadcastError(
                f"Attempting to broadcast a dimension of length {size} to one of length {length}: "
                f"the batch shape of {name}, {tuple(shape)}, must broadcast with that of {other}, "
                f"{tuple(expected)}."
            )


class DimensionalityError(BotorchTensorDimensionError, RuntimeError):
    r"""An error for inputs of other dimensions than a kernel's, gpytorch's ``RuntimeError``."""


def check_dimensionality(expected: int | None, got: int) -> None:
    r"""Raise, in the words of gpytorch, unless inputs have the dimensions that a kernel expects.

    Args:
        expected: ``ard_num_dims`` of the kernel.
        got: The number of dimensions that it reads.
    """
    if expected is None or expected == got:
        return
    raise DimensionalityError(
        f"Expected the input to have {expected} dimensionality (based on the ard_num_dims "
        f"argument). Got {got}: pass ard_num_dims={got}, or as many active_dims as length-scales."
    )


def level_of_user() -> int:
    r"""Return the ``stacklevel`` with which a warning of the caller points to the user's code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in INSIDE:
        frame, level = frame.f_back, level + 1
    return level


def warn_of_single_precision(name: str, value: Tensor) -> None:
    r"""Warn, as BoTorch does, if ``value`` is not float64."""
    if value.dtype != torch.float64:
        warnings.warn(
            f"{name} are of type {value.dtype}. Double precision is recommended, as everywhere in "
            "BoTorch. Rounding makes posterior variances too large. Convert with .double(). Ignore "
            "this if memory or a GPU requires it. All m x m algebra is float64 anyway.",
            InputDataWarning,
            stacklevel=level_of_user(),
        )


def check_variances(name: str, value: Tensor) -> None:
    r"""Raise if any noise variance is negative or not finite."""
    check_finite(name, value)
    if (value < 0).any():
        raise InputDataError(
            f"{name} must not be negative, got a smallest value of {value.min().item()}: "
            "use a small variance such as 1e-6 for observations without noise."
        )


def check_training_data(X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
    r"""Raise if training data have a wrong type, size or value.

    ``SingleTaskGP`` reports these errors later or not at all.
    """
    for name, value in (("train_X", X), ("train_Y", Y), ("train_Yvar", Yvar)):
        if not isinstance(value, Tensor) and not (value is None and name == "train_Yvar"):
            raise InputDataError(
                f"{name} must be a tensor, got {type(value).__name__}: convert it with "
                f"torch.as_tensor({name}, dtype=torch.float64)."
            )
        if value is not None:
            check_dense(name, value)
    if X.dim() == Y.dim() and X.shape[:-1] != Y.shape[:-1]:
        raise BotorchTensorDimensionError(
            "train_X and train_Y must agree in all but the last dimension, got shapes "
            f"{tuple(X.shape)} and {tuple(Y.shape)}."
        )
    if X.dim() > 1 and X.shape[-2] == 0:
        raise InputDataError(f"train_X must have at least one row, got shape {tuple(X.shape)}.")
    check_finite("train_X", X)
    if Y.is_floating_point():
        check_squares("train_Y", Y, Y.numel())
    if Yvar is not None:
        check_variances("train_Yvar", Yvar)


def check_indices(indices: Tensor, n: int) -> Tensor:
    r"""Return dictionary indices, sorted and without duplicates; raise if they are invalid.

    Args:
        indices: A one-dimensional tensor of integers.
        n: The number of training points.
    """
    if indices.dim() != 1 or indices.is_floating_point() or indices.dtype == torch.bool:
        raise InputDataError(
            "dictionary indices must be a one-dimensional LongTensor, got "
            f"{indices.dtype} of shape {tuple(indices.shape)}."
        )
    if len(indices) == 0:
        raise InputDataError(
            "The dictionary must have at least one point, got no index: pass "
            "dictionary=None to let the model choose it."
        )
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= n:
        raise InputDataError(
            f"dictionary indices must lie in 0..{n - 1}, the rows of train_X, got {low}..{high}."
        )
    return indices.long().unique()


def check_kernel(kernel: object) -> None:
    r"""Raise unless ``kernel`` is None or a gpytorch kernel."""
    if kernel is None or isinstance(kernel, Kernel):
        return
    raise InputDataError(
        f"covar_module must be a gpytorch kernel or None, got {kernel!r}: pass for instance "
        "gpytorch.kernels.RBFKernel()."
    )


def check_max_size(size: int | None) -> None:
    r"""Raise unless ``size`` is None or a positive number."""
    if size is None or (isinstance(size, Integral) and size >= 1):
        return
    raise InputDataError(
        f"A dictionary needs at least one point, got a size of {size!r}: pass a whole number."
    )


def check_positive_integer(name: str, value: int | None) -> None:
    r"""Raise unless ``value`` is None or a positive integer."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return
    raise InputDataError(f"{name} must be a positive integer, got {value!r}.")


def is_between(value: Any, low: float, high: float, ends: bool = False) -> bool:
    r"""Return whether ``value`` is a number between ``low`` and ``high``."""
    try:
        return bool(low <= value <= high if ends else low < value < high)
    except (TypeError, ValueError, RuntimeError):  # cannot be compared, or not as a whole
        return False


def check_between(
    name: str, value: float | None, low: float, high: float, ends: bool = False
) -> None:
    r"""Raise unless ``value`` is None or lies between ``low`` and ``high``."""
    if value is None or is_between(value, low, high, ends):
        return
    kind = "between" if ends else "strictly between"
    raise InputDataError(f"{name} must be {kind} {low} and {high}, got {value!r}.")
