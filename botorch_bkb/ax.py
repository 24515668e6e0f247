r"""Ax integration (extra ``ax``). An alias of :mod:`botorch_bkb.integrations.ax`."""

from botorch_bkb.integrations.ax import (
    BKBNode,
    SmallBaselineAcquisition,
    bkb_generation_strategy,
    dtcgp_generation_strategy,
)

__all__ = [
    "BKBNode",
    "SmallBaselineAcquisition",
    "bkb_generation_strategy",
    "dtcgp_generation_strategy",
]
