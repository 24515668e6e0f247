r"""Widths of confidence bounds, with one function per theorem.

The papers write ``u(x) = mean(x) + beta~ sigma~(x)`` with ``sigma~^2 = tau = var / lambda``. In
posterior standard deviations the width is ``beta~ / sqrt(lambda)``. Only
:func:`in_standard_deviations` converts between the two. Widths by Theorem 3.2 of the compressed GP
paper are in standard deviations already.

Guarantees and practice are far apart. With little noise the information gain is very large. A
theorem's width then fills the space, where a fixed width of two standard deviations exploits. With
rewards far outside the prior's scale a fixed width gets stuck where the theorem's does not.

The bounds that hold for any dictionary are in :mod:`botorch_bkb.confidence.self_normalised`.

References:
    BKB: Calandriello et al., COLT 2019. BBKB: Calandriello et al., ICML 2020. Exact posterior:
    Abbasi-Yadkori, 2012; Chowdhury, Gopalan, ICML 2017. Compressed GP bandits: Bedi et al., 2020,
    after Srinivas et al., ICML 2010.
"""

from __future__ import annotations

import math


def in_standard_deviations(beta: float, noise_var: float) -> float:
    r"""Convert the papers' ``beta~`` to a multiple of the posterior standard deviation.

    .. code-block:: text

        beta~ sqrt(tau(x)) = (beta~ / sqrt(lambda)) sd(x),     tau(x) = var(x) / lambda

    BoTorch's ``beta`` is the square of the returned value, ``beta~^2 / lambda``.

    Args:
        beta: ``beta~``.
        noise_var: ``lambda``, the noise variance inside the model.

    Returns:
        ``beta~ / sqrt(lambda)``.

    Example:
        >>> in_standard_deviations(3.0, noise_var=0.25)
        6.0

    Reference:
        A conversion of the units of Theorem 2 of BKB and BBKB to those of BoTorch, not a theorem.
    """
    return beta / math.sqrt(noise_var)


def bkb(
    effective_dimension: float,
    num_observations: int,
    *,
    noise_var: float,
    noise_bound: float,
    norm_bound: float,
    delta: float,
    kernel_bound: float = 1.0,
    accuracy: float = 0.5,
) -> float:
    r"""Return ``beta~_t`` of BKB, Theorem 2.

    .. code-block:: text

        2 xi sqrt( alpha (1 + log(1 + kappa^2 t / lambda)) d_eff + log(1/delta) )
            + (1 + 1/sqrt(1-eps)) sqrt(lambda) F

    with ``alpha = (1+eps)/(1-eps)``. The bound holds for all steps and arms at once with
    probability ``1 - delta`` if the oversampling is at least :func:`bkb_oversampling`.

    The paper prints ``log(kappa^2 t)``, which depends on the units of the rewards and is no bound
    in small ones. It stands for a bound on a log-determinant. Each eigenvalue ``a`` of
    ``K / lambda`` has ``log(1 + a) <= a / (1 + a) (1 + log(1 + a))``, so that
    ``log det(K / lambda + I) <= d_eff (1 + log(1 + kappa^2 t / lambda))``.

    Args:
        effective_dimension: ``sum_s tau_t(x_s)`` over the pulls, under the current model.
        num_observations: ``t``.
        noise_var: ``lambda``.
        noise_bound: ``xi``, a bound on the noise standard deviation.
        norm_bound: ``F``, a bound on the norm of the function in the kernel's space.
        delta: Failure probability.
        kernel_bound: ``kappa^2``, a bound on ``k(x, x)``.
        accuracy: ``eps`` in (0, 1).

    Example:
        >>> noise = {"noise_var": 1.0, "noise_bound": 1.0}
        >>> round(bkb(0.0, 1, **noise, norm_bound=0.0, delta=math.exp(-4)), 12)
        4.0
    """
    gain = effective_dimension * (1 + math.log1p(kernel_bound * num_observations / noise_var))
    spread = 2 * noise_bound * math.sqrt(alpha(accuracy) * gain + math.log(1 / delta))
    return spread + _bias(accuracy, noise_var, norm_bound)


def alpha(accuracy: float) -> float:
    r"""Return ``(1 + eps) / (1 - eps)``, the accuracy factor of the variances (BKB, Theorem 1).

    Args:
        accuracy: ``eps`` in (0, 1).

    Example:
        >>> alpha(0.5)
        3.0
    """
    return (1 + accuracy) / (1 - accuracy)


def _bias(accuracy: float, noise_var: float, norm_bound: float) -> float:
    return (1 + 1 / math.sqrt(1 - accuracy)) * math.sqrt(noise_var) * norm_bound


