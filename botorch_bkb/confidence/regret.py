r"""The oversampling that the theorems ask for, and the regret that they bound.

Bounds on sizes are in :mod:`~botorch_bkb.confidence.sizes`, and those of the compressed GP paper in
:mod:`~botorch_bkb.confidence.compressed_regret`.

References:
    BKB: Calandriello et al., COLT 2019. BBKB: Calandriello et al., ICML 2020.
"""

from __future__ import annotations

import math


def bkb_oversampling(horizon: int, delta: float, accuracy: float = 0.5) -> float:
    r"""Return the least ``q̄`` for which BKB's theorems hold, ``6 alpha log(4T/delta) / eps^2``.

    Here ``alpha = (1+eps)/(1-eps)``. With probability ``1 - delta`` all variances are then within a
    factor ``alpha`` of the exact ones, at all steps up to ``T`` and all arms.

    Args:
        horizon: ``T``.
        delta: Failure probability.
        accuracy: ``eps`` in (0, 1).

    Example:
        >>> round(bkb_oversampling(100, delta=0.1), 1)
        597.2

    Reference:
        Calandriello et al., COLT 2019. (BKB, Theorem 1.)
    """
    alpha = (1 + accuracy) / (1 - accuracy)
    return 6 * alpha * math.log(4 * horizon / delta) / accuracy**2


def bbkb_oversampling(horizon: int, delta: float, batch_threshold: float) -> float:
    r"""Return the least ``q̄`` for which BBKB's theorems hold, ``72 C~ log(4T/delta)``.

    Args:
        horizon: ``T``.
        delta: Failure probability.
        batch_threshold: ``C~``, at least 1.

    Example:
        >>> round(bbkb_oversampling(100, delta=0.1, batch_threshold=2.0), 1)
        1194.3

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Theorem 2.)
    """
    return 72 * batch_threshold * math.log(4 * horizon / delta)


def log_determinant_bound(
    effective_dimension: float, horizon: int, *, noise_var: float, kernel_bound: float = 1.0
) -> float:
    r"""Bound ``log det(K / lambda + I)`` by the effective dimension.

    .. code-block:: text

        log det(K_T / lambda + I) <= d (1 + log(1 + kappa^2 T / lambda))

    This follows from ``log(1 + a) <= a / (1 + a) (1 + log(1 + a))`` for every eigenvalue ``a`` of
    ``K_T / lambda``, and from ``||K_T|| <= kappa^2 T``. The papers abbreviate the bracket by
    ``log(kappa^2 T)``, which depends on the units of the rewards.

    Args:
        effective_dimension: ``d = tr(K_T (K_T + lambda I)^-1)``.
        horizon: ``T``.
        noise_var: ``lambda``.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.

    Example:
        >>> round(log_determinant_bound(2.0, 100, noise_var=1.0), 3)
        11.23

    Reference:
        Calandriello et al., COLT 2019. (BKB, the step after Theorem 2.)
    """
    return effective_dimension * (1 + math.log1p(kernel_bound * horizon / noise_var))


def variance_over_information(noise_var: float, kernel_bound: float = 1.0) -> float:
    r"""Return the least ``c`` with ``s <= c log(1 + s)`` for all scores ``s <= kappa^2 / lambda``.

    .. code-block:: text

        c = (kappa^2 / lambda) / log(1 + kappa^2 / lambda)

    So ``sum_s tau_{s-1}(x_s) <= c log det(K_T / lambda + I)``. It is below 2 for a noise variance
    of at least ``0.4 kappa^2``.

    Args:
        noise_var: ``lambda``.
        kernel_bound: ``kappa^2``.

    Example:
        >>> round(variance_over_information(1.0), 3)
        1.443

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, eq. 8.21, after Srinivas et al., ICML 2010.)
    """
    ratio = kernel_bound / noise_var
    return ratio / math.log1p(ratio)


