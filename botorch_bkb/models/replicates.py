r"""Fitting to means of repeated observations what fitting to all of them would give.

With ``c_i`` pulls of input ``i``, their mean ``y_i`` and the sum ``s`` of squared deviations
from these means, the log density of all pulls is that of the means, with noise variances
``lambda / c_i``, plus a term that has only the noise in it:

.. code-block:: text

    - 1/2 sum_i (c_i - 1) log lambda - s / (2 lambda) + const

So a step of the fit costs what the distinct inputs cost, not the pulls.
"""

from __future__ import annotations

from typing import Any

from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import AddedLossTerm
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Size, Tensor

from botorch_bkb.models.dtc import DTCGP


class ReplicatedGaussianLikelihood(GaussianLikelihood):
    r"""Gaussian noise of means of repeated observations: ``lambda / c_i``.

    BoTorch's prior, constraint and initial value for ``lambda``.

    Args:
        counts: ``n`` numbers of pulls, one for each row of the training data.
    """

    def __init__(self, counts: Tensor) -> None:
        super().__init__()
        self.noise_covar = get_gaussian_likelihood_with_lognormal_prior().noise_covar
        self.register_buffer("counts", counts)

    def _shaped_noise_covar(self, base_shape: Size, *params: Any, **kwargs: Any) -> LinearOperator:
        if base_shape[-1:] != self.counts.shape:
            return super()._shaped_noise_covar(base_shape, *params, **kwargs)
        return DiagLinearOperator((self.noise / self.counts).expand(base_shape))


class WithinReplicates(AddedLossTerm):
    r"""The term of the log density that the means do not have.

    Args:
        likelihood: The likelihood of the means.
        deviations: ``s``, the sum of squared deviations of pulls from their means.
    """

    def __init__(self, likelihood: ReplicatedGaussianLikelihood, deviations: float) -> None:
        self.likelihood, self.deviations = likelihood, deviations

    def loss(self, *params: Any) -> Tensor:
        r"""Its value, to be added to the log marginal likelihood."""
        noise = self.likelihood.noise.squeeze(-1)
        repeats = (self.likelihood.counts - 1).sum()
        return -0.5 * (repeats * noise.log() + self.deviations / noise)


class ReplicatedDTCGP(DTCGP):
    r"""A :class:`DTCGP` of means whose noise is fitted to all pulls.

    Args:
        train_X: ``n x d`` distinct inputs.
        train_Y: ``n x 1`` means of their pulls.
        counts: ``n`` numbers of pulls.
        deviations: Sum of squared deviations of all pulls from their means.
        kwargs: As for :class:`DTCGP`.
    """

    def __init__(
        self, train_X: Tensor, train_Y: Tensor, counts: Tensor, deviations: float, **kwargs: Any
    ) -> None:
        likelihood = ReplicatedGaussianLikelihood(counts)
        super().__init__(train_X, train_Y, likelihood=likelihood, **kwargs)
        within = WithinReplicates(likelihood, deviations)
        self.register_added_loss_term("replicates")  # type: ignore[operator]
        self.update_added_loss_term("replicates", within)  # type: ignore[operator]
