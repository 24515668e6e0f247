r"""Hyperparameter fits on means of repeated observations, equivalent to fits on all of them.

Let input ``i`` have ``c_i`` pulls with mean ``y_i``. Let ``s`` be the sum of squared deviations
from these means. The log density of all pulls is that of the means, with noise variances
``lambda / c_i``, plus a term that depends only on the noise:

.. code-block:: text

    - 1/2 sum_i (c_i - 1) log lambda - s / (2 lambda) + const

So the cost of a fitting step depends on the number of distinct inputs, not of pulls. Pulls whose
noise variances are known are rows of their own, with these variances. They do not inform ``lambda``
directly, but through the function that all pulls share.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import AddedLossTerm
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Size, Tensor

from botorch_bkb.models.dtc import DTCGP


class ReplicatedGaussianLikelihood(GaussianLikelihood):
    r"""A Gaussian likelihood of means of repeated observations, with noise ``lambda / c_i``.

    The prior, constraint and initial value of ``lambda`` are BoTorch's.

    Args:
        counts: ``n`` numbers of pulls, one per row of the training data.
        known: ``n`` noise variances of rows where they are known, and zeros elsewhere; by default
            none is.
    """

    def __init__(self, counts: Tensor, known: Tensor | None = None) -> None:
        super().__init__()
        self.noise_covar = get_gaussian_likelihood_with_lognormal_prior().noise_covar
        self.register_buffer("counts", counts)
        self.register_buffer("known", torch.zeros_like(counts) if known is None else known)

    @property
    def repeats(self) -> Tensor:
        r"""The number of pulls beyond the first of each row whose noise is fitted, summed."""
        return torch.where(self.known > 0, 0.0, self.counts - 1).sum()

    def _shaped_noise_covar(self, base_shape: Size, *params: Any, **kwargs: Any) -> LinearOperator:
        if base_shape[-1:] != self.counts.shape:
            return super()._shaped_noise_covar(base_shape, *params, **kwargs)
        noise = torch.where(self.known > 0, self.known, self.noise / self.counts)
        return DiagLinearOperator(noise.expand(base_shape))


class WithinReplicates(AddedLossTerm):
    r"""The term of the log density of all pulls that the density of their means lacks.

    Args:
        likelihood: The likelihood of the means.
        deviations: ``s``, the sum of squared deviations of pulls from their means.
    """

    def __init__(self, likelihood: ReplicatedGaussianLikelihood, deviations: float) -> None:
        self.likelihood, self.deviations = likelihood, deviations

    def loss(self, *params: Any) -> Tensor:
        r"""Return the value of the term, to be added to the log marginal likelihood."""
        noise = self.likelihood.noise.squeeze(-1)
        return -0.5 * (self.likelihood.repeats * noise.log() + self.deviations / noise)


class ReplicatedDTCGP(DTCGP):
    r"""A :class:`DTCGP` on means of repeated observations, with noise fitted to all pulls.

    Args:
        train_X: ``n x d`` distinct inputs.
        train_Y: ``n x 1`` means of the pulls of each input.
        counts: ``n`` numbers of pulls.
        deviations: Sum of squared deviations of all pulls from their means.
        known: ``n`` noise variances of rows where they are known, and zeros elsewhere.
        kwargs: Further arguments of :class:`DTCGP`.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        counts: Tensor,
        deviations: float,
        known: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        likelihood = ReplicatedGaussianLikelihood(counts, known)
        super().__init__(train_X, train_Y, likelihood=likelihood, **kwargs)
        within = WithinReplicates(likelihood, deviations)
        self.register_added_loss_term("replicates")  # type: ignore[operator]
        self.update_added_loss_term("replicates", within)  # type: ignore[operator]
