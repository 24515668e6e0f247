from __future__ import annotations

import math

import pytest
import torch
from botorch.cross_validation import loo_cv
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import CompressedGP
from tests.models.compressed.support import (
    assert_moments,
    both,
    compressed,
    dense,
    rand,
)
from tests.models.support import D, assert_same_posterior
from tests.problems import regression


class TestBadInput:
    @pytest.mark.parametrize("epsilon", [-1e-9, -1.0, torch.nan, -torch.inf])
    def test_thresholds_that_are_no_threshold(self, epsilon):
        with pytest.raises(InputDataError, match="epsilon must"):
            CompressedGP(*regression(5), epsilon=epsilon)

    @pytest.mark.parametrize("epsilon", ["0.1", None, [0.1]])
    def test_thresholds_that_are_no_number(self, epsilon):
        with pytest.raises(InputDataError, match="epsilon must"):
            CompressedGP(*regression(5), epsilon=epsilon)

    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_values_that_are_not_finite(self, value):
        X, Y = regression(10)
        model, bad = compressed(X, Y), torch.full((1, D), value).double()
        for call in (
            lambda: CompressedGP(torch.cat([X[:9], bad]), Y),
            lambda: CompressedGP(X, torch.cat([Y[:9], bad[:, :1]])),
            lambda: CompressedGP(X, Y, torch.cat([Y[:9].abs(), bad[:, :1]])),
            lambda: model.posterior(bad),
            lambda: model.is_informative(bad),
            lambda: model.is_informative(X[:1], bad[:, :1]),
            lambda: model.condition_on_observations(bad, Y[:1]),
            lambda: model.condition_on_observations(X[:1], bad[:, :1]),
        ):
            with pytest.raises(InputDataError, match="must be finite"):
                call()
        assert model.num_data == 10

    def test_a_dictionary_is_refused(self):
        with pytest.raises(UnsupportedError, match="DTCGP"):
            compressed(*regression(5)).with_dictionary(torch.arange(2))

    def test_leave_one_out_is_refused_where_something_was_discarded(self):
        with pytest.raises(UnsupportedError, match="leave-one-out"):
            loo_cv(compressed(*regression(40), 0.5))

    @pytest.mark.parametrize("epsilon", [1e3, 1e6, math.inf])
    @both
    def test_nothing_kept_is_the_prior(self, epsilon, discard):
        X, Y = regression(10)
        model = compressed(X, Y, epsilon, discard=discard)
        assert model.model_order == 0 and not model.is_informative(2 * X).any()
        T = rand(4, D)
        (K,) = dense(model, (T, T))
        assert_moments(model.posterior(T), torch.zeros(4).double(), K)

    def test_nothing_kept_can_be_conditioned_fitted_and_sampled(self):
        X, Y = regression(10)
        model = CompressedGP(X, Y, epsilon=1e3)
        conditioned = model.condition_on_observations(X + 0.1, Y)
        assert conditioned.model_order == 0 and conditioned.num_data == 20
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        assert draw_matheron_paths(model, torch.Size([3]))(rand(4, D)).shape == (3, 4)

    @both
    def test_one_point(self, discard):
        X, Y = regression(1)
        T = rand(3, D)
        models = (
            SingleTaskGP(X, Y, outcome_transform=None),
            CompressedGP(X, Y, outcome_transform=None, discard=discard),
        )
        assert_same_posterior(*(m.posterior(T) for m in models))

    @both
    def test_all_inputs_equal(self, discard):
        r"""Kept while ``1 / (lambda + k) > e^{2 epsilon} - 1``."""
        X, Y = torch.full((60, D), 0.3).double(), torch.randn(60, 1).double()
        model = compressed(X, Y, 0.1, discard=discard)
        count = math.ceil(1 / math.expm1(0.2) - 0.05)
        assert model.kept_indices.tolist() == list(range(count))
        assert model.dictionary_indices.tolist() == [0]
        seen = Y[:count] if discard else Y
        expected = seen.sum() / (len(seen) + 0.05)
        torch.testing.assert_close(model.posterior(X[:1]).mean.squeeze(), expected)

    @pytest.mark.parametrize("scale", [1e-12, 1e12])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @both
    @pytest.mark.filterwarnings("ignore")
    def test_outcomes_of_any_scale(self, scale, dtype, discard):
        X, Y = regression(100, dtype=dtype)
        model = CompressedGP(X, scale * Y, epsilon=0.05, discard=discard)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 10}})
        posterior = model.posterior(rand(5, D).to(dtype))
        assert (posterior.mean / scale).isfinite().all()
        assert (posterior.variance.double() / scale**2 > 0).all()

    @pytest.mark.parametrize("scale", [1e-10, 1e-4, 1e10])
    @both
    @pytest.mark.filterwarnings("ignore")
    def test_kernels_of_any_scale(self, scale, discard):
        X, Y = regression(60)
        kernel = ScaleKernel(RBFKernel(ard_num_dims=D))
        model = CompressedGP(X, Y, covar_module=kernel, discard=discard)
        kernel.outputscale = scale
        model = model.eval().condition_on_observations(X[:20] + 0.01, Y[:20])
        posterior = model.posterior(rand(5, D))
        assert posterior.mean.isfinite().all() and (posterior.variance >= 0).all()
