r"""Calls of an optimizer: one at a time, each of them whole or not at all, with clear errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from botorch.exceptions.errors import BotorchError, InputDataError
from linear_operator.utils.errors import NanError, NotPSDError

from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.results import BatchCompleteError, ConvergedError

#: Answers of ``ask`` other than a suggestion. What was computed for them is kept.
ANSWERS = (BatchCompleteError, ConvergedError)


#: What factorisations raise.
NUMERICAL = (NotPSDError, NanError, torch.linalg.LinAlgError)

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound=Any)


def exclusive(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    r"""Decorate a method so that other threads wait until it has returned.

    A factorisation that fails ends in an error that says what to change.
    """

    @functools.wraps(method)
    def locked(self: G, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            try:
                return method(self, *args, **kwargs)
            except NUMERICAL as error:
                if isinstance(error, BotorchError):
                    raise
                raise unstable(self.parts.model, str(error)) from error

    return locked


def transaction(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    r"""Decorate a method so that it is exclusive, and changes nothing if it raises.

    An interrupt counts as an error. Answers like "the batch is complete" do not.
    """

    @functools.wraps(method)
    def transacted(self: G, *args: P.args, **kwargs: P.kwargs) -> R:
        before = self.parts, self._state
        try:
            return method(self, *args, **kwargs)
        except ANSWERS:
            raise
        except BaseException:
            self._restore(*before)
            raise

    return exclusive(transacted)


def unstable(surrogate: Surrogate, reason: str) -> InputDataError:
    r"""Return the error for a belief that cannot be computed in floating point.

    Args:
        surrogate: Kernel and noise.
        reason: What went wrong.
    """
    kernel = surrogate.covar_module
    return InputDataError(
        "The belief must be finite and its variances positive, got neither with covar_module="
        f"{type(kernel).__name__ if kernel is not None else None} and noise_var="
        f"{surrogate.noise_var} ({reason}): check that the kernel is positive semi-definite, take "
        "a larger noise_var, or rescale inputs and rewards."
    )
