r"""Sparse Gaussian-process models for BoTorch."""

from botorch_bkb.models import pathwise  # noqa: F401  registers DTCGP with BoTorch's sampler
from botorch_bkb.models.compressed import CompressedGP
from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.models.fidelity import MultiFidelityDTCGP
from botorch_bkb.models.mixed import MixedDTCGP
from botorch_bkb.models.multitask import MultiTaskDTCGP
from botorch_bkb.models.progress import fit_progress
from botorch_bkb.models.surrogate import Surrogate

__all__ = [
    "DTCGP",
    "CompressedGP",
    "MixedDTCGP",
    "MultiFidelityDTCGP",
    "MultiTaskDTCGP",
    "Surrogate",
    "fit_progress",
]
