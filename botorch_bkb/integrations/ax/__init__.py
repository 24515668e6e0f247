r"""Ax integration (extra ``ax``).

Importing this module registers the package's classes with Ax's storage.

There are two ways to use it. With :class:`BKBNode`, an algorithm of this package generates all
trials. :func:`dtcgp_generation_strategy` keeps Ax's own generator and gives it a model that scales.
The model alone can be used in any Ax surrogate specification:

Example:
    >>> from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
    >>> from ax.generators.torch.botorch_modular.utils import ModelConfig
    >>> from botorch_bkb import DTCGP, RidgeLeverageSampling
    >>> spec = SurrogateSpec(model_configs=[ModelConfig(
    ...     botorch_model_class=DTCGP,
    ...     model_options={"dictionary": RidgeLeverageSampling(2.0)},
    ... )])
"""

try:
    import ax.api.client  # noqa: F401
except ImportError as error:
    raise ImportError("botorch_bkb.ax needs Ax: pip install 'botorch-bkb[ax]'") from error

from botorch_bkb.integrations.ax import registrations  # noqa: F401
from botorch_bkb.integrations.ax.node import BKBNode, bkb_generation_strategy
from botorch_bkb.integrations.ax.strategy import SmallBaselineAcquisition, dtcgp_generation_strategy

__all__ = [
    "BKBNode",
    "SmallBaselineAcquisition",
    "bkb_generation_strategy",
    "dtcgp_generation_strategy",
]
