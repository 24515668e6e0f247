r"""Kernel, noise and units of the model, given or fitted."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import dataclass, replace

import gpytorch
import torch
from botorch.exceptions.errors import InputDataError, ModelFittingError
from botorch.exceptions.warnings import BotorchWarning, InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms.input import Normalize
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bkb.models import DTCGP
from botorch_bkb.models.replicates import ReplicatedDTCGP
from botorch_bkb.optimizers.history import History
from botorch_bkb.validation import check_kernel


@dataclass(frozen=True)
class Hyperparameters:
    r"""What the posterior depends on besides the data.

    A reward ``y`` is ``(y - offset) / scale`` in the model's units.

    Attributes:
        kernel: The covariance module, over inputs as the model sees them.
        noise_var: ``lambda``, in the model's units.
        offset: Reward where the model says zero.
        scale: Reward units in one unit of the model.
    """

    kernel: Kernel
    noise_var: float
    offset: float = 0.0
    scale: float = 1.0

    def to_model(self, rewards: Tensor) -> Tensor:
        r"""Rewards in the model's units."""
        return (rewards - self.offset) / self.scale

    def to_rewards(self, values: Tensor) -> Tensor:
        r"""The model's values in units of the rewards."""
        return self.offset + self.scale * values


#: Ratio of the ranges of two inputs beyond which one length-scale does not serve both.
MOST_RANGE = 1e3


def warn_of_scales(arms: Tensor, kernel: Kernel) -> None:
    r"""Warn where a given kernel has one length-scale for inputs of very different ranges."""
    sides = arms.amax(0) - arms.amin(0)
    low, high = sides[sides > 0].aminmax() if (sides > 0).any() else (sides[:1], sides[:1])
    shared = any(
        isinstance(part, Kernel)
        and part.has_lengthscale
        and part.ard_num_dims is None
        and part.active_dims is None
        for part in kernel.modules()
    )
    if shared and float(high) > MOST_RANGE * float(low):
        warnings.warn(
            "covar_module is given, so that inputs are taken as they are, and it has one "
            f"length-scale for inputs whose ranges go from {float(low):.3g} to {float(high):.3g}: "
            "scale them, or give each its own length-scale (ard_num_dims).",
            InputDataWarning,
            stacklevel=4,
        )


