r"""DTC / Nyström algebra on plain tensors: no kernels, no models.

With a dictionary ``S`` of ``m`` points, ``K_SS = L L'`` and the embedding
``z(x) = L^{-1} k_S(x)``, the deterministic training conditional models the data as
``y = Z theta + noise`` with ``theta ~ N(0, I)`` and noise covariance ``Lam = diag(noise)``,
and keeps the prior's own variance for what the embedding cannot see. With

.. code-block:: text

    A = I + Z' Lam^{-1} Z = R R',     w(x) = R^{-1} z(x),     c = R^{-1} Z' Lam^{-1} y

the posterior of BKB eq. (4) (where ``V = lambda A``) is, one identity a line,

.. code-block:: text

    mean(x)    = w(x)'c
    var(x)     = [k(x,x) - |z(x)|^2] + |w(x)|^2
    cov(x,x')  = [k(x,x') - z(x)'z(x')] + w(x)'w(x')
    tau(x)     = var(x) / lambda                      (the papers' sigma~^2)

The bracket is what keeps the variance from starving away from the dictionary; it is the
only place where rounding can produce a negative number, and the only one clamped.

Everything carries leading batch dimensions. ``noise`` are variances, one an observation.
With ``counts``, a row stands for that many pulls of one input and its target is the *sum*
of their rewards.
"""

from botorch_bkb.linalg.cholesky import (
    KernelNotPSDError,
    extend_cholesky,
    rank_one_root,
    rank_one_solve,
    safe_cholesky,
    solve_rows,
    solve_vector,
)
from botorch_bkb.linalg.conditional import Conditional, cat_rows
from botorch_bkb.linalg.factor import DTCFactor, Embedding, gram, information, log_evidence
from botorch_bkb.linalg.sliding import Extension, Observed, SlidingFactor
from botorch_bkb.linalg.threshold import grow_root, scan_informative
from botorch_bkb.linalg.tree import map_tensors

__all__ = [
    "Conditional",
    "DTCFactor",
    "Embedding",
    "Extension",
    "KernelNotPSDError",
    "Observed",
    "SlidingFactor",
    "cat_rows",
    "extend_cholesky",
    "gram",
    "grow_root",
    "information",
    "log_evidence",
    "map_tensors",
    "rank_one_root",
    "rank_one_solve",
    "safe_cholesky",
    "scan_informative",
    "solve_rows",
    "solve_vector",
]
