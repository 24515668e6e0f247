r"""The low-rank prior that makes ``ExactMarginalLogLikelihood`` cost ``O(n m^2)``."""

from __future__ import annotations

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator.operators import (
    LinearOperator,
    LowRankRootAddedDiagLinearOperator,
    to_linear_operator,
)
from torch import Tensor

from botorch_bkb.belief import coordinates, dictionary_root, kernel_diagonal
from botorch_bkb.features import FeatureKernel
from botorch_bkb.models.evidence import KernelBlocks, LogEvidence


class EmbeddedRows(LinearOperator):
    r"""A linear operator for ``Z`` (``batch x n x m``) that embeds its rows on demand.

    Args:
        X: Inputs, ``batch x n x d``.
        points: Dictionary inputs, ``batch x m x d``.
        kernel: The covariance module.
        trace_term: Whether :meth:`log_evidence` includes Titsias' trace term.
    """

    def __init__(self, X: Tensor, points: Tensor, kernel: Kernel, trace_term: bool = False):
        super().__init__(X, points, kernel=kernel, trace_term=trace_term)
        self.X, self.points, self.kernel, self.trace_term = X, points, kernel, trace_term

    def _size(self) -> torch.Size:
        kernel, points = self.kernel, self.points
        batch = torch.broadcast_shapes(self.X.shape[:-2], kernel.batch_shape, points.shape[:-2])
        m = kernel.num_features if isinstance(kernel, FeatureKernel) else points.shape[-2]
        return torch.Size([*batch, self.X.shape[-2], m])

    def to_dense(self) -> Tensor:
        r"""Embed all rows at once, in the dtype of the inputs."""
        root = dictionary_root(self.kernel, self.points)
        Z = coordinates(self.kernel, self.X, self.points, root)
        return Z.to(self.X.dtype).expand(self.shape)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.to_dense() @ rhs

    def _transpose_nonbatch(self) -> LinearOperator:
        return to_linear_operator(self.to_dense().mT)

    def log_evidence(self, residual: Tensor, noise: Tensor) -> Tensor:
        r"""Compute the log density of ``residual ~ N(0, Z Z' + Lam)``, ``batch``.

        If ``trace_term`` is set, the trace term is subtracted.

        Args:
            residual: ``batch x n``.
            noise: ``batch x n``.
        """
        blocks = KernelBlocks.of(self.kernel)
        value = LogEvidence.apply(
            blocks, self.trace_term, self.X, self.points, residual, noise, *blocks.tensors
        )
        if not self.trace_term:
            return value
        return value - 0.5 * (kernel_diagonal(self.kernel, self.X) / noise).sum(-1)


class NystromPrior(MultivariateNormal):
    r"""The Nyström prior ``N(mean, Z Z')``, and ``N(mean, Z Z' + Lam)`` after a likelihood.

    Likelihoods keep the class of the distribution they add noise to. So the marginal likelihood
    calls this ``log_prob``. That of gpytorch would build the ``n x n`` covariance, because
    importing botorch switches gpytorch's fast log-probabilities off.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Compute the log density in ``O(n m^2)`` time, without ``n x n`` matrices."""
        covar = self.lazy_covariance_matrix
        if not isinstance(covar, LowRankRootAddedDiagLinearOperator):
            with settings.fast_computations(log_prob=True):
                return super().log_prob(value)
        noise = covar._diag_tensor.diagonal(dim1=-2, dim2=-1).double()
        residual = (value - self.loc).double()
        shape = torch.broadcast_shapes(residual.shape, covar.shape[:-1])
        rows = covar._linear_op.root
        return rows.log_evidence(residual.expand(shape), noise.expand(shape)).to(self.loc.dtype)
