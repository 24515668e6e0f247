r"""The low-rank prior that makes ``ExactMarginalLogLikelihood`` cost ``O(n m^2)``.

No ``n x m`` matrix is stored, because the evidence needs only sums over the data. The data are
embedded in blocks, and each block is embedded again in the backward pass.
"""

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
from torch.utils.checkpoint import checkpoint

from botorch_bkb.belief import chunks, coordinates, dictionary_root, kernel_diagonal
from botorch_bkb.linalg import information, log_evidence


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
        self.L = dictionary_root(kernel, points)

    def _size(self) -> torch.Size:
        batch = torch.broadcast_shapes(self.X.shape[:-2], self.L.shape[:-2])
        return torch.Size([*batch, self.X.shape[-2], self.L.shape[-1]])

    def _embed(self, X: Tensor) -> Tensor:
        return coordinates(self.kernel, X, self.points, self.L)

    def to_dense(self) -> Tensor:
        r"""Embed all rows at once, in the dtype of the inputs."""
        return self._embed(self.X).to(self.X.dtype).expand(self.shape)

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.to_dense() @ rhs

    def _transpose_nonbatch(self) -> LinearOperator:
        return to_linear_operator(self.to_dense().mT)

    def _statistics(self, X: Tensor, residual: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        Z = self._embed(X)
        sums = information(Z, residual, noise)
        if not self.trace_term:
            return sums
        unseen = kernel_diagonal(self.kernel, X) - Z.square().sum(-1)
        return *sums, (unseen / noise).sum(-1)

    def log_evidence(self, residual: Tensor, noise: Tensor) -> Tensor:
        r"""Compute the log density of ``residual ~ N(0, Z Z' + Lam)``.

        If ``trace_term`` is set, the trace term is subtracted.
        """
        total: tuple[Tensor, ...] | None = None
        for rows in chunks(self.X.shape[-2]):
            block = checkpoint(
                self._statistics,
                self.X[..., rows, :],
                residual[..., rows],
                noise[..., rows],
                use_reentrant=False,
                preserve_rng_state=False,
            )
            total = block if total is None else tuple(map(torch.add, total, block))
        assert total is not None  # there is at least one observation
        gram, rhs, *trace = total
        value = log_evidence(gram, rhs, residual, noise)
        return value - 0.5 * trace[0] if trace else value


class NystromPrior(MultivariateNormal):
    r"""The Nyström prior ``N(mean, Z Z')``, and ``N(mean, Z Z' + Lam)`` after a likelihood.

    Likelihoods keep the class of the distribution they add noise to. So the marginal likelihood
    calls this ``log_prob``. That of gpytorch would build the ``n x n`` covariance, because
    importing botorch switches gpytorch's fast log-probabilities off.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Compute the log density in ``O(n m^2)`` time and ``O(m^2)`` memory."""
        covar = self.lazy_covariance_matrix
        if not isinstance(covar, LowRankRootAddedDiagLinearOperator):
            with settings.fast_computations(log_prob=True):
                return super().log_prob(value)
        noise = covar._diag_tensor.diagonal(dim1=-2, dim2=-1).double()
        residual = (value - self.loc).double()
        evidence = covar._linear_op.root.log_evidence(residual, noise.expand(residual.shape))
        return evidence.to(self.loc.dtype)
