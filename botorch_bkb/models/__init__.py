r"""Sparse Gaussian-process models for BoTorch."""

from botorch_bkb.models import pathwise  # noqa: F401  registers DTCGP with BoTorch's sampler
from botorch_bkb.models.compressed import CompressedGP
from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.models.surrogate import Surrogate

__all__ = ["DTCGP", "CompressedGP", "Surrogate"]
