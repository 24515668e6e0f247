r"""Confidence bounds: the theorems' widths, heuristic widths, and an optimizer's choice of one."""

from botorch_bkb.confidence.confidence import Confidence
from botorch_bkb.confidence.regret import (
    bbkb_oversampling,
    bbkb_regret,
    bkb_oversampling,
    bkb_regret,
)
from botorch_bkb.confidence.theorems import (
    bbkb,
    bkb,
    box,
    exact,
    finite_set,
    in_standard_deviations,
    information,
    noise_over_time,
    non_adaptive,
)
from botorch_bkb.confidence.widths import Fixed, NonAdaptive, Progress, Width

__all__ = [
    "Confidence",
    "Fixed",
    "NonAdaptive",
    "Progress",
    "Width",
    "bbkb",
    "bbkb_oversampling",
    "bbkb_regret",
    "bkb",
    "bkb_oversampling",
    "bkb_regret",
    "box",
    "exact",
    "finite_set",
    "in_standard_deviations",
    "information",
    "noise_over_time",
    "non_adaptive",
]