class Tuning:
    r"""Which hyperparameters are fitted, from where, and how inputs are scaled for that.

    Args:
        arms: ``A x d``, or the corners of a box.
        covar_module: A kernel, or None for BoTorch's default over inputs scaled to the unit cube.
        noise_var: Noise variance of a single reward, or None to have it fitted.
        refit: Whether to fit; by default what is not given is fitted. True fits what is given
            too, from where it was given.
    """

    def __init__(
        self,
        arms: Tensor,
        covar_module: Kernel | None,
        noise_var: float | None,
        refit: bool | None,
    ) -> None:
        if noise_var is not None and not 0 < noise_var < float("inf"):
            raise InputDataError(
                f"noise_var must be positive and finite, got {noise_var}: use a small value such "
                "as 1e-6 times the variance of the rewards where there is no noise."
            )
        check_kernel(covar_module)
        if covar_module is not None:
            warn_of_scales(arms, covar_module)
        missing = covar_module is None or noise_var is None
        #: Whether rewards are standardised: where anything about them is unknown.
        self.standardise = missing or bool(refit)
        self.fits = missing if refit is None else refit
        self.fit_kernel = self.fits and (covar_module is None or bool(refit))
        self.fit_noise = self.fits and (noise_var is None or bool(refit))
        self.noise_given = noise_var
        #: Whether the noise variance is given, and stays so.
        self.noise_fixed = noise_var is not None and not refit
        d = arms.shape[-1]
        self.bounds: Tensor | None = None
        if covar_module is None:
            covar_module = get_covar_module_with_dim_scaled_prior(ard_num_dims=d)
            lower, upper = arms.amin(0), arms.amax(0)
            upper = torch.where(upper > lower, upper, lower + 1)
            self.bounds = torch.stack([lower, upper])
        kernel = deepcopy(covar_module).to(arms).eval().requires_grad_(False)
        noise = get_gaussian_likelihood_with_lognormal_prior().noise.item()
        self.initial = Hyperparameters(kernel, noise if noise_var is None else noise_var)
        #: Pulls before the first fit; as many as BoTorch users start with.
        self.first_fit = 2 * (d + 1)

    def inputs(self, X: Tensor) -> Tensor:
        r"""Inputs as the model sees them."""
        if self.bounds is None:
            return X
        lower, upper = self.bounds
        return (X - lower) / (upper - lower)

    def restandardised(
        self, hyper: Hyperparameters, history: History, noise_known: float | None
    ) -> Hyperparameters:
        r"""Offset and scale of the rewards so far; the kernel stays."""
        if not self.standardise:
            return hyper
        offset, scale = history.standardisation()
        known = self.noise_given if noise_known is None else noise_known
        noise = hyper.noise_var if known is None else known / scale**2
        return replace(hyper, noise_var=noise, offset=offset, scale=scale)

    def fit(
        self,
        X: Tensor,
        history: History,
        dictionary: Tensor,
        noise_known: float | None,
        seed: int,
    ) -> Hyperparameters | None:
        r"""Maximise the sparse marginal likelihood of all pulls, at the cost of distinct inputs.

        Args:
            X: ``n x d``, the distinct inputs as the model sees them.
            history: Their rewards.
            dictionary: Positions of the dictionary among them.
            noise_known: Noise variance in units of the rewards, or None to have it fitted.
            seed: For the restarts of a failed fit.

        Returns:
            The new hyperparameters, or None with a warning where fitting failed.
        """
        with torch.inference_mode(False), torch.enable_grad(), manual_seed(seed):
            return self._fit(X, history, dictionary, noise_known)

    def _fit(
        self, X: Tensor, history: History, dictionary: Tensor, noise_known: float | None
    ) -> Hyperparameters | None:
        start = self.restandardised(self.initial, history, noise_known)
        kernel = deepcopy(start.kernel).double().train().requires_grad_(self.fit_kernel)
        Y = start.to_model(history.means).unsqueeze(-1)
        model: DTCGP
        options = {"covar_module": kernel, "outcome_transform": None, "dictionary": dictionary}
        if self.fit_noise and noise_known is None:
            deviations = float(history.deviations.sum()) / start.scale**2
            model = ReplicatedDTCGP(X.double(), Y, history.weights, deviations, **options)
            model.likelihood.noise = max(start.noise_var, 1.01e-4)
        else:
            with gpytorch.settings.min_fixed_noise(double_value=1e-14):
                Yvar = (start.noise_var / history.weights).unsqueeze(-1)
                model = DTCGP(X.double(), Y, Yvar, **options)
        model.to(X.device)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        try:
            fit_gpytorch_mll(mll)
        except ModelFittingError as error:
            warnings.warn(
                f"Hyperparameters could not be fitted to {history.num_observations} observations "
                f"({error}): the earlier ones stay until the next attempt.",
                BotorchWarning,
                stacklevel=2,
            )
            return None
        noise = start.noise_var
        if isinstance(model, ReplicatedDTCGP):
            noise = model.likelihood.noise.item()
        constant = model.mean_module.constant.item()
        return Hyperparameters(
            kernel=deepcopy(kernel).to(X).eval().requires_grad_(False),
            noise_var=noise,
            offset=start.offset + start.scale * constant,
            scale=start.scale,
        )

    def model(
        self,
        X: Tensor,
        history: History,
        hyper: Hyperparameters,
        dictionary: Tensor,
        box: Tensor | None = None,
        standardised: bool = False,
    ) -> DTCGP:
        r"""The belief as a :class:`DTCGP`.

        Its data are the distinct inputs, their mean rewards, and ``Yvar = lambda / c``.

        Args:
            X: ``n x d``, the distinct inputs as the user gave them.
            history: Their rewards.
            hyper: The hyperparameters.
            dictionary: Positions of the dictionary among them.
            box: ``2 x d`` bounds that are the unit cube for the model; by default it takes
                inputs as the user gave them.
            standardised: Whether outcomes are in the units of the hyperparameters; in those of
                the rewards otherwise.
        """
        kernel = deepcopy(hyper.kernel).requires_grad_(True)
        Y = history.means
        offset, scale = (0.0, 1.0) if standardised else (hyper.offset, hyper.scale)
        if standardised:
            Y = hyper.to_model(Y)
        elif self.standardise:  # an outcome transform would learn units of its own
            kernel = ScaleKernel(kernel).to(X)
            kernel.outputscale = scale**2
        mean = ConstantMean().to(X)
        mean.constant.data.fill_(offset)
        normalize = None
        if box is not None:
            X = Normalize(X.shape[-1], bounds=box).eval()(X)
            if self.bounds is None:
                normalize = Normalize(X.shape[-1], bounds=box, reverse=True)
        elif self.bounds is not None:
            normalize = Normalize(X.shape[-1], bounds=self.bounds)
        Yvar = hyper.noise_var * scale**2 / history.weights
        least = min(1.0, scale**2)  # gpytorch's floor is absolute
        with gpytorch.settings.min_fixed_noise(
            float_value=1e-10 * least, double_value=1e-14 * least
        ):
            model = DTCGP(
                X,
                Y.unsqueeze(-1).to(X),
                Yvar.unsqueeze(-1).to(X),
                covar_module=kernel,
                mean_module=mean,
                input_transform=normalize,
                outcome_transform=None,
                dictionary=dictionary,
            )
        return model.eval()
