r"""Confidence bounds: the theorems' widths, heuristic widths, and an optimizer's choice of one."""

from botorch_bkb.confidence.compressed_regret import (
    compressed_ei_regret,
    compressed_ucb_rate,
    compressed_ucb_regret,
)
from botorch_bkb.confidence.confidence import Confidence
from botorch_bkb.confidence.regret import (
    bbkb_oversampling,
    bbkb_regret,
    bkb_oversampling,
    bkb_regret,
    log_determinant_bound,
    variance_over_information,
)
from botorch_bkb.confidence.self_normalised import anytime, anytime_exact
from botorch_bkb.confidence.sizes import (
    bbkb_batches,
    bbkb_dictionary_size,
    bkb_dictionary_size,
    model_order_bound,
    model_order_rate,
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
    "anytime",
    "anytime_exact",
    "bbkb",
    "bbkb_batches",
    "bbkb_dictionary_size",
    "bbkb_oversampling",
    "bbkb_regret",
    "bkb",
    "bkb_dictionary_size",
    "bkb_oversampling",
    "bkb_regret",
    "box",
    "compressed_ei_regret",
    "compressed_ucb_rate",
    "compressed_ucb_regret",
    "exact",
    "finite_set",
    "in_standard_deviations",
    "information",
    "log_determinant_bound",
    "model_order_bound",
    "model_order_rate",
    "noise_over_time",
    "non_adaptive",
    "variance_over_information",
]
