r"""Bounds on the regret of compressed GP bandits.

The papers' theorems are for ``k(x, x) <= 1``. Here ``C_1 = 8 kappa^2 / log(1 + kappa^2 / lambda)``,
which is the theorems' constant for ``kappa^2 = 1`` and makes the bounds scale with the rewards.
Regret counts every step, also those at which nothing was evaluated.

References:
    Bedi et al.: Regret and belief complexity trade-off in Gaussian process bandits via information
    thresholding. 2020. After Srinivas et al., ICML 2010, and Nguyen et al., ACML 2017.
"""

from __future__ import annotations

import math

from botorch_bkb.confidence.regret import variance_over_information


def _variance_per_nat(noise_var: float, kernel_bound: float) -> float:
    r"""Return ``C_1 / 4``, the variance at a pick per nat of information that it adds, at most."""
    return 2 * noise_var * variance_over_information(noise_var, kernel_bound)


def compressed_ucb_regret(
    information_gain: float,
    horizon: int,
    *,
    epsilon: float,
    width: float,
    noise_var: float,
    kernel_bound: float = 1.0,
    is_box: bool = False,
) -> float:
    r"""Return the upper bound on the regret of compressed GP-UCB after ``T`` steps (Theorem 3.2).

    With probability ``1 - delta`` the regret is at most

    .. code-block:: text

        sqrt(C_1 T beta_T gamma) + T sqrt(C_1 beta_T epsilon)   [ + kappa pi^2 / 6 over a box ]

    With ``epsilon = 0`` this is the bound of GP-UCB. The theorem inserts ``epsilon = 1/2 log(1 +
    T^-a)`` and then drops the factor 1/2.

    Args:
        information_gain: ``gamma``, the information gain of the kept points in nats, half of their
            ``log det(K / lambda + I)``; or its maximum over as many points.
        horizon: ``T``, with the steps at which nothing was evaluated.
        epsilon: Threshold in nats.
        width: ``sqrt(beta_T)``, from :func:`~botorch_bkb.confidence.finite_set` or
            :func:`~botorch_bkb.confidence.box`, which also hold ``delta``.
        noise_var: ``lambda``.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.
        is_box: Whether the domain is a box (part ii). The theorem's term ``pi^2 / 6`` is for a
            prior of variance one, as :func:`~botorch_bkb.confidence.box` is.

    Example:
        >>> from botorch_bkb.confidence import finite_set
        >>> width = finite_set(100, 1000, delta=0.1)
        >>> given = {"width": width, "noise_var": 0.1}
        >>> round(compressed_ucb_regret(20.0, 1000, epsilon=0.0, **given))
        1683
        >>> round(compressed_ucb_regret(20.0, 1000, epsilon=0.001, **given))
        2059

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Theorem 3.2, eq. 8.31 and 8.56.) The function is
        a draw from the prior, and the width is the theorem's.
    """
    constant = 4 * _variance_per_nat(noise_var, kernel_bound)
    spread = math.sqrt(horizon * information_gain) + horizon * math.sqrt(epsilon)
    grid = math.sqrt(kernel_bound) * math.pi**2 / 6 if is_box else 0.0
    return math.sqrt(constant) * width * spread + grid


def compressed_ucb_rate(
    horizon: int,
    *,
    width: float,
    noise_var: float,
    kernel_trace: float,
    kernel_bound: float = 1.0,
    exponent: float = 0.5,
    dim: int = 1,
    constant: float = 1.0,
) -> float:
    r"""Return the rate of the regret of compressed GP-UCB over arms (Corollary 3.3).

    .. code-block:: text

        sqrt(C_1 beta_T) ( sqrt(Y Z_1) T^((1 + a p)/2) + T^(1 - a/2) ),
        Z_1 = tr(K) / (lambda (1 - 1/e)),     epsilon = 1/2 log(1 + T^-a)

    It puts ``gamma <= Z_1 M`` and ``M <= Y T^(a p)`` points (Theorem 3.1) into Theorem 3.2. The
    best exponent in one dimension is ``a = 1/2``, and the regret is of order ``T^(3/4)``. The
    corollary prints the maximum of the two terms instead of their sum, and ``Y = 1``. No paper
    gives ``Y``, so this is a rate. With a known information gain use
    :func:`compressed_ucb_regret`.

    Args:
        horizon: ``T``.
        width: ``sqrt(beta_T)``, from :func:`~botorch_bkb.confidence.finite_set`.
        noise_var: ``lambda``.
        kernel_trace: ``tr(K)``, the sum of ``k(x, x)`` over the arms.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.
        exponent: ``a`` of the schedule of the threshold, in ``(0, 1/p)``.
        dim: ``p``, the dimension of the domain.
        constant: ``Y`` of Theorem 3.1.

    Example:
        >>> given = {"width": 4.0, "noise_var": 0.1, "kernel_trace": 50.0}
        >>> ratio = compressed_ucb_rate(16_000, **given) / compressed_ucb_rate(1000, **given)
        >>> round(ratio, 6)  # 16^(3/4)
        8.0

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Corollary 3.3, eq. 8.61.)
    """
    eigenvalues = kernel_trace / (noise_var * (1 - math.exp(-1)))
    kept = math.sqrt(constant * eigenvalues) * horizon ** ((1 + exponent * dim) / 2)
    skipped = horizon ** (1 - exponent / 2)
    return math.sqrt(4 * _variance_per_nat(noise_var, kernel_bound)) * width * (kept + skipped)


def compressed_ei_regret(
    information_gain: float,
    horizon: int,
    *,
    epsilon: float,
    width: float,
    largest_score: float,
    noise_var: float,
    kernel_bound: float = 1.0,
) -> float:
    r"""Return the bound on the regret of compressed expected improvement (Theorem 3.4).

    .. code-block:: text

        ( sqrt(3 (beta_T + 1 + R^2)) + sqrt(beta_T) ) sqrt(C_1 / 4)
            ( sqrt(T gamma) + T sqrt(epsilon) )

    The theorem prints the denominator ``log(1 + 1/lambda)`` of ``C_1`` without its root, which
    eq. 9.27 of the proof has. The proof is incomplete. Eq. 9.26 applies Lemma 9.5 to the variances
    at the optimum, but the lemma is about those at the picks.

    Args:
        information_gain: ``gamma``, as in :func:`compressed_ucb_regret`.
        horizon: ``T``, with the steps at which nothing was evaluated.
        epsilon: Threshold in nats.
        width: ``sqrt(beta_T)``, from :func:`~botorch_bkb.confidence.finite_set`.
        largest_score: ``R``, the largest ``|mean(x) - best observation| / sd(x)`` over all steps
            and arms.
        noise_var: ``lambda``.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.

    Example:
        >>> from botorch_bkb.confidence import finite_set
        >>> given = {"width": finite_set(100, 1000, delta=0.1), "noise_var": 0.1}
        >>> round(compressed_ei_regret(20.0, 1000, epsilon=0.0, largest_score=5.0, **given))
        2692

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Theorem 3.4 and eq. 9.27, for finite sets.)
    """
    factor = math.sqrt(3 * (width**2 + 1 + largest_score**2)) + width
    spread = math.sqrt(horizon * information_gain) + horizon * math.sqrt(epsilon)
    return factor * math.sqrt(_variance_per_nat(noise_var, kernel_bound)) * spread
