r"""DTCGP inside BoTorch: what works with ``SingleTaskGP`` gives the same numbers here."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition import (
    ExpectedImprovement,
    NoisyExpectedImprovement,
    UpperConfidenceBound,
    qExpectedImprovement,
    qNegIntegratedPosteriorVariance,
    qUpperConfidenceBound,
)
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
from botorch.acquisition.multi_objective.monte_carlo import qNoisyExpectedHypervolumeImprovement
from botorch.acquisition.multi_step_lookahead import qMultiStepLookahead
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.cross_validation import batch_cross_validation, gen_loo_cv_folds, loo_cv
from botorch.exceptions.errors import UnsupportedError
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import InputPerturbation
from botorch.optim import optimize_acqf, optimize_acqf_discrete, optimize_acqf_mixed
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.sampling.pathwise.features import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP, RidgeLeverageSampling, select_baseline
from botorch_bkb.linalg import safe_cholesky
from tests.problems import regression

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def sampler(n: int = 16) -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([n]), seed=5)


def value_and_gradient(acqf, X):
    X = X.clone().requires_grad_()
    value = acqf(X)
    return value.detach(), torch.autograd.grad(value.sum(), X)[0]


ACQUISITIONS = {
    "EI": (1, 1, lambda m, X: ExpectedImprovement(m, best_f=1.5)),
    "LogEI": (1, 1, lambda m, X: LogExpectedImprovement(m, best_f=1.5)),
    "UCB": (1, 1, lambda m, X: UpperConfidenceBound(m, beta=4.0)),
    "qEI": (3, 1, lambda m, X: qExpectedImprovement(m, best_f=1.5, sampler=sampler())),
    "qLogEI": (3, 1, lambda m, X: qLogExpectedImprovement(m, best_f=1.5, sampler=sampler())),
    "qUCB": (3, 1, lambda m, X: qUpperConfidenceBound(m, beta=2.0, sampler=sampler())),
    "qLogNEI": (
        3,
        1,
        lambda m, X: qLogNoisyExpectedImprovement(m, X_baseline=X, sampler=sampler()),
    ),
    "qLogNEI-joint": (
        3,
        1,
        lambda m, X: qLogNoisyExpectedImprovement(
            m, X_baseline=X, sampler=sampler(), cache_root=False
        ),
    ),
    "qKG": (5, 1, lambda m, X: qKnowledgeGradient(m, num_fantasies=4, sampler=sampler(4))),
    "qMES": (1, 1, lambda m, X: qMaxValueEntropy(m, X)),
    "qNEHVI": (
        2,
        2,
        lambda m, X: qNoisyExpectedHypervolumeImprovement(
            m, ref_point=[-2.0, -2.0], X_baseline=X, sampler=sampler(), prune_baseline=False
        ),
    ),
}


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_acquisition_functions_agree_with_single_task_gp(name):
    q, outputs, make = ACQUISITIONS[name]
    X, Y = regression(25, m=outputs)
    T = torch.rand(4, q, 2, dtype=torch.float64)
    results = []
    for cls in (SingleTaskGP, DTCGP):
        torch.manual_seed(1)
        results.append(value_and_gradient(make(cls(X, Y), X), T))
    (value, grad), (sparse_value, sparse_grad) = results
    torch.testing.assert_close(value, sparse_value, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(grad, sparse_grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda m, X: qNegIntegratedPosteriorVariance(m, mc_points=X),
        lambda m, X: qMultiStepLookahead(
            m, batch_sizes=[1], samplers=[sampler(2)], inner_mc_samples=[None, None]
        ),
    ],
    ids=["qNIPV", "multi-step"],
)
def test_gradients_through_fantasies_match_difference_quotients(make):
    r"""``SingleTaskGP`` detaches part of these gradients; its values are the same."""
    X, Y = regression(25)
    T = torch.rand(2, 3, 2, dtype=torch.float64)  # q=3, or a point and two fantasies' successors
    acqf = make(DTCGP(X, Y), X)
    value, grad = value_and_gradient(acqf, T)
    torch.testing.assert_close(value, make(SingleTaskGP(X, Y), X)(T).detach(), atol=1e-6, rtol=1e-6)
    h = 1e-5
    for index in torch.cartesian_prod(*(torch.arange(s) for s in T.shape)).tolist():
        step = torch.zeros_like(T)
        step[tuple(index)] = h
        with torch.no_grad():
            slope = (acqf(T + step).sum() - acqf(T - step).sum()) / (2 * h)
        torch.testing.assert_close(grad[tuple(index)], slope, atol=1e-6, rtol=1e-5)


def test_noisy_expected_improvement_with_fixed_noise():
    X, Y = regression(15)
    T = torch.rand(4, 1, 2, dtype=torch.float64)
    values = []
    for cls in (SingleTaskGP, DTCGP):
        torch.manual_seed(1)
        model = cls(X, Y, train_Yvar=torch.full_like(Y, 0.01))
        values.append(NoisyExpectedImprovement(model, X_observed=X, num_fantasies=4)(T))
    torch.testing.assert_close(*values, atol=1e-6, rtol=1e-6)


@pytest.fixture
def sparse():
    X, Y = regression(800)
    return DTCGP(X, Y, input_transform=Normalize(2), dictionary=RidgeLeverageSampling(2.0))


OPTIMIZER = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 5}}


def test_optimizers_run_on_a_sparse_model(sparse):
    log_ei = qLogExpectedImprovement(sparse, best_f=1.0, sampler=sampler())
    for acqf, q, sequential in (
        (UpperConfidenceBound(sparse, beta=4.0), 1, False),
        (log_ei, 2, True),
        (log_ei, 2, False),
        (qKnowledgeGradient(sparse, num_fantasies=2), 1, False),
        (qLogNoisyExpectedImprovement(sparse, select_baseline(sparse, 20)), 2, True),
    ):
        candidates, _ = optimize_acqf(acqf, BOUNDS, q=q, sequential=sequential, **OPTIMIZER)
        assert candidates.shape == (q, 2) and candidates.isfinite().all()
    choices = torch.rand(30, 2, dtype=torch.float64)
    assert optimize_acqf_discrete(log_ei, q=2, choices=choices)[0].shape == (2, 2)
    fixed = [{0: 0.0}, {0: 1.0}]
    assert optimize_acqf_mixed(log_ei, BOUNDS, q=1, fixed_features_list=fixed, **OPTIMIZER)


def exact_prior(points):
    r"""A prior sampler without Fourier features: exact at the given points.

    ``f(x) = k(x, U) L^{-T} eps`` with ``K_UU = LL'`` has covariance ``K_UU`` at ``U``.
    """

    def draw(model, sample_shape):
        kernel = model.covar_module
        L = safe_cholesky(kernel(points).to_dense())
        eps = torch.randn(*sample_shape, len(points), 1, dtype=torch.float64)
        weight = torch.linalg.solve_triangular(L.mT, eps, upper=True).squeeze(-1)
        return GeneralizedLinearPath(
            KernelEvaluationMap(kernel, points), weight.detach(), bias_module=model.mean_module
        )

    return draw


@pytest.mark.parametrize("conditioned", [False, True])
def test_pathwise_samples_have_the_moments_of_the_posterior(conditioned):
    r"""8192 paths: four standard errors are 0.045 for means and 0.0625 for variances."""
    X, Y = regression(700)
    model = DTCGP(0.5 * X, Y, dictionary=RidgeLeverageSampling(2.0))
    extra = torch.tensor([[0.9, 0.9], [0.5, 0.9]], dtype=torch.float64)
    T = torch.rand(6, 2, dtype=torch.float64)  # half of it far from the data
    points = torch.cat([0.5 * X[model.dictionary_indices], T, extra])
    if conditioned:
        model = model.condition_on_observations(extra, Y[:2])
    paths = draw_matheron_paths(
        model, sample_shape=torch.Size([8192]), prior_sampler=exact_prior(points)
    )
    with torch.no_grad():
        samples, posterior = paths(T), model.posterior(T)
    sd = posterior.variance.sqrt().squeeze(-1)
    assert sd.max() > 5 * sd.min()
    error = (samples.mean(0) - posterior.mean.squeeze(-1)) / sd
    assert error.abs().max() < 0.045
    correlation = samples.T.cov() / torch.outer(sd, sd)
    expected = posterior.distribution.covariance_matrix / torch.outer(sd, sd)
    assert (correlation - expected).abs().max() < 0.0625


def test_paths_from_fourier_features_follow_the_data():
    X, Y = regression(700)
    model = DTCGP(X, Y, dictionary=RidgeLeverageSampling(2.0), input_transform=Normalize(2))
    paths = draw_matheron_paths(model, sample_shape=torch.Size([256]))
    T = torch.rand(20, 2, dtype=torch.float64)
    with torch.no_grad():
        error = paths(T).mean(0) - model.posterior(T).mean.squeeze(-1)
    assert error.abs().max() < 0.02


def test_pathwise_shapes():
    X, Y = regression(30, m=2)
    model = DTCGP(X, Y, input_transform=Normalize(2))
    paths = draw_matheron_paths(model, sample_shape=torch.Size([5]))
    assert paths(torch.rand(1, 7, 2, dtype=torch.float64)).shape == (5, 2, 7)
    path_model = get_matheron_path_model(model)
    assert path_model.posterior(torch.rand(7, 2, dtype=torch.float64)).mean.shape == (7, 2)
    fantasy = DTCGP(X, Y[:, :1]).fantasize(X[:2], sampler(3))
    with pytest.raises(UnsupportedError, match="kernel for each batch"):
        draw_matheron_paths(fantasy, sample_shape=torch.Size([5]))


def test_max_posterior_sampling(sparse):
    choices = torch.rand(40, 2, dtype=torch.float64)
    assert MaxPosteriorSampling(sparse)(choices, num_samples=3).shape == (3, 2)


def test_cross_validation_agrees_with_single_task_gp():
    X, Y = regression(12)
    folds = gen_loo_cv_folds(X, Y)
    means = [
        batch_cross_validation(cls, ExactMarginalLogLikelihood, folds).posterior.mean
        for cls in (SingleTaskGP, DTCGP)
    ]
    torch.testing.assert_close(*means, atol=1e-3, rtol=1e-3)
    means = [loo_cv(cls(X, Y)).posterior.mean for cls in (SingleTaskGP, DTCGP)]
    torch.testing.assert_close(*means)


def test_leave_one_out_formulas_are_refused_where_they_do_not_hold():
    X, Y = regression(12)
    with pytest.raises(UnsupportedError, match="leave-one-out"):
        loo_cv(DTCGP(X, Y, dictionary=torch.arange(4)).eval())


class TestSelectBaseline:
    def test_is_small_raw_and_has_the_best_means(self, sparse):
        X = 10 * sparse.train_inputs[0]
        model = DTCGP(X, X.sum(-1, keepdim=True), input_transform=Normalize(2))
        baseline = select_baseline(model, 30)
        assert len(baseline) <= 30
        best = X[model.posterior(X).mean.squeeze(-1).argmax()]
        assert (baseline == best).all(-1).any()
        assert all((b == X).all(-1).any() for b in baseline)

    def test_is_everything_where_there_is_little(self):
        X, Y = regression(20)
        X, Y = torch.cat([X, X]), torch.cat([Y, Y])
        assert len(select_baseline(DTCGP(X, Y), 100)) == 20

    def test_flipped_sign_picks_the_other_end(self, sparse):
        X = sparse.train_inputs[0]
        flip = ScalarizedPosteriorTransform(torch.tensor([-1.0], dtype=torch.float64))
        low = select_baseline(sparse, 20, flip)
        high = select_baseline(sparse, 20)
        assert sparse.posterior(low).mean.min() < sparse.posterior(high).mean.min()
        assert sparse.posterior(low).mean.min() <= sparse.posterior(X).mean.min() + 1e-9

    def test_refuses_transforms_that_make_several_rows_of_one(self):
        X, Y = regression(50)
        perturb = InputPerturbation(0.05 * torch.rand(3, 2, dtype=torch.float64))
        with pytest.raises(UnsupportedError, match="one prediction an input"):
            select_baseline(DTCGP(X, Y, input_transform=perturb), 10)

    def test_needs_one_output_and_no_batch(self):
        X, Y = regression(10, m=2)
        with pytest.raises(UnsupportedError, match="posterior_transform"):
            select_baseline(DTCGP(X, Y))
        X, Y = regression(10, batch=(2,))
        with pytest.raises(UnsupportedError, match="batch"):
            select_baseline(DTCGP(X, Y))
