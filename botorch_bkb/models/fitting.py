r"""Fitting hyperparameters to a history: the marginal likelihood of all pulls."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from copy import deepcopy
from functools import cached_property
from typing import Any, Generic, TypeVar

import gpytorch
import numpy as np
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from botorch.utils.sampling import manual_seed
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_bkb.models.coordinates import ENOUGH, LogCoordinates
from botorch_bkb.models.densities import Array
from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.models.log_posterior import LogPosterior
from botorch_bkb.models.loss import Loss, fit
from botorch_bkb.models.reading import kernel_hyperparameters, read_parts
from botorch_bkb.models.replicates import ReplicatedDTCGP
from botorch_bkb.threads import one_thread
from botorch_bkb.units import RewardUnits

#: The improvement of the log posterior, in nats, below which a fit from earlier results ends.
ENOUGH_AFTER = 1e-3
#: The length of the first step of a fit that begins at earlier results, in logarithms.
FIRST_STEP = 1 / 3
#: Number of kernel values beyond which a fit from the initial values begins with half of the
#: dictionary, at a quarter of the cost. A quarter of it, or a part of the rows, leads to worse
#: optima on rough functions.
LARGE = 2**18
#: The improvement of the log posterior, in nats, below which such a fit ends.
ROUGHLY = 1.0
#: Number of rows up to which a fit uses one thread.
FEW = 300
#: The least noise variance at the start; BoTorch's lower bound is 1e-4.
LEAST_NOISE = 1.01e-4

Position = TypeVar("Position")


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
    when a step improves the log posterior by less than a thousandth of a nat.

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
    data = X, history, dictionary, start, fit_kernel, fit_noise, known
    with torch.inference_mode(False), torch.enable_grad():
        direct = DirectFit.of(*data)
        try:
            if direct is not None:
                return direct.result(last, afresh)
        except NotPSDError:  # BoTorch's fit makes further attempts
            pass
        try:
            with manual_seed(seed):  # takes a millisecond
                return FitOfModel(*data).result(last, afresh)
        except ModelFittingError as error:
            warnings.warn(
                f"Hyperparameters could not be fitted to {history.num_observations} observations "
                f"({error}): the earlier ones stay until the next attempt.",
                BotorchWarning,
                stacklevel=2,
            )
            return None


class Fit(ABC, Generic[Position]):
    r"""Base class of fits, which begin at the initial values, at the last results, or at both.

    Args:
        history: The rewards.
        start: The initial hyperparameters, with the units of the rewards.
        kernel: The kernel that is fitted, with its initial values.
        fit_noise: Whether the noise variance is fitted.
    """

    mean: Any
    noise: Any

    def __init__(
        self, history: History, start: Hyperparameters, kernel: Any, fit_noise: bool
    ) -> None:
        self.history, self.start, self.kernel, self.fit_noise = history, start, kernel, fit_noise

    def result(self, last: Hyperparameters | None, afresh: bool) -> Hyperparameters:
        r"""Fit, and return the new hyperparameters.

        Args:
            last: The results of the last fit, if there was one.
            afresh: Whether to fit from the initial values, too.
        """
        self.store(self._best(last, afresh))
        constant, units = self.mean.constant.item(), self.start.units
        return Hyperparameters(
            kernel=self.kernel.eval().requires_grad_(False),
            noise_var=self.noise.noise.item() if self.fit_noise else self.start.noise_var,
            units=RewardUnits(units.to_rewards(constant), units.scale),
        )

    def _best(self, last: Hyperparameters | None, afresh: bool) -> Position:
        initial = self.position()
        if last is None:
            return self.minimise_afresh(initial)
        known = self.position_of(last)
        if self.loss(known) >= self.loss(initial):
            return self.minimise_afresh(initial)
        found = self.minimise(known, is_warm=True)
        if not afresh:
            return found
        return min(found, self.minimise_afresh(initial), key=self.loss)

    def minimise_afresh(self, position: Position) -> Position:
        r"""Return a local minimum, from the initial values."""
        return self.minimise(position, is_warm=False)

    @abstractmethod
    def position(self) -> Position:
        r"""Return the present values."""

    @abstractmethod
    def position_of(self, last: Hyperparameters) -> Position:
        r"""Return the values of earlier results."""

    @abstractmethod
    def loss(self, position: Position) -> float:
        r"""Return the negative log posterior per observation."""

    @abstractmethod
    def minimise(self, position: Position, is_warm: bool) -> Position:
        r"""Return a local minimum.

        Args:
            position: Where to begin.
            is_warm: Whether that is the result of an earlier fit.
        """

    @abstractmethod
    def store(self, position: Position) -> None:
        r"""Give the modules their values at a position."""


def in_model(known: Tensor | None, units: RewardUnits) -> Tensor | None:
    r"""Return known noise variances in the model's units."""
    return None if known is None else known * units.variance_to_model(1.0)


