r"""Fitting hyperparameters to a history: the marginal likelihood of all pulls."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import gpytorch
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning
from botorch.utils.sampling import manual_seed
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.models.loss import Loss, fit
from botorch_bkb.models.replicates import ReplicatedDTCGP
from botorch_bkb.units import RewardUnits

#: The improvement of the log posterior, in nats, below which a fit from earlier results ends.
ENOUGH = 1e-3
#: The length of the first step of a fit that begins at earlier results, in logarithms.
FIRST_STEP = 1 / 3
#: The least noise variance at the start; BoTorch's lower bound is 1e-4.
LEAST_NOISE = 1.01e-4


def fit_hyperparameters(
    X: Tensor,
    history: History,
    dictionary: Tensor,
    start: Hyperparameters,
    *,
    fit_kernel: bool,
    fit_noise: bool,
    seed: int,
    last: Hyperparameters | None = None,
    afresh: bool = False,
    known: Tensor | None = None,
) -> Hyperparameters | None:
    r"""Maximise the sparse marginal likelihood of all pulls, at the cost of distinct inputs.

    A fit begins at the results of the last one, unless the initial values are better. It then ends
    when a step improves the log posterior by less than a thousandth.

    Args:
        X: ``n x d`` distinct inputs, as the model sees them.
        history: Their rewards.
        dictionary: Positions of the dictionary among them.
        start: Hyperparameters to start from.
        fit_kernel: Whether the kernel is fitted.
        fit_noise: Whether the noise variance is fitted.
        seed: Seed for the restarts of a failed fit.
        last: The results of the last fit, if there was one.
        afresh: Whether to fit from the initial values, too, and to take the better result.
        known: ``n`` noise variances of rows where they are known, in units of the rewards, and
            zeros elsewhere, where the noise is fitted to other rows.

    Returns:
        The new hyperparameters, or None with a warning where fitting failed.
    """
    with torch.inference_mode(False), torch.enable_grad(), manual_seed(seed):
        return _fit(X, history, dictionary, start, fit_kernel, fit_noise, last, afresh, known)


def _fit(
    X: Tensor,
    history: History,
    dictionary: Tensor,
    start: Hyperparameters,
    fit_kernel: bool,
    fit_noise: bool,
    last: Hyperparameters | None,
    afresh: bool,
    known: Tensor | None,
) -> Hyperparameters | None:
    units = start.units
    kernel = deepcopy(start.kernel).double().train().requires_grad_(fit_kernel)
    Y = units.to_model(history.means).unsqueeze(-1)
    parts: dict[str, Any] = {"covar_module": kernel, "outcome_transform": None}
    parts["dictionary"] = dictionary
    model: DTCGP
    if fit_noise:
        fitted = history.deviations if known is None else history.deviations[known == 0]
        deviations = units.variance_to_model(float(fitted.sum()))
        if known is not None:
            known = known * units.variance_to_model(1.0)
        model = ReplicatedDTCGP(X.double(), Y, history.weights, deviations, known, **parts)
        model.likelihood.noise = max(start.noise_var, LEAST_NOISE)
    else:
        with gpytorch.settings.min_fixed_noise(double_value=1e-14):
            Yvar = (start.noise_var / history.weights).unsqueeze(-1)
            model = DTCGP(X.double(), Y, Yvar, **parts)
    model.to(X.device)
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    try:
        _fit_from(mll, last, afresh, units, fit_noise)
    except ModelFittingError as error:
        warnings.warn(
            f"Hyperparameters could not be fitted to {history.num_observations} observations "
            f"({error}): the earlier ones stay until the next attempt.",
            BotorchWarning,
            stacklevel=2,
        )
        return None
    constant = model.mean_module.constant.item()
    return Hyperparameters(
        kernel=deepcopy(kernel).to(X).eval().requires_grad_(False),
        noise_var=model.likelihood.noise.item() if fit_noise else start.noise_var,
        units=RewardUnits(units.to_rewards(constant), units.scale),
    )


def _fit_from(
    mll: ExactMarginalLogLikelihood,
    last: Hyperparameters | None,
    afresh: bool,
    units: RewardUnits,
    fit_noise: bool,
) -> None:
    r"""Fit from the last results, from the initial values, or from both; the better one counts."""
    initial = deepcopy(mll.state_dict())
    if last is None or not _begin_at(last, mll, units, fit_noise):
        fit(mll)
        return
    options = {"first_step": FIRST_STEP, "options": {"ftol": ENOUGH / mll.model.num_data}}
    fit(mll, optimizer_kwargs=options)
    if not afresh:
        return
    warm, found = deepcopy(mll.state_dict()), _loss(mll)
    mll.load_state_dict(initial)
    fit(mll)
    if _loss(mll) >= found:
        mll.load_state_dict(warm)


def _loss(mll: ExactMarginalLogLikelihood) -> float:
    return float(Loss()(mll.train()).detach())


def _begin_at(
    last: Hyperparameters, mll: ExactMarginalLogLikelihood, units: RewardUnits, fit_noise: bool
) -> bool:
    r"""Set a model's hyperparameters to the results of the last fit if that is better.

    Args:
        last: The results of the last fit.
        mll: The marginal likelihood of a model with the initial hyperparameters.
        units: The units of the model's outcomes.
        fit_noise: Whether the noise variance is fitted.

    Returns:
        Whether it is better.
    """
    initial, before = deepcopy(mll.state_dict()), _loss(mll)
    mll.model.covar_module.load_state_dict(last.kernel.state_dict())
    mll.model.mean_module.constant = units.to_model(last.units.offset)
    if fit_noise:
        mll.likelihood.noise = max(last.noise_var, LEAST_NOISE)
    if _loss(mll) < before:
        return True
    mll.load_state_dict(initial)
    return False
