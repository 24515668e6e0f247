r"""Hyperparameters of an optimizer's model, and the model that they and a history make."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import gpytorch
import torch
from botorch.exceptions.errors import InputDataError
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from botorch_bkb.features import FeatureKernel
from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.models.history import History
from botorch_bkb.units import RewardUnits, UnitCube


@dataclass(frozen=True)
class Hyperparameters:
    r"""What the posterior depends on besides the data.

    Attributes:
        kernel: The covariance module, over inputs as the model sees them.
        noise_var: ``lambda``, in the model's units.
        units: The units of the rewards.
    """

    kernel: Kernel
    noise_var: float
    units: RewardUnits = field(default_factory=RewardUnits)


def reward_model(
    X: Tensor,
    history: History,
    hyper: Hyperparameters,
    dictionary: Tensor,
    scale: UnitCube | None,
    box: UnitCube | None = None,
) -> DTCGP:
    r"""Return the belief as a :class:`DTCGP` with outcomes in units of the rewards.

    Its data are the distinct inputs, their mean rewards, and ``Yvar = lambda / c``.

    Args:
        X: ``n x d`` distinct inputs, as the user gave them.
        history: Their rewards.
        hyper: The hyperparameters.
        dictionary: Positions of the dictionary among the inputs.
        scale: How inputs are scaled for the kernel.
        box: The box that is the unit cube for the model. By default the model takes inputs as the
            user gave them.
    """
    check_scale(hyper.units, X.dtype)
    kernel = deepcopy(hyper.kernel).requires_grad_(True)
    if hyper.units != RewardUnits():  # an outcome transform would learn units of its own
        kernel = _scaled(kernel, hyper.units.variance_to_rewards(1.0), X)
    return _model(X, history.means, history, hyper, dictionary, scale, box, kernel, hyper.units)


def check_scale(units: RewardUnits, dtype: torch.dtype) -> None:
    r"""Raise if rewards or variances in their units overflow or vanish.

    Args:
        units: The units of the rewards.
        dtype: The dtype of the model.
    """
    low, high = (1e-100, 1e100) if dtype == torch.float64 else (1e-15, 1e15)
    if low <= units.scale <= high and abs(units.offset) <= high:
        return
    raise InputDataError(
        f"A model in units of the rewards needs rewards with a standard deviation between {low:g} "
        f"and {high:g}, whose square is a number, and a mean of at most {high:g}, got "
        f"{units.scale:g} and {units.offset:g}: rescale the rewards, or use float64 inputs."
    )


def standardised_model(
    X: Tensor,
    history: History,
    hyper: Hyperparameters,
    dictionary: Tensor,
    scale: UnitCube | None,
    box: UnitCube | None = None,
) -> DTCGP:
    r"""Return the belief as a :class:`DTCGP` with outcomes in the units of the hyperparameters.

    The arguments are those of :func:`reward_model`.
    """
    kernel = deepcopy(hyper.kernel).requires_grad_(True)
    Y = hyper.units.to_model(history.means)
    return _model(X, Y, history, hyper, dictionary, scale, box, kernel, RewardUnits())


def _model(
    X: Tensor,
    Y: Tensor,
    history: History,
    hyper: Hyperparameters,
    dictionary: Tensor,
    scale: UnitCube | None,
    box: UnitCube | None,
    kernel: Kernel,
    units: RewardUnits,
) -> DTCGP:
    mean = ConstantMean().to(X)
    mean.constant.data.fill_(units.offset)
    normalize = None
    if box is not None:
        X = Normalize(X.shape[-1], bounds=box.bounds).eval()(X)
        if scale is None:
            normalize = Normalize(X.shape[-1], bounds=box.bounds, reverse=True)
    elif scale is not None:
        normalize = Normalize(X.shape[-1], bounds=scale.bounds)
    Yvar = units.variance_to_rewards(hyper.noise_var) / history.weights
    least = min(1.0, units.variance_to_rewards(1.0))  # gpytorch's floor is absolute
    with gpytorch.settings.min_fixed_noise(float_value=1e-10 * least, double_value=1e-14 * least):
        model = DTCGP(
            X,
            Y.unsqueeze(-1).to(X),
            Yvar.unsqueeze(-1).to(X),
            covar_module=kernel,
            mean_module=mean,
            input_transform=normalize,
            outcome_transform=None,
            dictionary=None if isinstance(kernel, FeatureKernel) else dictionary,
        )
    return model.eval()


def _scaled(kernel: Kernel, variance: float, like: Tensor) -> Kernel:
    r"""Return a kernel times a variance; features stay outermost."""
    if isinstance(kernel, FeatureKernel):
        return kernel.with_base(_scaled(kernel.base_kernel, variance, like))
    scaled = ScaleKernel(kernel).to(like)
    scaled.outputscale = variance
    return scaled
