r"""The papers' formulas, written densely and plainly: the oracle of the tests.

Nothing here is fast, cached or clever, and nothing is imported from the package.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor


def dtc(
    K_ss: Tensor,
    K_xs: Tensor,
    K_ts: Tensor,
    K_tt: Tensor,
    y: Tensor,
    noise: Tensor,
) -> tuple[Tensor, Tensor]:
    r"""DTC mean and joint covariance at test points, BKB eq. (4) with noise levels.

    ``z(x) = (K_ss^{1/2})^+ k_s(x)`` by an eigendecomposition, ``V = Z' Lam^{-1} Z + I`` and

    mean = z' V^{-1} Z' Lam^{-1} y
    cov  = k - z'z + z' V^{-1} z
    """
    values, vectors = torch.linalg.eigh(K_ss)
    cutoff = 1e-14 * values[..., -1:]
    scale = torch.where(values > cutoff, values, torch.inf).rsqrt()
    root = vectors * scale.unsqueeze(-2)
    Z, z = K_xs @ root, K_ts @ root
    weighted = Z / noise.unsqueeze(-1)
    V = weighted.mT @ Z + torch.eye(Z.shape[-1], dtype=Z.dtype)
    inverse = torch.linalg.inv(V)
    mean = z @ inverse @ weighted.mT @ y.unsqueeze(-1)
    return mean.squeeze(-1), K_tt - z @ z.mT + z @ inverse @ z.mT


def sor_variance(K_ss: Tensor, K_xs: Tensor, K_ts: Tensor, noise: Tensor) -> Tensor:
    r"""Subset-of-regressors variance: the DTC one with ``Q_tt`` in place of ``K_tt``."""
    Q_tt = K_ts @ torch.linalg.pinv(K_ss, hermitian=True) @ K_ts.mT
    zeros = torch.zeros_like(noise)
    return dtc(K_ss, K_xs, K_ts, Q_tt, zeros, noise)[1].diagonal(dim1=-2, dim2=-1)


def exact(K_xx: Tensor, K_tx: Tensor, K_tt: Tensor, y: Tensor, noise: Tensor):
    r"""Exact GP posterior mean and covariance."""
    inverse = torch.linalg.inv(K_xx + torch.diag_embed(noise))
    mean = K_tx @ inverse @ y.unsqueeze(-1)
    return mean.squeeze(-1), K_tt - K_tx @ inverse @ K_tx.mT


def condition(mean: Tensor, cov: Tensor, y_new: Tensor, noise: Tensor, q: int):
    r"""Condition a joint Gaussian over (rest, last ``q``) on the last ``q`` seen with noise."""
    n = cov.shape[-1] - q
    K = cov[..., n:, n:] + torch.diag_embed(noise)
    gain = cov[..., :n, n:] @ torch.linalg.inv(K)
    new_mean = mean[..., :n] + (gain @ (y_new - mean[..., n:]).unsqueeze(-1)).squeeze(-1)
    return new_mean, cov[..., :n, :n] - gain @ cov[..., n:, :n]


def log_marginal(covariance: Tensor, y: Tensor) -> Tensor:
    r"""Log density of ``N(0, covariance)``."""
    zero = torch.zeros_like(y)
    return torch.distributions.MultivariateNormal(zero, covariance).log_prob(y)


def information_threshold(K: Tensor, noise: Tensor, epsilon: float) -> list[int]:
    r"""Compressed GP, eq. 2.11-2.12: one point after another, entropies as printed."""
    kept: list[int] = []
    for i in range(K.shape[-1]):
        var = K[i, i]
        if kept:
            K_dd = K[kept][:, kept] + torch.diag(noise[kept])
            var = var - K[i, kept] @ torch.linalg.inv(K_dd) @ K[kept, i]
        entropy = 0.5 * torch.log(2 * torch.pi * torch.e * (noise[i] + var))
        if entropy > 0.5 * torch.log(2 * torch.pi * torch.e * noise[i]) + epsilon:
            kept.append(i)
    return kept


def pivoted_cholesky_law(K: Tensor, weights: Tensor, size: int) -> dict[tuple[int, ...], float]:
    r"""Randomly pivoted Cholesky: the probability of every set, summed over its orders.

    The next point is drawn in proportion to its weight times its Schur complement.
    """
    law: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(K)), size):
        probability = 1.0
        for step, i in enumerate(order):
            S = list(order[:step])
            left = K.diagonal() - (K[:, S] @ torch.linalg.pinv(K[S][:, S]) * K[:, S]).sum(-1)
            left[S] = 0.0
            share = weights * left.clamp_min(0)
            probability *= float(share[i] / share.sum())
        key = tuple(sorted(order))
        law[key] = law.get(key, 0.0) + probability
    return law


def batch(
    K_ss: Tensor,
    K_as: Tensor,
    prior: Tensor,
    counts: Tensor,
    mean: Tensor,
    noise: float,
    width: float,
    threshold: float,
    rule: str = "sum",
    K: Tensor | None = None,
) -> list[int]:
    r"""BBKB, Algorithm 1, L4-L10: one batch over all arms, everything computed at each pick.

    ``K_as`` are all arms against the dictionary, ``prior`` their ``k(x,x)``; ``counts`` the
    pulls so far. The rule of L5 uses scores (variances over noise), as the proofs do. With the
    kernel ``K`` of all arms the posterior is exact: every pick joins the dictionary. The rule
    ``"local"`` ends the batch when ``1 + sum_s c(x, x_s)^2 / tau(x)`` exceeds the threshold at
    some arm ``x``.
    """

    def scores(counts: Tensor) -> Tensor:
        rows = torch.repeat_interleave(torch.arange(len(counts)), counts.long())
        lam = torch.full((len(rows),), noise, dtype=K_as.dtype)
        if K is not None:
            full = K[rows][:, rows] + torch.diag(lam)
            return (prior - (K[:, rows] @ full.inverse() * K[:, rows]).sum(-1)) / noise
        zero = torch.zeros_like(lam)
        _, cov = dtc(K_ss, K_as[rows], K_as, torch.diag(prior), zero, lam)
        return cov.diagonal() / noise

    def covariances() -> Tensor:
        r"""What falls: the whole covariance, or what S explains and each arm's own residual."""
        rows = torch.repeat_interleave(torch.arange(len(counts)), counts.long())
        lam = torch.full((len(rows),), noise, dtype=K_as.dtype)
        zero = torch.zeros_like(lam)
        if K is not None:
            return exact(K[rows][:, rows], K[:, rows], K, zero, lam)[1] / noise
        Q = K_as @ torch.linalg.pinv(K_ss, hermitian=True) @ K_as.mT
        explained = dtc(K_ss, K_as[rows], K_as, Q, zero, lam)[1]
        return (explained + torch.diag(prior - Q.diagonal())) / noise

    start, picks = scores(counts), []
    c = covariances() if rule == "local" else None
    while True:
        upper = mean + width * (noise * scores(counts)).sqrt()
        picks.append(int(upper.argmax()))
        if rule == "one":
            return picks
        if rule == "hold":
            return picks * max(1, int((threshold**2 - 1) / start[picks[0]]))
        counts = counts.clone()
        counts[picks[-1]] += 1
        chosen = start[picks]
        if c is not None:
            if 1 + float((c[:, picks].square().sum(-1) / start).max()) > threshold:
                return picks
            continue
        if (1 + chosen.sum() if rule == "sum" else (1 + chosen).prod()) > threshold:
            return picks


