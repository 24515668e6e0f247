from __future__ import annotations

import copy

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Standardize, Warp
from botorch.posteriors import TransformedPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood

from botorch_bkb import DTCGP, AllPoints
from tests.models.support import (
    D,
    assert_same_posterior,
    sparse_model,
)
from tests.problems import regression


class TestIdioms:
    def test_float32_queries_of_a_float64_model(self):
        model = sparse_model()
        T = torch.rand(3, D)
        torch.testing.assert_close(model.posterior(T).mean, model.posterior(T.double()).mean)

    def test_float32_model_is_close_to_the_float64_one(self):
        X, Y = regression(300)
        indices = torch.arange(40)
        T = torch.rand(5, D)
        double = DTCGP(X, Y, dictionary=indices)
        single = DTCGP(X.float(), Y.float(), dictionary=indices)
        p, q = single.posterior(T), double.posterior(T.double())
        assert p.mean.dtype == torch.float32
        torch.testing.assert_close(p.mean.double(), q.mean, atol=5e-3, rtol=5e-3)
        # Kernel values of float32 resolution make the variance larger, never too small.
        excess = p.variance.double() - q.variance
        assert (excess > -1e-4).all() and (excess < 2e-3).all()
        fit_gpytorch_mll(ExactMarginalLogLikelihood(single.likelihood, single))
        assert single.posterior(T).variance.min() > 0

    def test_model_list(self):
        X, Y = regression(30, m=2)
        model = ModelListGP(DTCGP(X, Y[:, :1]), SingleTaskGP(X[:20], Y[:20, 1:]))
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        assert model.posterior(X[:3]).mean.shape == (3, 2)
        fantasy = model.fantasize(X[:2], SobolQMCNormalSampler(torch.Size([4])))
        assert fantasy.posterior(X[:3]).mean.shape == (4, 3, 2)

    def test_construct_inputs(self):
        X, Y = regression(20)
        data = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
        rule = AllPoints()
        model = DTCGP(**DTCGP.construct_inputs(data, dictionary=rule, trace_term=True))
        assert model._rule is rule and model._trace_term
        assert DTCGP(**DTCGP.construct_inputs(data)).posterior(X[:2]).mean.shape == (2, 1)

    def test_output_indices_and_subset_output(self, batch):
        X, Y = regression(20, m=3, batch=batch)
        model = DTCGP(X, Y, outcome_transform=None)
        T = torch.rand(*batch, 4, D, dtype=torch.float64)
        whole = model.posterior(T)
        some = model.posterior(T, output_indices=[0, 2])
        torch.testing.assert_close(some.variance, whole.variance[..., [0, 2]])
        one = model.subset_output([1]).posterior(T)
        torch.testing.assert_close(one.mean, whole.mean[..., 1:2])
        torch.testing.assert_close(one.variance, whole.variance[..., 1:2])

    def test_observation_noise_as_a_tensor(self, outputs):
        X, Y = regression(20, m=outputs)
        T = X[:3] + 0.1
        noise = torch.rand(3, outputs, dtype=torch.float64)
        posteriors = [c(X, Y).posterior(T, observation_noise=noise) for c in (SingleTaskGP, DTCGP)]
        assert_same_posterior(*posteriors)

    def test_log_outcome_transform(self):
        X, Y = regression(20)
        posteriors = [
            c(X, Y.exp(), outcome_transform=Log()).posterior(X[:3] + 0.1)
            for c in (SingleTaskGP, DTCGP)
        ]
        assert all(isinstance(p, TransformedPosterior) for p in posteriors)
        torch.testing.assert_close(*(p.mean for p in posteriors), atol=1e-7, rtol=1e-7)

    @pytest.mark.parametrize(
        "modules",
        [
            {"covar_module": ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=D)) + LinearKernel()},
            {"mean_module": LinearMean(D)},
            {"likelihood": GaussianLikelihood()},
            {"outcome_transform": Standardize(1)},
            {"covar_module": LinearKernel()},  # rank 2: K_SS is singular
        ],
    )
    def test_other_modules(self, modules):
        X, Y = regression(25)
        posteriors = [
            c(X, Y, **copy.deepcopy(modules)).posterior(X[:3] + 0.1) for c in (SingleTaskGP, DTCGP)
        ]
        assert_same_posterior(*posteriors, tolerance=1e-6)

    def test_fantasies_at_no_point(self):
        model = sparse_model()
        empty = torch.empty(0, D, dtype=torch.float64)
        fantasy = model.fantasize(empty, SobolQMCNormalSampler(torch.Size([4])))
        T = torch.rand(3, D, dtype=torch.float64)
        expected = model.posterior(T).mean.expand(4, 3, 1)
        torch.testing.assert_close(fantasy.posterior(T).mean, expected)

    def test_learnt_input_transforms_and_additional_noise(self):
        X, Y = regression(40)
        posteriors = []
        for cls in (SingleTaskGP, DTCGP):
            noise = torch.full((40,), 0.01, dtype=torch.float64)
            likelihood = FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)
            model = cls(X, Y, likelihood=likelihood, input_transform=Warp(D, indices=[0, 1]))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            posteriors.append(model.posterior(X[:3] * 0.9))
        assert_same_posterior(*posteriors, tolerance=1e-3)
        model = DTCGP(X, Y, dictionary=torch.arange(9), input_transform=Warp(D, indices=[0, 1]))
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        mll(model(X), model.train_targets).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())

    def test_one_training_point(self):
        X, Y = regression(1)
        T = torch.rand(3, D, dtype=torch.float64)
        posteriors = [c(X, Y, outcome_transform=None).posterior(T) for c in (SingleTaskGP, DTCGP)]
        assert_same_posterior(*posteriors)
