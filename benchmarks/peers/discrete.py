r"""A bandit over a finite set of arms with BoTorch's own components."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete

from benchmarks.arm_runs import Setting
from benchmarks.problems.bandits import rbf


def play_stock(setting: Setting, limit: float, seed: int) -> Iterator[tuple[int, float]]:
    r"""Run ``SingleTaskGP`` with ``optimize_acqf_discrete``; yield the pulls and seconds so far."""
    bandit, generator = setting.bandit, torch.Generator().manual_seed(seed)
    X, Y = bandit.arms[:1], bandit.rewards(torch.tensor([0]), generator).unsqueeze(-1)
    kernel, seconds = rbf(setting.squared_width), 0.0
    while seconds < limit:
        start = time.perf_counter()
        Yvar = torch.full_like(Y, setting.noise_var)
        model = SingleTaskGP(X, Y, Yvar, covar_module=kernel, outcome_transform=None)
        model.mean_module.initialize(constant=0.0)
        ucb = UpperConfidenceBound(model, beta=setting.norm_bound**2)
        best, _ = optimize_acqf_discrete(ucb, q=1, choices=bandit.arms, max_batch_size=4096)
        seconds += time.perf_counter() - start
        row = (bandit.arms == best).all(-1).nonzero()[0]
        X = torch.cat([X, best])
        Y = torch.cat([Y, bandit.rewards(row, generator).unsqueeze(-1)])
        yield len(X), seconds
