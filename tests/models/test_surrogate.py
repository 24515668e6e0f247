r"""``Surrogate``, and the hyperparameters and histories it works with, without an optimizer."""

from __future__ import annotations

import itertools
import math
import warnings
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from botorch.exceptions.errors import InputDataError, ModelFittingError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import AdditiveKernel, RBFKernel, ScaleKernel
from hypothesis import given
from hypothesis import strategies as st
from linear_operator.utils.errors import NotPSDError

from botorch_bkb.models import Surrogate
from botorch_bkb.models.fitting import DirectFit
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import (
    Hyperparameters,
    reward_model,
    standardised_model,
)
from botorch_bkb.models.log_posterior import LogPosterior
from botorch_bkb.units import RewardUnits, UnitCube
from tests import naive
from tests.problems import rbf, regression

CPU = torch.device("cpu")
TRAITS = ["is_given", "fits", "standardises", "fits_kernel", "fits_noise", "noise_is_fixed"]


def kernel(lengthscale=0.4, **options):
    k = RBFKernel(**options).double()
    k.lengthscale = torch.as_tensor(lengthscale, dtype=torch.float64)
    return k


def history_of(rows, rewards, weights=None):
    weights = torch.ones(len(rows)).double() if weights is None else weights
    return History.empty(CPU).with_pulls(rows, rewards, weights)


def sines(n=15, noise=0.2, repeats=6):
    r"""Distinct inputs and a history of repeated, noisy pulls of them."""
    X, _ = regression(n)
    rows = torch.arange(n).repeat(repeats)
    rewards = torch.sin(4 * X[rows]).sum(-1) + noise * torch.randn(len(rows)).double()
    return X, history_of(rows, 100 + 7 * rewards)


def watching(calls: list, function):
    def watched(*args, **kwargs):
        calls.append(kwargs)
        return function(*args, **kwargs)

    return watched


def kernel_like(kernel, lengthscale: float):
    changed = deepcopy(kernel)
    changed.lengthscale = lengthscale
    return changed


