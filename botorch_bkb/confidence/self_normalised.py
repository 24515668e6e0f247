r"""Confidence bounds for all times and any dictionary, by the accuracy that it is seen to have.

Let ``f(x) = phi(x)'w`` with ``|w| <= F``, and noise ``eta`` that is conditionally sub-Gaussian with
constant ``xi``. The rows of ``Phi`` are the features of the observed inputs, ``K = Phi Phi'``, and
``P`` projects on the span of a dictionary. The DTC belief has

.. code-block:: text

    Q = Phi P Phi',   V = P Phi'Phi P + lambda I,   w~ = V^-1 P Phi'y,   tau(x) = phi(x)'V^-1 phi(x)

so ``|f(x) - mean(x)| <= sqrt(tau(x)) |w - w~|_V`` at every ``x``. The theorems of the papers bound
the last factor by the accuracy that a random dictionary has with high probability. Here it is
bounded by what can be measured, for every dictionary, however it was chosen:

.. code-block:: text

    rho   = sum_u c_u r(u) / lambda             r(u) = k(u,u) - z(u)'z(u), the unexplained variance
    gain  = log det(I + Q / lambda) + sum_u log(1 + c_u r(u) / lambda)
    Omega = lambda y'(Q + lambda I)^-1 y

with sums over the distinct inputs ``u`` and their pulls ``c_u``. Three facts about them:

1. ``|Phi (I - P)|^2 = |K - Q| <= lambda rho``, since a trace bounds the largest eigenvalue.
2. ``log det(I + K / lambda) <= gain``. With ``R = K - Q`` the left-hand side is at most
   ``log det(I + Q / lambda) + log det(I + R / lambda)``, and Hadamard's inequality bounds the
   second determinant by the product of its diagonal.
3. For two choices of a centre ``w0`` the following holds at all times with probability
   ``1 - delta`` each (the method of mixtures: the exponential supermartingale of a direction,
   averaged over directions drawn from a Gaussian process with mean ``-w0`` and covariance
   ``xi^2 k / lambda``, and Ville's inequality):

   .. code-block:: text

       |Phi'eta - lambda w0|^2_{(Phi'Phi + lambda I)^-1}
           <= lambda |w0|^2 + xi^2 (log det(I + K / lambda) + 2 log(1/delta))

**First bound**, from ``w0 = 0`` (Abbasi-Yadkori's self-normalised bound). The error is

.. code-block:: text

    V (w - w~) = lambda w - P Phi'Phi (I - P) w - P Phi'eta

``|P Phi'eta|^2_{V^-1} = eta'Q(Q + lambda)^-1 eta <= eta'K(K + lambda)^-1 eta``, as ``x / (x +
lambda)`` is operator monotone: the noise costs no accuracy factor. The rest is the bias. With
``a = |P w|`` and ``b = |(I - P) w|`` its squared norm is at most ``lambda b^2 + lambda (a +
sqrt(rho) b)^2``, a quadratic form in ``(a, b)`` with largest eigenvalue ``lambda h(rho)``. So

.. code-block:: text

    |w - w~|_V <= xi sqrt(gain + 2 log(1/delta)) + sqrt(lambda h(rho)) F,
    h(rho) = 1 + rho/2 + sqrt(rho^2/4 + rho)

**Second bound**, from ``w0 = w``. The penalised squared error ``|y - Phi P v|^2 + lambda |v|^2``
has its minimum ``Omega`` at ``w~`` and exceeds it by ``|v - w~|^2_V`` at ``v``. At ``v = w`` the
residual is ``eta + g`` with ``g = Phi (I - P) w``, ``|g|^2 <= lambda rho F^2``. For the exact
belief the same identity turns fact 3 into ``|eta|^2 <= xi^2 (gain + 2 log(1/delta)) + Omega``, so

.. code-block:: text

    |w - w~|^2_V <= xi^2 L + lambda (1 + rho) F^2 + 2 sqrt(lambda rho) F sqrt(xi^2 L + Omega),
    L = gain + 2 log(1/delta)

Where every observed input is in the dictionary, ``rho`` is zero and the second bound is the root of
the sum of the squares of the two terms of the first: the exact posterior's bound, which is tighter
by up to ``sqrt 2``. Otherwise both are computed, each with half of ``delta``, and the smaller one
holds.

Within a batch variances have fallen by at most ``C~``, and bounds of ``sqrt(C~)`` times the width
still hold.

References:
    Abbasi-Yadkori: Online learning for linearly parametrized control problems. PhD thesis,
    University of Alberta, 2012. (Fact 3 with ``w0 = 0``.)

    Flynn, Reeb: Tighter confidence bounds for sequential kernel regression. 2024. (The second bound
    for the exact posterior, by a martingale mixture over functions.)

    Whitehouse, Ramdas, Wu: On the sublinear regret of GP-UCB. NeurIPS 2023. (The log-determinant
    form for any ``lambda > 0``, and why ``lambda`` may grow with the horizon.)

    The two bounds for a DTC belief are not in these papers.
"""

