r"""Which theorem covers a combination of parts, and what it assumes beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from botorch.exceptions.errors import InputDataError

from botorch_bkb.batches import BatchRule, Elimination, HoldingRule, OneAtATime
from botorch_bkb.batches.rule import ThresholdRule
from botorch_bkb.confidence import Confidence, NonAdaptive, Width, widths
from botorch_bkb.dictionaries import (
    AllPoints,
    DictionaryRule,
    FourierFeatures,
    InformationThreshold,
    RidgeLeverageSampling,
)
from botorch_bkb.domains import Domain, Tree
from botorch_bkb.models import Surrogate

#: What the widths with a guarantee are called.
THEOREMS: dict[Width, str] = {
    widths.anytime: "the anytime bound for any dictionary (botorch_bkb.confidence.anytime)",
    widths.anytime_exact: "Flynn and Reeb's bound (botorch_bkb.confidence.anytime_exact)",
    widths.bkb: "Theorem 2 of BKB",
    widths.bbkb: "Theorem 2 of BBKB",
    widths.exact: "Abbasi-Yadkori's self-normalised bound",
    widths.compressed: "Theorem 3.2 of the compressed GP paper",
}
#: A score by which a pick teaches something, however little.
LEAST_SCORE = 1e-300


class Setting(NamedTuple):
    r"""The parts of an optimizer that theorems are about."""

    domain: Domain
    model: Surrogate
    dictionary: DictionaryRule
    confidence: Confidence
    batch: BatchRule


def theorem_of(width: Width) -> str:
    r"""Return what the theorem of a width with a guarantee is called."""
    if isinstance(width, NonAdaptive):
        return "the bound for points that do not depend on the noise"
    return THEOREMS[width]


def theory_for(dictionary: DictionaryRule, batch: BatchRule, *, has_norm: bool) -> Width | None:
    r"""Return the tightest width that is proved for a dictionary; None for Fourier features.

    The function need not lie in the span of features, and no bound here counts how far it does not.

    A threshold that discards keeps points by their variances and not by their rewards. The belief
    is the exact posterior of the kept points. So Flynn and Reeb's bound holds for a function of
    bounded norm. Without a bound on the norm the compressed paper's theorem is left, which is about
    draws from the prior. These have no norm, and the two are not comparable.

    Args:
        dictionary: The dictionary rule.
        batch: The batch rule.
        has_norm: Whether a bound on the norm is given.
    """
    if isinstance(batch, Elimination):
        return NonAdaptive(len(batch.sizes))
    if isinstance(dictionary, FourierFeatures):
        return None
    if isinstance(dictionary, InformationThreshold) and dictionary.discard:
        if not has_norm:
            return widths.compressed
        is_exact = dictionary.max_size is None
    else:
        is_exact = dictionary == AllPoints()
    return widths.anytime_exact if is_exact else widths.anytime


def paper_for(dictionary: DictionaryRule, batch: BatchRule) -> Width | None:
    r"""Return the width of the paper's own theorem; None where there is none."""
    if isinstance(batch, Elimination):
        return NonAdaptive(len(batch.sizes))
    if isinstance(dictionary, InformationThreshold):
        return widths.compressed if dictionary.discard else None
    if isinstance(dictionary, AllPoints):
        return widths.exact
    if isinstance(dictionary, RidgeLeverageSampling):
        return widths.bkb if isinstance(batch, (OneAtATime, HoldingRule)) else widths.bbkb
    return None


def check_covered(width: Width, domain: Domain, confidence: Confidence) -> None:
    r"""Raise where the theorem of a width with a guarantee cannot hold over the domain.

    The cells of a tree bound how far a function of bounded norm varies. Draws from the prior have
    no norm.
    """
    if width is widths.compressed and isinstance(domain, Tree):
        raise InputDataError(
            f"Over a tree a width with a guarantee needs a function of bounded norm, got "
            f"width={confidence.width!r} with an information threshold that discards, which is "
            f'{theorem_of(width)} on draws from the prior: pass width="theory" and a norm_bound, '
            "or another width."
        )


def unmet_assumptions(width: Width, setting: Setting) -> Iterator[str]:
    r"""Yield in words what the theorem of a width assumes and the parts do not provide."""
    domain, model, dictionary, confidence, batch = setting
    if model.fits:
        yield "that kernel and noise_var are given and not fitted"
    yield from _unmet_by_function(width, confidence)
    yield from _unmet_by_dictionary(width, dictionary)
    if isinstance(domain, Tree) and domain.radius != "kernel":
        yield "that radius bounds how far the function varies within a cell"
    if not isinstance(width, NonAdaptive) and batch.inflation <= 1 and goes_on(batch):
        yield (
            "that no variance falls within a batch, as the inflation of 1 of "
            f"{type(batch).__name__} says (return the factor by which they may fall)"
        )


def _unmet_by_function(width: Width, confidence: Confidence) -> Iterator[str]:
    norm = confidence.norm_bound
    if width is widths.compressed:
        if confidence.width == "theory":  # "paper" asks for this theorem by name
            yield (
                "that the function is a draw from the prior (pass norm_bound for a function of "
                "bounded norm)"
            )
    elif norm is None:
        yield "a norm_bound, a bound on the norm of the function, where 1 is taken"
    elif norm == "double":
        yield "a norm_bound that is known and not learnt"


def _unmet_by_dictionary(width: Width, dictionary: DictionaryRule) -> Iterator[str]:
    if width in (widths.bkb, widths.bbkb):
        assert isinstance(dictionary, RidgeLeverageSampling)
        if not dictionary.is_at_theory or dictionary.coupled or dictionary.max_size is not None:
            yield 'oversampling="theory" and coupled=False, without a largest size'
    elif width is widths.exact and dictionary != AllPoints():
        yield "that every observed point is in the dictionary"
    elif width is widths.compressed:
        assert isinstance(dictionary, InformationThreshold)
        if dictionary.max_size is not None:
            yield "that every kept point is in the dictionary, without a largest size"


def goes_on(batch: BatchRule) -> bool:
    r"""Return whether a batch may go on after a pick that teaches something."""
    if type(batch).total is not BatchRule.total and not isinstance(batch, ThresholdRule):
        return True  # only the rule knows what it takes from the picks
    return not batch.spent(LEAST_SCORE) > batch.limit
