r"""A plain transcription of BBKB's pseudo-code, which recomputes everything at every step.

It uses the information width and one coin per pull. Coins are kept between dictionaries, or drawn
anew for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.problems.bandits import Bandit


def play_bbkb(
    bandit: Bandit,
    *,
    squared_width: float,
    noise_var: float,
    norm_bound: float,
    delta: float,
    seed: int,
    oversampling: float = 2.0,
    threshold: float = 2.0,
    coupled: bool = True,
) -> Iterator[int]:
    r"""Run BBKB without end, and yield the arm of each pull (Algorithm 1, line by line)."""
    generator = torch.Generator().manual_seed(seed)
    arms, A = bandit.arms, len(bandit.arms)
    pulls: list[int] = []
    rewards: list[float] = []
    coins: list[float] = []
    log_sum = 0.0

    def kernel(X: Tensor, Y: Tensor) -> Tensor:
        return torch.exp(-(torch.cdist(X, Y) ** 2) / (2 * squared_width))

    def embed(S: list[int]) -> Tensor:
        root = torch.linalg.cholesky(kernel(arms[S], arms[S]) + 1e-10 * torch.eye(len(S)))
        return torch.linalg.solve_triangular(root, kernel(arms, arms[S]).mT, upper=False).mT

    def scores(Z: Tensor, pulls: list[int]) -> Tensor:
        counts = torch.bincount(torch.tensor(pulls), minlength=A).double()
        V = Z.mT @ (counts.unsqueeze(-1) * Z) + noise_var * torch.eye(Z.shape[-1])
        inner = torch.linalg.solve_triangular(torch.linalg.cholesky(V), Z.mT, upper=False)
        return (1 - Z.square().sum(-1)).clamp_min(0) / noise_var + inner.square().sum(0)

    def mean(Z: Tensor) -> Tensor:
        counts = torch.bincount(torch.tensor(pulls), minlength=A).double()
        sums = torch.zeros(A, dtype=torch.float64)
        sums.index_add_(0, torch.tensor(pulls), torch.tensor(rewards, dtype=torch.float64))
        V = Z.mT @ (counts.unsqueeze(-1) * Z) + noise_var * torch.eye(Z.shape[-1])
        return Z @ torch.linalg.solve(V, Z.mT @ sums)

    batch, S = [0], [0]
    tau_fb = torch.full((A,), 1 / noise_var, dtype=torch.float64)
    while True:
        yield from batch
        log_sum += float(torch.log1p(tau_fb[batch]).sum())
        pulls += batch
        rewards += bandit.rewards(torch.tensor(batch), generator).tolist()
        fresh = len(batch) if coupled else len(pulls)
        coins = (coins if coupled else []) + torch.rand(fresh, generator=generator).tolist()
        S = sorted({p for p, u in zip(pulls, coins, strict=True) if u < oversampling * tau_fb[p]})
        S = S or [pulls[-1]]
        Z = embed(S)
        spread = bandit.noise * math.sqrt(threshold * log_sum + math.log(1 / delta))
        width = spread + math.sqrt(noise_var) * norm_bound
        tau_fb, batch = scores(Z, pulls), []
        while 1 + float(tau_fb[batch].sum()) <= threshold:
            Z = embed(S)
            upper = mean(Z) + width * scores(Z, pulls + batch).sqrt()
            batch.append(int(upper.argmax()))
