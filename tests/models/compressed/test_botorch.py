r"""State, and BoTorch around the model."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import CompressedGP
from tests.models.compressed.support import (
    BOUNDS,
    both,
    compressed,
    rand,
)
from tests.models.support import D, assert_same_posterior
from tests.models.test_botorch import exact_prior
from tests.problems import regression


class TestState:
    def test_pickle_and_deepcopy_keep_everything(self, model):
        T, new = 10 * rand(3, D), 10 * rand(4, D)
        for original in (model, model.condition_on_observations(new, new[:, :1])):
            expected = original.posterior(T)
            for twin in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
                assert (twin.epsilon, twin.discard) == (0.3, original.discard)
                assert torch.equal(twin.kept_indices, original.kept_indices)
                assert_same_posterior(twin.posterior(T), expected, 1e-12)

    def test_state_dict_round_trip(self, model):
        X = 10 * model.train_inputs[0]
        twin = CompressedGP(
            X,
            torch.zeros(60, 1).double(),
            input_transform=Normalize(D),
            epsilon=0.3,
            discard=model.discard,
        )
        model.covar_module.lengthscale = 0.3
        twin.posterior(X[:1])
        before = twin.kept_indices
        twin.load_state_dict(model.state_dict())
        assert torch.equal(twin.kept_indices, model.kept_indices)
        assert not torch.equal(twin.kept_indices, before)
        twin.set_train_data(targets=model.train_targets)
        T = 10 * rand(4, D)
        assert_same_posterior(twin.posterior(T), model.posterior(T), 1e-10)

    def test_state_dict_of_single_task_gp_loads(self):
        X, Y = regression(20)
        exact, model = SingleTaskGP(X, Y), CompressedGP(X, Y, epsilon=0.0)
        exact.covar_module.lengthscale = 0.7
        model.posterior(X[:1])
        model.load_state_dict(exact.state_dict())
        assert_same_posterior(exact.posterior(X + 0.1), model.posterior(X + 0.1))

    def test_to_another_dtype_and_back(self, model):
        T = 10 * rand(4, D)
        expected, kept = model.posterior(T).mean, model.kept_indices
        single = copy.deepcopy(model).float()
        assert torch.equal(single.kept_indices, kept)
        posterior = single.posterior(T.float())
        assert posterior.mean.dtype == torch.float32
        torch.testing.assert_close(posterior.mean.double(), expected, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(
            single.double().posterior(T).mean, expected, atol=1e-3, rtol=1e-3
        )

    @both
    @pytest.mark.parametrize("state", ["evaluated", "new", "conditioned"])
    def test_subset_output_keeps_what_all_keep(self, discard, state):

        X, Y = regression(60, m=2)
        model = CompressedGP(X, Y, epsilon=0.3, discard=discard).eval()
        scale = torch.tensor([0.2, 1.0], dtype=torch.float64).view(2, 1, 1)
        model.covar_module.lengthscale = scale.expand_as(model.covar_module.lengthscale)
        T = rand(4, D)
        if state == "evaluated":
            model.posterior(T)
        if state == "conditioned":
            model = model.condition_on_observations(rand(3, D), rand(3, 2))
        one = model.subset_output([1])
        assert torch.equal(one.kept_indices, model.kept_indices)
        got, whole = one.posterior(T), model.posterior(T)
        torch.testing.assert_close(got.mean, whole.mean[:, 1:], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(got.variance, whole.variance[:, 1:], atol=1e-6, rtol=1e-6)

    def test_train_and_eval_change_nothing(self, model):
        T, new = 10 * rand(4, D), 10 * rand(3, D)
        expected, kept = model.posterior(T), model.kept_indices
        assert torch.equal(model.train().kept_indices, kept)
        assert_same_posterior(model.posterior(T), expected, 1e-12)
        conditioned = model.condition_on_observations(new, new[:, :1]).train()
        assert conditioned.train_inputs[0].shape == (63, D)

    def test_other_hyperparameters_judge_again(self, model):
        before = model.kept_indices
        model.covar_module.lengthscale = 3.0
        assert model.resparsify() is model
        assert model.model_order < len(before)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        fresh = copy.deepcopy(model).resparsify()
        assert torch.equal(model.kept_indices, fresh.kept_indices)
        T = 10 * rand(4, D)
        assert_same_posterior(model.posterior(T), fresh.posterior(T), 1e-12)

    def test_other_data_are_judged_anew(self, model):
        model.posterior(10 * rand(1, D))
        X, Y = regression(30)
        model.set_train_data(X, Y.squeeze(-1), strict=False)
        assert model.kept_indices.max() < 30
        assert model.posterior(10 * X).mean.isfinite().all()


class TestInsideBoTorch:
    @pytest.mark.parametrize("name", ["LogEI", "qLogNEI", "qKG"])
    def test_optimize_acqf(self, name, model):
        X = 10 * model.train_inputs[0]
        acqf = {
            "LogEI": lambda: LogExpectedImprovement(model, best_f=1.0),
            "qLogNEI": lambda: qLogNoisyExpectedImprovement(model, X_baseline=X[:20]),
            "qKG": lambda: qKnowledgeGradient(model, num_fantasies=2),
        }[name]()
        q = 2 if name == "qLogNEI" else 1
        candidates, value = optimize_acqf(
            acqf, 10 * BOUNDS, q=q, num_restarts=2, raw_samples=8, options={"maxiter": 3}
        )
        assert candidates.shape == (q, D) and candidates.isfinite().all() and value.isfinite()

    def test_fit(self, model):
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll)
        X = 10 * model.train_inputs[0]
        error = model.posterior(X).mean - torch.sin(0.3 * X).sum(-1, keepdim=True)
        assert error.square().mean() < 0.1**2

    @pytest.mark.parametrize("conditioned", [False, True])
    @both
    def test_sample_paths_have_the_moments_of_the_posterior(self, discard, conditioned):
        r"""8192 paths: four standard errors are 0.045 for means and 0.0625 for variances."""
        X, Y = regression(60)
        model, T, new = compressed(0.5 * X, Y, 0.3, discard=discard), rand(5, D), 0.5 + rand(2, D)
        points = torch.cat([0.5 * X[model.kept_indices], T, new])
        if conditioned:
            model = model.condition_on_observations(new, Y[:2])
        paths = draw_matheron_paths(model, torch.Size([8192]), prior_sampler=exact_prior(points))
        with torch.no_grad():
            samples, posterior = paths(T), model.posterior(T)
        sd = posterior.variance.sqrt().squeeze(-1)
        error = (samples.mean(0) - posterior.mean.squeeze(-1)) / sd
        assert error.abs().max() < 0.045
        correlation = samples.T.cov() / torch.outer(sd, sd)
        expected = posterior.distribution.covariance_matrix / torch.outer(sd, sd)
        assert (correlation - expected).abs().max() < 0.0625

    def test_sample_paths_of_two_outputs(self):
        X, Y = regression(30, m=2)
        model = CompressedGP(X, Y, epsilon=0.1)
        paths = draw_matheron_paths(model, sample_shape=torch.Size([5]))
        assert paths(rand(1, 7, D)).shape == (5, 2, 7)

    @both
    def test_model_list(self, discard):
        X, Y = regression(30, m=2)
        first = CompressedGP(X, Y[:, :1], epsilon=0.1, discard=discard)
        models = ModelListGP(first, SingleTaskGP(X[:20], Y[:20, 1:]))
        models.posterior(X[:1])
        fantasy = models.fantasize(X[:2], SobolQMCNormalSampler(torch.Size([4])))
        assert fantasy.posterior(X[:3]).mean.shape == (4, 3, 2)

    def test_construct_inputs(self):
        X, Y = regression(20)
        data = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])
        model = CompressedGP(**CompressedGP.construct_inputs(data, epsilon=0.5, discard=False))
        assert (model.epsilon, model.discard) == (0.5, False)
        model = CompressedGP(**CompressedGP.construct_inputs(data))
        assert (model.epsilon, model.discard) == (1e-4, True)

    def test_ax_stores_the_class(self):
        pytest.importorskip("ax")
        from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
        from ax.generators.torch.botorch_modular.utils import ModelConfig
        from ax.storage.json_store.decoder import object_from_json
        from ax.storage.json_store.encoder import object_to_json

        import botorch_bkb.ax  # noqa: F401  registers the classes

        options = {"epsilon": 0.1, "discard": False}
        config = ModelConfig(botorch_model_class=CompressedGP, model_options=options)
        spec = SurrogateSpec(model_configs=[config])
        assert object_from_json(object_to_json(spec)) == spec
