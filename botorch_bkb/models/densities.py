r"""Log densities of priors and their gradients, in NumPy: hyperparameters are few."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from gpytorch.priors import GammaPrior, LogNormalPrior, Prior

Array = np.ndarray
#: A log density and its gradient.
Density = Callable[[Array], tuple[float, Array]]


def log_density(prior: Prior) -> Density:
    r"""Return the log density of a prior, summed over the entries, and its gradient as a function.

    Log-normal and gamma priors have closed forms. Others use autograd.

    Example:
        >>> import numpy as np
        >>> from gpytorch.priors import GammaPrior
        >>> value, gradient = log_density(GammaPrior(2.0, 1.0))(np.array([1.0]))
        >>> round(value, 6), gradient
        (-1.0, array([0.]))
    """
    plain = getattr(prior, "_transform", None) is None
    if type(prior) is LogNormalPrior and plain:
        return _log_normal(_array(prior.loc), _array(prior.scale))
    if type(prior) is GammaPrior and plain:
        return _gamma(_array(prior.concentration), _array(prior.rate))
    return _by_autograd(prior)


def _array(value: torch.Tensor) -> Array:
    return value.detach().double().cpu().numpy()


def _log_normal(loc: Array, scale: Array) -> Density:
    precision, norm = 1 / np.square(scale), np.log(scale) + 0.5 * math.log(2 * math.pi) + loc

    def density(value: Array) -> tuple[float, Array]:
        off = np.log(value) - loc
        slope = off * precision + 1
        return -float((0.5 * off * (slope + 1) + norm).sum()), -slope / value

    return density


def _gamma(shape: Array, rate: Array) -> Density:
    norm = shape * np.log(rate) - np.vectorize(math.lgamma)(shape)

    def density(value: Array) -> tuple[float, Array]:
        total = (shape - 1) * np.log(value) - rate * value + norm
        return float(total.sum()), (shape - 1) / value - rate

    return density


def _by_autograd(prior: Prior) -> Density:
    like = next((b for b in prior.buffers() if b.is_floating_point()), None)

    def density(value: Array) -> tuple[float, Array]:
        with torch.enable_grad():
            x = torch.as_tensor(value)
            x = (x if like is None else x.to(like)).detach().requires_grad_()
            total = prior.log_prob(x).sum()
            (gradient,) = torch.autograd.grad(total, x)
        return float(total.detach()), _array(gradient)

    return density
