r"""The log posterior of hyperparameters, read off a model or the history of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from gpytorch import settings
from gpytorch.kernels import Kernel, LinearKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.module import Module
from torch import Tensor

from botorch_bkb.closed_form import closed_form
from botorch_bkb.models.coordinates import Hyperparameter
from botorch_bkb.models.densities import ends_of_support, log_density
from botorch_bkb.models.evidence import KernelBlocks
from botorch_bkb.models.log_posterior import LogPosterior

#: Steps of stored parameters to values at which closures of priors are called, large and small.
ELSEWHERE = (-4.0, 3.0)


def read_model(mll: Any) -> LogPosterior | None:
    r"""Return the log posterior of a model's hyperparameters, or None if it is not covered.

    Not covered are other kernels, means and likelihoods, batches, and learned input transforms.

    Args:
        mll: The marginal log-likelihood of the model.
    """
    if not _is_plain(mll):
        return None
    model, likelihood, noise, counts = mll.model, mll.likelihood, None, None
    with torch.no_grad():
        X = model.transform_inputs(model.train_inputs[0]).detach()
    indices = model._dictionary(X)
    targets = model.train_targets.detach().double()
    if type(likelihood) is FixedNoiseGaussianLikelihood:
        variances = likelihood.noise.detach().double().expand_as(targets)
    else:
        noise = likelihood.noise_covar
        counts = getattr(likelihood, "counts", None)
        variances = targets.new_ones(()).expand_as(targets) if counts is None else 1 / counts
    repeats, known = (0.0, 0.0), None
    if counts is not None:
        (within,) = model.added_loss_terms()
        repeats = (float(likelihood.repeats), within.deviations)
        if (likelihood.known > 0).any():
            known = likelihood.known.double()
            variances = torch.where(known > 0, 0.0, variances)  # the factors of the fitted noise
    return read_parts(
        model.covar_module,
        model.mean_module,
        noise,
        X,
        targets,
        variances.double(),
        points=None if model._is_exact_at(indices, X) else X[indices],
        repeats=repeats,
        known=known,
        owner=model,
    )


def read_parts(
    kernel: Kernel,
    mean: Module,
    noise: Module | None,
    X: Tensor,
    targets: Tensor,
    variances: Tensor,
    points: Tensor | None,
    repeats: tuple[float, float],
    known: Tensor | None = None,
    owner: Module | None = None,
) -> LogPosterior | None:
    r"""Return the log posterior of the hyperparameters of some modules, or None if not covered.

    Args:
        kernel: The kernel.
        mean: A constant or zero mean.
        noise: The module of the noise variance, or None if it is given.
        X: ``n x d`` inputs.
        targets: ``n`` targets, float64.
        variances: ``n`` noise variances, or factors of the noise variance that is fitted.
        points: ``m x d`` inputs of the dictionary; None for the exact process.
        repeats: The number of pulls beyond the first of each input, and their squared deviations.
        known: Where noise variances are known although the noise is fitted to others, else zero.
        owner: A module that has all these modules and maybe others.
    """
    form = closed_form(kernel)
    if form is None or kernel.batch_shape:
        return None
    posterior = LogPosterior(
        kernel=kernel_hyperparameters(kernel),
        noise=None if noise is None else Hyperparameter.of(noise, "noise"),
        constant=Hyperparameter.of(mean, "constant") if type(mean) is ConstantMean else None,
        profile=form.profile,
        X=form.read(X),
        targets=targets,
        variances=variances,
        points=None if points is None else form.read(points),
        blocks=KernelBlocks(kernel, (), form.profile),
        repeats=repeats,
        known=known,
    )
    owners = [m for m in (kernel, mean, noise) if m is not None] if owner is None else [owner]
    return posterior if _covers(posterior, owners) else None


def _is_plain(mll: Any) -> bool:
    r"""Return whether a model consists of parts in closed form, without batches."""
    model, likelihood = mll.model, mll.likelihood
    kind, mean = type(likelihood), type(model.mean_module)
    counts = getattr(likelihood, "counts", None)
    fixed = kind is FixedNoiseGaussianLikelihood and likelihood.second_noise_covar is None
    transform = getattr(model, "input_transform", None)
    return (
        type(mll) is ExactMarginalLogLikelihood
        and likelihood is model.likelihood
        and closed_form(model.covar_module) is not None
        and not model._trace_term
        and model.train_targets.dim() == 1
        and model.train_inputs[0].dim() == 2
        and mean in (ConstantMean, ZeroMean)
        and (fixed or kind is GaussianLikelihood or counts is not None)
        and (fixed or likelihood.noise.numel() == 1)
        and len(list(model.added_loss_terms())) == (counts is not None)
        and (transform is None or not any(p.requires_grad for p in transform.parameters()))
        and settings.observation_nan_policy.value() == "ignore"
    )


def kernel_hyperparameters(kernel: Kernel) -> list[Hyperparameter]:
    r"""Return the hyperparameters of a kernel with a closed form, scales last."""
    scales = []
    while type(kernel) is ScaleKernel:
        scales.append(Hyperparameter.of(kernel, "outputscale"))
        kernel = kernel.base_kernel
    name = "variance" if type(kernel) is LinearKernel else "lengthscale"
    return [Hyperparameter.of(kernel, name), *scales]


def _covers(posterior: LogPosterior, owners: list[Module]) -> bool:
    r"""Give each hyperparameter its prior; return whether all priors and parameters are covered."""
    known = posterior.hyperparameters
    raws = {id(h.raw) for h in known}
    if any(id(p) not in raws and p.requires_grad for owner in owners for p in owner.parameters()):
        return False
    readings = []
    for _, module, prior, closure, _ in chain.from_iterable(o.named_priors() for o in owners):
        reading = _reading(partial(closure, module), module, known)
        if reading is None or reading.hyperparameter.density is not None:
            return False
        readings.append(reading)
        h = reading.hyperparameter
        h.density, h.support = log_density(prior), ends_of_support(prior)
    return _hold_elsewhere(readings, known)


class _Reading(NamedTuple):
    r"""A hyperparameter, and a function that seems to return it."""

    hyperparameter: Hyperparameter
    function: Callable[[], Tensor]

    @torch.no_grad()
    def holds(self) -> bool:
        r"""Return whether the function returns the hyperparameter at the present values."""
        return torch.equal(self.hyperparameter.value, self.function())


def _reading(
    function: Callable[[], Tensor], module: Module, known: list[Hyperparameter]
) -> _Reading | None:
    r"""Return the hyperparameter of a module that a function returns, or None if it is another."""
    readings = (_Reading(h, function) for h in known if h.module is module)
    return next((r for r in readings if r.holds()), None)


def _hold_elsewhere(readings: list[_Reading], known: list[Hyperparameter]) -> bool:
    r"""Return whether functions return hyperparameters at other values, too.

    A prior of ``1 / lengthscale`` looks like one of the length-scale where that is one.
    """
    for step in ELSEWHERE if readings else ():
        with _moved(known, step):
            if not all(r.holds() for r in readings):
                return False
    return True


@contextmanager
def _moved(known: list[Hyperparameter], step: float) -> Iterator[None]:
    r"""Give all hyperparameters other values, entries unequal, and restore them afterwards."""
    stored = [h.raw.data for h in known]
    try:
        for i, (h, raw) in enumerate(zip(known, stored, strict=True)):
            steps = torch.linspace(
                step, 1.1 * step, raw.numel(), dtype=raw.dtype, device=raw.device
            ).view(raw.shape)
            steps = steps + 0.1 * i
            plain = h.constraint is not None and not h.constraint.enforced
            h.raw.data = raw * steps.exp() if plain else raw + steps
        yield
    finally:
        for h, raw in zip(known, stored, strict=True):
            h.raw.data = raw
