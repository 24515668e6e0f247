r"""How a run begins."""

from __future__ import annotations

import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.arms import TableLog
from botorch_bkb.domains import Arms
from botorch_bkb.optimizers.elimination import first_stage
from botorch_bkb.optimizers.parts import Parts
from botorch_bkb.optimizers.regions import first_regions
from botorch_bkb.state.components import ConfidenceState, DictionaryState, ModelState
from botorch_bkb.state.in_flight import InFlight
from botorch_bkb.state.observations import Observations
from botorch_bkb.state.state import State


def seeded_generator(seed: int | None) -> torch.Generator:
    r"""Return a random generator; None seeds it from the system."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    elif isinstance(seed, int) and -(2**63) <= seed < 2**64:
        generator.manual_seed(seed)
    else:
        raise InputDataError(
            f"seed must be a whole number from -2^63 to 2^64 - 1, or None, got {seed!r}."
        )
    return generator


def initial_state(parts: Parts, generator: torch.Generator) -> State:
    r"""Return the state before the first ask.

    Args:
        parts: The parts of the optimizer.
        generator: Its source of randomness.
    """
    rows, surrogate = parts.domain.index.X, parts.model
    observations = Observations.none(rows)
    none = observations.history.means
    design_seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
    # A table needs a dictionary: before the first pull it is the row that is pulled first, which
    # the papers draw uniformly.
    first = torch.zeros(1, dtype=torch.long, device=rows.device)
    if isinstance(parts.domain, Arms):
        first += torch.randint(len(rows), (), generator=generator, device=generator.device).item()
    return State(
        observations=observations,
        in_flight=InFlight(design_seed, stage=first_stage(parts)),
        model=ModelState(
            parts.initial_hyperparameters(),
            surrogate.input_scale(parts.domain.extent),
            next_fit=surrogate.first_fit(parts.domain.dim),
            noise_known=surrogate.noise_var if surrogate.noise_is_fixed else None,
        ),
        dictionary=DictionaryState(none),
        confidence=ConfidenceState(parts.confidence.initial_norm),
        table=TableLog(len(rows), first, observations.history.rows, none, none),
        random=generator.get_state(),
        regions=first_regions(parts.domain),
    )
