r"""How steep the draws of a Gaussian process are, for the theorem over a box.

Theorem 3.2 ii assumes constants ``a`` and ``b`` such that each partial derivative ``g`` of a draw
has ``P(sup |g| > L) <= a exp(-L^2 / b^2)``. They follow from the kernel. Let ``v`` be the variance
of ``g`` and ``m`` a bound on the mean of ``sup |g|``. The Borell-TIS inequality is

.. code-block:: text

    P(sup |g| > m + u) <= exp(-u^2 / (2 v))

With ``(L - m)^2 >= L^2 / 2 - m^2`` it gives ``b = 2 sqrt(v)`` and ``log a = m^2 / (2 v)``.

The mean ``m`` is bounded by Dudley's entropy integral. For a box with sides ``R_j`` in units of the
length-scales, and a metric ``d(x, x') = sd(g(x) - g(x')) <= c |x - x'|^s``, a set of points at
mutual distances of at least ``e`` has at most ``prod_j (1 + R_j / h)`` points, where ``h = (e /
c)^(1/s) / sqrt(dim)`` is the side of cubes that contain no two of them. Then

.. code-block:: text

    E sup (g - g(x0)) <= 12 int_0^{D/2} sqrt( sum_j log(1 + R_j / h(e)) ) de,    D = sup d

and ``m <= sqrt(2 v / pi) + 2 E sup (g - g(x0))``. Both constants are large, and the theorem's width
depends on them through logarithms only.

References:
    Adler, Taylor: Random fields and geometry. Springer, 2007. (Theorem 2.1.1, Borell-TIS.)

    Boucheron, Lugosi, Massart: Concentration inequalities. Oxford, 2013. (Corollary 13.2, Dudley.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

#: Steps of the entropy integral for each halving of its variable.
STEPS = 8
#: Halvings after which the rest of the integral is negligible.
HALVINGS = 60


class Smoothness(NamedTuple):
    r"""The derivative ``g`` of a process with unit variance and unit length-scales."""

    variance: float  #: of ``g``
    constant: float  #: ``c`` in ``sd(g(x) - g(x')) <= c |x - x'|^s``
    exponent: float  #: ``s``


#: From the second derivatives of the kernels at distance zero and near it.
SMOOTHNESS = {
    "RBF": Smoothness(1.0, math.sqrt(3), 1.0),
    "Matern 5/2": Smoothness(5 / 3, 5.0, 1.0),
    "Matern 3/2": Smoothness(3.0, math.sqrt(12 * math.sqrt(3)), 0.5),
}


class Slopes(NamedTuple):
    r"""The constants of Theorem 3.2 ii, for the unit cube and a prior of variance one."""

    slope: float  #: ``b``
    log_tail: float  #: ``log a``


def slope_and_tail(kernel: Kernel, sides: Tensor) -> Slopes:
    r"""Derive the constants of Theorem 3.2 ii from a kernel.

    Args:
        kernel: An RBF kernel, or a Matern kernel with ``nu`` 3/2 or 5/2, possibly scaled.
        sides: The ``d`` sides of the box, as the kernel sees it.

    Raises:
        InputDataError: The kernel is another one.

    Example:
        >>> import torch
        >>> kernel = RBFKernel().double()
        >>> kernel.lengthscale = 0.5
        >>> round(slope_and_tail(kernel, torch.ones(2, dtype=torch.float64)).slope, 6)
        4.0
    """
    base = kernel
    while isinstance(base, ScaleKernel):
        base = base.base_kernel
    smooth = SMOOTHNESS.get(_name(base))
    if smooth is None or base.active_dims is not None:
        raise InputDataError(
            "Theorem 3.2 ii of the compressed GP paper, for information thresholds over a box, "
            "needs a bound on the derivatives of the function. It is known for RBF kernels and "
            "Matern kernels with nu 3/2 and 5/2, of all inputs, got "
            f'{_name(base)}: use one of these, width="theory" with a norm_bound, or another width.'
        )
    ratios = (sides / base.lengthscale.reshape(-1).to(sides)).tolist()
    mean = _mean_of_supremum(smooth, ratios)
    deviation = math.sqrt(smooth.variance)
    return Slopes(2 * deviation * max(ratios), mean**2 / (2 * smooth.variance))


def _name(kernel: Kernel) -> str:
    if isinstance(kernel, RBFKernel):
        return "RBF"
    if isinstance(kernel, MaternKernel):
        return f"Matern {int(2 * kernel.nu)}/2"
    return type(kernel).__name__


def _mean_of_supremum(smooth: Smoothness, sides: list[float]) -> float:
    r"""Bound the mean of ``sup |g|`` over a box with sides in units of the length-scales."""
    diagonal = math.hypot(*sides)
    largest = min(2 * math.sqrt(smooth.variance), smooth.constant * diagonal**smooth.exponent)
    end, integral = largest / 2, 0.0
    for step in range(STEPS * HALVINGS):
        start = largest / 2 * 2 ** (-(step + 1) / STEPS)
        # The integrand falls with its variable: its value at the lower end bounds the interval.
        integral += (end - start) * _root_of_entropy(smooth, sides, start)
        end = start
    return math.sqrt(2 * smooth.variance / math.pi) + 24 * integral


def _root_of_entropy(smooth: Smoothness, sides: list[float], distance: float) -> float:
    cube = (distance / smooth.constant) ** (1 / smooth.exponent) / math.sqrt(len(sides))
    return math.sqrt(sum(math.log1p(side / cube) for side in sides))
