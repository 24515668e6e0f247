r"""``FeatureKernel``: a kernel with finitely many Fourier features, whose GP needs no dictionary.

A stationary kernel is the mean of cosines over its spectral density ``p`` (Bochner). A sum over
frequencies ``omega_i`` with weights ``w_i`` approximates it. With unit length-scales

.. code-block:: text

    k(x,x')  = s E_p cos(omega'(x - x'))  ~  k'(x,x') = s sum_i w_i cos(omega_i'(x - x'))
             = phi(x)'phi(x'),     phi(x) = sqrt(s w_i) (cos omega_i'x, sin omega_i'x)_i

The GP with the kernel ``k'`` is a linear model with the coordinates ``z(x) = phi(x)``. So the
algebra of the dictionary applies with ``L = I`` and without a residual ``k'(x,x) - |z(x)|^2``.

References:
    Rahimi, Recht: Random features for large-scale kernel machines. NeurIPS 2007.

    Mutny, Krause: Efficient high dimensional Bayesian optimization with additivity and quadrature
    Fourier features. NeurIPS 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor


class FeatureKernel(Kernel):
    r"""The kernel ``phi(x)'phi(x')`` of Fourier features of another kernel.

    The features follow the length-scales and the variance of that kernel, also while it is fitted.
    The frequencies for unit length-scales are fixed. They are not saved with the state.

    Args:
        base_kernel: A stationary kernel with length-scales, possibly in a ``ScaleKernel``.
        frequencies: ``F x d`` frequencies for unit length-scales, float64.
        weights: ``F`` positive weights, whose sum is about one, float64.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb.features import FeatureKernel, gauss_hermite
        >>> nodes, weights = gauss_hermite(20)
        >>> kernel = FeatureKernel(RBFKernel().double(), nodes.unsqueeze(-1), weights)
        >>> X = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        >>> torch.allclose(kernel(X).to_dense(), kernel.base_kernel(X).to_dense())
        True
        >>> kernel.features(X).shape
        torch.Size([5, 40])
    """

    is_stationary = True
    frequencies: Tensor
    weights: Tensor

    def __init__(self, base_kernel: Kernel, frequencies: Tensor, weights: Tensor) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        device = next(base_kernel.parameters()).device
        self.register_buffer("frequencies", frequencies.to(device), persistent=False)
        self.register_buffer("weights", weights.to(device), persistent=False)

    @property
    def num_features(self) -> int:
        r"""The number of features, a cosine and a sine for each frequency."""
        return 2 * len(self.weights)

    def with_base(self, base_kernel: Kernel) -> FeatureKernel:
        r"""Return the kernel with the same frequencies and another base kernel."""
        return FeatureKernel(base_kernel, self.frequencies, self.weights)

    def features(self, X: Tensor) -> Tensor:
        r"""Return ``phi`` of ``batch x n x d`` inputs, ``batch x n x num_features``, float64."""
        variance, X = stretched(self.base_kernel, X.double())
        phase = X @ self.frequencies.mT
        amplitude = (variance.unsqueeze(-1) * self.weights).sqrt().unsqueeze(-2)
        return torch.cat([phase.cos() * amplitude, phase.sin() * amplitude], -1)

    def variance(self, X: Tensor) -> Tensor:
        r"""Return ``k'(x,x)`` of ``batch x n x d`` inputs, ``batch x n``, float64."""
        variance, X = stretched(self.base_kernel, X.double())
        return (variance * self.weights.sum()).unsqueeze(-1) * torch.ones_like(X[..., 0])

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        r"""Return the kernel matrix, or its diagonal."""
        z1, z2 = self.features(x1), self.features(x2)
        return ((z1 * z2).sum(-1) if diag else z1 @ z2.mT).to(x1.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FeatureKernel:
        r"""Move the kernel; the frequencies change their device and are never rounded."""
        exact = self.frequencies, self.weights
        super()._apply(fn, recurse)
        device = self.frequencies.device
        self.frequencies, self.weights = (t.to(device) for t in exact)
        return self


def has_features(kernel: Kernel) -> bool:
    r"""Return whether inputs are embedded by a kernel's own features, without dictionary points."""
    return isinstance(kernel, FeatureKernel)


def approximated(kernel: Kernel) -> Kernel:
    r"""Return the kernel that features approximate; any other kernel is returned as it is."""
    return kernel.base_kernel if isinstance(kernel, FeatureKernel) else kernel


def stretched(kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the variance of a kernel (``batch``), and inputs in units of its length-scales.

    Args:
        kernel: A kernel with length-scales, possibly in a ``ScaleKernel``.
        X: ``batch x n x d`` inputs, float64.
    """
    if kernel.active_dims is not None:  # a ScaleKernel has those of its base kernel
        X = X.index_select(-1, kernel.active_dims)
    variance = X.new_ones(())
    while isinstance(kernel, ScaleKernel):
        variance, kernel = variance * kernel.outputscale.double(), kernel.base_kernel
    return variance, X / kernel.lengthscale.double()


def gauss_hermite(num_nodes: int) -> tuple[Tensor, Tensor]:
    r"""Return the nodes and weights of Gaussian quadrature for the standard normal density.

    The nodes are the eigenvalues of the Jacobi matrix of the Hermite polynomials. The weights are
    the squared first entries of its eigenvectors (Golub and Welsch 1969).

    Args:
        num_nodes: The number of nodes ``m``. Polynomials of degree ``2m - 1`` are integrated
            exactly.

    Example:
        >>> from botorch_bkb.features import gauss_hermite
        >>> nodes, weights = gauss_hermite(3)
        >>> round(float(weights @ nodes**4), 6)  # the fourth moment of a standard normal
        3.0
    """
    k = torch.arange(1, num_nodes, dtype=torch.float64, device="cpu")
    jacobi = torch.diag(k.sqrt(), 1) + torch.diag(k.sqrt(), -1)
    nodes, vectors = torch.linalg.eigh(jacobi if num_nodes > 1 else k.new_zeros(1, 1))
    weights = vectors[0].square()
    # Exactly symmetric, so that pairs of opposite nodes can be merged.
    return (nodes - nodes.flip(0)) / 2, (weights + weights.flip(0)) / 2
