r"""What a journal knows of the optimizer, and how to construct it again."""

from __future__ import annotations

from typing import Any

from botorch_bkb.encoding import NotWritable, decode, encode
from botorch_bkb.journal.errors import JournalError
from botorch_bkb.optimizers import ALGORITHMS, Optimizer


def described(optimizer: Optimizer) -> dict[str, Any]:
    r"""Algorithm and arguments; of those that cannot be written down, what they were."""
    arguments, unknown = {}, {}
    for name, value in optimizer.arguments.items():
        try:
            arguments[name] = decode(encode(value))
        except NotWritable as error:
            unknown[name] = str(error)
    name = type(optimizer).__name__
    if ALGORITHMS.get(name) is not type(optimizer):
        name = f"a class {name} of your own"
    return {"algorithm": name, "arguments": arguments, "unknown": unknown}


def constructed(settings: dict[str, Any]) -> Optimizer:
    r"""The optimizer that :func:`described` saw, as it was in the beginning.

    Raises:
        JournalError: Something of it could not be written down.
    """
    name, unknown = settings["algorithm"], settings["unknown"]
    if name not in ALGORITHMS:
        unknown = {"the optimizer": name, **unknown}
    if unknown:
        listed = ", ".join(f"{key} = {value}" for key, value in unknown.items())
        raise JournalError(
            f"A journal cannot keep {listed}: pass `optimizer`, constructed as it was for the run."
        )
    return ALGORITHMS[name](**settings["arguments"])
