r"""Registration of the package's classes with Ax's storage."""

from __future__ import annotations

from ax.storage.botorch_modular_registry import (
    register_acquisition,
    register_acquisition_function,
    register_model,
)
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction

from botorch_bkb.acquisition import BudgetedUCB
from botorch_bkb.dictionaries import (
    AllPoints,
    Automatic,
    FromAllocator,
    InformationThreshold,
    QuadratureFeatures,
    RandomFeatures,
    RandomlyPivotedCholesky,
    RidgeLeverageSampling,
)
from botorch_bkb.integrations.ax.node import BKBNode
from botorch_bkb.integrations.ax.strategy import SmallBaselineAcquisition
from botorch_bkb.models import (
    DTCGP,
    CompressedGP,
    MixedDTCGP,
    MultiFidelityDTCGP,
    MultiTaskDTCGP,
)

for _model in (DTCGP, CompressedGP, MixedDTCGP, MultiFidelityDTCGP, MultiTaskDTCGP):
    register_model(_model)
register_acquisition_function(BudgetedUCB)
register_acquisition(SmallBaselineAcquisition)
for _rule in (
    AllPoints,
    Automatic,
    FromAllocator,
    InformationThreshold,
    QuadratureFeatures,
    RandomFeatures,
    RandomlyPivotedCholesky,
    RidgeLeverageSampling,
):
    CORE_DECODER_REGISTRY[_rule.__name__] = _rule
# It has no arguments. BoTorch's other allocator holds a model, which Ax cannot save.
CORE_ENCODER_REGISTRY[GreedyVarianceReduction] = lambda rule: {"__type": type(rule).__name__}
CORE_DECODER_REGISTRY[GreedyVarianceReduction.__name__] = GreedyVarianceReduction
CORE_ENCODER_REGISTRY[BKBNode] = BKBNode.to_dict
CORE_DECODER_REGISTRY[BKBNode.__name__] = BKBNode.from_dict
