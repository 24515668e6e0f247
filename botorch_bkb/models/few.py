r"""The log posterior of hyperparameters given few observations, in NumPy.

Most fits have ten to two hundred observations. There a call into torch costs more than its
arithmetic, and NumPy and LAPACK take a quarter of the time. The formulas are those of
:class:`~botorch_bkb.models.log_posterior.LogPosterior` with the exact evidence.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from torch import Tensor

from botorch_bkb.closed_form import RBF

Array = np.ndarray
#: Number of squared differences that may be kept (16 MiB).
MOST_DIFFERENCES = 2**21
#: Number of observations from which torch's larger products are worth a call.
MANY = 100


class FewObservations:
    r"""The exact log evidence of few observations under a smooth stationary kernel.

    Squared differences of all pairs of inputs are kept, so that the kernel is one product. LAPACK
    returns lower triangles. So the derivatives are sums over these, with weights of two outside the
    diagonal.

    Args:
        profile: The profile of the kernel: RBF, or Matérn with ``nu`` 3/2 or 5/2.
        X: ``n x d`` inputs.
    """

    def __init__(self, profile: str | float, X: Array) -> None:
        self.profile, self.n = profile, len(X)
        columns = np.ascontiguousarray(X.T)
        self._each = np.square(columns[:, :, None] - columns[:, None]).reshape(-1, self.n**2)
        self._weights = 2 * np.tri(self.n) - np.eye(self.n)

    @classmethod
    def of(cls, profile: str | float, X: Tensor) -> FewObservations | None:
        r"""Return the evidence of few inputs, or None if they are many or the kernel is another.

        Args:
            profile: The profile of the kernel.
            X: ``n x d`` inputs, float64.
        """
        is_smooth = profile in (RBF, 1.5, 2.5)
        if not is_smooth or X.device.type != "cpu" or X.numel() * len(X) > MOST_DIFFERENCES:
            return None
        return cls(profile, X.numpy())

    def evidence(
        self, kernel: list[Array], residual: Array, noise: Array
    ) -> tuple[float, list[Array], Array, Array] | None:
        r"""Compute the log evidence and its derivatives.

        Args:
            kernel: Length-scales, then output scales.
            residual: ``n`` targets minus the prior mean.
            noise: ``n`` noise variances, or one for all.

        Returns:
            The value and its derivatives with respect to the arguments, or None if the covariance
            is not positive definite.
        """
        lengths, *scales = kernel
        squares = self._each if lengths.size == len(self._each) else self._common
        scale = math.prod(float(s) for s in scales)
        per_square = 1 / np.square(lengths.ravel())
        phi, psi = self._profile((-0.5 * per_square) @ squares)
        covariance = (scale * phi).reshape(self.n, self.n)
        covariance.flat[:: self.n + 1] += noise
        root, failed = dpotrf(covariance.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            return None
        a, _ = dpotrs(root, residual, lower=1)
        logdet = 2 * np.log(root.diagonal()).sum()
        value = -0.5 * (residual @ a + logdet + self.n * math.log(2 * math.pi))
        G = _slope(root, a)
        weighted = (G * self._weights).ravel()
        first = (squares @ (weighted * psi)) * (scale * per_square) / lengths.ravel()
        slopes = [first.reshape(lengths.shape)]
        if scales:
            total = scale * (weighted @ phi)
            slopes += [total / s for s in scales]
        return value, slopes, -a, G.diagonal()

    @cached_property
    def _common(self) -> Array:
        r"""The squared distances, for a common length-scale."""
        return self._each.sum(0, keepdims=True)

    def _profile(self, half: Array) -> tuple[Array, Array]:
        r"""Return ``phi`` and ``psi`` for ``half = -r^2 / 2`` (:mod:`botorch_bkb.closed_form`)."""
        if self.profile == RBF:
            value = _exp(half)
            return value, value
        assert isinstance(self.profile, float)
        q = np.sqrt(-4 * self.profile * half)
        decay = _exp(-q)
        slope = (1 + q) * decay
        if self.profile == 1.5:
            return slope, 3 * decay
        return slope + np.square(q) / 3 * decay, 5 / 3 * slope


def _exp(values: Array) -> Array:
    r"""Return the exponential, by torch if there are many values."""
    return np.exp(values) if len(values) < MANY**2 else torch.from_numpy(values).exp().numpy()


def _slope(root: Array, a: Array) -> Array:
    r"""Return ``(aa' - Sigma^{-1}) / 2``, whose lower triangle alone need be right."""
    if len(a) < MANY:
        inverse, _ = dpotri(root, lower=1, overwrite_c=1)
        return 0.5 * (np.outer(a, a) - inverse)
    inverse = torch.cholesky_inverse(torch.from_numpy(root)).mT  # symmetric, stored by columns
    vector = torch.from_numpy(a)
    return torch.addr(inverse, vector, vector, beta=-0.5, alpha=0.5).numpy()
