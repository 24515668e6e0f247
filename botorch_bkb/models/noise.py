r"""Noise variances of observations, read from a likelihood."""

from __future__ import annotations

from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import Likelihood
from linear_operator.operators import DiagLinearOperator
from torch import Size, Tensor


def noise_variances(likelihood: Likelihood, shape: Size, X: Tensor) -> Tensor:
    r"""Compute the noise variances of observations at ``X``.

    gpytorch's own Gaussian likelihoods have a ``noise_covar``. Others, such as a wrapper of one of
    them, are asked for the distribution of an observation of the value zero.

    Args:
        likelihood: A likelihood with Gaussian noise.
        shape: The shape ``batch x n`` of the observations.
        X: ``batch x n x d`` inputs.

    Returns:
        A tensor of shape ``batch x n``.

    Example:
        >>> import torch
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> likelihood = GaussianLikelihood()
        >>> likelihood.noise = 0.5
        >>> noise_variances(likelihood, torch.Size([2]), torch.zeros(2, 1)).detach()
        tensor([0.5000, 0.5000])
    """
    if hasattr(likelihood, "noise_covar"):
        covariance = likelihood._shaped_noise_covar(shape, X)
    else:
        zero = X.new_zeros(shape)
        latent = MultivariateNormal(zero, DiagLinearOperator(zero))
        covariance = likelihood(latent, X).lazy_covariance_matrix
    return covariance.diagonal(dim1=-2, dim2=-1).expand(shape)