class Run:
    r"""A whole run over arms with the information width, pull by pull."""

    def __init__(self, K: Tensor, noise: float, norm: float, delta: float, inflation: float):
        self.K, self.noise, self.norm, self.delta = K, noise, norm, delta
        self.inflation, self.log_sum = inflation, 0.0
        self.pulls: list[int] = []
        self.rewards: list[float] = []

    def moments(self, S: list[int]) -> tuple[Tensor, Tensor]:
        lam = torch.full((len(self.pulls),), self.noise, dtype=self.K.dtype)
        y = torch.tensor(self.rewards, dtype=self.K.dtype)
        K = self.K
        mean, cov = dtc(K[S][:, S], K[self.pulls][:, S], K[:, S], K, y, lam)
        return mean, cov.diagonal()

    def width(self) -> float:
        spread = self.inflation * self.log_sum + math.log(1 / self.delta)
        return (math.sqrt(self.noise * spread) + math.sqrt(self.noise) * self.norm) / math.sqrt(
            self.noise
        )

    def next_batch(
        self, S: list[int], threshold: float, rule: str, exact: bool = False
    ) -> list[int]:
        counts = torch.bincount(torch.tensor(self.pulls), minlength=len(self.K)).double()
        mean, var = self.moments(S)
        picks = batch(
            self.K[S][:, S], self.K[:, S], self.K.diagonal(), counts, mean, self.noise,
            self.width(), threshold, rule, self.K if exact else None,
        )  # fmt: skip
        self.log_sum += float(torch.log1p(var[picks] / self.noise).sum())
        return picks

    def observe(self, picks: list[int], rewards: list[float]) -> None:
        self.pulls += picks
        self.rewards += rewards