def bbkb(
    log_sum: float,
    *,
    noise_var: float,
    noise_bound: float,
    norm_bound: float,
    delta: float,
    accuracy: float = 0.5,
) -> float:
    r"""Return ``beta~_fb`` of BBKB, Theorem 2. The width of a batch is ``C~`` times this value.

    .. code-block:: text

        2 xi sqrt( sum_s log(1 + alpha tau_{fb[s-1]}(x_s)) + log(1/delta) )
            + (1 + 1/sqrt(1-eps)) sqrt(lambda) F

    The paper has ``eps = 1/2``, hence ``alpha = 3`` and ``1 + sqrt 2``. It asks for a ``lambda`` of
    at least 1. Every model has units in which that holds. Dividing rewards and noise by
    ``sqrt(lambda)``, and the kernel by ``lambda``, changes neither ``F`` nor the width in standard
    deviations.

    Args:
        log_sum: ``sum_s log(1 + alpha tau)``. Each score is that of a point under the model that
            chose it. It is logged at selection and never computed again.
        noise_var: ``lambda``.
        noise_bound: ``xi``.
        norm_bound: ``F``.
        delta: Failure probability.
        accuracy: ``eps`` in (0, 1).

    Example:
        >>> noise = {"noise_var": 4.0, "noise_bound": 2.0}
        >>> round(bbkb(0.0, **noise, norm_bound=1.0, delta=math.exp(-1)), 3)
        8.828
    """
    spread = 2 * noise_bound * math.sqrt(log_sum + math.log(1 / delta))
    return spread + _bias(accuracy, noise_var, norm_bound)


def exact(
    log_determinant: float,
    *,
    noise_var: float,
    noise_bound: float,
    norm_bound: float,
    delta: float,
) -> float:
    r"""Return ``beta~`` of the exact posterior, for points chosen in any way.

    .. code-block:: text

        xi sqrt( log det(K_t / lambda + I) + 2 log(1/delta) ) + sqrt(lambda) F

    The bound holds for all steps and arms at once with probability ``1 - delta``, for noise that
    is sub-Gaussian with constant ``xi``.

    Args:
        log_determinant: ``log det(K_t / lambda + I)``, twice the information gain.
        noise_var: ``lambda``.
        noise_bound: ``xi``.
        norm_bound: ``F``.
        delta: Failure probability.

    Example:
        >>> noise = {"noise_var": 4.0, "noise_bound": 1.0}
        >>> exact(7.0, **noise, norm_bound=1.0, delta=math.exp(-1))
        5.0

    Reference:
        Abbasi-Yadkori: Online learning for linearly parametrized control problems. PhD thesis,
        University of Alberta, 2012. (The self-normalised bound.)

        Chowdhury, Gopalan: On kernelized multi-armed bandits. ICML 2017. (Theorem 2, for GP-UCB:
        the same form, with the maximal information gain in place of half the log-determinant.)
    """
    spread = noise_bound * math.sqrt(log_determinant + 2 * math.log(1 / delta))
    return spread + math.sqrt(noise_var) * norm_bound


def information(
    log_sum: float,
    *,
    noise_var: float,
    noise_bound: float,
    norm_bound: float,
    delta: float,
    batch_threshold: float = 1.0,
) -> float:
    r"""Return ``beta~`` in the theorems' form, without constants: a heuristic, no guarantee.

    .. code-block:: text

        xi sqrt( C~ sum_s log(1 + tau_{fb[s-1]}(x_s)) + log(1/delta) ) + sqrt(lambda) F

    Args:
        log_sum: ``sum_s log(1 + tau)``, with scores logged at selection.
        noise_var: ``lambda``.
        noise_bound: ``xi``.
        norm_bound: ``F``.
        delta: Failure probability.
        batch_threshold: ``C~``.

    Example:
        >>> noise = {"noise_var": 1.0, "noise_bound": 1.0}
        >>> information(3.0, **noise, norm_bound=5.0, delta=math.exp(-1))
        7.0

    Reference:
        After Calandriello et al., ICML 2020 (BBKB, Theorem 2). No theorem covers it.
    """
    spread = noise_bound * math.sqrt(batch_threshold * log_sum + math.log(1 / delta))
    return spread + math.sqrt(noise_var) * norm_bound


def noise_over_time(num_observations: int, noise_bound: float, delta: float) -> float:
    r"""Return a level that noise exceeds at no step up to ``t``, with probability ``1 - delta``.

    .. code-block:: text

        xi sqrt( 2 log(pi^2 t^2 / (3 delta)) )

    for sub-Gaussian noise with constant ``xi``. It is a union bound over all steps, in which step
    ``s`` gets ``6 delta / (pi^2 s^2)``. It is from no paper, and decides when to double a norm
    bound.

    Args:
        num_observations: ``t``.
        noise_bound: ``xi``.
        delta: Failure probability.

    Example:
        >>> round(noise_over_time(10, 1.0, delta=0.1), 3)
        4.025
    """
    t = num_observations
    return noise_bound * math.sqrt(2 * math.log(math.pi**2 * t**2 / (3 * delta)))


