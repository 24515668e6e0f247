r"""``Parts``: the six parts of an optimizer, and what follows from them together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from botorch.exceptions.errors import InputDataError

from botorch_bkb.acquisition import EI, PI, UCB, Acquisition, PureExploration
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import BatchRule, Elimination, HoldingRule, OneAtATime
from botorch_bkb.confidence import Confidence, Progress, Width, widths
from botorch_bkb.confidence.confidence import checked_width
from botorch_bkb.dictionaries import (
    AllPoints,
    DictionaryRule,
    InformationThreshold,
    RidgeLeverageSampling,
    threshold_of,
)
from botorch_bkb.domains import Arms, Domain, Tree
from botorch_bkb.models import Surrogate
from botorch_bkb.state.state import State
from botorch_bkb.units import UnitCube


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
        if isinstance(self.domain, Arms):
            self.acquisition.check_arms()
        if isinstance(self.domain, Tree) and not isinstance(self.acquisition, UCB):
            raise InputDataError(
                f"A tree is searched by upper bounds, got acquisition {self.acquisition!r}: use a "
                "Box for others, as in BKB(bounds=...)."
            )
        if isinstance(self.batch, Elimination):
            self._check_elimination()
        if self.model.forgets:
            self._check_forgetting()
        rule = self.dictionary
        self.confidence.check_effects(
            self.width,
            uses_norm=isinstance(self.domain, Tree),
            uses_delta=isinstance(rule, RidgeLeverageSampling) and rule.horizon is not None,
        )

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
            'width="theory"': (
                self.confidence.width == "theory",
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
                isinstance(self.acquisition, (EI, PI)),
                'the best reward may be an old one. Use "mpi", which compares with the belief',
            ),
        }
        for name, (is_given, why) in refused.items():
            if is_given:
                raise InputDataError(
                    f"half_life={self.model.half_life:g} cannot be combined with {name}: {why}."
                )

    # ------------------------------------------------------------------ what follows

    @cached_property
    def width(self) -> Width:
        r"""The width of the bounds as a function of the progress."""
        return self.confidence.rule(
            is_given=not self.model.fits,
            heuristic=self.domain.default_width,
            theorem=theorem_for(self.dictionary, self.batch),
        )

    @cached_property
    def side(self) -> float:
        r"""The longest side of the domain, as the kernel sees it."""
        X = self.domain.extent
        if self.model.covar_module is None:
            X = UnitCube.around(X).to_unit(X)
        return float((X.amax(0) - X.amin(0)).max())

    @cached_property
    def threshold(self) -> InformationThreshold:
        r"""Which results are believed."""
        return threshold_of(self.dictionary)

    @cached_property
    def _initial_rule(self) -> DictionaryRule:
        rule = self.dictionary
        if isinstance(rule, RidgeLeverageSampling):
            return rule.at_theory(self.confidence.delta, self.batch.delay)
        return rule

    def dictionary_after(self, num_observations: int) -> DictionaryRule:
        r"""Return the dictionary rule with the oversampling for so many observations."""
        rule = self._initial_rule
        if isinstance(rule, RidgeLeverageSampling):
            return rule.outlasting(num_observations, self.confidence.delta)
        return rule

    def width_now(self, state: State, table: ArmTable) -> float:
        r"""Return the width of the bounds, in posterior standard deviations."""
        return checked_width(self.width, self.progress(state, table))

    def progress(self, state: State, table: ArmTable) -> Progress:
        r"""Return what the width may depend on."""
        hyper, domain, stage = state.hyper, self.domain, state.in_flight.stage
        num_arms = len(domain.arms) if isinstance(domain, Arms) else None
        return Progress(
            num_observations=state.history.num_observations,
            num_steps=state.observations.num_steps,
            num_arms=num_arms if stage is None else int(stage.alive.sum()),
            dim=domain.dim,
            side=self.side,
            effective_dimension=table.effective_dimension,
            log_sum=state.confidence.log_sum,
            log_sum_3=state.confidence.log_sum_3,
            log_determinant=table.log_determinant,
            noise_var=hyper.noise_var,
            noise_bound=self.confidence.noise_in_model(hyper.noise_var, hyper.units),
            norm_bound=state.confidence.norm_bound,
            kernel_bound=table.kernel_bound,
            delta=self.confidence.delta,
            batch_threshold=self.batch.inflation,
        )


def theorem_for(dictionary: DictionaryRule, batch: BatchRule) -> Width | None:
    r"""Return the theorem's width for a dictionary and a batch rule; None where there is none."""
    if isinstance(batch, Elimination):
        return widths.NonAdaptive(len(batch.sizes))
    if isinstance(dictionary, InformationThreshold):
        return widths.compressed
    if isinstance(dictionary, AllPoints):
        return widths.exact
    if isinstance(dictionary, RidgeLeverageSampling):
        return widths.bkb if isinstance(batch, (OneAtATime, HoldingRule)) else widths.bbkb
    return None