class CompressedRun:
    r"""Compressed GP bandits, Algorithm 1, over arms: one step after another.

    With ``discard=False`` all results inform the mean: DTC on the kept points.
    """

    def __init__(self, K: Tensor, noise: float, epsilon: float, delta: float, discard: bool):
        self.K, self.noise, self.epsilon, self.delta = K, noise, epsilon, delta
        self.discard, self.t = discard, 0
        self.kept: list[int] = []
        self.all: list[int] = []
        self.y_kept: list[float] = []
        self.y_all: list[float] = []

    def moments(self) -> tuple[Tensor, Tensor]:
        rows, y = (self.kept, self.y_kept) if self.discard else (self.all, self.y_all)
        K, rewards = self.K, torch.tensor(y, dtype=self.K.dtype)
        lam = torch.full((len(rows),), self.noise, dtype=K.dtype)
        if self.discard:
            mean, cov = exact(K[rows][:, rows], K[:, rows], K, rewards, lam)
        else:
            S = sorted(set(self.kept))
            mean, cov = dtc(K[S][:, S], K[rows][:, S], K[:, S], K, rewards, lam)
        return mean, cov.diagonal()

    def next_point(self, acquisition: str) -> tuple[int, bool]:
        r"""L2-L3: the argmax of the acquisition function, and whether it passes eq. 2.11."""
        mean, var = self.moments()
        sd = var.clamp_min(0).sqrt()
        t = self.t + 1
        if acquisition == "ucb":
            beta = 2 * math.log(len(self.K) * t**2 * math.pi**2 / (6 * self.delta))
            values = mean + math.sqrt(beta) * sd
        else:
            y = self.y_kept if self.discard else self.y_all
            incumbent = mean.max() if acquisition == "mpi" else max(y)
            z = (mean - incumbent) / sd
            # log(phi(z) + z Phi(z)), where the sum itself would cancel or underflow
            phi = -0.5 * z.square() - 0.5 * math.log(2 * math.pi)
            mills = math.sqrt(math.pi / 2) * torch.special.erfcx(-z / math.sqrt(2))
            values = sd.log() + phi + torch.log1p(z * mills)
        row = int(values.argmax())
        return row, self.informative(row, var)

    def informative(self, row: int, var: Tensor) -> bool:
        entropy = 0.5 * torch.log(2 * torch.pi * torch.e * (self.noise + var[row]))
        return bool(entropy > math.log(math.sqrt(2 * math.pi * math.e * self.noise)) + self.epsilon)

    def observe(self, row: int, reward: float) -> None:
        r"""Rows that pass the test, or all of them, enter the belief."""
        var = self.moments()[1] if self.all else self.K.diagonal()
        if self.informative(row, var):
            self.kept.append(row)
            self.y_kept.append(reward)
        self.all.append(row)
        self.y_all.append(reward)


