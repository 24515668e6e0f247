r"""``Parts``: the six parts of an optimizer, and what follows from them together."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.acquisition import EI, PI, UCB, Acquisition, InTurn, PureExploration
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import BatchRule, Elimination
from botorch_bkb.belief import check_kernel_on
from botorch_bkb.confidence import Confidence, Fixed, Progress, Width, theorems, widths
from botorch_bkb.confidence.confidence import checked_width
from botorch_bkb.confidence.slopes import Slopes, slope_and_tail
from botorch_bkb.dictionaries import (
    DictionaryRule,
    InformationThreshold,
    RidgeLeverageSampling,
    threshold_of,
)
from botorch_bkb.domains import Arms, Box, Domain, Tree
from botorch_bkb.models import Surrogate
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.optimizers.guarantees import (
    Setting,
    check_covered,
    paper_for,
    theorem_of,
    theory_for,
    unmet_assumptions,
)
from botorch_bkb.state.state import State
from botorch_bkb.units import UnitCube
from botorch_bkb.validation import level_of_user

#: Over a box: bounds of two standard deviations, and of half of one for every second point.
WIDE_AND_NARROW = InTurn((UCB(), UCB(share=0.25)))


def default_acquisition(domain: Any, confidence: Any) -> Acquisition:
    r"""Return what is maximised where the user does not say it.

    These are upper bounds. Over a box with the heuristic width, wide and narrow ones take turns.
    (The arguments are checked afterwards.)
    """
    is_plain = isinstance(domain, Box) and isinstance(confidence, Confidence)
    if is_plain and confidence.width in (None, "heuristic") and confidence.norm_bound is None:
        return WIDE_AND_NARROW
    return UCB()


@dataclass(frozen=True, eq=False)
class Parts:
    r"""The six parts of an optimizer.

    Attributes:
        domain: The set that is searched.
        model: Kernel and noise, and when they are fitted.
        dictionary: How the dictionary is chosen.
        confidence: How wide the confidence bounds are.
        batch: When a batch is complete.
        acquisition: What is maximised.
    """

    domain: Domain
    model: Surrogate
    dictionary: DictionaryRule
    confidence: Confidence
    batch: BatchRule
    acquisition: Acquisition

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_kernel()
        if isinstance(self.domain, Arms):
            self.acquisition.check_arms()
        if isinstance(self.domain, Tree) and self.acquisition != UCB():
            raise InputDataError(
                f"A tree is searched by upper bounds, got acquisition {self.acquisition!r}: use a "
                "Box for others, as in BKB(bounds=...)."
            )
        if isinstance(self.batch, Elimination):
            self._check_elimination()
        if self.model.forgets:
            self._check_forgetting()
        if isinstance(self.domain, Box) and self.domain.trust_region is not None:
            self._check_trust_region()
        rule = self.dictionary
        self.confidence.check_effects(
            self.width,
            uses_norm=isinstance(self.domain, Tree),
            uses_delta=isinstance(rule, RidgeLeverageSampling) and rule.horizon is not None,
            uses_accuracy=isinstance(rule, RidgeLeverageSampling) and rule.is_at_theory,
        )
        self._check_assumptions()

    def _check_kinds(self) -> None:
        kinds = {
            "domain": (Domain, "Arms(X), Box(bounds) or Tree(bounds)"),
            "model": (Surrogate, "Surrogate(covar_module, noise_var)"),
            "dictionary": (DictionaryRule, "RidgeLeverageSampling() or AllPoints()"),
            "confidence": (Confidence, 'Confidence("heuristic")'),
            "batch": (BatchRule, "SumRule(2.0) or OneAtATime()"),
            "acquisition": (Acquisition, "UCB() or Thompson()"),
        }
        for name, (kind, example) in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InputDataError(
                    f"{name} must be a {kind.__name__}, such as {example}, got "
                    f"{type(value).__name__}."
                )

    def _check_kernel(self) -> None:
        r"""Raise unless the kernel takes inputs of the domain."""
        if self.model.covar_module is not None:
            kernel = self.model.initial(self.domain.index.X).kernel
            check_kernel_on(kernel, self.extent[:2])

    def _check_assumptions(self) -> None:
        r"""Check what the theorem of the width assumes; warn of what only the user can know."""
        if self.confidence.has_guarantee:
            check_covered(self.width, self.domain, self.confidence)
        if self.width is widths.compressed and not isinstance(self.domain, Arms):
            self._slopes(self.model.initial(self.domain.index.X).kernel)
        if not self.confidence.has_guarantee:
            return
        setting = Setting(self.domain, self.model, self.dictionary, self.confidence, self.batch)
        unmet = list(unmet_assumptions(self.width, setting))
        if unmet:
            warnings.warn(
                f'width="{self.confidence.width}" is {theorem_of(self.width)}. It assumes '
                f"{' and '.join(unmet)}. Without that its bounds are a heuristic.",
                InputDataWarning,
                stacklevel=level_of_user(),
            )

    def _check_elimination(self) -> None:
        if not isinstance(self.domain, Arms):
            raise InputDataError(
                f"Only arms can be eliminated, got a {type(self.domain).__name__}: pass candidates "
                "as Arms(X), or another batch rule."
            )
        if not isinstance(self.acquisition, PureExploration):
            raise InputDataError(
                "Elimination needs batches that do not depend on results, got acquisition "
                f"{self.acquisition!r}: pass PureExploration()."
            )

    def _check_forgetting(self) -> None:
        refused = {
            f"width={self.confidence.width!r}": (
                self.confidence.has_guarantee,
                'its theorem is about a function that does not change. Use "heuristic" or '
                '"information"',
            ),
            'norm_bound="double"': (
                self.confidence.doubles_norm,
                "a drift looks like a function of larger norm. Give a number",
            ),
            "an information threshold": (
                self.threshold.least_score is not None,
                "results without information would not count as time. Use RidgeLeverageSampling",
            ),
            "elimination": (
                isinstance(self.batch, Elimination),
                "an arm that is eliminated may become the best. Use BBKB",
            ),
            f"acquisition {self.acquisition!r}": (
                any(isinstance(rule, (EI, PI)) for rule in self.acquisition.rules),
                'the best reward may be an old one. Use "mpi", which compares with the belief',
            ),
        }
        for name, (is_given, why) in refused.items():
            if is_given:
                raise InputDataError(
                    f"half_life={self.model.half_life:g} cannot be combined with {name}: {why}."
                )

    def _check_trust_region(self) -> None:
        refused = {
            f"width={self.confidence.width!r}": (
                self.confidence.has_guarantee,
                "no theorem covers a search of a part of the box. Use the default width",
            ),
            f"half_life={self.model.half_life}": (
                self.model.forgets,
                "where rewards drift, good points appear elsewhere. Search the whole box",
            ),
            "an information threshold": (
                self.threshold.least_score is not None,
                "points that are skipped neither succeed nor fail. Use RidgeLeverageSampling",
            ),
        }
        for name, (is_given, why) in refused.items():
            if is_given:
                raise InputDataError(f"A trust region cannot be combined with {name}: {why}.")

    # ------------------------------------------------------------------ what follows

    @cached_property
    def width(self) -> Width:
        r"""The width of the bounds as a function of the progress."""
        return self.confidence.rule(
            is_given=not self.model.fits,
            theory=theory_for(
                self.dictionary, self.batch, has_norm=self.confidence.norm_bound is not None
            ),
            paper=paper_for(self.dictionary, self.batch),
        )

    @property
    def alpha(self) -> float:
        r"""The accuracy factor of the papers' theorems."""
        return theorems.alpha(self.confidence.accuracy)

    @cached_property
    def extent(self) -> Tensor:
        r"""Inputs whose ranges are those of the domain, as the kernel sees them."""
        X = self.domain.extent
        return UnitCube.around(X).to_unit(X) if self.model.covar_module is None else X

    def _slopes(self, kernel: Kernel) -> Slopes | tuple[None, None]:
        r"""Return bounds on the derivatives of the function, where the width uses them."""
        if self.width is widths.compressed and not isinstance(self.domain, Arms):
            return slope_and_tail(kernel, self.extent.amax(0) - self.extent.amin(0))
        return None, None

    @cached_property
    def threshold(self) -> InformationThreshold:
        r"""Which results are believed."""
        return threshold_of(self.dictionary)

    def initial_hyperparameters(self) -> Hyperparameters:
        r"""Return the hyperparameters before the first fit."""
        return self.believed(self.model.initial(self.domain.index.X))

    def believed(self, hyper: Hyperparameters) -> Hyperparameters:
        r"""Return hyperparameters with the kernel of the belief, which may be that of features."""
        kernel = self.dictionary.belief_kernel(hyper.kernel, self.extent)
        return hyper if kernel is hyper.kernel else replace(hyper, kernel=kernel)

    @cached_property
    def _initial_rule(self) -> DictionaryRule:
        rule = self.dictionary
        if isinstance(rule, RidgeLeverageSampling):
            confidence = self.confidence
            return rule.at_theory(confidence.delta, self.batch.delay, confidence.accuracy)
        return rule

    def dictionary_after(self, num_observations: int) -> DictionaryRule:
        r"""Return the dictionary rule with the oversampling for so many observations."""
        rule = self._initial_rule
        if isinstance(rule, RidgeLeverageSampling):
            return rule.outlasting(num_observations, self.confidence.delta)
        return rule

    def width_now(self, state: State, table: ArmTable) -> float:
        r"""Return the width of the bounds, in posterior standard deviations."""
        if isinstance(self.width, Fixed):  # the progress costs a pass over the arms
            return self.width.width
        return checked_width(self.width, self.progress(state, table))

    def progress(self, state: State, table: ArmTable) -> Progress:
        r"""Return what the width may depend on."""
        hyper, domain, stage = state.hyper, self.domain, state.in_flight.stage
        num_arms = len(domain.arms) if isinstance(domain, Arms) else None
        unexplained = table.unexplained
        slope, log_tail = self._slopes(hyper.kernel)
        return Progress(
            num_observations=state.history.num_observations,
            num_steps=state.observations.num_steps,
            num_arms=num_arms if stage is None else int(stage.alive.sum()),
            dim=domain.dim,
            effective_dimension=table.effective_dimension,
            log_sum=state.confidence.log_sum,
            log_sum_alpha=state.confidence.log_sum_alpha,
            log_determinant=table.log_determinant,
            unexplained=float(unexplained.sum()),
            log_unexplained=float(unexplained.log1p().sum()),
            misfit=table.misfit,
            noise_var=hyper.noise_var,
            noise_bound=self.confidence.noise_in_model(hyper.noise_var, hyper.units),
            norm_bound=state.confidence.norm_bound,
            kernel_bound=table.kernel_bound,
            delta=self.confidence.delta,
            accuracy=self.confidence.accuracy,
            batch_threshold=self.batch.inflation,
            slope=slope,
            log_tail=log_tail,
        )
