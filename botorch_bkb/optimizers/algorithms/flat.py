r"""From the flat keyword arguments of the named algorithms to parts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from torch import Tensor

from botorch_bkb.dictionaries import DictionaryRule, RidgeLeverageSampling, as_rule
from botorch_bkb.dictionaries.leverage import THEORY
from botorch_bkb.domains import Arms, Box, Domain, TrustRegion
from botorch_bkb.validation import level_of_user


def as_domain(
    arms: Tensor | None,
    bounds: Tensor | None,
    *,
    num_initial: int | None,
    discrete_dims: Mapping[int, Sequence[float]] | None,
    acquisition_options: Mapping[str, Any] | None,
    keep_coordinates: bool,
    max_replicates: int | None = None,
    trust_region: TrustRegion | None = None,
) -> Domain:
    r"""Return the arms or the box that a user meant."""
    if (arms is None) == (bounds is None):
        raise InputDataError(
            "Pass either arms, an A x d tensor of candidates, or bounds, a 2 x d tensor, got "
            f"{'neither' if arms is None else 'both'}."
        )
    if bounds is not None:
        if max_replicates is not None:
            raise InputDataError(
                f"max_replicates goes with arms, not bounds, got {max_replicates}: leave it out."
            )
        return Box(
            bounds,
            num_initial=num_initial,
            discrete_dims=discrete_dims,
            acquisition_options=acquisition_options,
            trust_region=trust_region,
            keep_coordinates=keep_coordinates,
        )
    if any(value is not None for value in (discrete_dims, acquisition_options, trust_region)):
        raise InputDataError(
            "discrete_dims, acquisition_options and trust_region go with bounds, not arms."
        )
    assert arms is not None
    domain = Arms(
        arms,
        keep_coordinates=keep_coordinates,
        num_initial=num_initial,
        max_replicates=max_replicates,
    )
    if len(arms) == 2:
        warnings.warn(
            "There are two arms. If they are the corners of a box, pass them as bounds.",
            InputDataWarning,
            stacklevel=level_of_user(),
        )
    return domain


def as_dictionary(
    domain: Domain,
    dictionary: DictionaryRule | None,
    *,
    oversampling: float | str | None,
    coupled: bool,
    horizon: int | None,
    max_dictionary: int | None,
) -> DictionaryRule:
    r"""Return the rule that a user gave, or ridge leverage sampling by the flat arguments."""
    if dictionary is None:
        if oversampling is None:
            oversampling = domain.default_oversampling
        if max_dictionary is None and oversampling != THEORY:  # a cap voids the theorem
            max_dictionary = domain.default_max_dictionary
        return RidgeLeverageSampling(oversampling, max_dictionary, coupled=coupled, horizon=horizon)
    idle = {
        "oversampling": oversampling is not None,
        "coupled": not coupled,
        "horizon": horizon is not None,
        "max_dictionary": max_dictionary is not None,
    }
    if any(idle.values()):
        names = ", ".join(name for name, is_given in idle.items() if is_given)
        raise InputDataError(
            f"{names} has no effect beside dictionary={dictionary!r}: give it to the rule, as in "
            "RidgeLeverageSampling(8.0, max_size=500, coupled=False, horizon=1000)."
        )
    return as_rule(dictionary)