class AdaRun:
    r"""Ada-BKB over a box, alone or in batches, every posterior computed from nothing.

    ``kernel(A, B)`` is a matrix. Cells are lists of numbers, children come after their parent.
    """

    def __init__(self, kernel, bounds: Tensor, noise: float, norm: float, children: int, depth):
        self.kernel, self.noise, self.norm = kernel, noise, norm
        self.children, self.max_depth = children, depth or 8 * bounds.shape[-1]
        self.lower, self.upper = [bounds[0].tolist()], [bounds[1].tolist()]
        self.parent, self.depth, self.leaf = [0], [0], [True]
        self.pruned: set[int] = set()
        self.X, self.y = bounds[:0], bounds[:0, 0]

    def centre(self, cell: int) -> Tensor:
        sides = zip(self.lower[cell], self.upper[cell], strict=True)
        return torch.tensor([[(a + b) / 2 for a, b in sides]], dtype=torch.float64)

    def metric(self, a: Tensor, b: Tensor) -> float:
        k = self.kernel
        return math.sqrt(max(0.0, float(k(a, a) + k(b, b) - 2 * k(a, b))))

    def varies(self, cell: int) -> float:
        r"""``V``: the norm times the distance to the farthest corner."""
        corner = torch.tensor([self.upper[cell]], dtype=torch.float64)
        return self.norm * self.metric(self.centre(cell), corner)

    def moments(self, S: Tensor, picks: list[Tensor]) -> tuple[list[float], list[float]]:
        r"""Of all cells: mean given the data, deviation as if the picks had been observed too."""
        k, x = self.kernel, torch.cat([self.centre(c) for c in range(len(self.leaf))])
        seen = torch.cat([self.X, *picks])

        def given(X: Tensor, y: Tensor):
            lam = torch.full((len(X),), self.noise, dtype=torch.float64)
            return dtc(k(S, S), k(X, S), k(x, S), k(x, x), y, lam)

        cov = given(seen, torch.zeros(len(seen), dtype=torch.float64))[1]
        mean = given(self.X, self.y)[0]
        return mean.tolist(), cov.diagonal().clamp_min(0).sqrt().tolist()

    def indices(self, S: Tensor, width: float, picks: list[Tensor]) -> list[float]:
        r"""``I`` of all cells."""
        mean, sd = self.moments(S, picks)
        upper = [m + width * s for m, s in zip(mean, sd, strict=True)]
        out = []
        for cell, parent in enumerate(self.parent):
            bound = upper[cell]
            if parent != cell:
                bound = min(bound, upper[parent] + self.varies(parent))
            out.append(bound + self.varies(cell))
        return out

    def split(self, cell: int) -> None:
        r"""Equal slices along the side that is longest for the kernel."""
        low, high, x = self.lower[cell], self.upper[cell], self.centre(cell)
        lengths = []
        for j in range(len(low)):
            a, b = x.clone(), x.clone()
            a[0, j], b[0, j] = low[j], high[j]
            lengths.append(self.metric(a, b))
        axis, N = lengths.index(max(lengths)), self.children
        self.leaf[cell] = False
        for i in range(N):
            side = high[axis] - low[axis]
            self.lower.append([*low[:axis], low[axis] + side * i / N, *low[axis + 1 :]])
            self.upper.append([*high[:axis], low[axis] + side * (i + 1) / N, *high[axis + 1 :]])
            self.parent.append(cell)
            self.depth.append(self.depth[cell] + 1)
            self.leaf.append(True)

    def largest_eigenvalue(self, S: Tensor, picks: list[Tensor]) -> float:
        r"""Of the covariance matrix of the picks over the noise."""
        k, x = self.kernel, torch.cat(picks)
        lam = torch.full((len(self.X),), self.noise, dtype=torch.float64)
        cov = dtc(k(S, S), k(self.X, S), k(x, S), k(x, x), self.y, lam)[1]
        return float(torch.linalg.eigvalsh(cov / self.noise)[-1])

    def next_batch(
        self, S: Tensor, width: float, threshold: float | None = None, rule: str = "sum"
    ) -> Tensor:
        r"""Picks until ``1 + sum tau > threshold``; a single one without a threshold.

        By the rule ``"local"`` the largest eigenvalue takes the place of the sum. Leaves whose
        index is below the best lower bound when the batch begins are pruned for good. If these are
        all, then bounds did not hold, and all leaves are looked at again.
        """
        best = max(mean - width * sd for mean, sd in zip(*self.moments(S, []), strict=True))
        leaves = [c for c, is_leaf in enumerate(self.leaf) if is_leaf]
        start = self.indices(S, width, [])
        above = [c for c in leaves if start[c] >= best]
        alive = [c for c in above if c not in self.pruned] or above or leaves
        self.pruned = set(leaves) - set(alive)
        picks: list[Tensor] = []
        spent = 1.0
        while True:
            index = self.indices(S, width, picks)
            cell = max(alive, key=index.__getitem__)
            small = width * self.moments(S, picks)[1][cell] <= self.varies(cell)
            if small and self.depth[cell] < self.max_depth:
                self.split(cell)
                alive.remove(cell)
                alive += range(len(self.leaf) - self.children, len(self.leaf))
                continue
            spent += self.moments(S, [])[1][cell] ** 2 / self.noise
            picks.append(self.centre(cell))
            if rule == "local":
                spent = 1 + self.largest_eigenvalue(S, picks)
            if threshold is None or spent > threshold:
                return torch.cat(picks)

    def observe(self, X: Tensor, y: Tensor) -> None:
        self.X, self.y = torch.cat([self.X, X]), torch.cat([self.y, y])


