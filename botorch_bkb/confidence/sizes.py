r"""Bounds on the sizes of dictionaries and beliefs, and on the number of batches.

References:
    BKB: Calandriello et al., COLT 2019. BBKB: Calandriello et al., ICML 2020. Compressed GP
    bandits: Bedi et al., 2020.
"""

from __future__ import annotations

import math

from botorch_bkb.confidence.regret import log_determinant_bound


def bkb_dictionary_size(
    effective_dimension: float,
    oversampling: float,
    *,
    noise_var: float,
    kernel_bound: float = 1.0,
    accuracy: float = 0.5,
) -> float:
    r"""Return the upper bound on the size of BKB's dictionary (Theorem 1 b).

    With probability ``1 - delta``, at all steps, there are at most

    .. code-block:: text

        3 (1 + kappa^2 / lambda) alpha q d,     alpha = (1+eps)/(1-eps)

    points. The last score of a point is too large by ``alpha`` and by one step, which is the
    bracket. The number of draws is at most three times its mean.

    Args:
        effective_dimension: ``d = tr(K_t (K_t + lambda I)^-1)`` of the points evaluated so far.
        oversampling: ``q``, at least :func:`~botorch_bkb.confidence.bkb_oversampling`.
        noise_var: ``lambda``.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.
        accuracy: ``eps`` in (0, 1).

    Example:
        >>> bkb_dictionary_size(5.0, 2.0, noise_var=1.0)
        180.0

    Reference:
        Calandriello et al., COLT 2019. (BKB, Theorem 1 b.)
    """
    alpha = (1 + accuracy) / (1 - accuracy)
    step = 1 + kernel_bound / noise_var
    return 3 * step * alpha * oversampling * effective_dimension


def bbkb_dictionary_size(
    effective_dimension: float,
    oversampling: float,
    *,
    noise_var: float,
    batch_threshold: float,
    kernel_bound: float = 1.0,
) -> float:
    r"""Return the upper bound on the size of BBKB's dictionary (Theorem 1, part 1).

    With probability ``1 - delta``, after all batches, there are at most

    .. code-block:: text

        27 C~ (1 + kappa^2 / lambda) q d

    points. The constant is the product of 3 for the accuracy of the scores (Lemma 3), ``3 C~`` for
    a batch (Lemma 5), the bracket for its last point (Lemma 7), and 3 for the number of draws over
    its mean (BKB, Theorem 1). The theorem prints 9, which lacks the last factor. Its proof prints
    ``81 (1 + kappa^2 / lambda)^2``, which counts the first and the bracket twice.

    Args:
        effective_dimension: ``d = tr(K_t (K_t + lambda I)^-1)`` of the points evaluated so far.
        oversampling: ``q``. The theorem prints ``8 log(4T/delta)`` as the least one. Its proof asks
            for ``72 log(4T/delta)``.
        noise_var: ``lambda``; the theorem requires at least 1, for a kernel bound of 1.
        batch_threshold: ``C~``, at least 1.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.

    Example:
        >>> bbkb_dictionary_size(5.0, 2.0, noise_var=1.0, batch_threshold=2.0)
        1080.0

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Theorem 1, with the constant that its proof gives.)
    """
    step = 1 + kernel_bound / noise_var
    return 27 * batch_threshold * step * oversampling * effective_dimension


