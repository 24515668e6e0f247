r"""Means of repeated observations are worth as much as the observations themselves."""

from __future__ import annotations

import pytest
import torch
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP
from botorch_bkb.models.replicates import ReplicatedDTCGP
from tests.optimizers.support import kernel
from tests.problems import regression


def log_marginal(model):
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    n = len(model.train_targets)
    return n * mll(model(*model.train_inputs), model.train_targets)


@pytest.mark.parametrize("indices", [None, torch.arange(6)], ids=["exact", "sparse"])
def test_the_likelihood_of_means_is_that_of_all_pulls(indices):
    X, _ = regression(12)
    counts = torch.randint(1, 6, (12,))
    pulls = torch.repeat_interleave(torch.arange(12), counts)
    y = torch.sin(3 * X[pulls]).sum(-1) + 0.3 * torch.randn(len(pulls)).double()
    means = torch.stack([y[pulls == i].mean() for i in range(12)])
    deviations = float((y - means[pulls]).square().sum())
    first = torch.tensor([int((pulls == i).nonzero()[0]) for i in range(12)])
    options = {"outcome_transform": None}
    values = []
    for noise in (0.05, 0.2):
        dictionary = torch.arange(12) if indices is None else indices
        ours = ReplicatedDTCGP(
            X, means.unsqueeze(-1), counts.double(), deviations,
            covar_module=kernel(), dictionary=dictionary, **options,
        )  # fmt: skip
        plain = DTCGP(
            X[pulls], y.unsqueeze(-1), covar_module=kernel(), dictionary=first[dictionary],
            **options,
        )  # fmt: skip
        for model in (ours, plain):
            model.likelihood.noise = noise
        values.append(float(log_marginal(plain) - log_marginal(ours)))
    assert values[0] == pytest.approx(values[1], abs=1e-7)  # they differ by a constant
