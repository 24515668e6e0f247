from __future__ import annotations

import copy
import pickle

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP, AllPoints, RidgeLeverageSampling
from tests.models.support import (
    D,
    assert_same_posterior,
    sparse_model,
)
from tests.problems import regression


class TestState:
    def test_pickle_and_deepcopy_keep_the_posterior(self, pair):
        model = pair[1]
        T = torch.rand(*model.batch_shape, 3, D, dtype=torch.float64)
        expected = model.posterior(T)
        for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert_same_posterior(twin.posterior(T), expected, 1e-12)

    def test_a_model_with_a_generator_can_be_copied(self):
        X, Y = regression(40)
        rule = RidgeLeverageSampling(2.0, generator=torch.Generator().manual_seed(0))
        model = DTCGP(X, Y, dictionary=rule)
        model.posterior(X[:1])
        T = torch.rand(3, D, dtype=torch.float64)
        for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert_same_posterior(twin.posterior(T), model.posterior(T), 1e-12)

    def test_fantasies_with_a_graph_can_be_copied_and_backpropagated_twice(self):
        model = sparse_model()
        X = torch.rand(2, D, dtype=torch.float64, requires_grad=True)
        fantasy = model.fantasize(X, SobolQMCNormalSampler(torch.Size([2]), seed=0))
        T = torch.rand(3, D, dtype=torch.float64)
        for _ in range(2):
            fantasy.posterior(T).mean.sum().backward(retain_graph=True)
        twin = copy.deepcopy(fantasy)
        assert_same_posterior(twin.posterior(T), fantasy.posterior(T), 1e-12)
        assert not any(t.requires_grad for t in (twin._belief.conditional.coef,))

    def test_gradients_work_after_inference_mode(self):
        model = sparse_model()
        T = torch.rand(3, D, dtype=torch.float64)
        with torch.inference_mode():
            model.posterior(T)
        model.posterior(T.requires_grad_()).variance.sum().backward()
        assert T.grad is not None and T.grad.isfinite().all()

    def test_caches_keep_no_graph(self):
        model = sparse_model()
        T = torch.rand(3, D, dtype=torch.float64, requires_grad=True)
        for _ in range(2):
            model.posterior(T).variance.sum().backward()
        factor = model._belief.factor
        assert not (factor.root.requires_grad or factor.coef.requires_grad)

    def test_state_dict_round_trip_keeps_the_dictionary(self):
        X, Y = regression(700)
        a, b = (DTCGP(X, Y, dictionary=RidgeLeverageSampling(2.0)) for _ in range(2))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(a.likelihood, a))
        a.posterior(X[:1])
        b.posterior(X[:1])
        b.load_state_dict(a.state_dict())
        assert torch.equal(a.dictionary_indices, b.dictionary_indices)
        assert_same_posterior(a.posterior(X[:4]), b.posterior(X[:4]), 1e-12)

    @pytest.mark.parametrize("n", [30, 700])
    def test_state_dict_into_a_model_of_another_size(self, n):
        X, Y = regression(800)
        big = DTCGP(X, Y)
        big.covar_module.lengthscale = 0.7
        big.posterior(X[:1])
        small = DTCGP(X[:n], Y[:n])
        small.load_state_dict(big.state_dict())
        assert small.dictionary_indices.max() < n
        assert small.posterior(X[:4]).mean.isfinite().all()

    def test_state_dict_of_single_task_gp_loads(self):
        X, Y = regression(30)
        exact, sparse = SingleTaskGP(X, Y), DTCGP(X, Y)
        exact.covar_module.lengthscale = 0.7
        sparse.posterior(X[:1])
        sparse.load_state_dict(exact.state_dict())
        assert_same_posterior(exact.posterior(X[:3] + 0.1), sparse.posterior(X[:3] + 0.1))

    def test_dictionary_is_no_parameter(self):
        model = sparse_model()
        model.posterior(torch.rand(1, D, dtype=torch.float64))
        assert {n for n, _ in model.named_parameters()} == {
            n for n, _ in SingleTaskGP(*regression(5)).named_parameters()
        }
        exact = SingleTaskGP(*regression(60), outcome_transform=None)
        assert len(list(model.buffers())) == len(list(exact.buffers()))

    def test_to_keeps_the_belief(self):
        model = sparse_model()
        model.posterior(torch.rand(1, D, dtype=torch.float64))
        belief = model._belief
        assert model.to(torch.rand(1, dtype=torch.float64))._belief is belief
        model.float()
        assert model._belief.points.dtype == torch.float32
        assert model._belief.factor.root.dtype == torch.float64
        assert model.posterior(torch.rand(1, D)).mean.dtype == torch.float32

    def test_conditioning_does_not_copy_the_training_data(self):
        model = sparse_model(input_transform=Normalize(D))
        X = torch.rand(50, 2, D, dtype=torch.float64)
        fantasy = model.fantasize(X, SobolQMCNormalSampler(torch.Size([8])))
        fantasy.posterior(torch.rand(8, 50, 1, D, dtype=torch.float64)).mean.sum()
        fantasy.to(X)
        assert fantasy._train_inputs[0].data_ptr() == model._train_inputs[0].data_ptr()
        assert fantasy.train_inputs[0].shape == (8, 50, 62, D)
        fantasy.train()
        assert fantasy.train_inputs[0].shape == (8, 50, 62, D)
        torch.testing.assert_close(fantasy.train_inputs[0][3, :, 60:], X)


