r"""The bounds for any dictionary, with their algebra checked on small dense problems."""

from __future__ import annotations

import math

import pytest
import torch

from botorch_bkb import confidence

NOISE = {"noise_var": 0.25, "noise_bound": 0.5, "norm_bound": 4.0, "delta": 0.1}


class Dense:
    r"""A function, noise and a dictionary in a space of 25 features, with repeated inputs."""

    def __init__(self, seed: int, num_points: int, noise: float, noise_var: float) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        U = normal(12, 25) * torch.linspace(1, 0.05, 25, dtype=torch.float64)
        rows = torch.randint(12, (40,), generator=generator)
        self.Phi, self.w, self.eta = U[rows], normal(25), noise * normal(40)
        self.noise_var, self.eye = noise_var, torch.eye(25, dtype=torch.float64)
        S = U[torch.randperm(12, generator=generator)[:num_points]]
        self.P = torch.linalg.pinv(S) @ S if num_points else 0 * self.eye
        self.norm = float(self.w.norm())
        counts = torch.bincount(rows, minlength=12).double()
        residual = (U @ (self.eye - self.P) * U).sum(-1).clamp_min(0)
        self.unexplained = counts * residual / noise_var
        self.y = self.Phi @ self.w + self.eta
        sums = torch.zeros(12, dtype=torch.float64).index_add(0, rows, self.y)
        seen = counts > 0
        half = counts[seen].sqrt()
        Q = half[:, None] * (U[seen] @ self.P @ U[seen].mT) * half
        means = half * (sums[seen] / counts[seen])
        shifted = Q + noise_var * torch.eye(len(Q), dtype=torch.float64)
        self.misfit = float(noise_var * means @ torch.linalg.solve(shifted, means))

    def gram(self, Phi: torch.Tensor) -> torch.Tensor:
        return Phi.mT @ Phi + self.noise_var * self.eye

    def log_determinant(self, Phi: torch.Tensor) -> float:
        return float(torch.logdet(self.gram(Phi) / self.noise_var))

    @property
    def error(self) -> float:
        V, Phi = self.gram(self.Phi @ self.P), self.Phi @ self.P
        gap = self.w - torch.linalg.solve(V, Phi.mT @ self.y)
        return math.sqrt(float(gap @ V @ gap))

    def mixture(self, centre: torch.Tensor) -> float:
        r"""Return what the supermartingale bounds by ``xi^2 L``, for a centre."""
        s = self.Phi.mT @ self.eta - self.noise_var * centre
        squared = s @ torch.linalg.solve(self.gram(self.Phi), s)
        return float(squared - self.noise_var * centre.square().sum())


CASES = [
    (seed, m, noise, noise_var)
    for seed in range(12)
    for m in (0, 1, 5, 12)
    for noise, noise_var in ((0.0, 1.0), (1.0, 0.1), (0.1, 1.0), (5.0, 3.0))
]


@pytest.mark.parametrize("case", CASES)
def test_the_measured_accuracy_bounds_what_the_dictionary_leaves_out(case):
    dense = Dense(*case)
    R = dense.Phi @ (dense.eye - dense.P) @ dense.Phi.mT
    largest = float(torch.linalg.eigvalsh(R)[-1])
    assert largest <= dense.noise_var * float(dense.unexplained.sum()) * (1 + 1e-9) + 1e-12
    gain = dense.log_determinant(dense.Phi @ dense.P) + float(dense.unexplained.log1p().sum())
    assert dense.log_determinant(dense.Phi) <= gain + 1e-9


@pytest.mark.parametrize("case", CASES)
def test_both_bounds_follow_from_their_supermartingales(case):
    # With noise_bound = 1 and delta = 2, L is the gain, here what the mixture has turned out to be.
    dense = Dense(*case)
    rho, bias = float(dense.unexplained.sum()), dense.noise_var * dense.norm**2
    first = math.sqrt(max(0.0, dense.mixture(0 * dense.w)))
    first += math.sqrt(bias * (1 + rho / 2 + math.sqrt(rho**2 / 4 + rho)))
    assert dense.error <= first * (1 + 1e-9)
    noise = dense.mixture(dense.w)
    assert noise + dense.misfit >= -1e-9  # it is the noise of the mean rewards, squared
    second = noise + bias * (1 + rho)
    second += 2 * math.sqrt(bias * rho) * math.sqrt(max(0.0, noise + dense.misfit))
    assert dense.error**2 <= second * (1 + 1e-9) + 1e-9


def test_without_a_residual_it_is_the_exact_bound_with_half_of_delta():
    got = confidence.anytime(5.0, unexplained=0.0, misfit=7.0, **NOISE)
    assert got == pytest.approx(confidence.anytime_exact(5.0, **{**NOISE, "delta": 0.05}))


@pytest.mark.parametrize("gain", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("norm", [0.0, 1.0, 50.0])
def test_the_exact_bound_is_tighter_than_the_sum_of_its_terms(gain, norm):
    args = {**NOISE, "norm_bound": norm}
    one, two = confidence.anytime_exact(gain, **args), confidence.exact(gain, **args)
    assert one <= two <= math.sqrt(2) * one * (1 + 1e-12)


def test_a_worse_dictionary_has_a_wider_bound():
    bounds = [
        confidence.anytime(5.0, unexplained=rho, misfit=3.0, **NOISE)
        for rho in (0.0, 1e-6, 0.1, 1.0, 10.0, 1e6)
    ]
    assert bounds == sorted(bounds) and len(set(bounds)) == len(bounds)
