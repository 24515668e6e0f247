from __future__ import annotations

import itertools

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import BBKB, DTCGP, GPUCB
from botorch_bkb.models.replicates import ReplicatedDTCGP
from botorch_bkb.optimizers.hyperparameters import Tuning
from tests.optimizers.support import Problem, kernel, play
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_hyperparameters_are_fitted_when_observations_have_grown_by_a_quarter(monkeypatch, dtype):
    problem, fits, plain = Problem(num_arms=200, noise=0.04), [], Tuning.fit

    def counted(self, X, history, *args):
        fits.append(history.num_observations)
        return plain(self, X, history, *args)

    monkeypatch.setattr(Tuning, "fit", counted)
    optimizer = BBKB(problem.arms.to(dtype), seed=0)
    for _ in play(optimizer, problem, 150):
        pass
    assert 2 * (problem.arms.shape[-1] + 1) <= fits[0] < 12
    grown = [later / earlier for earlier, later in itertools.pairwise(fits)]
    assert len(fits) > 5 and min(grown) >= 1.25
    hyper = optimizer._state.hyper
    assert 0.3 < hyper.noise_var * hyper.scale**2 / 0.04 < 3
    assert problem.f.max() - problem.f[optimizer.best().index] < 0.3
    assert optimizer.width_now == 2.0
    assert hyper.kernel.lengthscale.dtype == dtype


def test_what_is_given_stays_fixed_unless_refit():
    problem = Problem()
    rows = torch.arange(60).repeat(3)
    rewards = problem.rewards(rows)
    fixed = BBKB(problem.arms, covar_module=kernel(1.3), seed=0)  # the noise is fitted
    known = BBKB(problem.arms, noise_var=0.1, seed=0)  # the kernel is fitted
    both = BBKB(problem.arms, covar_module=kernel(1.3), noise_var=3.0, refit=True, seed=0)
    never = BBKB(problem.arms, refit=False, seed=0)
    for optimizer in (fixed, known, both, never):
        optimizer.tell(rows, rewards)
    assert fixed._state.hyper.kernel.lengthscale.item() == pytest.approx(1.3)
    assert known._state.hyper.noise_var * known._state.hyper.scale**2 == pytest.approx(0.1)
    assert both._state.hyper.kernel.lengthscale.item() < 1.0
    assert both._state.hyper.noise_var * both._state.hyper.scale**2 < 1.0
    initial = never.tuning.initial
    assert torch.equal(never._state.hyper.kernel.lengthscale, initial.kernel.lengthscale)
    assert never._state.hyper.noise_var == initial.noise_var
    assert never._state.hyper.scale != 1.0


def test_results_do_not_depend_on_the_units():
    picks = []
    for offset, scale in [(0.0, 1.0), (1e6, 1e3), (-5.0, 1e-4)]:
        problem = Problem()
        optimizer = GPUCB(scale * problem.arms + 7, seed=0)
        chosen = []
        for _ in range(30):
            suggestion = optimizer.ask()
            rewards = offset + scale * problem.rewards(suggestion.indices)
            optimizer.tell(suggestion, rewards)
            chosen += suggestion.indices.tolist()
        picks.append(chosen)
        assert abs((optimizer.best().mean - offset) / scale) < 10
    same = [sum(a == b for a, b in zip(picks[0], other, strict=True)) for other in picks[1:]]
    assert min(same) >= 20  # rounding moves a fit a little, and with it a pick


def test_the_model_of_fitted_hyperparameters_is_the_belief():
    problem = Problem()
    optimizer = BBKB(100 * problem.arms, seed=0)
    rows = torch.arange(60).repeat(2)
    optimizer.tell(rows, 1000 + 50 * problem.rewards(rows))
    for _ in range(3):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, 1000 + 50 * problem.rewards(suggestion.indices))
    posterior = optimizer.model.posterior(100 * problem.arms)
    mean, var = optimizer._table().moments()
    hyper = optimizer._state.hyper
    torch.testing.assert_close(
        posterior.mean.squeeze(-1), hyper.to_rewards(mean), atol=1e-6, rtol=1e-7
    )
    torch.testing.assert_close(
        posterior.variance.squeeze(-1), hyper.scale**2 * var, atol=1e-6, rtol=1e-5
    )


def test_known_noise_levels_replace_the_fitted_noise():
    problem = Problem()
    optimizer = BBKB(problem.arms, seed=0)
    rows = torch.arange(60)
    optimizer.tell(rows, problem.rewards(rows), Yvar=torch.full((60,), 0.1))
    hyper = optimizer._state.hyper
    assert hyper.noise_var * hyper.scale**2 == pytest.approx(0.1)
    few = BBKB(problem.arms, seed=0)
    few.gap()  # makes a table with the noise of the prior
    few.tell(rows[:3], problem.rewards(rows[:3]), Yvar=torch.full((3,), 0.1))
    assert few._table().noise_var == few._state.hyper.noise_var
    late = BBKB(problem.arms, seed=0)
    late.tell([0], [1.0])
    with pytest.raises(InputDataError, match="from the first results on"):
        late.tell([1], [1.0], Yvar=[0.1])
    assert late.num_observations == 1


def test_noise_is_in_units_of_the_rewards_always():
    A = torch.linspace(0, 10, 50, dtype=torch.float64).unsqueeze(-1)
    given = {"covar_module": kernel(), "seed": 0}
    never = GPUCB(A, refit=False, **given)
    never.tell([1, 2], [0.0, 100.0], [4.0, 4.0])
    never.tell([30], [300.0], [4.0])
    assert never.model.likelihood.noise.tolist() == pytest.approx([4.0] * 3)
    refit = GPUCB(A, noise_var=4.0, refit=True, **given)
    refit.tell([1, 20, 40], [0.0, 100.0, 300.0])
    assert refit.model.likelihood.noise.tolist() == pytest.approx([4.0] * 3)


def test_a_failed_fit_keeps_the_earlier_hyperparameters(monkeypatch):
    from botorch.exceptions.errors import ModelFittingError

    from botorch_bkb.optimizers import hyperparameters

    def fails(*args, **kwargs):
        raise ModelFittingError("no luck")

    monkeypatch.setattr(hyperparameters, "fit_gpytorch_mll", fails)
    problem = Problem()
    optimizer = BBKB(problem.arms, seed=0)
    rows = torch.arange(20)
    with pytest.warns(match="could not be fitted"):
        optimizer.tell(rows, problem.rewards(rows))
    assert optimizer.num_observations == 20
    assert optimizer.ask() is not None