def quadrature_features(X: Tensor, m: int) -> Tensor:
    r"""Mutny and Krause's features of the RBF kernel with unit length-scale, ``n x 2 m^d``.

    One term of the grid after another, with the nodes of numpy for the weight ``exp(-t^2)``.
    """
    nodes, weights = np.polynomial.hermite.hermgauss(m)
    columns = []
    for grid in itertools.product(range(m), repeat=X.shape[-1]):
        omega = torch.tensor([math.sqrt(2) * nodes[i] for i in grid], dtype=torch.float64)
        weight = math.prod(weights[i] / math.sqrt(math.pi) for i in grid)
        for f in (torch.cos, torch.sin):
            columns.append(math.sqrt(weight) * f(X @ omega))
    return torch.stack(columns, -1)


def feature_regression(Phi: Tensor, phi: Tensor, y: Tensor, noise: Tensor):
    r"""Mean and covariance of a linear model: ``phi' V^{-1} Phi' Lam^{-1} y``, ``phi' V^{-1} phi``.

    ``V = Phi' Lam^{-1} Phi + I`` for noise levels ``Lam``.
    """
    weighted = Phi / noise.unsqueeze(-1)
    inverse = torch.linalg.inv(weighted.mT @ Phi + torch.eye(Phi.shape[-1], dtype=Phi.dtype))
    mean = phi @ inverse @ weighted.mT @ y.unsqueeze(-1)
    return mean.squeeze(-1), phi @ inverse @ phi.mT


