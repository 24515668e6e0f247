r"""Gaussian-process optimisation that scales, for the BoTorch ecosystem."""

from botorch_bkb._version import __version__
from botorch_bkb.acquisition import select_baseline
from botorch_bkb.dictionaries import (
    AllPoints,
    Automatic,
    FromAllocator,
    InformationThreshold,
    RidgeLeverageSampling,
)
from botorch_bkb.models import DTCGP

__all__ = [
    "DTCGP",
    "AllPoints",
    "Automatic",
    "FromAllocator",
    "InformationThreshold",
    "RidgeLeverageSampling",
    "__version__",
    "select_baseline",
]
