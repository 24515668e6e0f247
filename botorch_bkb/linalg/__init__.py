r"""DTC / Nyström algebra on plain tensors, without kernels or models.

Let ``S`` be a dictionary of ``m`` points with ``K_SS = L L'`` and the embedding
``z(x) = L^{-1} k_S(x)``. The deterministic training conditional (DTC) models the data as
``y = Z theta + noise`` with ``theta ~ N(0, I)`` and noise covariance ``Lam = diag(noise)``. It
keeps the prior variance that the embedding does not explain. With

.. code-block:: text

    A = I + Z' Lam^{-1} Z = R R',     w(x) = R^{-1} z(x),     c = R^{-1} Z' Lam^{-1} y

the posterior of BKB eq. (4), where ``V = lambda A``, is

.. code-block:: text

    mean(x)    = w(x)'c
    var(x)     = [k(x,x) - |z(x)|^2] + |w(x)|^2
    cov(x,x')  = [k(x,x') - z(x)'z(x')] + w(x)'w(x')
    tau(x)     = var(x) / lambda                      (the papers' sigma~^2)

The bracket prevents variance starvation: without it, the variance would be too small away from
the dictionary. Rounding can make only the bracket negative, so only the bracket is clamped.

Tensors may have leading batch dimensions, except in :class:`SlidingFactor`. ``noise`` holds
variances, one per observation. With ``counts``, a row represents that many pulls of one input.
Its target is then the *sum* of their rewards.
"""

from botorch_bkb.linalg.cholesky import (
    InformationError,
    KernelNotPSDError,
    extend_cholesky,
    information_root,
    negligible,
    rank_one_root,
    rank_one_solve,
    safe_cholesky,
    solve_rows,
    solve_vector,
)
from botorch_bkb.linalg.conditional import Conditional, cat_rows
from botorch_bkb.linalg.evidence import RowGradients, SparseEvidence, embed, exact_evidence
from botorch_bkb.linalg.factor import DTCFactor, Embedding, gram, information, log_evidence
from botorch_bkb.linalg.sliding import Extension, SlidingFactor
from botorch_bkb.linalg.threshold import grow_root, scan_informative
from botorch_bkb.linalg.tree import map_tensors

__all__ = [
    "Conditional",
    "DTCFactor",
    "Embedding",
    "Extension",
    "InformationError",
    "KernelNotPSDError",
    "RowGradients",
    "SlidingFactor",
    "SparseEvidence",
    "cat_rows",
    "embed",
    "exact_evidence",
    "extend_cholesky",
    "gram",
    "grow_root",
    "information",
    "information_root",
    "log_evidence",
    "map_tensors",
    "negligible",
    "rank_one_root",
    "rank_one_solve",
    "safe_cholesky",
    "scan_informative",
    "solve_rows",
    "solve_vector",
]