def repeats_of(history: History, known: Tensor | None, units: RewardUnits) -> tuple[float, float]:
    r"""Return the pulls beyond the first of each row whose noise is fitted, and their deviations.

    Args:
        history: The rewards.
        known: Noise variances of rows where they are known, and zeros elsewhere.
        units: The units of the rewards.
    """
    counts, deviations = history.weights - 1, history.deviations
    if known is not None:
        counts, deviations = counts[known == 0], deviations[known == 0]
    return float(counts.sum()), units.variance_to_model(float(deviations.sum()))


class DirectFit(Fit[Array]):
    r"""A fit of a kernel with a closed form, without a model.

    The arguments are those of :class:`Fit`. The modules change only at the end.
    """

    posterior: LogPosterior
    beginning: DirectFit | None = None  #: the same fit with half of the dictionary, if it is large

    @classmethod
    def of(
        cls,
        X: Tensor,
        history: History,
        dictionary: Tensor,
        start: Hyperparameters,
        fit_kernel: bool,
        fit_noise: bool,
        known: Tensor | None,
    ) -> DirectFit | None:
        r"""Return the fit, or None if it is not covered; see :func:`fit_hyperparameters`."""
        rest = start, fit_kernel, fit_noise, known
        fit = cls._of(X, history, dictionary, *rest)
        is_exact = len(dictionary) == len(X)
        if fit is not None and not is_exact and len(X) * len(dictionary) > LARGE:
            fit.beginning = cls._of(X, history, dictionary[::2], *rest)
        return fit

    @classmethod
    def _of(
        cls,
        X: Tensor,
        history: History,
        dictionary: Tensor,
        start: Hyperparameters,
        fit_kernel: bool,
        fit_noise: bool,
        known: Tensor | None,
    ) -> DirectFit | None:
        kernel = start.kernel.train().requires_grad_(fit_kernel)
        fit = cls(history, start, kernel, fit_noise)
        fit.mean, fit.noise = ConstantMean().double(), None
        units, repeats, variances = start.units, (0.0, 0.0), 1 / history.weights
        if fit_noise:
            fit.noise = get_gaussian_likelihood_with_lognormal_prior().double().noise_covar
            fit.noise.noise = max(start.noise_var, LEAST_NOISE)
            known = in_model(known, units)
            repeats = repeats_of(history, known, units)
            if known is not None:
                variances = torch.where(known > 0, 0.0, variances)
        else:
            variances, known = start.noise_var * variances, None
        is_exact = len(dictionary) == len(X)
        posterior = read_parts(
            kernel,
            fit.mean,
            fit.noise,
            X,
            units.to_model(history.means),
            variances,
            points=None if is_exact else X[dictionary],
            repeats=repeats,
            known=known,
        )
        if posterior is None:
            return None
        fit.posterior = posterior
        return fit

    @cached_property
    def _coordinates(self) -> LogCoordinates:
        return LogCoordinates(self.posterior.hyperparameters, self.posterior.evaluate)

    def position(self) -> Array:
        r"""Return the logarithms of the present values."""
        return self._coordinates.position()

    def position_of(self, last: Hyperparameters) -> Array:
        r"""Return the logarithms of the values of earlier results."""
        values = [h.array for h in kernel_hyperparameters(last.kernel)]
        if self.fit_noise:
            values.append(np.array([max(last.noise_var, LEAST_NOISE)]))
        values.append(np.array(self.start.units.to_model(last.units.offset)))
        return self._coordinates.at(values)

    def loss(self, position: Array) -> float:
        r"""Return the negative log posterior per observation."""
        return self._coordinates.loss(position)[0]

    def minimise(self, position: Array, is_warm: bool) -> Array:
        r"""Return a local minimum."""
        if not is_warm:
            return self._minimum(position, ENOUGH)
        return self._minimum(position, self._each(ENOUGH_AFTER), FIRST_STEP)

    def minimise_afresh(self, position: Array) -> Array:
        r"""Return a local minimum, from the initial values."""
        if self.beginning is None:
            return self.minimise(position, is_warm=False)
        roughly = self._each(ROUGHLY)
        return self._minimum(self.beginning._minimum(position, roughly), roughly, FIRST_STEP)

    def _each(self, nats: float) -> float:
        r"""Return nats per observation."""
        return nats / len(self.posterior.targets)

    def _minimum(self, position: Array, ftol: float, first_step: float = 1.0) -> Array:
        with one_thread(wanted=len(self.posterior.targets) <= FEW):
            found, loss = self._coordinates.minimise(position, first_step, ftol=ftol)
        if not math.isfinite(loss):
            raise NotPSDError(f"The log posterior is {-loss} there.")
        return found

    def store(self, position: Array) -> None:
        r"""Give the modules their values at a position."""
        self._coordinates.store(position)