class TestSurrogate:
    @pytest.mark.parametrize(
        ("has_kernel", "noise", "refit", "expected"),
        [
            (False, None, None, "fits standardises fits_kernel fits_noise"),
            (True, None, None, "fits standardises fits_noise"),
            (False, 0.1, None, "fits standardises fits_kernel noise_is_fixed"),
            (True, 0.1, None, "is_given noise_is_fixed"),
            (True, 0.1, False, "is_given noise_is_fixed"),
            (True, 0.1, True, "is_given fits standardises fits_kernel fits_noise"),
            (False, 0.1, True, "fits standardises fits_kernel fits_noise"),
            (False, None, False, "standardises"),
        ],
    )
    def test_what_is_fitted_and_what_stays(self, has_kernel, noise, refit, expected):
        surrogate = Surrogate(kernel() if has_kernel else None, noise, refit)
        assert [name for name in TRAITS if getattr(surrogate, name)] == expected.split()

    @pytest.mark.parametrize("noise", [0.0, -1.0, math.inf, math.nan])
    def test_noise_that_is_not_positive_is_refused(self, noise):
        with pytest.raises(InputDataError, match="noise_var must be positive"):
            Surrogate(noise_var=noise)

    @pytest.mark.parametrize("covar_module", ["rbf", RBFKernel, rbf])
    def test_what_is_no_kernel_is_refused(self, covar_module):
        with pytest.raises(InputDataError, match="gpytorch kernel"):
            Surrogate(covar_module)

    def test_later_changes_of_the_kernel_change_nothing(self):
        mine = kernel(0.4)
        surrogate = Surrogate(mine, 0.1)
        mine.lengthscale = 5.0
        initial = surrogate.initial(torch.zeros(1, 2).double())
        assert initial.kernel.lengthscale.item() == pytest.approx(0.4)
        initial.kernel.lengthscale = 5.0
        assert surrogate.covar_module.lengthscale.item() == pytest.approx(0.4)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("has_kernel", [True, False])
    def test_initial_hyperparameters(self, has_kernel, dtype):
        surrogate = Surrogate(kernel() if has_kernel else None, 0.3)
        initial = surrogate.initial(torch.zeros(2, 3, dtype=dtype))
        lengthscale = initial.kernel.lengthscale
        assert lengthscale.shape == ((1, 1) if has_kernel else (1, 3))
        assert lengthscale.dtype == dtype and not lengthscale.requires_grad
        assert not initial.kernel.training
        assert initial.noise_var == 0.3 and initial.units == RewardUnits()
        assert 0 < Surrogate().initial(torch.zeros(2, 3)).noise_var < 1

    def test_only_the_default_kernel_sees_inputs_of_the_unit_cube(self):
        extent = torch.tensor([[0.0, 5.0], [1.0, 9.0], [0.5, 1.0]]).double()
        assert Surrogate(kernel(), 0.1).input_scale(extent) is None
        scale = Surrogate().input_scale(extent)
        assert scale.bounds.tolist() == [[0.0, 1.0], [1.0, 9.0]]

    @pytest.mark.parametrize(
        ("make", "warns"),
        [
            (kernel, True),
            (lambda: ScaleKernel(kernel()), True),
            (lambda: kernel(ard_num_dims=2), False),
            (lambda: kernel(active_dims=[0]), False),
            (lambda: AdditiveKernel(kernel(active_dims=[0]), kernel(active_dims=[1])), False),
        ],
        ids=["shared", "scaled", "ard", "one", "each"],
    )
    @pytest.mark.parametrize("ratio", [999.0, 1001.0])
    def test_one_lengthscale_for_very_different_ranges_is_warned_of(self, make, warns, ratio):
        extent = torch.tensor([[0.0, 0.0], [1.0, ratio]]).double()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Surrogate(make(), 0.1).input_scale(extent)
        found = [w for w in caught if issubclass(w.category, InputDataWarning)]
        assert len(found) == (warns and ratio > 1000)
        assert all("ard_num_dims" in str(w.message) for w in found)

    def test_fits_are_as_frequent_as_they_are_cheap(self):
        surrogate = Surrogate()
        assert surrogate.first_fit(1) == 4 and surrogate.first_fit(6) == 14
        for n in range(1, 200):
            assert surrogate.next_fit(n, n) - n == (1 if n <= 122 else round(n * n / 1e4))
            later = surrogate.next_fit(n, 10**6)
            assert later > n and later - 1 < 1.25 * n <= later
            assert n < surrogate.next_fit(n, 1000) <= later

    def test_restandardising_keeps_kernel_and_noise_in_the_right_units(self):
        history = history_of(torch.tensor([0, 1, 2]), torch.tensor([10.0, 14.0, 18.0]).double())
        units = history.standardisation()
        assert units.offset == pytest.approx(14.0)
        assert units.scale == pytest.approx(math.sqrt(32 / 3))
        hyper = Hyperparameters(kernel(), 0.2)
        # Nothing is known of the noise; it was given; it was told.
        for surrogate, known, expected in (
            (Surrogate(), None, 0.2),
            (Surrogate(noise_var=4.0), None, 4.0 / units.scale**2),
            (Surrogate(noise_var=4.0), 9.0, 9.0 / units.scale**2),
        ):
            new = surrogate.restandardised(hyper, history, known)
            assert new.kernel is hyper.kernel and new.units == units
            assert new.noise_var == pytest.approx(expected)
        assert Surrogate(kernel(), 4.0).restandardised(hyper, history, None) is hyper


