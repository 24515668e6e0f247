r"""Small problems for which the theorems' assumptions hold, and dense formulas."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from benchmarks.problems.bandits import rbf

LENGTHSCALE, DELTA, NORM = 0.4, 0.1, 2.0


class Arms:
    r"""Arms in a cube, and a function observed with Gaussian noise of the model's variance.

    Args:
        seed: Seed of arms, function and noise.
        noise_var: Noise variance ``lambda``.
        from_prior: Whether the function is a draw from the prior (the compressed GP paper), or one
            of known norm (the other papers).
        num_arms: Number of arms.
        dim: Dimension of the arms.
    """

    def __init__(
        self,
        seed: int,
        noise_var: float,
        from_prior: bool = False,
        num_arms: int = 60,
        dim: int = 2,
    ) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.noise_var = noise_var
        self.arms = 2 * self._rand(num_arms, dim)
        self.kernel = rbf(LENGTHSCALE**2)
        self.K = self.covariance(self.arms)
        self.f = self._prior() if from_prior else self._of_known_norm()

    def _rand(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def _randn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def covariance(self, X: Tensor, Z: Tensor | None = None) -> Tensor:
        r"""Return the kernel matrix."""
        return self.kernel(X, X if Z is None else Z).to_dense().detach()

    def _prior(self) -> Tensor:
        jitter = 1e-9 * torch.eye(len(self.arms), dtype=torch.float64)
        return torch.linalg.cholesky(self.K + jitter) @ self._randn(len(self.arms))

    def _of_known_norm(self) -> Tensor:
        centres, weights = 2 * self._rand(6, self.arms.shape[-1]), self._randn(6)
        square = weights @ self.covariance(centres) @ weights
        return NORM / square.sqrt() * (self.covariance(self.arms, centres) @ weights)

    def rewards(self, rows: Tensor) -> Tensor:
        r"""Return noisy rewards of the given arms."""
        return self.f[rows] + math.sqrt(self.noise_var) * self._randn(len(rows))

    def regret(self, rows: Tensor) -> float:
        r"""Return the cumulative regret of the given pulls."""
        return float((self.f.max() - self.f[rows]).sum())

    @property
    def model(self) -> dict[str, Any]:
        r"""The kernel and noise variance, as arguments of an optimizer."""
        return {"covar_module": self.kernel, "noise_var": self.noise_var}

    @property
    def bounds(self) -> dict[str, float]:
        r"""What the regret of BKB and BBKB depends on."""
        return {
            "noise_var": self.noise_var, "noise_bound": math.sqrt(self.noise_var),
            "norm_bound": NORM, "delta": DELTA,
        }  # fmt: skip

    def scores(self, rows: Tensor) -> Tensor:
        r"""Return the exact scores ``var / lambda`` of all arms after the given pulls."""
        variance = self.K.diagonal()
        if len(rows):
            noise = self.noise_var * torch.eye(len(rows), dtype=torch.float64)
            root = torch.linalg.cholesky(self.K[rows][:, rows] + noise)
            half = torch.linalg.solve_triangular(root, self.K[rows], upper=False)
            variance = variance - half.square().sum(0)
        return variance / self.noise_var

    def posterior(self, rows: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return the exact posterior means and standard deviations of all arms."""
        noise = self.noise_var * torch.eye(len(rows), dtype=torch.float64)
        root = torch.linalg.cholesky(self.K[rows][:, rows] + noise)
        mean = self.K[:, rows] @ torch.cholesky_solve(rewards.unsqueeze(-1), root).squeeze(-1)
        return mean, (self.scores(rows) * self.noise_var).sqrt()

    def spectrum(self, rows: Tensor) -> Tensor:
        r"""Return the eigenvalues of ``K / lambda`` of the given pulls."""
        return torch.linalg.eigvalsh(self.K[rows][:, rows]).clamp_min(0) / self.noise_var

    def dimension(self, rows: Tensor) -> float:
        r"""Return the effective dimension of the given pulls."""
        values = self.spectrum(rows)
        return float((values / (1 + values)).sum())

    def information_gain(self, rows: Tensor) -> float:
        r"""Return the information gain of the given pulls in nats."""
        return float(torch.log1p(self.spectrum(rows)).sum()) / 2
