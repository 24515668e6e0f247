r"""Dictionary rules: from leverage scores to indices. No models.

A rule looks at inputs, a kernel and noise variances, and says which of the inputs become
the dictionary. Rules are also BoTorch ``InducingPointAllocator`` objects, and any BoTorch
allocator becomes a rule with :class:`FromAllocator`.

The score of an input is its posterior variance in units of the noise,
``tau(x) = var(x) / lambda`` (the papers' ``sigma~^2``, a ridge leverage score). In batch mode
one set of indices serves all the batches, chosen by the largest score over them, so that
what a rule guarantees holds in each.

References:
    Calandriello, Carratino, Lazaric, Valko, Rosasco: Gaussian process optimization with
    adaptive sketching: scalable and no regret. COLT 2019. (BKB, Algorithm 1, Theorem 1.)

    Musco, Musco: Recursive sampling for the Nyström method. NeurIPS 2017.
"""

from botorch_bkb.dictionaries.choice import Automatic, FromAllocator, as_rule, given_dictionary
from botorch_bkb.dictionaries.leverage import RidgeLeverageSampling, data_leverage
from botorch_bkb.dictionaries.rule import AllPoints, DictionaryRule, covers, first_occurrences
from botorch_bkb.dictionaries.threshold import (
    InformationThreshold,
    epsilon_for_horizon,
    score_threshold,
)

__all__ = [
    "AllPoints",
    "Automatic",
    "DictionaryRule",
    "FromAllocator",
    "InformationThreshold",
    "RidgeLeverageSampling",
    "as_rule",
    "covers",
    "data_leverage",
    "epsilon_for_horizon",
    "first_occurrences",
    "given_dictionary",
    "score_threshold",
]