class TestFitting:
    def test_noise_and_units_are_those_of_the_pulls(self):
        X, history = sines(repeats=40)
        hyper = Surrogate().fit(X, history, torch.arange(len(X)), None, seed=0)
        deviation = math.sqrt(hyper.units.variance_to_rewards(hyper.noise_var))
        assert deviation == pytest.approx(7 * 0.2, rel=0.1)
        assert hyper.units.scale == history.standardisation().scale
        assert not hyper.kernel.training
        assert not any(p.requires_grad for p in hyper.kernel.parameters())

    def test_a_fit_that_begins_at_the_last_one_is_shorter_and_ends_there(self, monkeypatch):
        X, history = sines()
        every, calls, evaluate = torch.arange(len(X)), [], LogPosterior.evaluate

        def counted(self, values):
            calls.append(values)
            return evaluate(self, values)

        monkeypatch.setattr(LogPosterior, "evaluate", counted)
        cold = Surrogate().fit(X, history, every, None, seed=0)
        first = len(calls)
        warm = Surrogate().fit(X, history, every, None, seed=0, last=cold)
        assert len(calls) - first < first / 2
        assert torch.allclose(warm.kernel.lengthscale, cold.kernel.lengthscale, rtol=1e-2)
        assert warm.noise_var == pytest.approx(cold.noise_var, rel=1e-2)

    def test_a_fit_begins_at_the_initial_values_where_they_are_better(self):
        X, history = sines()
        every = torch.arange(len(X))
        cold = Surrogate().fit(X, history, every, None, seed=0)
        bad = kernel_like(cold.kernel, 0.03)
        last = Hyperparameters(bad, 1e-4, RewardUnits(1e4, 1e-3))
        again = Surrogate().fit(X, history, every, None, seed=0, last=last)
        assert torch.equal(again.kernel.lengthscale, cold.kernel.lengthscale)
        assert again.noise_var == cold.noise_var

    def test_a_fit_from_both_starts_keeps_the_better_result(self, monkeypatch):
        X, history = sines()
        every = torch.arange(len(X))
        cold = Surrogate().fit(X, history, every, None, seed=0)
        # The last results are a little worse than those of the fit, and better than the start.
        last = replace(cold, noise_var=2 * cold.noise_var)
        begins = []
        monkeypatch.setattr(DirectFit, "minimise", watching(begins, DirectFit.minimise))
        both = Surrogate().fit(X, history, every, None, seed=0, last=last, afresh=True)
        assert len(begins) == 2
        assert torch.allclose(both.kernel.lengthscale, cold.kernel.lengthscale, rtol=1e-2)

    def test_a_fit_begins_afresh_when_observations_have_doubled(self):
        surrogate = Surrogate()
        fits = [6]
        while fits[-1] < 1000:
            fits.append(surrogate.next_fit(fits[-1], 10**6))
        afresh = [
            now for last, now in itertools.pairwise(fits) if surrogate.begins_afresh(last, now)
        ]
        powers = [2**k for k in range(20) if fits[0] < 2**k <= fits[-1]]
        assert len(afresh) == len(powers)  # at the first fit from each power of two on

    def test_other_kernels_begin_at_the_last_fit_too(self):
        X, history = sines()
        every, kernel = torch.arange(len(X)), AdditiveKernel(RBFKernel(), RBFKernel()).double()
        surrogate = Surrogate(kernel, refit=True)
        cold = surrogate.fit(X, history, every, None, seed=0)
        warm = surrogate.fit(X, history, every, None, seed=0, last=cold)
        assert warm.noise_var == pytest.approx(cold.noise_var, rel=1e-2)

    def test_what_is_given_is_not_fitted(self):
        X, history = sines()
        every = torch.arange(len(X))
        known = Surrogate(noise_var=0.5).fit(X, history, every, 0.5, seed=0)
        assert known.units.variance_to_rewards(known.noise_var) == pytest.approx(0.5)
        fixed = Surrogate(kernel(1.3)).fit(X, history, every, None, seed=0)
        assert fixed.kernel.lengthscale.item() == pytest.approx(1.3)
        told = Surrogate().fit(X, history, every, 0.5, seed=0)  # noise known from results
        assert told.units.variance_to_rewards(told.noise_var) == pytest.approx(0.5)
        refit = Surrogate(kernel(50.0), 0.5, refit=True).fit(X, history, every, None, seed=0)
        assert refit.kernel.lengthscale.item() < 5
        assert refit.units.variance_to_rewards(refit.noise_var) > 0.8

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_fits_need_gradients_and_get_them(self, mode):
        X, history = sines()
        every, state = torch.arange(len(X)), torch.get_rng_state()
        expected = Surrogate().fit(X, history, every, None, seed=0)
        with mode():
            got = Surrogate().fit(X, history, every, None, seed=0)
        assert got.noise_var == expected.noise_var
        assert torch.equal(got.kernel.lengthscale, expected.kernel.lengthscale)
        assert torch.equal(torch.get_rng_state(), state)

    def test_a_fit_is_of_the_dtype_of_the_inputs(self):
        X, history = sines()
        hyper = Surrogate().fit(X.float(), history, torch.arange(8), None, seed=0)
        assert hyper.kernel.lengthscale.dtype == torch.float32

    def test_a_fit_that_fails_says_so(self, monkeypatch):
        def indefinite(*args, **kwargs):
            raise NotPSDError("no root")

        def fails(*args, **kwargs):
            raise ModelFittingError("no luck")

        monkeypatch.setattr(DirectFit, "minimise", indefinite)
        X, history = sines()
        again = Surrogate().fit(X, history, torch.arange(15), None, seed=0)  # by BoTorch
        assert 0 < again.noise_var < 1
        monkeypatch.setattr("botorch_bkb.models.fitting.fit", fails)
        with pytest.warns(match=r"90 observations \(no luck\)"):
            assert Surrogate().fit(X, history, torch.arange(15), None, seed=0) is None


