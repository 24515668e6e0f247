r"""``Surrogate``: which kernel and noise an optimizer believes in, and when they are fitted."""

from __future__ import annotations

import math
import warnings
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.designs import size_of_design
from botorch_bkb.models.fitting import fit_hyperparameters
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.units import UnitCube
from botorch_bkb.validation import (
    check_finite,
    check_kernel,
    check_squares,
    is_between,
    level_of_user,
)

#: The largest ratio of the ranges of two inputs that one length-scale can serve.
MOST_RANGE = 1e3
#: Observations at the next fit over those at this one, at most: all fits together cost five of the
#: last. Twice as many is cheaper and keeps the length-scale of an unlucky start for too long.
REFIT_GROWTH = 1.25
#: Observations times rows of the table that a step between fits stands for. A fit to a hundred
#: points of a box takes as long as the search for the next one.
REFIT_COST = 10_000


@dataclass(frozen=True, eq=False)
class Surrogate:
    r"""The model of an optimizer: kernel, noise, and when they are fitted.

    Where kernel and noise are both given, rewards and inputs are taken as they are. Otherwise
    rewards are standardised. BoTorch's default kernel sees inputs scaled to the unit cube.

    Args:
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward (``lambda``), or None to have it fitted.
        refit: Whether hyperparameters are fitted. By default those that are not given are fitted.
            True fits given ones too, starting from their values.
        half_life: The number of observations after which a result counts half, where rewards drift.
            None forgets nothing.

    With a half-life ``H``, result ``s`` has the weight ``w_s = 2^(-(t - s) / H)`` after ``t``
    results. Its noise variance is ``lambda / w_s``, or ``v_s / w_s`` with a variance of its own.
    Fits and standardisation use the same weights. Results are dropped when their weights are
    negligible. All that were ever dropped would change no variance by more than a factor of
    ``1 + 1e-9``, and no mean by more than ``1e-9`` of the largest deviation of a dropped reward
    from it, with the present hyperparameters. So memory and cost stay bounded. Every tell embeds
    all rows again, in ``O(A m^2)``. Within a batch, picks are hallucinated with a weight of one.

    What is proved with a half-life: nothing about rewards that drift, for the widths that are
    allowed. Deng et al. bound the regret of this weighted regression with upper bounds. It is
    sublinear if the total change of the function is known and small, the half-life is tuned to it,
    and the width grows with it. For a function that does *not* change, a given kernel and noise,
    and the exact posterior, at any one ``t`` bounds of ``F + (xi / sqrt(lambda))
    sqrt(log det(K W / lambda + I) + 2 log(1/delta))`` standard deviations hold at all inputs with
    probability ``1 - delta``. (Weights are at most one and known beforehand, so the self-normalised
    bound holds for ``W^2``, and ``W^2 <= W``.)

    Example:
        A custom schedule, with a fit after every ten results:

        >>> import torch
        >>> from botorch_bkb.models import Surrogate
        >>> from botorch_bkb.domains import Arms
        >>> from botorch_bkb.optimizers import Optimizer
        >>> class EveryTen(Surrogate):
        ...     def next_fit(self, num_observations, num_rows):
        ...         return num_observations + 10
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = Optimizer(Arms(arms), model=EveryTen(), seed=0)
        >>> while optimizer.num_observations < 12:
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> optimizer.num_observations
        12

        Rewards that drift, of which the last fifty or so count:

        >>> optimizer = Optimizer(Arms(arms), model=Surrogate(half_life=50.0), seed=0)

    Reference:
        Deng, Zhou, Kim, Tewari, Gupta, Shroff: Weighted Gaussian process bandits for non-stationary
        environments. AISTATS 2022. (The half-life.)
    """

    covar_module: Kernel | None = None
    noise_var: float | None = None
    refit: bool | None = None
    half_life: float | None = None

    def __post_init__(self) -> None:
        noise, half_life = self.noise_var, self.half_life
        is_number = isinstance(half_life, (int, float)) and not isinstance(half_life, bool)
        if half_life is not None and not (is_number and half_life > 0):
            raise InputDataError(
                f"half_life must be a positive number of observations, got {half_life!r}: pass "
                "None to forget nothing."
            )
        if noise is not None and not is_between(noise, 0, math.inf):
            raise InputDataError(
                f"noise_var must be positive and finite, got {noise!r}: use a small value such "
                "as 1e-6 times the variance of the rewards where there is no noise."
            )
        check_kernel(self.covar_module)
        # A copy: later changes of the user's kernel must not change the belief.
        object.__setattr__(self, "covar_module", deepcopy(self.covar_module))

    @property
    def retention(self) -> float:
        r"""The factor by which weights fall with every observation; 1 if nothing is forgotten."""
        return 1.0 if self.half_life is None else 2.0 ** (-1.0 / self.half_life)

    @property
    def forgets(self) -> bool:
        r"""Whether results count less as time goes on."""
        return self.retention < 1

    @property
    def is_given(self) -> bool:
        r"""Whether kernel and noise are both given."""
        return self.covar_module is not None and self.noise_var is not None

    @property
    def fits(self) -> bool:
        r"""Whether any hyperparameter is fitted."""
        return (not self.is_given) if self.refit is None else self.refit

    @property
    def standardises(self) -> bool:
        r"""Whether rewards are standardised: where anything about them is unknown."""
        return not self.is_given or bool(self.refit)

    @property
    def fits_kernel(self) -> bool:
        r"""Whether the kernel is fitted."""
        return self.fits and (self.covar_module is None or bool(self.refit))

    @property
    def fits_noise(self) -> bool:
        r"""Whether the noise variance is fitted."""
        return self.fits and (self.noise_var is None or bool(self.refit))

    @property
    def noise_is_fixed(self) -> bool:
        r"""Whether the noise variance is given and never changes."""
        return self.noise_var is not None and not self.refit

    def input_scale(self, extent: Tensor) -> UnitCube | None:
        r"""Return how inputs are scaled for the kernel; None where it takes them as they are.

        Args:
            extent: Inputs whose ranges are those of the domain.
        """
        if self.covar_module is None:
            check_finite("The range of inputs", extent.amax(0) - extent.amin(0), "rescale them")
            return UnitCube.around(extent)
        check_squares("The inputs", extent)
        warn_of_scales(extent, self.covar_module)
        return None

    def initial(self, like: Tensor) -> Hyperparameters:
        r"""Return the hyperparameters before the first fit.

        Args:
            like: ``r x d`` inputs, whose dtype and device the kernel gets.
        """
        kernel = deepcopy(self.covar_module)
        if kernel is None:
            kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=like.shape[-1])
        noise = self.noise_var
        if noise is None:
            noise = get_gaussian_likelihood_with_lognormal_prior().noise.item()
        kernel = kernel.to(like).eval().requires_grad_(False)
        return Hyperparameters(kernel, noise)

    def first_fit(self, dim: int) -> int:
        r"""Return the number of observations before the first fit.

        Args:
            dim: The number of input dimensions.
        """
        return size_of_design(dim)

    def next_fit(self, num_observations: int, num_rows: int) -> int:
        r"""Return the number of observations at the fit that follows one to so many.

        Fits are made as often as they are cheap: over a box after each result up to about a hundred
        of them. At the latest a fit follows when the observations have grown by a quarter.

        Args:
            num_observations: The number of observations at this fit.
            num_rows: The number of rows of the table, which every fit builds anew: all arms, or all
                points that were observed. Over a tree it is taken as large.
        """
        steps = max(1, round(num_observations * num_rows / REFIT_COST))
        return min(num_observations + steps, math.ceil(REFIT_GROWTH * num_observations))

    def begins_afresh(self, last: int, now: int) -> bool:
        r"""Return whether a fit also begins at the initial values, besides the last results.

        A fit that begins at the last results may stay at a local maximum. So it begins at both
        whenever the number of observations has doubled, and the better result counts.

        Args:
            last: The number of observations at the last fit.
            now: The number of observations now.
        """
        return now.bit_length() > last.bit_length()

    def restandardised(
        self, hyper: Hyperparameters, history: History, noise_known: float | None
    ) -> Hyperparameters:
        r"""Return hyperparameters with the units of the rewards so far; the kernel stays.

        Args:
            hyper: The hyperparameters.
            history: What was observed.
            noise_known: Noise variance in units of the rewards, where it is not fitted.
        """
        if not self.standardises:
            return hyper
        units = history.standardisation()
        known = self.noise_var if noise_known is None else noise_known
        noise = hyper.noise_var if known is None else units.variance_to_model(known)
        return replace(hyper, noise_var=noise, units=units)

    def fit(
        self,
        X: Tensor,
        history: History,
        dictionary: Tensor,
        noise_known: float | None,
        seed: int,
        last: Hyperparameters | None = None,
        afresh: bool = False,
        known: Tensor | None = None,
    ) -> Hyperparameters | None:
        r"""Maximise the sparse marginal likelihood of all pulls, at the cost of distinct inputs.

        Args:
            X: ``n x d`` distinct inputs, as the model sees them.
            history: Their rewards.
            dictionary: Positions of the dictionary among them.
            noise_known: Noise variance in units of the rewards, or None to have it fitted.
            seed: Seed for the restarts of a failed fit.
            last: The results of the last fit, if there was one.
            afresh: Whether to fit from the initial values, too, and to take the better result.
            known: Noise variances of rows where they are known, in units of the rewards, and zeros
                elsewhere, where the noise is fitted to the others.

        Returns:
            The new hyperparameters, or None with a warning where fitting failed.
        """
        with torch.inference_mode(False):  # parameters made there cannot be fitted
            # With variances of their own, weights depend on a noise that is not fitted yet.
            plain = history if known is None else history.unweighted()
            start = self.restandardised(self.initial(X), plain, noise_known)
        return fit_hyperparameters(
            X,
            history,
            dictionary,
            start,
            fit_kernel=self.fits_kernel,
            fit_noise=self.fits_noise and noise_known is None,
            seed=seed,
            last=last,
            afresh=afresh,
            known=known,
        )


def warn_of_scales(extent: Tensor, kernel: Kernel) -> None:
    r"""Warn where a given kernel has one length-scale for inputs of very different ranges."""
    sides = extent.amax(0) - extent.amin(0)
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
            stacklevel=level_of_user(),
        )