from __future__ import annotations

import math


def anytime_exact(
    log_determinant: float,
    *,
    noise_var: float,
    noise_bound: float,
    norm_bound: float,
    delta: float,
) -> float:
    r"""Return ``beta~`` of the exact posterior at all times, the root of a sum of squares.

    .. code-block:: text

        sqrt( xi^2 ( log det(K_t / lambda + I) + 2 log(1/delta) ) + lambda F^2 )

    It is never larger than :func:`~botorch_bkb.confidence.exact`, which adds the two roots.

    Args:
        log_determinant: ``log det(K_t / lambda + I)``.
        noise_var: ``lambda``.
        noise_bound: ``xi``, the sub-Gaussian constant of the noise.
        norm_bound: ``F``.
        delta: Failure probability.

    Example:
        >>> noise = {"noise_var": 4.0, "noise_bound": 1.0}
        >>> round(anytime_exact(7.0, **noise, norm_bound=1.0, delta=math.exp(-1)), 3)
        3.606

    Reference:
        Flynn, Reeb, 2024. The derivation is at the top of this module.
    """
    noise = noise_bound**2 * (log_determinant + 2 * math.log(1 / delta))
    return math.sqrt(noise + noise_var * norm_bound**2)


def anytime(
    gain: float,
    *,
    unexplained: float,
    misfit: float,
    noise_var: float,
    noise_bound: float,
    norm_bound: float,
    delta: float,
) -> float:
    r"""Return ``beta~`` of the DTC posterior at all times, for any dictionary.

    The smaller one of

    .. code-block:: text

        xi sqrt(L) + sqrt(lambda (1 + rho/2 + sqrt(rho^2/4 + rho))) F
        sqrt( xi^2 L + lambda (1 + rho) F^2 + 2 sqrt(lambda rho) F sqrt(xi^2 L + Omega) )

    with ``L = gain + 2 log(2/delta)``. The bound holds at all times, at all inputs and for all
    dictionaries at once with probability ``1 - delta``. It assumes nothing about how dictionaries
    are chosen. A dictionary that explains little has a wide bound.

    Args:
        gain: ``log det(I + Q / lambda) + sum_u log(1 + c_u r(u) / lambda)``, a bound on
            ``log det(I + K / lambda)``.
        unexplained: ``rho = sum_u c_u r(u) / lambda``, over the distinct inputs ``u`` with ``c_u``
            pulls each and unexplained prior variances ``r(u)``.
        misfit: ``Omega = lambda y'(Q + lambda I)^-1 y``, of the mean rewards of distinct inputs.
        noise_var: ``lambda``.
        noise_bound: ``xi``, the sub-Gaussian constant of the noise.
        norm_bound: ``F``.
        delta: Failure probability.

    Example:
        >>> noise = {"noise_var": 4.0, "noise_bound": 1.0}
        >>> more = {"norm_bound": 1.0, "delta": 2 * math.exp(-1)}
        >>> round(anytime(7.0, unexplained=0.0, misfit=9.0, **noise, **more), 3)
        3.606
        >>> round(anytime(7.0, unexplained=0.5, misfit=9.0, **noise, **more), 3)
        5.196

    Reference:
        The derivation is at the top of this module.
    """
    rho = unexplained
    noise = noise_bound**2 * (gain + 2 * math.log(2 / delta))
    bias = noise_var * norm_bound**2
    first = math.sqrt(noise) + math.sqrt(bias * (1 + rho / 2 + math.sqrt(rho**2 / 4 + rho)))
    cross = 2 * math.sqrt(bias * rho) * math.sqrt(noise + misfit)
    return min(first, math.sqrt(noise + bias * (1 + rho) + cross))