class TestModels:
    X, T = torch.rand(21, 2, generator=torch.Generator().manual_seed(0)).double().split([12, 9])
    scale = UnitCube(torch.tensor([[-1.0, 0.0], [1.0, 3.0]]).double())
    box = UnitCube(torch.tensor([[-0.5, -2.0], [2.0, 2.0]]).double())
    units = RewardUnits(100.0, 7.0)

    def history(self):
        rows = torch.arange(12).repeat(3)
        rewards = 100 + 7 * torch.sin(3 * self.X[rows]).sum(-1)
        return history_of(rows, rewards, 0.5 + torch.rand(36).double())

    @pytest.mark.parametrize("scaled", [False, True])
    @pytest.mark.parametrize("boxed", [False, True])
    def test_both_models_are_the_plain_transcription_in_their_units(self, scaled, boxed):
        scale, box = self.scale if scaled else None, self.box if boxed else None
        if scaled and boxed:
            scale = box  # the kernel's cube is that of the domain
        history, hyper = self.history(), Hyperparameters(kernel(), 0.05, self.units)
        data = self.X, history, hyper, torch.arange(7), scale, box
        X, T = (t if scale is None else scale.to_unit(t) for t in (self.X, self.T))
        S, y = X[:7], (history.means - 100) / 7
        mean, cov = naive.dtc(rbf(S, S), rbf(X, S), rbf(T, S), rbf(T, T), y, 0.05 / history.weights)
        seen = self.T if box is None else box.to_unit(self.T)
        plain = standardised_model(*data).posterior(seen)
        torch.testing.assert_close(plain.mean.squeeze(-1), mean)
        torch.testing.assert_close(plain.variance.squeeze(-1), cov.diagonal())
        rewards = reward_model(*data).posterior(seen)
        torch.testing.assert_close(rewards.mean.squeeze(-1), 100 + 7 * mean)
        torch.testing.assert_close(rewards.variance.squeeze(-1), 49 * cov.diagonal())

    def test_models_do_not_change_the_hyperparameters(self):
        hyper = Hyperparameters(kernel().requires_grad_(False), 0.05, self.units)
        for make in (reward_model, standardised_model):
            model = make(self.X, self.history(), hyper, torch.arange(7), None)
            assert not model.training and all(p.requires_grad for p in model.parameters())
            for parameter in model.covar_module.parameters():
                parameter.data += 1.0
        assert hyper.kernel.lengthscale.item() == pytest.approx(0.4)
        assert not hyper.kernel.raw_lengthscale.requires_grad


