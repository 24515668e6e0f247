r"""Small tables of arms, and what they should say."""

from __future__ import annotations

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bkb.arms import ArmTable
from tests import naive
from tests.problems import rbf

NOISE = 0.2


def kernel(dtype=torch.float64):
    k = RBFKernel().to(dtype)
    k.lengthscale = torch.tensor(0.4, dtype=torch.float64)
    return k.requires_grad_(False)


def make(n=60, m=8, dtype=torch.float64):
    X = 2 * torch.rand(n, 2, dtype=torch.float64)
    table = ArmTable(X.to(dtype), kernel(dtype), NOISE, torch.arange(m))
    table.observe(torch.arange(m), torch.randn(m, dtype=torch.float64))
    return table


def dense_joint(table: ArmTable, more: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""The oracle's mean and joint covariance of all rows, pull by pull.

    Args:
        table: The table. Every row was pulled a whole number of times.
        more: Rows that are pulled once more each, with a reward of zero.
    """
    X, S = table.X.double(), table.X[table.dictionary].double()
    pulled = torch.nonzero(table.counts).squeeze(-1)
    rows = torch.repeat_interleave(pulled, table.counts[pulled].long())
    rewards = table.sums[rows] / table.counts[rows]
    if more is not None:
        rows = torch.cat([rows, more])
        rewards = torch.cat([rewards, torch.zeros(len(more), dtype=torch.float64)])
    noise = torch.full((len(rows),), NOISE, dtype=torch.float64)
    return naive.dtc(rbf(S, S), rbf(X[rows], S), rbf(X, S), rbf(X, X), rewards, noise)


def dense(table: ArmTable) -> tuple[Tensor, Tensor]:
    r"""The oracle's mean and variance at every row."""
    mean, cov = dense_joint(table)
    return mean, cov.diagonal()


def dense_residual(table: ArmTable) -> Tensor:
    r"""The prior variance of every row that the dictionary does not explain, by the oracle."""
    X, S = table.X.double(), table.X[table.dictionary].double()
    return 1 - (rbf(X, S) @ torch.linalg.inv(rbf(S, S)) * rbf(X, S)).sum(-1)


def conditioned(cov: Tensor, picks: list[int]) -> Tensor:
    r"""The variances of a joint distribution once picks are observed; they may repeat."""
    C = cov[picks][:, picks] + NOISE * torch.eye(len(picks), dtype=torch.float64)
    return (cov - cov[:, picks] @ torch.linalg.inv(C) @ cov[picks]).diagonal()


def assert_current(table: ArmTable, tolerance=1e-8):
    mean, variance = dense(table)
    torch.testing.assert_close(table.mean(), mean, atol=tolerance, rtol=0)
    torch.testing.assert_close(table.variance(), variance, atol=tolerance, rtol=0)
