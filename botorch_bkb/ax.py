r"""Ax integration (extra ``ax``): importing this module lets Ax save and load our classes.

Example:
    >>> import botorch_bkb.ax  # doctest: +SKIP
    >>> from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
    >>> from ax.generators.torch.botorch_modular.utils import ModelConfig
    >>> from botorch_bkb import DTCGP, RidgeLeverageSampling
    >>> spec = SurrogateSpec(model_configs=[ModelConfig(
    ...     botorch_model_class=DTCGP,
    ...     model_options={"dictionary": RidgeLeverageSampling(2.0)},
    ... )])
"""

from __future__ import annotations

try:
    from ax.storage.botorch_modular_registry import (
        register_acquisition_function,
        register_model,
    )
    from ax.storage.json_store.registry import CORE_DECODER_REGISTRY
except ImportError as error:
    raise ImportError("botorch_bkb.ax needs Ax: pip install 'botorch-bkb[ax]'") from error

from botorch_bkb.acquisition import BudgetedUCB
from botorch_bkb.dictionaries import (
    AllPoints,
    Automatic,
    InformationThreshold,
    RidgeLeverageSampling,
)
from botorch_bkb.models import DTCGP, CompressedGP

for _model in (DTCGP, CompressedGP):
    register_model(_model)
register_acquisition_function(BudgetedUCB)
for _rule in (AllPoints, Automatic, InformationThreshold, RidgeLeverageSampling):
    CORE_DECODER_REGISTRY[_rule.__name__] = _rule
