r"""Fitting hyperparameters to a history: the marginal likelihood of all pulls."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import gpytorch
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.utils.sampling import manual_seed
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.models.replicates import ReplicatedDTCGP
from botorch_bkb.units import RewardUnits


def fit_hyperparameters(
    X: Tensor,
    history: History,
    dictionary: Tensor,
    start: Hyperparameters,
    *,
    fit_kernel: bool,
    fit_noise: bool,
    seed: int,
) -> Hyperparameters | None:
    r"""Maximise the sparse marginal likelihood of all pulls, at the cost of distinct inputs.

    Args:
        X: ``n x d`` distinct inputs, as the model sees them.
        history: Their rewards.
        dictionary: Positions of the dictionary among them.
        start: Hyperparameters to start from.
        fit_kernel: Whether the kernel is fitted.
        fit_noise: Whether the noise variance is fitted.
        seed: Seed for the restarts of a failed fit.

    Returns:
        The new hyperparameters, or None with a warning where fitting failed.
    """
    with torch.inference_mode(False), torch.enable_grad(), manual_seed(seed):
        return _fit(X, history, dictionary, start, fit_kernel, fit_noise)


def _fit(
    X: Tensor,
    history: History,
    dictionary: Tensor,
    start: Hyperparameters,
    fit_kernel: bool,
    fit_noise: bool,
) -> Hyperparameters | None:
    units = start.units
    kernel = deepcopy(start.kernel).double().train().requires_grad_(fit_kernel)
    Y = units.to_model(history.means).unsqueeze(-1)
    options: dict[str, Any] = {"covar_module": kernel, "outcome_transform": None}
    options["dictionary"] = dictionary
    model: DTCGP
    if fit_noise:
        deviations = units.variance_to_model(float(history.deviations.sum()))
        model = ReplicatedDTCGP(X.double(), Y, history.weights, deviations, **options)
        model.likelihood.noise = max(start.noise_var, 1.01e-4)
    else:
        with gpytorch.settings.min_fixed_noise(double_value=1e-14):
            Yvar = (start.noise_var / history.weights).unsqueeze(-1)
            model = DTCGP(X.double(), Y, Yvar, **options)
    model.to(X.device)
    try:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
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
