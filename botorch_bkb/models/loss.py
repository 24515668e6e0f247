r"""The loss that BoTorch's optimizers minimise in a fit, and a fit in logarithmic coordinates.

BoTorch optimises length-scales and noise variances as they are stored. Their logarithms are better
coordinates: L-BFGS-B then needs about a third of the evaluations, and its bounds stay bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import is_not
from typing import Any

import numpy as np
import torch
from botorch.optim.core import OptimizationResult, scipy_minimize
from botorch.optim.utils import get_parameters
from torch import Tensor

from botorch_bkb.models.densities import Array
from botorch_bkb.models.fit_errors import fit_with_reasons
from botorch_bkb.models.log_posterior import Hyperparameter, LogPosterior

#: Arguments of an optimizer that a fit in logarithmic coordinates takes.
OPTIONS = frozenset({"options", "timeout_sec", "callback", "method", "first_step"})


class Loss:
    r"""The negative marginal log-likelihood of a model, as BoTorch's closures expect it.

    The model is read when it is called first, and again if its parts or data are exchanged.
    """

    def __init__(self) -> None:
        self._posterior: LogPosterior | None = None
        self._parts: tuple[Any, ...] = ()

    def _read(self, mll: Any) -> None:
        r"""Read the model if that was not done yet, or if its parts or data were exchanged."""
        parts = mll.model.parts_of_likelihood()
        if len(parts) != len(self._parts) or any(map(is_not, parts, self._parts)):
            self._posterior = LogPosterior.of(mll)
            self._parts = mll.model.parts_of_likelihood()  # reading may draw the dictionary

    def __call__(self, mll: Any, **kwargs: Any) -> Tensor:
        r"""Return the loss, ``batch``, with its derivatives."""
        model = mll.model
        self._read(mll)
        if self._posterior is None or kwargs:
            inputs = model.train_inputs
            transformed = (model.transform_inputs(X=X) for X in inputs)
            return -mll(model(*inputs), model.train_targets, *transformed, **kwargs)
        raws = [h.raw for h in self._posterior.hyperparameters]
        return _NegativeLogPosterior.apply(self._posterior, *raws)


class _NegativeLogPosterior(torch.autograd.Function):
    r"""The negative log posterior per observation as a function of the stored parameters."""

    @staticmethod
    def forward(ctx: Any, posterior: LogPosterior, *raws: Tensor) -> Tensor:
        known = posterior.hyperparameters
        value, gradients = posterior.evaluate([h.array for h in known])
        ctx.gradients = [h.pull(g) for h, g in zip(known, gradients, strict=True)]
        return raws[0].new_tensor(value)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return None, *(weight * g for g in ctx.gradients)


def fit(
    mll: Any,
    closure: Any = None,
    closure_kwargs: dict[str, Any] | None = None,
    optimizer_kwargs: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    r"""Fit hyperparameters as ``fit_gpytorch_mll`` does, in logarithmic coordinates if possible.

    It is possible if the model is covered by :class:`LogPosterior`, and if no closure, optimizer,
    parameters or bounds are given. The retries after a failure are BoTorch's.

    Args:
        mll: The marginal log-likelihood.
        closure: As in ``fit_gpytorch_mll``.
        closure_kwargs: As in ``fit_gpytorch_mll``.
        optimizer_kwargs: As in ``fit_gpytorch_mll``. Besides, ``first_step`` is the length of the
            first step in logarithms.
        kwargs: Further arguments of ``fit_gpytorch_mll``.
    """
    mll.train()
    options = dict(optimizer_kwargs or {})
    is_plain = closure is None and closure_kwargs is None and "optimizer" not in kwargs
    if is_plain and OPTIONS.issuperset(options) and LogPosterior.of(mll) is not None:
        kwargs["optimizer"] = minimise_in_logarithms
    else:
        options.pop("first_step", None)
    return fit_with_reasons(
        mll,
        closure=closure,
        closure_kwargs=closure_kwargs,
        optimizer_kwargs=options,
        **kwargs,
    )


def minimise_in_logarithms(
    mll: Any,
    closure: None = None,
    callback: Callable[[dict[str, Tensor], OptimizationResult], None] | None = None,
    first_step: float = 1.0,
    **kwargs: Any,
) -> OptimizationResult:
    r"""Maximise the log posterior over logarithms of the hyperparameters, by L-BFGS-B.

    Args:
        mll: The marginal log-likelihood of a model that :class:`LogPosterior` covers.
        closure: Not used.
        callback: A function of the model's parameters and the result so far.
        first_step: The length of the first step. L-BFGS-B knows no curvature then.
        kwargs: Further arguments of BoTorch's ``scipy_minimize``.
    """
    posterior = LogPosterior.of(mll)
    assert posterior is not None
    coordinates = [_Coordinate(h, first_step) for h in posterior.hyperparameters]
    free = [c for c in coordinates if c.of.raw.requires_grad]

    def loss() -> tuple[Tensor, list[Tensor]]:
        values = [c.value() for c in coordinates]
        total, gradients = posterior.evaluate(values)
        pairs = zip(coordinates, values, gradients, strict=True)
        slopes = [c.pull(v, g) for c, v, g in pairs if c.of.raw.requires_grad]
        return free[0].position.new_tensor(total), slopes

    def report(parameters: dict[str, Tensor], result: OptimizationResult) -> None:
        for c in free:
            c.store()
        assert callback is not None
        callback(get_parameters(mll, requires_grad=True), result)

    names = [f"{i}" for i in range(len(free))]
    result = scipy_minimize(
        loss,
        dict(zip(names, (c.position for c in free), strict=True)),
        dict(zip(names, (c.bounds for c in free), strict=True)),
        callback=None if callback is None else report,
        **kwargs,
    )
    for c in free:
        c.store()
    return result


class _Coordinate:
    r"""A hyperparameter as the optimizer sees it: its logarithm, if it must be positive.

    Args:
        hyperparameter: The hyperparameter.
        unit: The unit of the coordinate.
    """

    def __init__(self, hyperparameter: Hyperparameter, unit: float) -> None:
        self.of, constraint, self.unit = hyperparameter, hyperparameter.constraint, unit
        low, high = -math.inf, math.inf
        if constraint is not None:
            low, high = float(constraint.lower_bound.max()), float(constraint.upper_bound.min())
        self.is_logarithmic = low >= 0
        start = hyperparameter.array
        start = np.log(start) if self.is_logarithmic else start
        self.position = torch.as_tensor(start / unit)
        # Values at the ends of an open interval have no finite stored parameter.
        margin = 1e-8 if constraint is not None and constraint.enforced else 0.0
        if self.is_logarithmic:
            low = math.log(low) if low > 0 else -math.inf
            high = math.log(high)
        self.bounds = ((low + margin) / unit, (high - margin) / unit)

    def value(self) -> Array:
        r"""Return the value at the present position."""
        position = self.position.numpy() * self.unit
        return np.exp(position) if self.is_logarithmic else position

    def pull(self, value: Array, slope: Array) -> Tensor:
        r"""Turn the gradient of the value into that of the position."""
        slope = np.reshape(slope, value.shape) * self.unit
        return torch.as_tensor(slope * value if self.is_logarithmic else slope)

    def store(self) -> None:
        r"""Give the hyperparameter its present value."""
        self.of.set(self.value())