class FeatureRun:
    r"""A run of UCB over arms with features ``phi``, every posterior computed from nothing."""

    def __init__(self, phi: Tensor, noise: float, width: float):
        self.phi, self.noise, self.width = phi, noise, width
        self.pulls: list[int] = []
        self.rewards: list[float] = []

    def moments(self, more: list[int] | None = None) -> tuple[Tensor, Tensor]:
        r"""Mean and variance of all arms; ``more`` pulls have a reward of zero."""
        rows = [*self.pulls, *(more or [])]
        y = torch.tensor(self.rewards + [0.0] * len(more or []), dtype=torch.float64)
        lam = torch.full((len(rows),), self.noise, dtype=torch.float64)
        mean, cov = feature_regression(self.phi[rows], self.phi, y, lam)
        return mean, cov.diagonal()

    def next_batch(self, threshold: float | None = None) -> list[int]:
        r"""Picks until ``1 + sum tau > threshold``; a single one without a threshold."""
        (mean, start), picks = self.moments(), []
        while True:
            var = self.moments(picks)[1]
            picks.append(int((mean + self.width * var.sqrt()).argmax()))
            if threshold is None or 1 + start[picks].sum() / self.noise > threshold:
                return picks

    def observe(self, picks: list[int], rewards: list[float]) -> None:
        self.pulls += picks
        self.rewards += rewards


class EliminationRun:
    r"""Batched pure exploration (Li and Scarlett, Algorithm 1), every posterior from nothing.

    Bounds of all batches hold together; an arm must be above the best lower bound of any of them.
    """

    def __init__(self, K: Tensor, noise: float, norm: float, xi: float, delta: float, batches: int):
        self.K, self.noise, self.norm, self.xi = K, noise, norm, xi
        self.delta, self.batches = delta, batches
        self.alive = list(range(len(K)))
        self.lower = [-math.inf] * len(K)
        self.upper = [math.inf] * len(K)

    def next_point(self, picks: list[int], distinct: bool) -> int:
        r"""The survivor of highest variance, given the picks of this batch alone.

        Where picks should be distinct it is one of those that were picked least.
        """
        lam = torch.full((len(picks),), self.noise, dtype=self.K.dtype)
        K = self.K
        _, cov = exact(K[picks][:, picks], K[:, picks], K, torch.zeros_like(lam), lam)
        least = min(picks.count(x) for x in self.alive)
        allowed = [x for x in self.alive if picks.count(x) == least or not distinct]
        return max(allowed, key=cov.diagonal().tolist().__getitem__)

    def width(self) -> float:
        n = len(self.alive) * self.batches
        noise = 2 * self.xi**2 / self.noise * math.log(2 * n / self.delta)
        return math.sqrt(self.norm**2 + noise)

    def eliminate(self, picks: list[int], rewards: list[float]) -> None:
        lam = torch.full((len(picks),), self.noise, dtype=self.K.dtype)
        y, K = torch.tensor(rewards, dtype=self.K.dtype), self.K
        mean, cov = exact(K[picks][:, picks], K[:, picks], K, y, lam)
        half = self.width() * cov.diagonal().clamp_min(0).sqrt()
        for x in self.alive:
            self.lower[x] = max(self.lower[x], float(mean[x] - half[x]))
            self.upper[x] = min(self.upper[x], float(mean[x] + half[x]))
        best = max(self.lower[x] for x in self.alive)
        self.alive = [x for x in self.alive if self.upper[x] >= best]


def plate(
    mean: Tensor,
    cov: Tensor,
    noise: float,
    width: float,
    n: int,
    first: int | None = None,
    left: Tensor | None = None,
) -> list[int]:
    r"""``n`` highest bounds, with the joint covariance of all arms conditioned on each pick.

    Args:
        mean: Posterior means of all arms.
        cov: Their joint posterior covariance, residual included.
        noise: ``lambda``.
        width: The width of the bounds.
        n: The number of picks.
        first: The first pick, where it is given.
        left: How often each arm may be picked; once by default.
    """
    cov, picks = cov.clone(), []
    left = torch.ones_like(mean) if left is None else left.clone()
    for _ in range(n):
        bounds = mean + width * cov.diagonal().clamp_min(0).sqrt()
        s = int(bounds.masked_fill(left <= 0, -math.inf).argmax())
        if first is not None and not picks:
            s = first
        picks.append(s)
        left[s] -= 1
        cov = cov - torch.outer(cov[:, s], cov[s]) / (cov[s, s] + noise)
    return picks
