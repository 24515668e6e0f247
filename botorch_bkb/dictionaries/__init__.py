r"""Dictionary rules, which choose the inducing points of a sparse model among the inputs.

A rule receives inputs, a kernel and noise variances, and returns the indices of the inputs that
form the dictionary. Rules are also BoTorch ``InducingPointAllocator`` objects. Any BoTorch
allocator becomes a rule with :class:`FromAllocator`. :class:`RandomFeatures` and
:class:`QuadratureFeatures` take the place of a dictionary and choose no inputs.

The score of an input is its posterior variance in units of the noise,
``tau(x) = var(x) / lambda`` (the papers' ``sigma~^2``, a ridge leverage score). In batch mode
one set of indices serves all batches. It is chosen by the largest score over the batches, so the
guarantees of a rule hold in each of them.

If a rule draws more points than its ``max_size`` allows, a part of them is kept (:func:`thinned`,
and :func:`capped` in an optimizer). A model and an optimizer warn of it once, and say how much of
the prior variance at the data is left unexplained (:func:`unexplained`).

References:
    Calandriello, Carratino, Lazaric, Valko, Rosasco: Gaussian process optimization with
    adaptive sketching: scalable and no regret. COLT 2019. (BKB, Algorithm 1, Theorem 1.)

    Musco, Musco: Recursive sampling for the Nyström method. NeurIPS 2017.

    Chen, Epperly, Tropp, Webber: Randomly pivoted Cholesky: practical approximation of a kernel
    matrix with few entry evaluations. Communications on Pure and Applied Mathematics, 2025.
"""

from botorch_bkb.dictionaries.caps import capped, thinned, unexplained, warn_capped
from botorch_bkb.dictionaries.choice import Automatic, FromAllocator, as_rule, given_dictionary
from botorch_bkb.dictionaries.features import (
    FourierFeatures,
    QuadratureFeatures,
    RandomFeatures,
)
from botorch_bkb.dictionaries.leverage import RidgeLeverageSampling
from botorch_bkb.dictionaries.observed import Draw, ObservedInputs, ScoreBounds
from botorch_bkb.dictionaries.pivoted import RandomlyPivotedCholesky
from botorch_bkb.dictionaries.rule import (
    AllPoints,
    Candidates,
    DictionaryRule,
    covers,
    first_occurrences,
)
from botorch_bkb.dictionaries.scores import data_leverage
from botorch_bkb.dictionaries.threshold import (
    InformationThreshold,
    epsilon_for_horizon,
    score_threshold,
    threshold_of,
)

__all__ = [
    "AllPoints",
    "Automatic",
    "Candidates",
    "DictionaryRule",
    "Draw",
    "FourierFeatures",
    "FromAllocator",
    "InformationThreshold",
    "ObservedInputs",
    "QuadratureFeatures",
    "RandomFeatures",
    "RandomlyPivotedCholesky",
    "RidgeLeverageSampling",
    "ScoreBounds",
    "as_rule",
    "capped",
    "covers",
    "data_leverage",
    "epsilon_for_horizon",
    "first_occurrences",
    "given_dictionary",
    "score_threshold",
    "thinned",
    "threshold_of",
    "unexplained",
    "warn_capped",
]
