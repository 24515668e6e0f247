r"""The log posterior of the hyperparameters of a model, and its gradient, without autograd.

It is what ``ExactMarginalLogLikelihood`` computes: the log evidence plus the log densities of the
priors, over the number of observations. For models that are not covered
:meth:`LogPosterior.of` returns None, and gpytorch computes it: for other kernels, means and
likelihoods, batches, and learned input transforms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch import settings
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, LinearKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.module import Module
from torch import Tensor

from botorch_bkb.closed_form import Evaluation, closed_form
from botorch_bkb.linalg import exact_evidence
from botorch_bkb.models.densities import Array, Density, log_density
from botorch_bkb.models.evidence import KernelBlocks, SparseLogEvidence
from botorch_bkb.models.few import FewObservations


@dataclass
class Hyperparameter:
    r"""One hyperparameter of a model, possibly with several entries.

    Attributes:
        module: The module that has it.
        name: Its name, such as ``lengthscale``.
        raw: The parameter that is stored.
        constraint: The constraint, or None.
        density: The log density of the prior and its gradient, or None.
    """

    module: Module
    name: str
    raw: Tensor
    constraint: Interval | None
    density: Density | None = None

    @classmethod
    def of(cls, module: Module, name: str) -> Hyperparameter:
        r"""Return the hyperparameter of a module."""
        constraint = getattr(module, f"raw_{name}_constraint", None)
        return cls(module, name, getattr(module, f"raw_{name}"), constraint)

    @property
    def value(self) -> Tensor:
        r"""The value, after the constraint."""
        return getattr(self.module, self.name)

    @property
    def array(self) -> Array:
        r"""The value as a float64 array."""
        return self.value.detach().double().cpu().numpy()

    def set(self, value: Array) -> None:
        r"""Set the value."""
        setattr(self.module, self.name, torch.as_tensor(value).to(self.raw))

    def pull(self, slope: Array) -> Tensor:
        r"""Turn the gradient of the value into that of the stored parameter."""
        gradient = torch.as_tensor(slope).to(self.raw).reshape(self.raw.shape)
        if self.constraint is None or not self.constraint.enforced:
            return gradient
        with torch.enable_grad():
            raw = self.raw.detach().requires_grad_()
            return torch.autograd.grad(self.constraint.transform(raw), raw, gradient)[0]


@dataclass
class LogPosterior:
    r"""The log posterior of hyperparameters, with kernel, noise and mean in closed form.

    Attributes:
        kernel: The hyperparameters of the kernel: length-scales or variances, then scales.
        noise: The noise variance, or None if it is given.
        constant: The constant of the mean, or None if it is zero.
        profile: The profile of the kernel's closed form.
        X: ``n x d`` inputs that the kernel reads, float64.
        targets: ``n`` targets, float64.
        variances: ``n`` noise variances, or the factors of ``noise``.
        known: Where noise variances are known although ``noise`` is fitted to others, else zero.
        points: ``m x d`` inputs of the dictionary; None for the exact process.
        blocks: The kernel.
        repeats: The number of pulls beyond the first of each input, and their squared deviations.
    """

    kernel: list[Hyperparameter]
    noise: Hyperparameter | None
    constant: Hyperparameter | None
    profile: str | float
    X: Tensor
    targets: Tensor
    variances: Tensor
    points: Tensor | None
    blocks: KernelBlocks
    repeats: tuple[float, float]
    known: Tensor | None = None

    def __post_init__(self) -> None:
        self._known = None if self.known is None else self.known.cpu().numpy()
        self._few = FewObservations.of(self.profile, self.X) if self.points is None else None
        self._targets, self._variances = self.targets.cpu().numpy(), self.variances.cpu().numpy()
        if self.variances.stride(-1) == 0:  # the same for all rows
            self._variances = self._variances[:1]

    @classmethod
    def of(cls, mll: Any) -> LogPosterior | None:
        r"""Return the log posterior of a model's hyperparameters, or None if it is not covered."""
        return _read(mll)

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        r"""All hyperparameters, in the order of :meth:`evaluate`."""
        return [*self.kernel, *(h for h in (self.noise, self.constant) if h is not None)]

    @torch.no_grad()
    def evaluate(self, values: list[Array]) -> tuple[float, list[Array]]:
        r"""Compute the negative log posterior per observation, and its gradient.

        Args:
            values: Values of :attr:`hyperparameters`, float64.
        """
        kernel, rest = values[: len(self.kernel)], iter(values[len(self.kernel) :])
        noise = self._variances if self.noise is None else self._variances * next(rest)
        if self._known is not None:
            noise = noise + self._known
        residual = self._targets if self.constant is None else self._targets - next(rest)
        total, gradients, by_target, by_variance = self._evidence(kernel, residual, noise)
        if self.noise is not None:
            total, slope = self._with_repeats(total, values[len(self.kernel)])
            gradients.append((by_variance * self._variances).sum() + slope)
        if self.constant is not None:
            gradients.append(-by_target.sum())
        for i, h in enumerate(self.hyperparameters):
            if h.density is not None:
                more, slope = h.density(values[i])
                total, gradients[i] = total + more, gradients[i] + slope
        scale = -1.0 / len(self._targets)
        return scale * total, [scale * g for g in gradients]

    def _with_repeats(self, total: float, noise: Array) -> tuple[float, Array | float]:
        r"""Add the density of pulls given their means, and return its derivative."""
        count, deviations = self.repeats
        if not count:
            return total, 0.0
        density = -0.5 * (count * np.log(noise) + deviations / noise)
        return total + float(density.sum()), -0.5 * (count / noise - deviations / noise**2)

    def _evidence(self, kernel: list[Array], residual: Array, noise: Array) -> tuple[Any, ...]:
        if self._few is not None:
            found = self._few.evidence(kernel, residual, noise)
            if found is not None:
                return found
        tensors = [torch.as_tensor(k).to(self.X) for k in kernel]
        y, variances = (torch.as_tensor(t).to(self.X) for t in (residual, noise))
        evidence = self._exact if self.points is None else self._sparse
        value, *gradients = evidence(tensors, y, variances.expand_as(y))
        slopes, by_target, by_variance = gradients
        arrays = [g.cpu().numpy() for g in slopes]
        return float(value), arrays, by_target.cpu().numpy(), by_variance.cpu().numpy()

    def _exact(self, kernel: list[Tensor], residual: Tensor, noise: Tensor) -> tuple[Any, ...]:
        e = Evaluation.of(self.profile, self.X, self.X, tuple(kernel))
        covariance = e.matrix.clone()
        covariance.diagonal().add_(noise)
        value, gradient, targets = exact_evidence(covariance, residual)
        return value, e.pull_hyperparameters(gradient), targets, gradient.diagonal()

    def _sparse(self, kernel: list[Tensor], residual: Tensor, noise: Tensor) -> tuple[Any, ...]:
        assert self.points is not None
        evidence = SparseLogEvidence(self.blocks, kernel, self.X, self.points, residual, noise)
        value, one = evidence.value(), residual.new_ones(())
        _, _, targets, variances, *tensors = evidence.gradients(one)
        return value, tensors, targets, variances


