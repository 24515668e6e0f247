r"""The log posterior of the hyperparameters of a model, and its gradient, without autograd.

It is what ``ExactMarginalLogLikelihood`` computes: the log evidence plus the log densities of the
priors, over the number of observations. :mod:`botorch_bkb.models.reading` makes it of a model, or
of the history of an optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bkb.closed_form import Evaluation
from botorch_bkb.linalg import exact_evidence
from botorch_bkb.models.coordinates import Hyperparameter
from botorch_bkb.models.densities import Array
from botorch_bkb.models.evidence import KernelBlocks, SparseLogEvidence
from botorch_bkb.models.few import FewObservations


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
        value = evidence.value()
        _, _, targets, variances, *tensors = evidence.gradients()
        return value, tensors, targets, variances
