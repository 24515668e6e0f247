r"""Errors for constructor arguments that a class does not have: what to use instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

Init = TypeVar("Init", bound=Callable[..., None])

EXACT = "every point observed is in the dictionary. BKB and BBKB sample it."
ONE = "it waits for feedback after every pick. BBKB and GPBUCB pick batches, or pass batch_rule."
BOX = "it belongs to a box that is searched: BKB(bounds=...) or BBKB(bounds=...)."
#: Remedies for arguments that users may expect of some class, or of all classes.
INSTEAD: dict[str, str] = {
    **dict.fromkeys(
        ("minimize", "maximize", "direction", "negate"),
        "rewards are maximised, negate them to minimise.",
    ),
    **dict.fromkeys(
        ("q", "batch_size"), "ask(n) gives n points, and max_batch_size bounds other batches."
    ),
    **dict.fromkeys(
        ("num_restarts", "raw_samples"), "it belongs into acquisition_options, a dict."
    ),
    **dict.fromkeys(("oversampling", "coupled", "horizon", "dictionary"), EXACT),
    **dict.fromkeys(("batch_threshold", "max_batch_size"), ONE),
    **dict.fromkeys(("num_initial", "discrete_dims", "acquisition_options"), BOX),
    "kernel": "it is called covar_module, as in BoTorch.",
    "lengthscale": "it belongs to covar_module, a gpytorch kernel.",
    "noise": "it is called noise_var, the variance of a reward.",
    "beta": "it is called width, a number of standard deviations.",
    "random_state": "it is called seed.",
    "device": "it is that of arms or bounds.",
    "dtype": "it is that of arms or bounds.",
    "compression": "pass dictionary=InformationThreshold(...), or use CompressedUCB.",
    "epsilon": "a number of nats belongs to CompressedUCB and InformationThreshold. The "
    "probability of a random arm is called probability, of EpsilonGreedy and Greedy.",
    "discard": "it belongs to CompressedUCB and InformationThreshold.",
    "on_uninformative": "it belongs to CompressedUCB and InformationThreshold.",
    "half_life": "it belongs to BKB, BBKB, GPUCB, GPBUCB, AdaBKB and AdaBBKB, and to Surrogate.",
    "trust_region": "it belongs to BKB, BBKB, GPUCB and GPBUCB over bounds, and to Box.",
    "probability": "it belongs to EpsilonGreedy and Greedy.",
    "acquisition": "its picks are defined by the algorithm. BKB and BBKB take other acquisitions.",
    "arms": "it cuts a box into cells. BKB and BBKB take arms.",
}


def explains_unknown_arguments(init: Init) -> Init:
    r"""Decorate a constructor so that unknown keyword arguments raise a helpful ``TypeError``.

    A constructor with ``**kwargs`` is left as it is: the one to which it passes them checks.
    """
    parameters = inspect.signature(init).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return init
    known = set(parameters) - {"self"}

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs.keys() - known:
            close = get_close_matches(name, known, 1)
            listed = f"there are {', '.join(sorted(known))}."
            guess = f"did you mean {close[0]!r}?" if close else listed
            raise TypeError(
                f"{type(self).__name__} has no argument {name!r}: {INSTEAD.get(name, guess)}"
            )
        init(self, *args, **kwargs)

    return checked  # type: ignore[return-value]