def finite_set(num_arms: int, num_observations: int, delta: float) -> float:
    r"""Return the width of Theorem 3.2 i, for a finite set of arms, in standard deviations.

    The width is ``sqrt(2 log(|X| t^2 pi^2 / (6 delta)))``. The theorem is Bayesian: the function is
    a draw from the prior.

    Args:
        num_arms: ``|X|``.
        num_observations: ``t``.
        delta: Failure probability.

    Example:
        >>> round(finite_set(1000, 10, delta=0.1), 3)
        5.35

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Theorem 3.2 i, after Srinivas et al., ICML 2010.)
    """
    t = num_observations
    return math.sqrt(2 * math.log(num_arms * t**2 * math.pi**2 / (6 * delta)))


def box(
    dim: int, num_observations: int, delta: float, *, slope: float, log_tail: float = 0.0
) -> float:
    r"""Return the width of Theorem 3.2 ii, for a box, in standard deviations.

    The width is ``sqrt(beta_t)`` with

    .. code-block:: text

        beta_t = 2 log(2 pi^2 t^2 / (3 delta)) + 2 d log( t^2 d b sqrt(log(4 d a / delta)) )

    for the unit cube and a prior of variance one. A partial derivative exceeds ``L`` somewhere in
    the cube with probability at most ``a exp(-L^2 / b^2)``. The paper has the box ``[0, r]^d``,
    whose side is part of ``b`` here. :func:`~botorch_bkb.confidence.slopes.slope_and_tail` derives
    ``a`` and ``b`` from a kernel.

    Args:
        dim: ``d``.
        num_observations: ``t``.
        delta: Failure probability.
        slope: ``b``.
        log_tail: ``log a``.

    Example:
        >>> round(box(2, 10, delta=0.1, slope=1.0), 3)
        6.46

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Theorem 3.2 ii, after Srinivas et al., ICML
        2010.)
    """
    t = num_observations
    # Never below one: a coarser grid than one point would be none.
    grid = max(1.0, t**2 * dim * slope * math.sqrt(math.log(4 * dim / delta) + log_tail))
    return math.sqrt(2 * math.log(2 * math.pi**2 * t**2 / (3 * delta)) + 2 * dim * math.log(grid))


def non_adaptive(
    num_bounds: int, *, noise_var: float, noise_bound: float, norm_bound: float, delta: float
) -> float:
    r"""Return ``beta~`` for points that were chosen independently of the noise.

    .. code-block:: text

        sqrt( lambda F^2 + 2 xi^2 log(2 n / delta) )

    The bound holds for ``n`` pairs of arms and sets of points at once with probability
    ``1 - delta``, for noise that is sub-Gaussian with constant ``xi``.

    Proof. With ``a = (K + lambda I)^{-1} k(x)`` the posterior mean is ``a'(f + noise)``, and

    .. code-block:: text

        mean(x) - f(x) = ( a'f - f(x) ) + a'noise
        | a'f - f(x) | <= F | k(x, .) - sum_s a_s k(x_s, .) | = F sqrt( var(x) - lambda |a|^2 )

    Since ``a`` does not depend on the noise, ``a'noise`` is sub-Gaussian with constant ``xi |a|``.
    With probability ``1 - delta / n`` it is at most ``xi |a| sqrt(2 log(2 n / delta))`` in absolute
    value. By the inequality of Cauchy and Schwarz the sum of the two terms is at most ``sqrt(F^2 +
    2 (xi^2 / lambda) log(2 n / delta)) sd(x)``.

    With noise variances ``v_s`` of their own, ``lambda |a|^2`` becomes ``sum_s v_s a_s^2``. The
    same width holds if noise ``s`` is sub-Gaussian with constant ``xi sqrt(v_s / lambda)``.

    Args:
        num_bounds: ``n``: the number of arms times the number of sets of points.
        noise_var: ``lambda``.
        noise_bound: ``xi``.
        norm_bound: ``F``.
        delta: Failure probability.

    Example:
        >>> noise = {"noise_var": 4.0, "noise_bound": 2.0}
        >>> round(non_adaptive(100, **noise, norm_bound=3.0, delta=0.1), 3)
        9.839

    Reference:
        Vakili, Bouziani, Jalali, Bernacchia, Shiu: Optimal order simple regret for Gaussian process
        bandits. NeurIPS 2021. (Theorem 1 adds the two terms instead: ``sqrt(lambda) F + xi
        sqrt(2 log(2 n / delta))``. The root of the sum of squares is never larger.)
    """
    square = noise_var * norm_bound**2 + 2 * noise_bound**2 * math.log(2 * num_bounds / delta)
    return math.sqrt(square)
