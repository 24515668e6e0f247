r"""Widths of confidence bounds in posterior standard deviations, from the progress of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from botorch.exceptions.errors import InputDataError

from botorch_bkb.confidence import self_normalised, theorems


@dataclass(frozen=True)
class Progress:
    r"""The progress of a run in the model's units, on which the width of a bound may depend.

    Attributes:
        num_observations: The number of observations ``t``.
        num_steps: The number of observations and skipped steps.
        num_arms: The number of arms ``A``, those that are left under elimination; None over a box.
        dim: The dimension ``d`` of the inputs.
        effective_dimension: ``sum_s tau_t(x_s)``.
        log_sum: ``sum_s log(1 + tau_{fb[s-1]}(x_s))``, logged at selection.
        log_sum_alpha: ``sum_s log(1 + alpha tau_{fb[s-1]}(x_s))``.
        log_determinant: ``log det(Q_t / lambda + I)``, with ``Q = K`` for the exact posterior.
        unexplained: ``rho = sum_u c_u r(u) / lambda``, prior variance of the pulled inputs that
            the dictionary does not explain.
        log_unexplained: ``sum_u log(1 + c_u r(u) / lambda)``.
        misfit: ``Omega = lambda y'(Q + lambda I)^-1 y``, of the mean rewards of distinct inputs.
        noise_var: The noise variance ``lambda`` of the model.
        noise_bound: ``xi``, a bound on the noise standard deviation.
        norm_bound: ``F``, a bound on the norm of the function in the kernel's space.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.
        delta: The failure probability.
        accuracy: ``eps`` of the papers' theorems.
        batch_threshold: ``C~``; 1 if every pick waits for feedback.
        slope: ``b`` of Theorem 3.2 ii; None over arms, and where the width does not use it.
        log_tail: ``log a`` of the same theorem.

    Example:
        A custom width is a function of the progress:

        >>> import math
        >>> import torch
        >>> from botorch_bkb import BKB
        >>> def growing(progress):
        ...     return math.sqrt(2 * math.log(2 + progress.num_observations))
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), width=growing, seed=0)
        >>> optimizer.tell([0, 1], [0.0, 1.0])
        >>> optimizer.width_now == math.sqrt(2 * math.log(4))
        True

        The widths of this module for the same progress:

        >>> from botorch_bkb.confidence import Fixed, Progress, widths
        >>> p = Progress(
        ...     num_observations=10, num_steps=10, num_arms=100, dim=2,
        ...     effective_dimension=3.0, log_sum=3.0, log_sum_alpha=6.0, log_determinant=7.0,
        ...     unexplained=0.1, log_unexplained=0.1, misfit=9.0,
        ...     noise_var=1.0, noise_bound=1.0, norm_bound=1.0, kernel_bound=1.0,
        ...     delta=math.exp(-1), accuracy=0.5, batch_threshold=1.0,
        ... )
        >>> [round(rule(p), 1) for rule in (Fixed(2.0), widths.information, widths.exact)]
        [2.0, 3.0, 4.0]
        >>> [round(rule(p), 1) for rule in (widths.anytime_exact, widths.anytime)]
        [3.2, 3.8]
        >>> [round(rule(p), 1) for rule in (widths.compressed, widths.bbkb, widths.bkb)]
        [4.7, 7.7, 13.7]
    """

    num_observations: int
    num_steps: int
    num_arms: int | None
    dim: int
    effective_dimension: float
    log_sum: float
    log_sum_alpha: float
    log_determinant: float
    unexplained: float
    log_unexplained: float
    misfit: float
    noise_var: float
    noise_bound: float
    norm_bound: float
    kernel_bound: float
    delta: float
    accuracy: float
    batch_threshold: float
    slope: float | None = None
    log_tail: float | None = None


#: A function from the progress of a run to a width in posterior standard deviations.
Width = Callable[[Progress], float]


def _bounds_of(p: Progress) -> dict[str, float]:
    return {
        "noise_var": p.noise_var,
        "noise_bound": p.noise_bound,
        "norm_bound": p.norm_bound,
        "delta": p.delta,
    }


@dataclass(frozen=True)
class Fixed:
    r"""A constant width: a heuristic without a guarantee.

    Args:
        width: The width in posterior standard deviations; 2 is customary.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB
        >>> optimizer = BKB(torch.eye(5, dtype=torch.float64), width=1.5)
        >>> optimizer.width_now
        1.5
    """

    width: float

    def __call__(self, p: Progress) -> float:
        r"""Return the constant width."""
        return self.width


def information(p: Progress) -> float:
    r"""Return the theorems' width without their constants: a heuristic without a guarantee.

    The width is ``beta~ / sqrt(lambda)``, with ``beta~`` from
    :func:`botorch_bkb.confidence.information`.

    Args:
        p: The progress of a run.

    Reference:
        After Calandriello et al., ICML 2020 (BBKB, Theorem 2).
    """
    beta = theorems.information(p.log_sum, **_bounds_of(p), batch_threshold=p.batch_threshold)
    return theorems.in_standard_deviations(beta, p.noise_var)


def anytime(p: Progress) -> float:
    r"""Return the width of the DTC posterior at all times, for any dictionary.

    The width is ``sqrt(C~) beta~ / sqrt(lambda)``, with ``beta~`` from
    :func:`botorch_bkb.confidence.anytime`. Within a batch variances fall by at most ``C~``, and
    standard deviations by at most its root.

    Args:
        p: The progress of a run.

    Reference:
        Derived in :mod:`botorch_bkb.confidence.self_normalised`. For batches: Calandriello et al.,
        ICML 2020 (BBKB, Lemma 4).
    """
    beta = self_normalised.anytime(
        p.log_determinant + p.log_unexplained,
        unexplained=p.unexplained,
        misfit=p.misfit,
        **_bounds_of(p),
    )
    return _for_batches(p, theorems.in_standard_deviations(beta, p.noise_var))


def anytime_exact(p: Progress) -> float:
    r"""Return the width of the exact posterior at all times.

    The width is ``sqrt(C~) beta~ / sqrt(lambda)``, with ``beta~`` from
    :func:`botorch_bkb.confidence.anytime_exact`. Where an information threshold discards results,
    the posterior is that of the kept ones. The bound holds for them, since a result is kept by
    its variance and not by its reward.

    Args:
        p: The progress of a run.

    Reference:
        Flynn, Reeb, 2024. For batches: Desautels, Krause, Burdick, JMLR 2014.
    """
    beta = self_normalised.anytime_exact(p.log_determinant, **_bounds_of(p))
    return _for_batches(p, theorems.in_standard_deviations(beta, p.noise_var))


def _for_batches(p: Progress, width: float) -> float:
    r"""Widen bounds for variances that have fallen by ``C~`` without an observation."""
    return math.sqrt(p.batch_threshold) * width


def bkb(p: Progress) -> float:
    r"""Return the width of BKB, Theorem 2, with the logarithm in any units.

    The width is ``beta~_t / sqrt(lambda)``, with ``beta~_t`` from
    :func:`botorch_bkb.confidence.bkb`.

    Args:
        p: The progress of a run.

    Reference:
        Calandriello et al., COLT 2019. (BKB, Theorem 2.)
    """
    beta = theorems.bkb(
        p.effective_dimension,
        p.num_observations,
        **_bounds_of(p),
        kernel_bound=p.kernel_bound,
        accuracy=p.accuracy,
    )
    return theorems.in_standard_deviations(beta, p.noise_var)


def bbkb(p: Progress) -> float:
    r"""Return the width of BBKB, Theorem 2, times ``C~``.

    The width is ``C~ beta~_fb / sqrt(lambda)``, with ``beta~_fb`` from
    :func:`botorch_bkb.confidence.bbkb`.

    Args:
        p: The progress of a run.

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Theorem 2.)
    """
    beta = theorems.bbkb(p.log_sum_alpha, **_bounds_of(p), accuracy=p.accuracy)
    return theorems.in_standard_deviations(p.batch_threshold * beta, p.noise_var)


def exact(p: Progress) -> float:
    r"""Return the self-normalised bound of the exact GP, times ``sqrt(C)`` for batches.

    The width is ``sqrt(C) beta~ / sqrt(lambda)``, with ``beta~`` from
    :func:`botorch_bkb.confidence.exact`. Within a batch variances fall by at most ``C``, and
    standard deviations by at most ``sqrt(C)``.

    Args:
        p: The progress of a run.

    Reference:
        Abbasi-Yadkori, 2012; Chowdhury, Gopalan, ICML 2017 (Theorem 2). For batches: Desautels,
        Krause, Burdick, JMLR 2014.
    """
    beta = theorems.exact(p.log_determinant, **_bounds_of(p))
    return _for_batches(p, theorems.in_standard_deviations(beta, p.noise_var))


def compressed(p: Progress) -> float:
    r"""Return the width of compressed GP-UCB, Theorem 3.2, times ``sqrt(C)`` for batches.

    The width is :func:`botorch_bkb.confidence.finite_set` or :func:`botorch_bkb.confidence.box` at
    the next step. Both are in standard deviations already.

    Args:
        p: The progress of a run. Over a box it needs ``slope`` and ``log_tail``.

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Theorem 3.2 i over arms and ii over a box.)
    """
    t = p.num_steps + 1
    if p.num_arms is not None:
        return _for_batches(p, theorems.finite_set(p.num_arms, t, p.delta))
    if p.slope is None or p.log_tail is None:
        raise InputDataError(
            "Theorem 3.2 ii needs bounds on the derivatives of the function, got none: pass "
            'width="paper" to CompressedUCB, or widths.compressed itself, so that they are '
            "derived from the kernel."
        )
    width = theorems.box(p.dim, t, p.delta, slope=p.slope, log_tail=p.log_tail)
    return _for_batches(p, width)


@dataclass(frozen=True)
class NonAdaptive:
    r"""The width for points that were chosen independently of the noise, in several batches.

    The width is ``beta~ / sqrt(lambda)``, with ``beta~`` from
    :func:`botorch_bkb.confidence.non_adaptive` for all arms and all batches.

    Args:
        num_batches: The number of batches.

    Reference:
        Vakili et al., NeurIPS 2021 (Theorem 1); Li, Scarlett, AISTATS 2022.
    """

    num_batches: int

    def __call__(self, p: Progress) -> float:
        r"""Return the width, for the arms that are left."""
        beta = theorems.non_adaptive((p.num_arms or 1) * self.num_batches, **_bounds_of(p))
        return theorems.in_standard_deviations(beta, p.noise_var)
