r"""What a journal knows of the optimizer, and how to construct it again."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from botorch_bkb.encoding import VALUES, NotWritable, encode
from botorch_bkb.journal.files import JournalError
from botorch_bkb.optimizers import ALGORITHMS, Optimizer, Parts

logger = logging.getLogger("botorch_bkb")

#: The classes that a journal can construct, by name.
CLASSES: dict[str, type[Optimizer]] = {"Optimizer": Optimizer, **ALGORITHMS}


def described(optimizer: Optimizer) -> dict[str, Any]:
    r"""Return class, parts and seed of an optimizer; what cannot be written down, in words."""
    parts: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for field in fields(Parts):
        part = getattr(optimizer.parts, field.name)
        problems = _unwritable(field.name, part)
        unknown |= problems
        if not problems:
            parts[field.name] = part
    name = type(optimizer).__name__
    if CLASSES.get(name) is not type(optimizer):
        name = f"a class {name} of your own"
    return {
        "algorithm": name,
        "parts": parts,
        "seed": optimizer.seed,
        "unknown": unknown,
        "device": optimizer.device.type,
    }


def _unwritable(name: str, part: Any) -> dict[str, str]:
    r"""Return what of a part cannot be written down, by argument."""
    kind = type(part)
    if kind not in VALUES.values():
        is_ours = kind.__module__.startswith("botorch_bkb.")
        return {name: f"a {kind.__name__}{'' if is_ours else ' of your own'}"}
    problems = {}
    for field in fields(part):
        try:
            encode(getattr(part, field.name))
        except NotWritable as error:
            argument = name if field.name == "make" else field.name
            problems[argument] = str(error)
    return problems


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    r"""Return the arguments of an optimizer that differ from their defaults, for display.

    Args:
        settings: What :func:`described` returned.
    """
    shown: dict[str, Any] = {}
    for name, part in settings.get("parts", {}).items():
        values = {f.name: getattr(part, f.name) for f in fields(part)}
        defaults = {f.name: f.default for f in fields(part)}
        given = {k: v for k, v in values.items() if isinstance(v, Tensor) or v != defaults[k]}
        is_known = name in ("dictionary", "batch", "acquisition")
        shown |= {name: part} if is_known else given
    if settings.get("seed") is not None:
        shown["seed"] = settings["seed"]
    return {**shown, **settings.get("unknown", {})}


def constructed(settings: dict[str, Any]) -> Optimizer:
    r"""Construct the optimizer that :func:`described` saw, as it was in the beginning.

    Raises:
        JournalError: Something of it could not be written down.
    """
    name, unknown = settings["algorithm"], settings["unknown"]
    if name not in CLASSES:
        unknown = {"the optimizer": name, **unknown}
    if unknown:
        listed = ", ".join(f"{key} = {value}" for key, value in unknown.items())
        raise JournalError(
            f"A journal cannot keep {listed}: pass `optimizer`, constructed as it was for the run."
        )
    device = settings["device"]
    if device == "cuda" and not torch.cuda.is_available():
        logger.warning("The run was on a GPU, but there is none. It continues on the CPU.")
        device = "cpu"
    parts = dict(settings["parts"])
    domain = parts["domain"]
    tensors = {
        f.name: value.to(device)
        for f in fields(domain)
        if isinstance(value := getattr(domain, f.name), Tensor)
    }
    parts["domain"] = replace(domain, **tensors)
    return CLASSES[name].from_parts(Parts(**parts), settings["seed"])
