r"""Saved states of optimizers: what is in them, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botorch.exceptions.errors import InputDataError

from botorch_bkb.dictionaries import FourierFeatures
from botorch_bkb.optimizers.parts import Parts
from botorch_bkb.optimizers.regions import first_regions
from botorch_bkb.state.state import State

#: The version of saved states. It changes with their form.
VERSION = 8


def header(algorithm: str, parts: Parts) -> dict[str, Any]:
    r"""Return what an optimizer must have in common with a saved state to load it."""
    return {
        "version": VERSION,
        "algorithm": algorithm,
        "domain": parts.domain.checksum,
        "believes": believes(parts),
        "trust_regions": len(first_regions(parts.domain)),
    }


def believes(parts: Parts) -> str:
    r"""Return in words which results the belief holds."""
    if isinstance(parts.dictionary, FourierFeatures):
        return f"everything through {parts.dictionary!r}"
    if parts.model.forgets:
        return f"everything, with a half-life of {parts.model.half_life:g}"
    if parts.threshold.least_score is None:
        return "everything"
    if parts.threshold.discard:
        return "informative results"
    return "everything through informative inputs"


def save(algorithm: str, parts: Parts, state: State) -> dict[str, Any]:
    r"""Return a state with its header, as numbers, strings, lists and tensors."""
    return {**header(algorithm, parts), **state.to_dict()}


def load(algorithm: str, parts: Parts, saved: Mapping[str, Any]) -> State:
    r"""Return the state that :func:`save` has saved.

    Raises:
        InputDataError: It belongs to another version or another optimizer, or it is damaged.
    """
    rest = dict(saved)
    version = rest.get("version")
    if version != VERSION:
        raise InputDataError(
            f"The state must have version {VERSION}, got {version!r}: it was saved by another "
            "version of botorch_bkb. Load it with that version, or tell its results to a new "
            "optimizer."
        )
    for key, value in header(algorithm, parts).items():
        if (got := rest.pop(key, None)) != value:
            raise InputDataError(
                f"The state is of another optimizer: {key} should be {value!r}, got {got!r}. "
                "Construct the optimizer as the saved one was, over the same arms or bounds."
            )
    like = parts.domain.index.X
    try:
        return State.from_dict(rest, parts.initial_hyperparameters().kernel, like.device)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputDataError(f"The state is damaged or of another kind: {error}") from error