def bkb_regret(
    effective_dimension: float,
    horizon: int,
    *,
    noise_var: float,
    noise_bound: float,
    norm_bound: float,
    delta: float,
    kernel_bound: float = 1.0,
    accuracy: float = 0.5,
) -> float:
    r"""Return the upper bound on the regret of BKB after ``T`` steps (Theorem 2).

    With probability ``1 - delta`` the regret is at most

    .. code-block:: text

        2 (2 alpha)^(3/2) sqrt(T) ( xi d L + xi log(1/delta) + sqrt(lambda F^2 d L) ),
        L = 1 + log(1 + kappa^2 T / lambda)

    The paper prints ``log(kappa^2 T)`` for ``L``, which depends on the units of the rewards (see
    :func:`log_determinant_bound`). Its proof needs ``sum_s tau_{s-1}(x_s) <= 2 log det``. That is
    so for ``kappa^2 <= 2.5 lambda``. Otherwise we multiply by ``sqrt(c / 2)``, with ``c`` from
    :func:`variance_over_information`.

    Args:
        effective_dimension: ``d`` of all points that were evaluated.
        horizon: ``T``.
        noise_var: ``lambda``.
        noise_bound: ``xi``.
        norm_bound: ``F``.
        delta: Failure probability.
        kernel_bound: ``kappa^2``.
        accuracy: ``eps`` in (0, 1).

    Example:
        >>> noise = {"noise_var": 1.0, "noise_bound": 1.0}
        >>> round(bkb_regret(0.0, 1, **noise, norm_bound=1.0, delta=math.exp(-1)), 3)
        29.394

    Reference:
        Calandriello et al., COLT 2019. (BKB, Theorem 2.) It assumes the width of the theorem and
        an oversampling of at least :func:`bkb_oversampling`.
    """
    alpha = (1 + accuracy) / (1 - accuracy)
    units = {"noise_var": noise_var, "kernel_bound": kernel_bound}
    gain = log_determinant_bound(effective_dimension, horizon, **units)
    spread = noise_bound * (gain + math.log(1 / delta))
    bias = math.sqrt(noise_var * gain) * norm_bound
    scores = max(1.0, math.sqrt(variance_over_information(**units) / 2))
    return 2 * (2 * alpha) ** 1.5 * scores * math.sqrt(horizon) * (spread + bias)


def bbkb_regret(
    effective_dimension: float,
    horizon: int,
    *,
    noise_var: float,
    noise_bound: float,
    norm_bound: float,
    delta: float,
    batch_threshold: float,
) -> float:
    r"""Return the upper bound on the regret of BBKB after ``T`` steps (Theorem 2).

    With probability ``1 - delta`` the regret is at most

    .. code-block:: text

        55 C~^3 sqrt(T) ( xi d + xi log(1/delta) + sqrt(lambda F^2 d) )

    The proof prints 21 where its steps give 27. With ``3 C~ - 2`` for ``3 C~`` in Lemma 5, which
    the same proof gives, the constant 55 holds for all ``C~ >= 1``.

    Args:
        effective_dimension: ``d = sum_s sigma^2_{s-1}(x_s)``, the exact scores of the points when
            they were selected. For ``lambda >= kappa^2`` it is of the order of the effective
            dimension. In general it is at most :func:`variance_over_information` times
            :func:`log_determinant_bound`.
        horizon: ``T``.
        noise_var: ``lambda``; the theorem requires at least 1, for a kernel bound of 1.
        noise_bound: ``xi``.
        norm_bound: ``F``.
        delta: Failure probability.
        batch_threshold: ``C~``.

    Example:
        >>> noise = {"noise_var": 1.0, "noise_bound": 1.0}
        >>> more = {"norm_bound": 1.0, "delta": math.exp(-1), "batch_threshold": 1.0}
        >>> bbkb_regret(1.0, 4, **noise, **more)
        330.0

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Theorem 2.) It assumes the width of the theorem, the
        sum rule and an oversampling of at least :func:`bbkb_oversampling`.
    """
    d = effective_dimension
    spread = noise_bound * (d + math.log(1 / delta))
    bias = math.sqrt(noise_var * d) * norm_bound
    return 55 * batch_threshold**3 * math.sqrt(horizon) * (spread + bias)
