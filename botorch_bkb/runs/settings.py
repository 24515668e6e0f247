r"""What a journal knows of the optimizer, and how to construct it again."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from botorch_bkb.encoding import NotWritable, encode
from botorch_bkb.journal.files import JournalError
from botorch_bkb.optimizers import ALGORITHMS, Optimizer

logger = logging.getLogger("botorch_bkb")


def described(optimizer: Optimizer) -> dict[str, Any]:
    r"""Algorithm and arguments; of those that cannot be written down, what they were."""
    arguments, unknown = {}, {}
    for name, value in optimizer.arguments.items():
        try:
            encode(value)
        except NotWritable as error:
            unknown[name] = str(error)
        else:
            arguments[name] = value
    name = type(optimizer).__name__
    if ALGORITHMS.get(name) is not type(optimizer):
        name = f"a class {name} of your own"
    device = optimizer.tables.arms.device.type
    return {"algorithm": name, "arguments": arguments, "unknown": unknown, "device": device}


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
    device = settings["device"]
    if device == "cuda" and not torch.cuda.is_available():
        logger.warning("The run was on a GPU and there is none: it goes on without.")
        device = "cpu"
    arguments: dict[str, Any] = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in settings["arguments"].items()
    }
    return ALGORITHMS[name](**arguments)