def _read(mll: Any) -> LogPosterior | None:
    model, likelihood = mll.model, mll.likelihood
    if not _is_plain(mll):
        return None
    form, noise, counts = closed_form(model.covar_module), None, None
    assert form is not None
    with torch.no_grad():
        X = model.transform_inputs(model.train_inputs[0])
    indices = model._dictionary(X)
    exact = model._is_exact_at(indices, X)
    targets = model.train_targets.double()
    if type(likelihood) is FixedNoiseGaussianLikelihood:
        variances = likelihood.noise.detach().double().expand_as(targets)
    else:
        noise = Hyperparameter.of(likelihood.noise_covar, "noise")
        counts = getattr(likelihood, "counts", None)
        variances = targets.new_ones(()).expand_as(targets) if counts is None else 1 / counts
    repeats, known = (0.0, 0.0), None
    if counts is not None:
        (within,) = model.added_loss_terms()
        repeats = (float(likelihood.repeats), within.deviations)
        if (likelihood.known > 0).any():
            known = likelihood.known.double()
            variances = torch.where(known > 0, 0.0, variances)  # the factors of the fitted noise
    posterior = LogPosterior(
        kernel=_kernel_hyperparameters(model.covar_module),
        noise=noise,
        constant=_constant(model.mean_module),
        profile=form.profile,
        X=form.read(X),
        targets=targets,
        variances=variances.double(),
        points=None if exact else form.read(X[indices]),
        blocks=KernelBlocks(model.covar_module, (), form.profile),
        repeats=repeats,
        known=known,
    )
    return posterior if _add_priors(posterior, mll) else None


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
        and not model.covar_module.batch_shape
        and mean in (ConstantMean, ZeroMean)
        and (fixed or kind is GaussianLikelihood or counts is not None)
        and (fixed or likelihood.noise.numel() == 1)
        and len(list(model.added_loss_terms())) == (counts is not None)
        and (transform is None or not any(p.requires_grad for p in transform.parameters()))
        and settings.observation_nan_policy.value() == "ignore"
    )


def _kernel_hyperparameters(kernel: Kernel) -> list[Hyperparameter]:
    scales = []
    while type(kernel) is ScaleKernel:
        scales.append(Hyperparameter.of(kernel, "outputscale"))
        kernel = kernel.base_kernel
    name = "variance" if type(kernel) is LinearKernel else "lengthscale"
    return [Hyperparameter.of(kernel, name), *scales]


def _constant(mean: Module) -> Hyperparameter | None:
    return Hyperparameter.of(mean, "constant") if type(mean) is ConstantMean else None


def _add_priors(posterior: LogPosterior, mll: Any) -> bool:
    r"""Give each hyperparameter its prior; return whether all priors and parameters are covered."""
    known = posterior.hyperparameters
    for _, module, prior, closure, _ in mll.model.named_priors():
        value = closure(module)
        for h in known:
            if h.module is module and h.density is None and torch.equal(h.value, value):
                h.density = log_density(prior)
                break
        else:
            return False
    raws = {id(h.raw) for h in known}
    return all(id(p) in raws or not p.requires_grad for p in mll.parameters())
