from __future__ import annotations

import copy
import pickle

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize, Warp
from botorch.posteriors import TransformedPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import LinearKernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import DTCGP, AllPoints, InformationThreshold, RidgeLeverageSampling
from tests import naive
from tests.problems import regression

D = 2


def build(cls, X, Y, *, fixed_noise=False, transformed=False, **kwargs):
    return cls(
        X,
        Y,
        train_Yvar=torch.full_like(Y, 0.05) if fixed_noise else None,
        input_transform=Normalize(D) if transformed else None,
        **kwargs,
    )


def assert_same_posterior(p, q, tolerance=1e-7):
    assert p.mean.shape == q.mean.shape
    for a, b in (
        (p.mean, q.mean),
        (p.variance, q.variance),
        (p.distribution.covariance_matrix, q.distribution.covariance_matrix),
    ):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def noise_for(model, Y):
    fixed = type(model.likelihood).__name__.startswith("Fixed")
    return {"noise": torch.full_like(Y, 0.03)} if fixed else {}


@pytest.fixture(params=[(), (3,)], ids=["plain", "batched"])
def batch(request):
    return request.param


@pytest.fixture(params=[1, 2], ids=["one-output", "two-outputs"])
def outputs(request):
    return request.param


@pytest.fixture(
    params=[(False, False), (True, False), (False, True), (True, True)],
    ids=["inferred", "fixed-noise", "input-transform", "fixed-noise-input-transform"],
)
def pair(request, batch, outputs):
    r"""``SingleTaskGP`` and ``DTCGP`` with a full dictionary on the same data."""
    fixed, transformed = request.param
    X, Y = regression(20, D, outputs, batch)
    return tuple(
        build(c, X, Y, fixed_noise=fixed, transformed=transformed) for c in (SingleTaskGP, DTCGP)
    )


class TestFullDictionaryIsSingleTaskGP:
    def test_posterior(self, pair):
        exact, sparse = pair
        for shape in ((4, D), (1, D), (5, *exact.batch_shape, 3, D)):
            T = torch.rand(*shape, dtype=torch.float64)
            for observation_noise in (False, True):
                assert_same_posterior(
                    exact.posterior(T, observation_noise=observation_noise),
                    sparse.posterior(T, observation_noise=observation_noise),
                )

    def test_marginal_likelihood_and_its_gradient(self, pair):
        values = []
        for model in pair:
            mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
            value = mll(model(*model.train_inputs), model.train_targets).sum()
            grads = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
            values.append((value, *(g for g in grads if g is not None)))
        for a, b in zip(*values, strict=True):
            torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)

    def test_gradient_in_x(self, pair):
        T = torch.rand(*pair[0].batch_shape, 3, D, dtype=torch.float64)
        grads = []
        for model in pair:
            x = T.clone().requires_grad_()
            posterior = model.posterior(x)
            grads.append(torch.autograd.grad((posterior.mean + posterior.variance).sum(), x)[0])
        torch.testing.assert_close(*grads, atol=1e-6, rtol=1e-6)

    def test_conditioning_once_and_twice(self, pair):
        exact, sparse = pair
        shape = exact.batch_shape
        T = torch.rand(*shape, 4, D, dtype=torch.float64)
        exact.posterior(T)
        for _ in range(2):
            X = torch.rand(*shape, 3, D, dtype=torch.float64)
            Y = torch.rand(*shape, 3, exact.num_outputs, dtype=torch.float64)
            exact, sparse = (
                m.condition_on_observations(X, Y, **noise_for(m, Y)) for m in (exact, sparse)
            )
            assert_same_posterior(exact.posterior(T), sparse.posterior(T))
            noisy = {"observation_noise": True}
            assert_same_posterior(exact.posterior(T, **noisy), sparse.posterior(T, **noisy))
        assert exact.train_inputs[0].shape == sparse.train_inputs[0].shape
        torch.testing.assert_close(exact.train_targets, sparse.train_targets)
        assert exact.batch_shape == sparse.batch_shape

    def test_fantasies(self, pair):
        exact, sparse = pair
        X = torch.rand(*exact.batch_shape, 2, D, dtype=torch.float64)
        T = torch.rand(4, *exact.batch_shape, 3, D, dtype=torch.float64)
        exact.posterior(X)
        fantasies = [m.fantasize(X, SobolQMCNormalSampler(torch.Size([4]), seed=1)) for m in pair]
        assert_same_posterior(*(f.posterior(T) for f in fantasies), tolerance=1e-5)
        assert_same_posterior(*(f.posterior(T[0]) for f in fantasies), tolerance=1e-5)
        exact, sparse = fantasies
        assert exact.batch_shape == sparse.batch_shape
        assert exact.train_targets.shape == sparse.train_targets.shape
        assert exact.train_inputs[0].shape == sparse.train_inputs[0].shape

    def test_fit_reaches_the_same_hyperparameters(self, outputs):
        X, Y = regression(25, D, outputs)
        models = [c(X, Y) for c in (SingleTaskGP, DTCGP)]
        for model in models:
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)

    def test_repeated_inputs_are_no_trouble(self):
        X, Y = regression(15)
        X, Y = X.repeat(3, 1), Y.repeat(3, 1) + 0.1 * torch.randn(45, 1).double()
        exact, sparse = SingleTaskGP(X, Y), DTCGP(X, Y)
        assert len(sparse.dictionary_indices) == 15
        T = torch.rand(4, D, dtype=torch.float64)
        assert_same_posterior(exact.posterior(T), sparse.posterior(T))


