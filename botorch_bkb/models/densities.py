r"""Log densities of priors and their gradients, in NumPy: hyperparameters are few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpytorch.priors import GammaPrior, LogNormalPrior, Prior

Array = np.ndarray
#: A log density and its gradient.
Density = Callable[[Array], tuple[float, Array]]


def log_density(prior: Prior) -> Density:
    r"""Return the log density of a prior, summed over the entries, and its gradient as a function.

    Log-normal and gamma priors have closed forms. Others use autograd. Outside the support the
    value is minus infinity.

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
            if not _may_be(prior, x):
                return -math.inf, np.zeros_like(value)
            total = prior.log_prob(x).sum()
            if not total.requires_grad:  # a constant density
                return float(total), np.zeros_like(value)
            (gradient,) = torch.autograd.grad(total, x)
        return float(total.detach()), _array(gradient)

    return density


def _may_be(prior: Prior, value: torch.Tensor) -> bool:
    r"""Return whether a value is in the support of a prior, as far as the prior says."""
    support = _support(prior)
    return support is None or bool(support.check(value.detach()).all())


def _support(prior: Prior) -> Any:
    r"""Return the support of a prior over values, or None if it is not known."""
    if getattr(prior, "_transform", None) is not None:
        return None
    try:
        return prior.support
    except (NotImplementedError, AttributeError):
        return None


def ends_of_support(prior: Prior) -> tuple[float, float]:
    r"""Return the least and the largest value of a prior, the same for all entries.

    Example:
        >>> from gpytorch.priors import NormalPrior, UniformPrior
        >>> ends_of_support(UniformPrior(0.0, 2.0)), ends_of_support(NormalPrior(0.0, 1.0))
        ((0.0, 2.0), (-inf, inf))
    """
    support = _support(prior)
    low, high = (
        torch.as_tensor(getattr(support, name, default), device="cpu")
        for name, default in (("lower_bound", -math.inf), ("upper_bound", math.inf))
    )
    return float(low.max()), float(high.min())
