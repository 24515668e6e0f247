r"""From the state of a run to the width of its bounds, in posterior standard deviations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb import confidence
from botorch_bkb.arms import ArmTable
from botorch_bkb.optimizers.state import State


@dataclass(frozen=True)
class Progress:
    r"""What a width may depend on. All in the model's units (see :class:`Optimizer`).

    Attributes:
        num_observations: ``t``.
        num_steps: Observations and steps that were skipped.
        num_arms: ``A``; 0 over a box.
        dim: ``d``.
        side: The longest side ``r`` of the inputs' range, as the kernel sees it.
        effective_dimension: ``sum_s tau_t(x_s)``.
        log_sum: ``sum_s log(1 + tau_{fb[s-1]}(x_s))``, logged at selection.
        log_sum_3: ``sum_s log(1 + 3 tau_{fb[s-1]}(x_s))``.
        log_determinant: ``log det(K_t / lambda + I)``, for the exact posterior.
        noise_var: ``lambda``.
        noise_bound: ``xi``.
        norm_bound: ``F``.
        kernel_bound: ``kappa^2``.
        delta: Failure probability.
        batch_threshold: ``C~``; 1 where nothing is picked without feedback.

    Example:
        A width of one's own, a function of it:

        >>> import math
        >>> import torch
        >>> from botorch_bkb import BKB
        >>> def growing(progress):
        ...     return math.sqrt(2 * math.log(2 + progress.num_observations))
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), width=growing, seed=0)
        >>> optimizer.tell([0, 1], [0.0, 1.0])
        >>> optimizer.width_now == math.sqrt(2 * math.log(4))
        True

        What the widths of this module make of one state:

        >>> from botorch_bkb.optimizers import width
        >>> p = Progress(
        ...     num_observations=10, num_steps=10, num_arms=100, dim=2, side=1.0,
        ...     effective_dimension=3.0, log_sum=3.0, log_sum_3=6.0, log_determinant=7.0,
        ...     noise_var=1.0, noise_bound=1.0, norm_bound=1.0, kernel_bound=1.0,
        ...     delta=math.exp(-1), batch_threshold=1.0,
        ... )
        >>> [round(rule(p), 1) for rule in (width.Fixed(2.0), width.information, width.exact)]
        [2.0, 3.0, 4.0]
        >>> [round(rule(p), 1) for rule in (width.compressed, width.bbkb, width.bkb)]
        [4.7, 7.7, 11.7]
    """

    num_observations: int
    num_steps: int
    num_arms: int
    dim: int
    side: float
    effective_dimension: float
    log_sum: float
    log_sum_3: float
    log_determinant: float
    noise_var: float
    noise_bound: float
    norm_bound: float
    kernel_bound: float
    delta: float
    batch_threshold: float


Width = Callable[[Progress], float]
Theorem = Literal["bkb", "bbkb", "exact", "compressed"]


def _model(p: Progress) -> dict[str, float]:
    return {
        "noise_var": p.noise_var,
        "noise_bound": p.noise_bound,
        "norm_bound": p.norm_bound,
        "delta": p.delta,
    }


@dataclass(frozen=True)
class Fixed:
    r"""So many standard deviations, whatever happens: a heuristic, no guarantee.

    Args:
        width: In posterior standard deviations; 2 is customary.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), width=1.5)
        >>> optimizer.width_now
        1.5
    """

    width: float

    def __call__(self, p: Progress) -> float:
        r"""The same for every state."""
        return self.width


def information(p: Progress) -> float:
    r"""The theorems' shape without their constants: a heuristic, no guarantee.

    ``beta~ / sqrt(lambda)`` with ``beta~`` from :func:`botorch_bkb.confidence.information`.

    Args:
        p: The state of a run.

    Reference:
        After Calandriello et al., ICML 2020 (BBKB, Theorem 2).
    """
    beta = confidence.information(p.log_sum, **_model(p), batch_threshold=p.batch_threshold)
    return confidence.in_standard_deviations(beta, p.noise_var)


def bkb(p: Progress) -> float:
    r"""BKB, Theorem 2, with ``eps = 1/2``.

    ``beta~_t / sqrt(lambda)`` with ``beta~_t`` from :func:`botorch_bkb.confidence.bkb`.

    Args:
        p: The state of a run.

    Reference:
        Calandriello et al., COLT 2019. (BKB, Theorem 2.)
    """
    t = max(1, p.num_observations)
    beta = confidence.bkb(p.effective_dimension, t, **_model(p), kernel_bound=p.kernel_bound)
    return confidence.in_standard_deviations(beta, p.noise_var)


def bbkb(p: Progress) -> float:
    r"""BBKB, Theorem 2, times ``C~``.

    ``C~ beta~_fb / sqrt(lambda)`` with ``beta~_fb`` from :func:`botorch_bkb.confidence.bbkb`.

    Args:
        p: The state of a run.

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Theorem 2.)
    """
    beta = p.batch_threshold * confidence.bbkb(p.log_sum_3, **_model(p))
    return confidence.in_standard_deviations(beta, p.noise_var)


def exact(p: Progress) -> float:
    r"""The self-normalised bound, times ``sqrt(C)`` where a batch goes without feedback.

    ``sqrt(C) beta~ / sqrt(lambda)`` with ``beta~`` from :func:`botorch_bkb.confidence.exact`:
    variances fall by no more than ``C`` within a batch, standard deviations by ``sqrt(C)``.

    Args:
        p: The state of a run.

    Reference:
        Abbasi-Yadkori, 2012; Chowdhury, Gopalan, ICML 2017 (Theorem 2). For batches: Desautels,
        Krause, Burdick, JMLR 2014.
    """
    beta = math.sqrt(p.batch_threshold) * confidence.exact(p.log_determinant, **_model(p))
    return confidence.in_standard_deviations(beta, p.noise_var)


def compressed(p: Progress) -> float:
    r"""Compressed GP-UCB, Theorem 3.2: i over arms, ii over a box with ``a = b = 1``.

    :func:`botorch_bkb.confidence.finite_set` or :func:`botorch_bkb.confidence.box`, at the step
    that comes next; both are in standard deviations already.

    Args:
        p: The state of a run.

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Theorem 3.2.)
    """
    t = p.num_steps + 1
    if p.num_arms:
        return confidence.finite_set(p.num_arms, t, p.delta)
    return confidence.box(p.dim, t, p.delta, side=p.side)


THEOREMS: dict[str, Width] = {"bkb": bkb, "bbkb": bbkb, "exact": exact, "compressed": compressed}


def as_width(
    width: str | float | Width | None, *, known: bool, theorem: Theorem, heuristic: float
) -> Width:
    r"""The width a user asked for, as a function of the state.

    Args:
        width: ``"heuristic"``, ``"information"``, ``"theory"``, a number of standard deviations,
            a function of :class:`Progress`, or None: information where all it depends on is
            known and heuristic otherwise.
        known: Whether kernel, noise and a bound on the norm are given.
        theorem: Which theorem ``"theory"`` is.
        heuristic: How many standard deviations ``"heuristic"`` is.
    """
    if width is None:
        return information if known else Fixed(heuristic)
    if callable(width):
        return width
    if isinstance(width, str):
        named: dict[str, Width] = {
            "heuristic": Fixed(heuristic),
            "information": information,
            "theory": THEOREMS[theorem],
        }
        if width in named:
            return named[width]
    elif isinstance(width, (int, float)) and math.isfinite(width) and width >= 0:
        return Fixed(float(width))
    raise InputDataError(
        'width must be "heuristic", "information", "theory", a number of posterior standard '
        f"deviations that is not negative, or a function of the state, got {width!r}."
    )


def doubles_norm(norm_bound: float | str, rule: Width) -> bool:
    r"""Whether ``F`` is to be doubled where an observation says so.

    Args:
        norm_bound: ``F``, or ``"double"``.
        rule: The width, which must depend on ``F`` then.
    """
    if norm_bound == "double":
        if not isinstance(rule, Fixed):
            return True
        raise InputDataError(
            'norm_bound="double" needs a width that depends on the norm, got a fixed one: use '
            'width="information" or width="theory".'
        )
    if isinstance(norm_bound, str) or not 0 <= norm_bound < math.inf:
        raise InputDataError(
            f'norm_bound must be a finite number that is not negative, or "double", got '
            f"{norm_bound!r}."
        )
    return False


#: A posterior standard deviation this small, relative to the prior's, counts as none.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Widths:
    r"""Widths of a run.

    Args:
        rule: The width as a function of the progress.
        delta: Failure probability.
        noise_bound: ``xi`` in units of the rewards; the model's noise by default.
        inflation: ``C~``: by how much variances may fall within a batch.
        doubles_norm: Whether ``F`` is doubled where an observation says so.
        num_arms: ``A``; 0 over a box.
        side: The longest side of the inputs' range, as the kernel sees it.
    """

    rule: Width
    delta: float
    noise_bound: float | None
    inflation: float
    doubles_norm: bool
    num_arms: int
    side: float

    def now(self, state: State, table: ArmTable) -> float:
        r"""The width in posterior standard deviations."""
        progress = Progress(
            num_observations=state.history.num_observations,
            num_steps=state.num_steps,
            num_arms=self.num_arms,
            dim=table.X.shape[-1],
            side=self.side,
            effective_dimension=table.effective_dimension,
            log_sum=state.log_sum,
            log_sum_3=state.log_sum_3,
            log_determinant=table.log_determinant,
            noise_var=state.hyper.noise_var,
            noise_bound=self._noise_bound(state),
            norm_bound=state.norm_bound,
            kernel_bound=table.kernel_bound,
            delta=self.delta,
            batch_threshold=self.inflation,
        )
        width = float(self.rule(progress))
        if not 0 <= width < math.inf:
            raise InputDataError(f"A width must be finite and not negative, got {width}.")
        return width

    def with_norm_doubled(
        self, state: State, table: ArmTable, gap: Tensor, sd: Tensor, weights: Tensor
    ) -> State:
        r"""Double ``F`` until no observation is outside of its interval by more than noise.

        Args:
            state: The state before the observations.
            table: Its table.
            gap: ``q`` distances of the observations from their posterior means.
            sd: ``q`` posterior standard deviations.
            weights: ``q`` numbers ``lambda / v`` for pulls with noise variance ``v``.
        """
        if not self.doubles_norm:
            return state
        t = state.history.num_observations + len(gap)
        noise = confidence.noise_over_time(t, self._noise_bound(state), self.delta)
        gap = gap - noise / weights.sqrt()
        # Where nothing is left to learn no norm explains an outlier.
        learnable = sd > NEGLIGIBLE * math.sqrt(table.kernel_bound)
        width = self.now(state, table)
        while bool((learnable & (gap > width * sd)).any()):
            doubled = replace(state, norm_bound=2 * state.norm_bound)
            wider = self.now(doubled, table)
            if not width < wider:  # a width of the user's that has no norm in it
                break
            state, width = doubled, wider
        return state

    def _noise_bound(self, state: State) -> float:
        if self.noise_bound is not None:
            return self.noise_bound / state.hyper.scale
        return math.sqrt(state.hyper.noise_var)