def sparse_model(n=60, m=12, **kwargs):
    X, Y = regression(n)
    kwargs.setdefault("outcome_transform", None)
    return DTCGP(X, Y, dictionary=torch.arange(m), **kwargs)


def dense_moments(model, T):
    r"""The oracle's moments at ``T`` for a model without transforms."""
    model.eval()
    X = model.train_inputs[0]
    S, k = X[model.dictionary_indices], model.covar_module
    with torch.no_grad():
        y = model.train_targets - model.mean_module(X)
        noise = torch.full_like(y, model.likelihood.noise.item())
        mean, cov = naive.dtc(
            *(k(a, b).to_dense() for a, b in ((S, S), (X, S), (T, S), (T, T))), y, noise
        )
        return mean + model.mean_module(T), cov


class TestSparsePosterior:
    @given(st.integers(0, 10_000), st.integers(1, 20))
    def test_equals_the_formula_for_any_dictionary(self, seed, m):
        torch.manual_seed(seed)
        model = sparse_model(30, m)
        T = torch.rand(5, D, dtype=torch.float64)
        mean, cov = dense_moments(model, T)
        posterior = model.posterior(T)
        torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-6, rtol=1e-6)
        got = posterior.distribution.covariance_matrix
        torch.testing.assert_close(got, cov, atol=1e-6, rtol=1e-6)

    def test_conditioning_is_the_exact_conditional_of_the_dtc_process(self):
        model = sparse_model()
        T, X = (torch.rand(k, D, dtype=torch.float64) for k in (4, 3))
        Y = torch.randn(3, 1, dtype=torch.float64)
        joint = dense_moments(model, torch.cat([T, X]))
        noise = torch.full((3,), model.likelihood.noise.item(), dtype=torch.float64)
        mean, cov = naive.condition(*joint, Y.squeeze(-1), noise, 3)
        together = model.condition_on_observations(X, Y)
        one_by_one = model
        for i in range(3):
            one_by_one = one_by_one.condition_on_observations(X[i : i + 1], Y[i : i + 1])
        for conditioned in (together, one_by_one):
            posterior = conditioned.posterior(T)
            torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-6, rtol=1e-6)
            got = posterior.distribution.covariance_matrix
            torch.testing.assert_close(got, cov, atol=1e-6, rtol=1e-6)

    def test_conditioning_shrinks_the_variance_off_the_dictionary(self):
        X, Y = regression(200)
        model = DTCGP(0.2 * X, Y, dictionary=torch.arange(20), covar_module=MaternKernel())
        far = torch.full((1, D), 5.0, dtype=torch.float64)
        before = model.posterior(far).variance
        after = model.condition_on_observations(far, Y[:1]).posterior(far).variance
        assert after < 0.1 * before

    def test_variance_falls_with_data_for_a_fixed_dictionary(self):
        X, Y = regression(80)
        T = torch.rand(50, D, dtype=torch.float64)
        few, many = (
            DTCGP(X[:n], Y[:n], dictionary=torch.arange(15), outcome_transform=None)
            for n in (40, 80)
        )
        assert (many.posterior(T).variance <= few.posterior(T).variance + 1e-9).all()

    def test_large_joint_posteriors_stay_lazy_and_equal(self, monkeypatch):
        from botorch_bkb import belief

        model = sparse_model().condition_on_observations(
            torch.rand(2, D, dtype=torch.float64), torch.rand(2, 1, dtype=torch.float64)
        )
        T = torch.rand(7, D, dtype=torch.float64)
        eager = model.posterior(T)
        monkeypatch.setattr(belief, "DENSE_LIMIT", 3)
        lazy = model.posterior(T)
        assert_same_posterior(eager, lazy, 1e-9)

    def test_leverage_scores_and_effective_dimension(self):
        model = sparse_model()
        X = model.train_inputs[0]
        noise = model.likelihood.noise
        scores = model.leverage_scores(X)
        torch.testing.assert_close(scores, model.posterior(X).variance / noise)
        torch.testing.assert_close(model.effective_dimension, scores.sum())
        assert model.leverage_scores(torch.rand(4, 3, D).double()).shape == (4, 3, 1)

    def test_scores_do_not_depend_on_the_outcome_scale(self):
        X, Y = regression(30)
        T = torch.rand(4, D, dtype=torch.float64)
        a, b = (DTCGP(X, s * Y).leverage_scores(T) for s in (1.0, 1e6))
        torch.testing.assert_close(a, b)

    def test_marginal_likelihood_is_that_of_the_low_rank_prior(self):
        model = sparse_model()
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        X = model.train_inputs[0]
        S, k = X[model.dictionary_indices], model.covar_module
        pinv = torch.linalg.pinv(k(S, S).to_dense(), hermitian=True)
        Q = k(X, S).to_dense() @ pinv @ k(S, X).to_dense()
        noise = model.likelihood.noise * torch.eye(60, dtype=torch.float64)
        expected = naive.log_marginal(Q + noise, model.train_targets)
        priors = sum(p.log_prob(c(m)).sum() for _, m, p, c, _ in model.named_priors())
        got = mll(model(X), model.train_targets)
        torch.testing.assert_close(got, (expected + priors) / 60, atol=1e-7, rtol=1e-7)

    def test_trace_term_makes_a_lower_bound(self):
        X, Y = regression(60)
        values = []
        for kwargs in ({"trace_term": True}, {"trace_term": False}):
            model = DTCGP(X, Y, dictionary=torch.arange(6), **kwargs)
            mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
            values.append(mll(model(X), model.train_targets))
        residual = 1 - (model(X).lazy_covariance_matrix.diagonal())
        gap = 0.5 * (residual / model.likelihood.noise).sum() / 60
        torch.testing.assert_close(values[1] - values[0], gap)
        exact = SingleTaskGP(X, Y)
        mll = ExactMarginalLogLikelihood(exact.likelihood, exact).train()
        assert values[0] < mll(exact(X), exact.train_targets)

    def test_marginal_likelihood_gradient_matches_a_difference_quotient(self):
        model = sparse_model(trace_term=True)
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        X, raw = model.train_inputs[0], model.covar_module.raw_lengthscale

        def value():
            return mll(model(X), model.train_targets)

        (grad,) = torch.autograd.grad(value(), raw)
        h = 1e-5
        with torch.no_grad():
            raw[0, 0] += h
            up = value()
            raw[0, 0] -= 2 * h
            down = value()
        torch.testing.assert_close(grad[0, 0], (up - down) / (2 * h), atol=1e-6, rtol=1e-5)


