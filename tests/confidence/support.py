r"""The progress of an imaginary run."""

from __future__ import annotations

import math

from botorch_bkb.confidence import Progress


def progress(**changes) -> Progress:
    values = {
        "num_observations": 7,
        "num_steps": 9,
        "num_arms": 1000,
        "dim": 2,
        "effective_dimension": 2.0,
        "log_sum": 3.0,
        "log_sum_alpha": 6.0,
        "log_determinant": 5.0,
        "unexplained": 0.5,
        "log_unexplained": 0.25,
        "misfit": 1.0,
        "noise_var": 0.25,
        "noise_bound": 0.5,
        "norm_bound": 4.0,
        "kernel_bound": 1.0,
        "delta": math.exp(-1),
        "accuracy": 0.5,
        "batch_threshold": 1.0,
    }
    return Progress(**{**values, **changes})
