r"""Bandit problems with a finite set of arms."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

FILES = {"abalone": "abalone.csv", "cadata": "cal_housing.data"}
OBTAIN = (
    "The tables are public: abalone.csv is abalone.data from the UCI repository, cal_housing.data "
    "is StatLib's California housing data, both without a header."
)


class Bandit(NamedTuple):
    r"""Arms with their expected rewards and the standard deviation of the noise."""

    arms: Tensor
    f: Tensor
    noise: float

    def rewards(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        r"""Return noisy rewards of the given arms."""
        eps = torch.randn(len(rows), generator=generator, dtype=torch.float64)
        return self.f[rows] + self.noise * eps

    def regret(self, rows: Tensor) -> Tensor:
        r"""Return the regret of each pull."""
        return self.f.max() - self.f[rows]


def load(name: str, folder: Path | None, noise: float, in_unit_cube: bool = False) -> Bandit:
    r"""Load a table of the BBKB paper as a bandit problem.

    Each row is an arm, and its label is the reward. The paper does not say how it scales features.

    Args:
        name: ``"abalone"`` (rings) or ``"cadata"`` (house value in 100,000).
        folder: Folder with the tables.
        noise: Standard deviation of the noise.
        in_unit_cube: Whether features are scaled to [0, 1]; otherwise they are standardised.
    """
    path = (folder or Path()) / FILES[name]
    if not path.exists():
        raise SystemExit(f"{path} is missing. {OBTAIN} Pass their folder: --data DIR.")
    with path.open() as file:
        rows = [row for row in csv.reader(file) if row]
    if name == "abalone":
        sexes = {sex: str(i) for i, sex in enumerate("MFI")}
        rows = [[sexes[row[0]], *row[1:]] for row in rows]
    table = torch.tensor([[float(v) for v in row] for row in rows], dtype=torch.float64)
    X, y = table[:, :8], table[:, 8] / (1.0 if name == "abalone" else 1e5)
    if in_unit_cube:
        low, high = X.aminmax(dim=0)
        return Bandit((X - low) / (high - low), y, noise)
    return Bandit((X - X.mean(0)) / X.std(0), y, noise)


def bumps(num_arms: int, dim: int, noise: float, seed: int) -> tuple[Bandit, float]:
    r"""Return the generated arms, and the norm of their function for :func:`rbf` of 0.25."""
    bandit = generated(num_arms, dim, noise, seed, torch.float64)
    generator = torch.Generator().manual_seed(seed)
    torch.rand(num_arms, dim, generator=generator, dtype=torch.float64)
    centres = torch.rand(10, dim, generator=generator, dtype=torch.float64)
    heights = torch.rand(10, generator=generator, dtype=torch.float64)
    K = torch.exp(-2 * torch.cdist(centres, centres) ** 2)
    return bandit, float((heights @ K @ heights).sqrt())


def generated(num_arms: int, dim: int, noise: float, seed: int, dtype: torch.dtype) -> Bandit:
    r"""Generate uniform arms in a cube, with a sum of ten bumps as the expected reward."""
    generator = torch.Generator().manual_seed(seed)
    arms = torch.rand(num_arms, dim, generator=generator, dtype=dtype)
    centres = torch.rand(10, dim, generator=generator, dtype=dtype)
    heights = torch.rand(10, generator=generator, dtype=dtype)
    f = torch.zeros(num_arms, dtype=torch.float64)
    for part, out in zip(arms.split(100_000), f.split(100_000), strict=True):
        out += torch.exp(-2 * torch.cdist(part, centres) ** 2).double() @ heights.double()
    return Bandit(arms, f, noise)


def rbf(squared_width: float, dtype: torch.dtype = torch.float64) -> RBFKernel:
    r"""Return the RBF kernel ``exp(-|x - x'|^2 / (2 w))`` with a fixed squared width ``w``."""
    kernel = RBFKernel().to(dtype)
    kernel.lengthscale = torch.tensor(squared_width, dtype=dtype).sqrt()
    return kernel.requires_grad_(False)