class TestDictionary:
    def test_is_fixed_during_a_fit_and_drawn_again_after(self, monkeypatch):
        X, Y = regression(700)
        model = DTCGP(X, Y, dictionary=RidgeLeverageSampling(2.0))
        before = model.dictionary_indices
        seen = []
        plain = DTCGP.forward

        def forward(self, x):
            out = plain(self, x)
            seen.append(self._indices)
            return out

        monkeypatch.setattr(DTCGP, "forward", forward)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        assert len(seen) > 2 and all(i is before for i in seen)
        after = model.dictionary_indices
        assert not torch.equal(before, after)
        model.posterior(X[:2])
        assert torch.equal(model.dictionary_indices, after)
        model.train()
        assert torch.equal(model.eval().dictionary_indices, after)

    def test_given_indices_stay_through_a_fit(self):
        model = sparse_model()
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        model.posterior(torch.rand(2, D, dtype=torch.float64))
        assert model.dictionary_indices.tolist() == list(range(12))

    def test_with_dictionary_leaves_the_original_alone(self):
        model = sparse_model()
        T = torch.rand(3, D, dtype=torch.float64)
        before = model.posterior(T).mean
        other = model.with_dictionary(torch.tensor([5, 3, 40, 3]))
        assert other.dictionary_indices.tolist() == [3, 5, 40]
        assert not torch.allclose(other.posterior(T).mean, before)
        assert torch.equal(model.posterior(T).mean, before)

    def test_resparsify_draws_from_the_current_scores(self):
        X, Y = regression(600)
        model = DTCGP(X, Y, dictionary=RidgeLeverageSampling(2.0))
        scores = model.leverage_scores(X).squeeze(-1)
        g = torch.Generator().manual_seed(5)
        assert model.resparsify(g) is model
        got = model.dictionary_indices
        p = (2 * scores).clamp(max=1)
        coins = torch.rand(600, generator=torch.Generator().manual_seed(5))
        assert torch.equal(got, torch.nonzero(coins < p).squeeze(-1))
        assert model.posterior(X[:2]).mean.isfinite().all()

    def test_resparsify_turns_conditioned_points_into_data(self):
        model = sparse_model()
        X = torch.rand(3, D, dtype=torch.float64)
        conditioned = model.condition_on_observations(X, X[:, :1])
        assert conditioned.dictionary_indices.tolist() == [*range(12), 60, 61, 62]
        conditioned.resparsify()
        assert conditioned.train_inputs[0].shape == (63, D)
        T = torch.rand(4, D, dtype=torch.float64)
        mean, _ = dense_moments(conditioned, T)
        got = conditioned.posterior(T).mean.squeeze(-1)
        torch.testing.assert_close(got, mean, atol=1e-6, rtol=1e-6)

    @pytest.mark.parametrize("rule", [AllPoints(), InformationThreshold(1e-3)])
    def test_any_rule(self, rule):
        X, Y = regression(50)
        model = DTCGP(X, Y, dictionary=rule)
        assert model.posterior(X[:3]).variance.min() > 0

    def test_set_train_data_of_another_size_draws_again(self):
        X, Y = regression(40)
        model = DTCGP(X, Y)
        model.posterior(X[:1])
        X, Y = regression(30)
        model.set_train_data(X, Y.squeeze(-1), strict=False)
        assert len(model.dictionary_indices) == 30
        model.posterior(X[:1])


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
        assert list(model.buffers()) == list(model.buffers())
        assert not any(b.dtype == torch.long and b.numel() == 12 for b in model.buffers())

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