class TestNothingIsStale:
    def exact_pair(self):
        r"""Models of data with repeated rows, and the same data with all rows distinct."""
        X, Y = regression(10)
        repeated = X.clone()
        repeated[1] = repeated[5] = repeated[0]
        return X, Y, repeated, torch.rand(4, D, dtype=torch.float64)

    def test_other_inputs_of_the_same_size(self):
        X, Y, repeated, T = self.exact_pair()
        posteriors = []
        for cls in (SingleTaskGP, DTCGP):
            model = cls(repeated, Y)
            model.posterior(T)
            model.set_train_data(X, strict=False)
            posteriors.append(model.posterior(T))
        assert_same_posterior(*posteriors)

    def test_a_state_of_other_data_brings_no_dictionary(self):
        X, Y, repeated, T = self.exact_pair()
        other = DTCGP(repeated, Y)
        other.posterior(T)
        model = DTCGP(X, Y)
        model.load_state_dict(other.state_dict())
        assert len(model.dictionary_indices) == 10
        given = DTCGP(X, Y, dictionary=torch.arange(3))
        given.load_state_dict(other.state_dict())
        assert given.dictionary_indices.tolist() == [0, 1, 2]
        sparse = DTCGP(X, Y, dictionary=torch.arange(3))
        sparse.posterior(T)
        everything = DTCGP(X, Y, dictionary=AllPoints())
        everything.load_state_dict(sparse.state_dict())
        assert len(everything.dictionary_indices) == 10

    @pytest.mark.parametrize("best_of_all", [False, True])
    def test_a_fit_after_loading_draws_again(self, best_of_all):
        X, Y = regression(300)
        a, b = (DTCGP(X, Y, dictionary=RidgeLeverageSampling(1.0)) for _ in range(2))
        a.posterior(X[:1])
        b.load_state_dict(a.state_dict())
        before = b.dictionary_indices
        assert torch.equal(before, a.dictionary_indices)
        fit_gpytorch_mll(
            ExactMarginalLogLikelihood(b.likelihood, b),
            pick_best_of_all_attempts=best_of_all,
            max_attempts=2,
        )
        b.posterior(X[:1])
        assert not torch.equal(before, b.dictionary_indices)

    def test_subset_output_keeps_the_dictionary(self):
        X, Y = regression(60, m=2)
        model = DTCGP(X, Y, dictionary=RidgeLeverageSampling(0.5))
        T = torch.rand(4, D, dtype=torch.float64)
        whole = model.posterior(T)
        one = model.subset_output([0])
        torch.testing.assert_close(one.posterior(T).mean, whole.mean[:, :1])
        assert torch.equal(one.dictionary_indices, model.dictionary_indices)

    def test_noise_of_each_batch_stays_its_own(self):
        X, Y = regression(20)
        new_X, new_Y = torch.rand(4, 3, D, dtype=torch.float64), torch.rand(4, 3, 1).double()
        noise = torch.logspace(-4, 1, 4, dtype=torch.float64).view(4, 1, 1).expand(4, 3, 1)
        T = torch.rand(5, D, dtype=torch.float64)
        posteriors = []
        for cls in (SingleTaskGP, DTCGP):
            model = cls(X, Y, torch.full_like(Y, 0.05))
            model.posterior(T)
            model = model.condition_on_observations(new_X, new_Y, noise=noise)
            posteriors.append(model.posterior(T, observation_noise=True))
        assert_same_posterior(*posteriors, tolerance=1e-6)

    def test_additional_noise_counts_once(self):
        X, Y = regression(20)
        likelihood = FixedNoiseGaussianLikelihood(
            torch.full((20,), 0.02, dtype=torch.float64), learn_additional_noise=True
        )
        likelihood.second_noise = 0.5
        model = DTCGP(X, Y, likelihood=likelihood, outcome_transform=None)
        noise = torch.full((3, 1), 0.02, dtype=torch.float64)
        conditioned = model.condition_on_observations(X[:3] + 0.1, Y[:3], noise=noise)
        conditioned = conditioned.condition_on_observations(X[3:6] + 0.1, Y[3:6], noise=noise)
        stored = conditioned.likelihood.noise_covar.noise
        torch.testing.assert_close(stored, torch.full((26,), 0.02, dtype=torch.float64))
        T = torch.rand(4, D, dtype=torch.float64)
        before = conditioned.posterior(T)
        assert_same_posterior(conditioned.train().posterior(T), before)

    def test_conditioning_on_dictionary_points_does_not_pass_for_exact(self):
        X, Y = regression(10)
        model = DTCGP(X, Y, dictionary=torch.arange(5), outcome_transform=None)
        model = model.condition_on_observations(X[:5], Y[:5]).train()
        prior = model(model.train_inputs[0])
        rank = torch.linalg.matrix_rank(prior.covariance_matrix, atol=1e-6, rtol=0)
        assert rank <= 5

    def test_reading_the_dictionary_changes_nothing(self):
        X, Y = regression(300)
        model = DTCGP(X, Y, dictionary=RidgeLeverageSampling(1.0))
        model.posterior(X[:1])
        before = model.dictionary_indices
        model.float().double()
        assert torch.equal(model.dictionary_indices, before)
        assert torch.equal(model.train().eval().dictionary_indices, before)

    def test_a_refused_set_train_data_leaves_everything(self):
        X, Y = regression(20)
        model = DTCGP(X, Y, dictionary=torch.tensor([0, 19]))
        with pytest.raises(InputDataError, match=r"0\.\.9"):
            model.set_train_data(X[:10], Y[:10, 0], strict=False)
        assert len(model.train_inputs[0]) == len(model.train_targets) == 20
        conditioned = model.condition_on_observations(X[:2] + 0.1, Y[:2])
        conditioned.set_train_data(X, model.train_targets, strict=False)
        assert conditioned.dictionary_indices.tolist() == [0, 19]

    def test_gpytorch_fantasies_remember_raw_inputs(self):
        X, Y = regression(20)
        model = DTCGP(10 * X, Y, input_transform=Normalize(D))
        model.posterior(10 * X[:1])
        middle = torch.full((1, D), 0.5, dtype=torch.float64)
        fantasy = model.get_fantasy_model(middle, torch.zeros(1, dtype=torch.float64))
        fantasy.train().eval()
        torch.testing.assert_close(fantasy.train_inputs[0][-1:], middle)
