from __future__ import annotations

import itertools

import pytest
import torch
from botorch.exceptions.errors import ModelFittingError

from botorch_bkb import BBKB, BKB, GPUCB
from botorch_bkb.models import Surrogate
from tests.optimizers.inside import hyper_of
from tests.optimizers.support import Problem, kernel, play


def noise_in_rewards(optimizer):
    hyper = hyper_of(optimizer)
    return hyper.units.variance_to_rewards(hyper.noise_var)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_hyperparameters_are_fitted_when_they_are_due(monkeypatch, dtype):
    problem, fits, plain = Problem(num_arms=200, noise=0.04), [], Surrogate.fit

    def counted(self, X, history, *args, **start):
        fits.append(history.num_observations)
        return plain(self, X, history, *args, **start)

    monkeypatch.setattr(Surrogate, "fit", counted)
    optimizer = BBKB(problem.arms.to(dtype), seed=0)
    for _ in play(optimizer, problem, 150):
        pass
    assert 2 * (problem.arms.shape[-1] + 1) <= fits[0] < 12
    next_fit = Surrogate().next_fit
    assert len(fits) > 5
    assert all(now >= next_fit(last, 200) for last, now in itertools.pairwise(fits))
    assert 0.3 < noise_in_rewards(optimizer) / 0.04 < 3
    assert problem.f.max() - problem.f[optimizer.best().index] < 0.3
    assert optimizer.width_now == 2.0
    assert hyper_of(optimizer).kernel.lengthscale.dtype == dtype


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
    assert hyper_of(fixed).kernel.lengthscale.item() == pytest.approx(1.3)
    assert noise_in_rewards(known) == pytest.approx(0.1)
    assert hyper_of(both).kernel.lengthscale.item() < 1.0
    assert noise_in_rewards(both) < 1.0
    initial, hyper = never.parts.model.initial(problem.arms), hyper_of(never)
    assert torch.equal(hyper.kernel.lengthscale, initial.kernel.lengthscale)
    assert hyper.noise_var == initial.noise_var
    assert hyper.units.scale != 1.0


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
    mean, var = optimizer.table.moments()
    units = hyper_of(optimizer).units
    mean, var = units.to_rewards(mean), units.variance_to_rewards(var)
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-6, rtol=1e-7)
    torch.testing.assert_close(posterior.variance.squeeze(-1), var, atol=1e-6, rtol=1e-5)


def test_known_noise_levels_replace_the_fitted_noise():
    problem = Problem()
    optimizer = BBKB(problem.arms, seed=0)
    rows = torch.arange(60)
    optimizer.tell(rows, problem.rewards(rows), Yvar=torch.full((60,), 0.1))
    assert noise_in_rewards(optimizer) == pytest.approx(0.1)
    few = BBKB(problem.arms, seed=0)
    few.gap()  # makes a table with the noise of the prior
    few.tell(rows[:3], problem.rewards(rows[:3]), Yvar=torch.full((3,), 0.1))
    assert few.table.noise_var == hyper_of(few).noise_var
    late = BBKB(problem.arms, seed=0)
    late.tell([0], [1.0])
    late.tell([1], [1.0], Yvar=[0.1])
    assert late.num_observations == 2 and not late.noise_is_known


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
    def fails(*args, **kwargs):
        raise ModelFittingError("no luck")

    monkeypatch.setattr("botorch_bkb.models.fitting.DirectFit.of", lambda *_: None)
    monkeypatch.setattr("botorch_bkb.models.fitting.fit", fails)
    problem = Problem()
    optimizer = BBKB(problem.arms, seed=0)
    rows = torch.arange(20)
    with pytest.warns(match="could not be fitted"):
        optimizer.tell(rows, problem.rewards(rows))
    assert optimizer.num_observations == 20
    assert optimizer.ask() is not None


def test_a_fit_that_begins_with_half_of_its_dictionary_is_as_good(monkeypatch):
    monkeypatch.setattr("botorch_bkb.optimizers.updating.MOST_FITTED", 60)
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(300, 2, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(300, generator=generator, dtype=torch.float64)

    def fitted():
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        optimizer = BKB(bounds=bounds, seed=0)
        optimizer.tell(X, torch.sin(5 * X).sum(-1) + noise)
        return hyper_of(optimizer)

    plain = fitted()
    monkeypatch.setattr("botorch_bkb.models.fitting.LARGE", 100)
    begun = fitted()
    assert begun.noise_var != plain.noise_var  # it ends elsewhere, a nat away at most
    assert begun.noise_var == pytest.approx(plain.noise_var, rel=0.1)
    torch.testing.assert_close(begun.kernel.lengthscale, plain.kernel.lengthscale, atol=0, rtol=0.3)
