r"""The loss that BoTorch's optimizers minimise in a fit, and a fit in logarithmic coordinates."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_not
from typing import Any

import torch
from botorch.optim.core import OptimizationResult, scipy_minimize
from botorch.optim.utils import get_parameters
from torch import Tensor

from botorch_bkb.models.coordinates import ENOUGH, LogCoordinates
from botorch_bkb.models.fit_errors import fit_with_reasons
from botorch_bkb.models.log_posterior import LogPosterior
from botorch_bkb.models.reading import read_model

#: The optimizer of a fit in logarithmic coordinates, and the arguments that it takes.
METHOD = "L-BFGS-B"
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
            self._posterior = read_model(mll)
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

    It is possible if the model is covered by :func:`read_model`, and if no closure, optimizer,
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
    if is_plain and OPTIONS.issuperset(options) and read_model(mll) is not None:
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
    method: str = METHOD,
    options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> OptimizationResult:
    r"""Maximise the log posterior over logarithms of the hyperparameters, by L-BFGS-B.

    It ends when a step improves the log posterior by less than :data:`ENOUGH` per observation.

    Args:
        mll: The marginal log-likelihood of a model that :func:`read_model` covers.
        closure: Not used.
        callback: A function of the model's parameters and the result so far.
        first_step: The length of the first step. L-BFGS-B knows no curvature then.
        method: A method of SciPy's ``minimize``.
        options: Its options; ``ftol`` of L-BFGS-B is :data:`ENOUGH` by default.
        kwargs: Further arguments of BoTorch's ``scipy_minimize``.
    """
    posterior = read_model(mll)
    assert posterior is not None
    coordinates = LogCoordinates(posterior.hyperparameters, posterior.evaluate)
    position = torch.as_tensor(coordinates.position() / first_step)
    bounds: Any = torch.as_tensor(coordinates.bounds / first_step).unbind(-1)
    scaled = coordinates.in_units_of(first_step)

    enough = {"ftol": ENOUGH} if method == METHOD else {}

    def loss() -> tuple[Tensor, list[Tensor]]:
        total, slope = scaled(position.numpy())
        return position.new_tensor(total), [torch.as_tensor(slope)]

    def report(parameters: dict[str, Tensor], result: OptimizationResult) -> None:
        coordinates.store(first_step * position.numpy())
        assert callback is not None
        callback(get_parameters(mll, requires_grad=True), result)

    result = scipy_minimize(
        loss,
        {"position": position},
        {"position": bounds},
        callback=None if callback is None else report,
        method=method,
        options={**enough, **(options or {})},
        **kwargs,
    )
    coordinates.store(first_step * position.numpy())
    return result