class FitOfModel(Fit[dict[str, Any]]):
    r"""A fit of any kernel, by BoTorch.

    The arguments are those of :func:`fit_hyperparameters`.
    """

    def __init__(
        self,
        X: Tensor,
        history: History,
        dictionary: Tensor,
        start: Hyperparameters,
        fit_kernel: bool,
        fit_noise: bool,
        known: Tensor | None,
    ) -> None:
        units, double = start.units, deepcopy(start.kernel).double().train()
        super().__init__(history, start, double.requires_grad_(fit_kernel), fit_noise)
        Y = units.to_model(history.means).unsqueeze(-1)
        parts: dict[str, Any] = {"covar_module": self.kernel, "outcome_transform": None}
        parts["dictionary"] = dictionary
        model: DTCGP
        if fit_noise:
            known = in_model(known, units)
            _, deviations = repeats_of(history, known, units)
            model = ReplicatedDTCGP(X.double(), Y, history.weights, deviations, known, **parts)
            self.noise = model.likelihood
            self.noise.noise = max(start.noise_var, LEAST_NOISE)
        else:
            with gpytorch.settings.min_fixed_noise(double_value=1e-14):
                Yvar = (start.noise_var / history.weights).unsqueeze(-1)
                model = DTCGP(X.double(), Y, Yvar, **parts)
        model.to(X.device)
        self.mean, self._dtype = model.mean_module, X.dtype
        self._mll = ExactMarginalLogLikelihood(model.likelihood, model).train()

    def position(self) -> dict[str, Any]:
        r"""Return the state of the model."""
        return deepcopy(self._mll.state_dict())

    def position_of(self, last: Hyperparameters) -> dict[str, Any]:
        r"""Return the state with earlier results."""
        self.kernel.load_state_dict(last.kernel.state_dict())
        self.mean.constant = self.start.units.to_model(last.units.offset)
        if self.fit_noise:
            self.noise.noise = max(last.noise_var, LEAST_NOISE)
        return self.position()

    def loss(self, position: dict[str, Any]) -> float:
        r"""Return the negative log posterior per observation."""
        self.store(position)
        return float(Loss()(self._mll.train()).detach())

    def minimise(self, position: dict[str, Any], is_warm: bool) -> dict[str, Any]:
        r"""Return the state after a fit."""
        self.store(position)
        ftol = ENOUGH_AFTER / self._mll.model.num_data
        options = {"first_step": FIRST_STEP, "options": {"ftol": ftol}} if is_warm else None
        fit(self._mll, optimizer_kwargs=options)
        return self.position()

    def store(self, position: dict[str, Any]) -> None:
        r"""Load a state of the model."""
        self._mll.load_state_dict(position)

    def result(self, last: Hyperparameters | None, afresh: bool) -> Hyperparameters:
        r"""Fit, and return the new hyperparameters, in the dtype of the inputs."""
        found = super().result(last, afresh)
        found.kernel.to(self._dtype)
        return found
