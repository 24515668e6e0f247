r"""Calls of an optimizer: one at a time, and each of them whole or not at all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from botorch_bkb.optimizers.results import BatchCompleteError, ConvergedError

#: Answers of ``ask`` other than a suggestion. What was computed for them is kept.
ANSWERS = (BatchCompleteError, ConvergedError)


P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound=Any)


def exclusive(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    r"""Decorate a method so that other threads wait until it has returned."""

    @functools.wraps(method)
    def locked(self: G, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked


def transaction(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    r"""Decorate a method so that it is exclusive, and changes nothing if it raises.

    An interrupt counts as an error. Answers like "the batch is complete" do not.
    """

    @functools.wraps(method)
    def transacted(self: G, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            before = self.parts, self._state
            try:
                return method(self, *args, **kwargs)
            except ANSWERS:
                raise
            except BaseException:
                self._restore(*before)
                raise

    return transacted