def bbkb_batches(
    effective_dimension: float,
    horizon: int,
    *,
    noise_var: float,
    batch_threshold: float,
    kernel_bound: float = 1.0,
) -> float:
    r"""Return the upper bound on the number of complete batches of BBKB (Theorem 1, part 2).

    With probability ``1 - delta`` there are at most

    .. code-block:: text

        9 C~ / (C~ - 1) (1 + kappa^2 / lambda) d (1 + log(1 + kappa^2 T / lambda))

    and never more than ``T``. Every complete batch resamples the dictionary and waits for feedback
    once. The theorem prints ``O(d)``. Its proof has ``sum_t sigma_t^2(x_t)``, the score of each
    point after its own evaluation. That sum is at most ``log det(K_T / lambda + I)``, since
    ``s / (1 + s) <= log(1 + s)``, and so at most the last two factors.

    Args:
        effective_dimension: ``d = tr(K_T (K_T + lambda I)^-1)`` of all points.
        horizon: ``T``.
        noise_var: ``lambda``; the theorem requires at least 1, for a kernel bound of 1.
        batch_threshold: ``C~``, at least 1.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.

    Example:
        >>> given = {"noise_var": 1.0, "batch_threshold": 2.0}
        >>> round(bbkb_batches(1.0, 10_000, **given))
        368
        >>> bbkb_batches(1.0, 100, **given)  # never more than there are evaluations
        100.0

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Theorem 1, with the constants of its proof.)
    """
    if batch_threshold <= 1:
        return float(horizon)
    units = {"noise_var": noise_var, "kernel_bound": kernel_bound}
    gain = log_determinant_bound(effective_dimension, horizon, **units)
    share = batch_threshold / (batch_threshold - 1)
    return min(float(horizon), 9 * share * (1 + kernel_bound / noise_var) * gain)


def model_order_rate(epsilon: float, dim: int, *, constant: float = 1.0) -> float:
    r"""Return the rate at which a compressed belief grows as its threshold falls (Theorem 3.1).

    .. code-block:: text

        Y (1 / (exp(2 epsilon) - 1))^p

    The constant ``Y`` depends on kernel, noise and domain, and no paper gives it. So this is a rate
    and not a bound. For a finite set :func:`model_order_bound` is a bound. The proof in the paper
    leaves out that a point may be kept several times.

    Args:
        epsilon: Threshold in nats.
        dim: ``p``, the dimension of the domain.
        constant: ``Y``.

    Example:
        With the schedule of the theorem and ``a p = 1/2`` the rate is ``sqrt(T)``:

        >>> from botorch_bkb import epsilon_for_horizon
        >>> round(model_order_rate(epsilon_for_horizon(100, 3), 3), 6)
        10.0

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Theorem 3.1.)
    """
    return math.inf if epsilon == 0 else constant * math.expm1(2 * epsilon) ** -dim


def model_order_bound(
    epsilon: float, num_arms: int, *, noise_var: float, kernel_bound: float = 1.0
) -> float:
    r"""Return an upper bound on the number of points that a compressed belief over arms keeps.

    It is the largest ``M`` with

    .. code-block:: text

        M epsilon < A/2 log(1 + M kappa^2 / (A lambda))

    Every point that is kept adds more than ``epsilon`` nats, and the right side bounds the
    information of any ``M`` points among ``A`` arms. So it holds for every run, without
    probability, and also if an arm is kept several times. It is from no paper, and makes Theorem
    3.1 explicit for a finite set.

    Args:
        epsilon: Threshold in nats.
        num_arms: ``A``.
        noise_var: ``lambda``.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.

    Returns:
        A whole number, or infinity for a threshold of 0.

    Example:
        >>> model_order_bound(0.01, 10, noise_var=0.1)
        4167.0

    Reference:
        After Bedi et al., 2020. (Compressed GP bandits, Theorem 3.1 and Lemma 8.3.)
    """
    if epsilon == 0:
        return math.inf
    ratio = kernel_bound / noise_var / num_arms

    def fits(points: int) -> bool:
        return points * epsilon < num_arms / 2 * math.log1p(points * ratio)

    # The right side is concave in M, and both sides are 0 at 0: all M below the bound fit.
    upper = 1
    while fits(upper):
        upper *= 2
    lower = upper // 2
    while upper - lower > 1:
        middle = (lower + upper) // 2
        lower, upper = (middle, upper) if fits(middle) else (lower, middle)
    return float(lower)
