r"""The low-rank prior that makes ``ExactMarginalLogLikelihood`` cost ``O(n m^2)``."""

from __future__ import annotations

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator.operators import LowRankRootAddedDiagLinearOperator
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from botorch_bkb.belief import chunks, dictionary_root, kernel_matrix
from botorch_bkb.linalg import log_evidence, solve_rows


class NystromPrior(MultivariateNormal):
    r"""``N(mean, Z Z')``, and after a likelihood ``N(mean, Z Z' + Lam)``.

    Likelihoods keep the class of the distribution they add noise to, so the marginal
    likelihood ends in this ``log_prob``. The stock one would build the ``n x n`` covariance:
    importing botorch switches gpytorch's fast log-probabilities off.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        r"""Log density in ``O(n m^2)``, by :func:`botorch_bkb.linalg.log_evidence`."""
        covar = self.lazy_covariance_matrix
        if not isinstance(covar, LowRankRootAddedDiagLinearOperator):
            with settings.fast_computations(log_prob=True):
                return super().log_prob(value)
        Z = covar._linear_op.root.to_dense().double()
        noise = covar._diag_tensor.diagonal(dim1=-2, dim2=-1).double()
        residual = (value - self.loc).double()
        return log_evidence(Z, residual, noise).to(self.loc.dtype)


def embed_with_gradient(kernel: Kernel, points: Tensor, X: Tensor) -> Tensor:
    r"""``Z`` (``batch x n x m``), differentiable in the hyperparameters and the inputs.

    The kernel is evaluated in blocks that are recomputed in the backward pass, so that the
    graph holds ``Z`` and not the half dozen ``n x m`` intermediates of a kernel.
    """
    root = dictionary_root(kernel, points)

    def block(rows: Tensor) -> Tensor:
        return solve_rows(root, kernel_matrix(kernel, rows, points))

    parts = [
        checkpoint(block, X[..., rows, :], use_reentrant=False, preserve_rng_state=False)
        if torch.is_grad_enabled()
        else block(X[..., rows, :])
        for rows in chunks(X.shape[-2])
    ]
    return torch.cat(parts, -2).to(X.dtype)
