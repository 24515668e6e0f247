r"""The oversampling that the theorems ask for, and the regret that they bound.

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

        2 (2 alpha)^(3/2) sqrt(T) ( xi d log(kappa^2 T) + xi log(1/delta)
                                    + sqrt(lambda F^2 d log(kappa^2 T)) )

    Args:
        effective_dimension: ``d``.
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
    """
    alpha = (1 + accuracy) / (1 - accuracy)
    gain = math.log(max(1.0, kernel_bound * horizon)) * effective_dimension
    spread = noise_bound * (gain + math.log(1 / delta))
    bias = math.sqrt(noise_var * gain) * norm_bound
    return 2 * (2 * alpha) ** 1.5 * math.sqrt(horizon) * (spread + bias)


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

    Args:
        effective_dimension: ``d = sum_s sigma^2_{s-1}(x_s)``, of the order of the effective
            dimension and of the information gain.
        horizon: ``T``.
        noise_var: ``lambda``; the theorem requires at least 1.
        noise_bound: ``xi``.
        norm_bound: ``F``.
        delta: Failure probability.
        batch_threshold: ``C~``.

    Example:
        >>> noise = {"noise_var": 1.0, "noise_bound": 1.0}
        >>> more = {"norm_bound": 1.0, "delta": math.exp(-1), "batch_threshold": 1.0}
        >>> bbkb_regret(1.0, 4, **noise, **more)
        330.0
    """
    d = effective_dimension
    spread = noise_bound * (d + math.log(1 / delta))
    bias = math.sqrt(noise_var * d) * norm_bound
    return 55 * batch_threshold**3 * math.sqrt(horizon) * (spread + bias)
