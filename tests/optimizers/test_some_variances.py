r"""Noise variances that are known for some results only."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import BBKB, GPUCB
from botorch_bkb.models.loss import Loss
from botorch_bkb.models.replicates import ReplicatedDTCGP
from tests import naive
from tests.optimizers.inside import state_of
from tests.optimizers.support import Problem, kernel
from tests.problems import rbf, regression


@pytest.fixture
def problem():
    return Problem(num_arms=60)


def told(kind, problem, **options):
    r"""After 60 results, of which every other one has a variance, in three tells."""
    generator = torch.Generator().manual_seed(0)
    optimizer = kind(problem.arms, seed=0, **options)
    rows = torch.randint(40, (60,), generator=generator)
    v = 0.01 + 0.1 * torch.rand(60, generator=generator, dtype=torch.float64)
    y = problem.f[rows] + 0.3 * torch.randn(60, generator=generator, dtype=torch.float64)
    v[::2] = torch.nan
    for part in (slice(0, 11), slice(11, 30), slice(30, 60)):
        optimizer.tell(rows[part], y[part], v[part])
    return optimizer, rows, y, v


def test_known_variances_are_used_and_the_others_are_fitted(problem):
    optimizer, rows, y, v = told(GPUCB, problem, covar_module=kernel())
    hyper = state_of(optimizer).hyper
    units = hyper.units
    noise = torch.where(v.isnan(), hyper.noise_var, v * units.variance_to_model(1.0))
    K = rbf(problem.arms, problem.arms)
    mean, cov = naive.exact(K[rows][:, rows], K[:, rows], K, units.to_model(y), noise)
    torch.testing.assert_close(optimizer.table.mean(), mean, atol=1e-8, rtol=0)
    torch.testing.assert_close(optimizer.table.variance(), cov.diagonal(), atol=1e-8, rtol=0)


def test_the_noise_of_the_others_is_learnt_beside_precise_results(problem):
    generator = torch.Generator().manual_seed(1)
    rows = torch.arange(60).repeat(8)
    noise = torch.full((480,), 0.5, dtype=torch.float64)
    noise[:240] = 1e-3
    y = problem.f[rows] + noise * torch.randn(480, generator=generator, dtype=torch.float64)
    Yvar = torch.where(noise < 0.1, noise.square(), torch.nan)
    optimizer = BBKB(problem.arms, seed=0)
    optimizer.tell(rows, y, Yvar)
    hyper = state_of(optimizer).hyper
    assert math.sqrt(hyper.units.variance_to_rewards(hyper.noise_var)) == pytest.approx(
        0.5, rel=0.15
    )
    assert (optimizer.model.posterior(problem.arms).mean[:, 0] - problem.f).abs().max() < 0.01


def test_none_and_nan_are_the_same_and_the_order_of_tells_does_not_matter(problem):
    rows, y = torch.arange(6), problem.f[:6]
    some = [0.125, None, 0.25, None, None, 0.5]
    first, second, third = (BBKB(problem.arms, covar_module=kernel(), seed=0) for _ in range(3))
    first.tell(rows, y, some)
    second.tell(rows, y, torch.tensor([math.nan if v is None else v for v in some]).double())
    assert torch.equal(first.table.mean(), second.table.mean())
    third.tell([1, 3, 4], y[[1, 3, 4]])
    third.tell([0, 2, 5], y[[0, 2, 5]], [0.125, 0.25, 0.5])
    torch.testing.assert_close(
        third.history.weights / third.history.weights[1],
        first.history.weights / first.history.weights[1],
        rtol=1e-9,
        atol=0,
    )


def test_a_given_noise_variance_is_that_of_the_others(problem):
    optimizer = BBKB(problem.arms, covar_module=kernel(), noise_var=0.2, seed=0)
    optimizer.tell([0, 1, 1], [1.0, 2.0, 3.0], [0.1, None, 0.4])
    assert optimizer.history.weights.tolist() == [2.0, 1.5]


def test_a_saved_state_goes_on_bit_for_bit(problem):
    first = told(BBKB, problem)[0]
    second = BBKB(problem.arms, seed=0)
    second.load_state_dict(first.state_dict())
    for optimizer in (first, second):
        optimizer.tell([7, 8], [1.0, 2.0], [None, 0.5])
    assert torch.equal(first.table.mean(), second.table.mean())
    assert torch.equal(first.ask().X, second.ask().X)


def test_exchanging_the_arms_keeps_what_is_known(problem):
    optimizer, *_ = told(BBKB, problem)
    before = optimizer.table.mean()[:40]
    optimizer.set_arms(problem.arms[torch.randperm(60)])
    mean = optimizer.model.posterior(problem.arms[:40]).mean[:, 0]
    units = state_of(optimizer).hyper.units
    torch.testing.assert_close(units.to_model(mean), before, atol=1e-6, rtol=0)
    optimizer.tell([0], [1.0], [0.1])


def test_results_that_are_forgotten_must_all_be_known(problem):
    optimizer = BBKB(problem.arms, half_life=20.0, seed=0)
    with pytest.raises(InputDataError, match="for all results or for none where results are"):
        optimizer.tell([0, 1], [1.0, 2.0], [None, 0.1])
    assert optimizer.num_observations == 0


@pytest.mark.parametrize("dictionary", [None, torch.arange(6)])
def test_the_likelihood_is_that_of_all_pulls(dictionary):
    r"""And the analytic gradient is that of autograd."""
    X, y = regression(20)
    known = torch.where(torch.arange(20) < 8, 0.05 + torch.rand(20).double(), 0.0)
    counts = torch.randint(1, 4, (20,)).double()
    model = ReplicatedDTCGP(
        X, y.reshape(20, 1), counts, 0.7, known, covar_module=kernel(), outcome_transform=None,
        dictionary=torch.arange(20) if dictionary is None else dictionary,
    )  # fmt: skip
    model.likelihood.noise = 0.3
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    parameters = [p for p in mll.parameters() if p.requires_grad]
    ours = Loss()(mll)
    theirs = -mll(model(*model.train_inputs), model.train_targets)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-8)
    for a, b in zip(
        torch.autograd.grad(ours, parameters), torch.autograd.grad(theirs, parameters), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    S = torch.arange(20) if dictionary is None else dictionary
    K = rbf(X, X)
    Q = K[:, S] @ torch.linalg.solve(K[S][:, S] + 1e-12 * torch.eye(len(S)).double(), K[S])
    noise = torch.where(known > 0, known, 0.3 / counts)
    mean = model.mean_module.constant.detach()
    density = torch.distributions.MultivariateNormal(mean.expand(20), Q + torch.diag(noise))
    repeats = float((counts[8:] - 1).sum())
    within = -0.5 * (repeats * math.log(0.3) + 0.7 / 0.3)
    prior = sum(float(p.log_prob(c(m)).sum()) for _, m, p, c, _ in model.named_priors())
    expected = float(density.log_prob(model.train_targets)) + within + prior
    assert -20 * ours.item() == pytest.approx(expected, rel=1e-6)