@st.composite
def pulls(draw):
    r"""Rows, rewards and weights of pulls, and where they are cut into portions."""
    n = draw(st.integers(1, 30))
    rows = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    offset = draw(st.sampled_from([0.0, -3.0, 1e6]))
    rewards = draw(st.lists(st.floats(-10, 10), min_size=n, max_size=n))
    weights = draw(st.lists(st.floats(0.1, 10), min_size=n, max_size=n))
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=4)))
    rewards, weights = torch.tensor([rewards, weights], dtype=torch.float64)
    return torch.tensor(rows), offset + rewards, weights, [0, *cuts, n]


class TestHistory:
    @given(pulls())
    def test_portions_give_the_weighted_moments_of_all_pulls(self, case):
        rows, rewards, weights, cuts = case
        history = History.empty(CPU)
        for start, end in itertools.pairwise(cuts):
            part = slice(start, end)
            if start < end:
                history = history.with_pulls(rows[part], rewards[part], weights[part])
        assert history.rows.tolist() == sorted(set(rows.tolist()))
        assert history.num_observations == len(rows)
        for i, row in enumerate(history.rows.tolist()):
            y, w = rewards[rows == row], weights[rows == row]
            mean = float((w * y).sum() / w.sum())
            spread = float((w * (y - mean).square()).sum())
            assert history.counts[i] == len(y)
            assert float(history.weights[i]) == pytest.approx(float(w.sum()))
            assert float(history.means[i]) == pytest.approx(mean, abs=1e-8)
            assert float(history.deviations[i]) == pytest.approx(spread, rel=1e-6, abs=1e-7)

    @given(pulls())
    def test_standardised_rewards_have_mean_zero_and_variance_one(self, case):
        rows, rewards, weights, _ = case
        units = history_of(rows, rewards, weights).standardisation()
        y = units.to_model(rewards)
        assert float((weights * y).sum() / weights.sum()) == pytest.approx(0, abs=1e-6)
        if len(rows) > 1 and float(rewards.std()) > 1e-3:
            assert float((weights * y.square()).sum() / weights.sum()) == pytest.approx(1)
        elif len(rewards.unique()) == 1:
            assert units.scale == 1.0

    def test_a_history_is_a_value(self):
        first = history_of(torch.tensor([3, 1]), torch.tensor([5.0, 6.0]).double())
        first.with_pulls(torch.tensor([1]), torch.tensor([8.0]).double(), torch.ones(1).double())
        assert first.rows.tolist() == [1, 3] and first.means.tolist() == [6.0, 5.0]
        assert first.num_observations == 2

    def test_renumbering_moves_everything(self):
        rewards = torch.tensor([5.0, 6.0, 7.0, 9.0]).double()
        history = history_of(torch.tensor([0, 1, 2, 2]), rewards)
        moved = history.renumbered(torch.tensor([7, 2, 4]))
        assert moved.rows.tolist() == [2, 4, 7]
        assert moved.means.tolist() == [6.0, 8.0, 5.0]
        assert moved.counts.tolist() == moved.weights.tolist() == [1.0, 2.0, 1.0]
        assert moved.deviations.tolist() == [0.0, 2.0, 0.0]

    @pytest.mark.parametrize("reward", [0.0, 0.1, -1e12])
    def test_constant_rewards_have_a_scale_of_one(self, reward):
        rows = torch.arange(7).repeat(3)
        history = history_of(rows, torch.full((21,), reward, dtype=torch.float64))
        assert history.standardisation().scale == 1.0
        assert history.standardisation().offset == pytest.approx(reward, rel=1e-14)
