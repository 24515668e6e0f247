r"""``Confidence``: how wide an optimizer's bounds are, and what they assume."""

from __future__ import annotations

import math
from dataclasses import dataclass

from botorch.exceptions.errors import InputDataError

from botorch_bkb.confidence import widths
from botorch_bkb.confidence.widths import Fixed, Progress, Width
from botorch_bkb.units import RewardUnits
from botorch_bkb.validation import check_between

#: Failure probability, unless the user says otherwise.
DELTA = 0.1
#: ``eps`` of the papers' theorems, unless the user says otherwise.
ACCURACY = 0.5
#: The heuristic width.
HEURISTIC = Fixed(2.0)
#: Names that ``width`` may have.
NAMES = ("heuristic", "information", "theory", "paper")


@dataclass(frozen=True)
class Confidence:
    r"""The width of an optimizer's confidence bounds.

    Args:
        width: ``"heuristic"`` (two posterior standard deviations), ``"information"`` (the
            theorems' shape without their constants), ``"theory"`` (the tightest bound that is
            proved for the dictionary and batch rule; for information thresholds that discard and no
            ``norm_bound``, for draws from the prior), ``"paper"`` (the bound of the paper's own
            theorem), a number of posterior standard deviations, or a function of
            :class:`~botorch_bkb.confidence.Progress`. None means information where kernel, noise
            and ``norm_bound`` are given, and heuristic otherwise.
        delta: Failure probability of the bounds.
        norm_bound: Bound ``F`` on the norm of the function. ``"double"`` starts at 1 and doubles
            whenever an observation falls outside its interval by more than noise explains. None
            means 1. Theorem 3.2 of the compressed GP paper has none, since a draw from the prior
            has no norm.
        noise_bound: ``xi``, a bound on the noise standard deviation in units of the rewards;
            ``sqrt(noise_var)`` by default.
        accuracy: ``eps`` of the papers' theorems, in (0, 1). It is used by ``width="paper"`` and
            ``oversampling="theory"``: smaller values ask for larger dictionaries and give narrower
            bounds.

    Example:
        A custom width grows with the number of observations:

        >>> import math
        >>> import torch
        >>> from botorch_bkb.confidence import Confidence
        >>> from botorch_bkb.domains import Arms
        >>> from botorch_bkb.optimizers import Optimizer
        >>> def growing(progress):
        ...     return math.sqrt(2 * math.log(2 + progress.num_observations))
        >>> arms = Arms(torch.eye(5, dtype=torch.float64))
        >>> optimizer = Optimizer(arms, confidence=Confidence(growing), seed=0)
        >>> optimizer.tell([0, 1], [0.0, 1.0])
        >>> optimizer.width_now == math.sqrt(2 * math.log(4))
        True
    """

    width: str | float | Width | None = None
    delta: float = DELTA
    norm_bound: float | str | None = None
    noise_bound: float | None = None
    accuracy: float = ACCURACY

    def __post_init__(self) -> None:
        check_between("delta", self.delta, 0, 1)
        check_between("noise_bound", self.noise_bound, 0, math.inf)
        check_between("accuracy", self.accuracy, 0, 1)
        norm, width = self.norm_bound, self.width
        is_norm = isinstance(norm, (int, float)) and 0 <= norm < math.inf
        if not (norm is None or norm == "double" or is_norm):
            raise InputDataError(
                'norm_bound must be a finite number that is not negative, or "double", got '
                f"{norm!r}."
            )
        is_width = isinstance(width, (int, float)) and 0 <= width < math.inf
        if not (width is None or width in NAMES or callable(width) or is_width):
            raise InputDataError(
                'width must be "heuristic", "information", "theory", "paper", a number of '
                "posterior standard deviations that is not negative, or a function of the "
                "progress, got "
                f"{width!r}."
            )

    @property
    def initial_norm(self) -> float:
        r"""``F`` before it is doubled."""
        return 1.0 if self.norm_bound in (None, "double") else float(self.norm_bound)

    @property
    def doubles_norm(self) -> bool:
        r"""Whether ``F`` is doubled when an observation asks for it."""
        return self.norm_bound == "double"

    @property
    def has_guarantee(self) -> bool:
        r"""Whether a bound that is proved was asked for by name."""
        return self.width in ("theory", "paper")

    def rule(self, *, is_given: bool, theory: Width | None, paper: Width | None) -> Width:
        r"""Return the width as a function of the progress.

        Args:
            is_given: Whether kernel and noise are given.
            theory: The tightest width that is proved; None where none covers the other parts.
            paper: The width of the paper's own theorem; None where there is none.
        """
        width = self.width
        if width is None:
            width = "information" if is_given and self.norm_bound is not None else "heuristic"
        if width == "information":
            return widths.information
        if self.has_guarantee:
            proved = theory if width == "theory" else paper
            if proved is None:
                raise InputDataError(
                    f"width={width!r} was asked for, but no theorem covers this dictionary: use "
                    "RidgeLeverageSampling, AllPoints or InformationThreshold, or another width."
                )
            return proved
        if callable(width):
            return width
        return HEURISTIC if isinstance(width, str) else Fixed(float(width))

    def check_effects(
        self, rule: Width, *, uses_norm: bool, uses_delta: bool, uses_accuracy: bool
    ) -> None:
        r"""Raise where an argument has no effect.

        A constant width depends on no bound, and that of Theorem 3.2 of the compressed GP paper on
        ``delta`` alone: a draw from the prior has no norm, and its noise is the model's.

        Args:
            rule: The width as a function of the progress.
            uses_norm: Whether another part uses ``norm_bound``.
            uses_delta: Whether another part uses ``delta``.
            uses_accuracy: Whether another part uses ``accuracy``.
        """
        if self.accuracy != ACCURACY and self.width != "paper" and not uses_accuracy:
            raise InputDataError(
                f"accuracy has no effect, got {self.accuracy}: it belongs to the papers' theorems, "
                'width="paper" and oversampling="theory".'
            )
        if not (isinstance(rule, Fixed) or rule is widths.compressed):
            return
        what, remedy = _indifferent(rule)
        if self.doubles_norm:
            raise InputDataError(
                f'norm_bound="double" needs a width that depends on the norm, got {what}: use '
                'width="information" or width="theory".'
            )
        idle = {
            "delta": isinstance(rule, Fixed) and self.delta != DELTA and not uses_delta,
            "norm_bound": self.norm_bound is not None and not uses_norm,
            "noise_bound": self.noise_bound is not None,
        }
        for name, is_idle in idle.items():
            if is_idle:
                raise InputDataError(
                    f"{name} has no effect on {what}, got {name}={getattr(self, name)!r}: "
                    f"{remedy}, or leave {name} out."
                )

    def noise_in_model(self, noise_var: float, units: RewardUnits) -> float:
        r"""Return ``xi`` in the model's units.

        Args:
            noise_var: ``lambda``, in the model's units.
            units: The units of the rewards.
        """
        if self.noise_bound is None:
            return math.sqrt(noise_var)
        return units.deviation_to_model(self.noise_bound)


def _indifferent(rule: Width) -> tuple[str, str]:
    r"""Return what a width that ignores bounds is called, and what to pass in its place."""
    if isinstance(rule, Fixed):
        what = f"a constant width of {rule.width:g} standard deviations"
        return what, 'pass width="information" or width="theory"'
    what = (
        "the width of Theorem 3.2 of the compressed GP paper, which is about draws from the prior"
    )
    return what, 'pass width="theory" and a norm_bound for a function of bounded norm'


def checked_width(rule: Width, progress: Progress) -> float:
    r"""Return the width of a rule; raise where it is negative or not finite."""
    width = float(rule(progress))
    if not 0 <= width < math.inf:
        raise InputDataError(f"A width must be finite and not negative, got {width}.")
    return width
