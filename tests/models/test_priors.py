r"""Priors of any form: fits find the hyperparameters that ``SingleTaskGP`` finds."""

from __future__ import annotations

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior, UniformPrior

from botorch_bkb import BKB, DTCGP
from botorch_bkb.models.reading import read_model
from tests.problems import regression


def mll_of(model):
    return ExactMarginalLogLikelihood(model.likelihood, model)


def fitted(model_class, kernel, **options):
    model = model_class(*regression(40, 1), covar_module=kernel.double(), **options)
    fit_gpytorch_mll(mll_of(model))
    return model


@pytest.fixture(autouse=True)
def same_data():
    torch.manual_seed(0)


class TestUniform:
    @pytest.mark.parametrize("dictionary", [None, torch.arange(12)], ids=["exact", "sparse"])
    def test_fits_reach_the_length_scale_of_single_task_gp(self, dictionary):
        found = []
        for model_class, more in ((DTCGP, {"dictionary": dictionary}), (SingleTaskGP, {})):
            torch.manual_seed(0)
            kernel = RBFKernel(lengthscale_prior=UniformPrior(0.05, 5.0))
            found.append(fitted(model_class, kernel, **more).covar_module.lengthscale.item())
        assert found[0] == pytest.approx(found[1], rel=0.02)

    def test_fits_stay_in_the_support(self):
        kernel = RBFKernel(lengthscale_prior=UniformPrior(0.05, 0.1))  # starts outside of it
        model = fitted(DTCGP, kernel)
        assert model.covar_module.lengthscale.item() == pytest.approx(0.1, rel=1e-4)
        assert torch.isfinite(
            mll_of(model).train()(model(*model.train_inputs), model.train_targets)
        )

    def test_of_the_noise(self):
        likelihood = GaussianLikelihood(UniformPrior(1e-3, 1.0), GreaterThan(1e-4)).double()
        model = fitted(DTCGP, RBFKernel(), likelihood=likelihood)
        assert 1e-3 < model.likelihood.noise.item() < 0.2

    @pytest.mark.parametrize("high", [5.0, 0.3])
    def test_optimizers_fit_it(self, high):
        arms = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)
        kernel = RBFKernel(lengthscale_prior=UniformPrior(0.05, high)).double()
        optimizer = BKB(arms, covar_module=kernel, refit=True, seed=0)
        for _ in range(12):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, torch.sin(6 * suggestion.X).squeeze(-1))
        assert 0.05 < optimizer.model.covar_module.base_kernel.lengthscale.item() < high


READINGS = {
    "inverse": (lambda k: k.lengthscale.reciprocal(), NormalPrior(5.0, 0.05), 0.2),
    "logarithm, moved": (lambda k: k.lengthscale.log() + 1, NormalPrior(-0.6, 0.01), 0.2),
    "square": (lambda k: k.lengthscale.square(), NormalPrior(0.04, 0.001), 0.2),
    "clamped": (lambda k: k.lengthscale.clamp_min(0.5), NormalPrior(0.5, 0.001), None),
}


@pytest.mark.parametrize("kind", list(READINGS))
@pytest.mark.parametrize("dictionary", [None, torch.arange(12)], ids=["exact", "sparse"])
def test_a_prior_of_a_function_of_a_hyperparameter_is_no_prior_of_it(kind, dictionary):
    closure, prior, expected = READINGS[kind]
    kernel = RBFKernel().double()
    kernel.register_prior("derived", prior, closure)
    kernel.lengthscale = 1.0  # there all but "square" are easily confused with it
    model = fitted(DTCGP, kernel, dictionary=dictionary)
    assert closure(model.covar_module).item() == pytest.approx(prior.mean.item(), rel=0.05)
    if expected is not None:
        assert model.covar_module.lengthscale.item() == pytest.approx(expected, rel=0.05)


def test_a_prior_of_a_product_is_no_prior_of_one_factor():
    kernel = ScaleKernel(RBFKernel()).double()
    prior = NormalPrior(0.3, 1e-3)
    kernel.register_prior("product", prior, lambda k: k.outputscale * k.base_kernel.lengthscale)
    kernel.outputscale = kernel.base_kernel.lengthscale = 1.0
    model = DTCGP(*regression(40, 1), covar_module=kernel)
    fit_gpytorch_mll(mll_of(model))
    product = kernel.outputscale * kernel.base_kernel.lengthscale
    assert product.item() == pytest.approx(0.3, rel=0.05)
    assert abs(kernel.outputscale.item() - 0.3) > 0.05


def test_usual_priors_keep_their_closed_form_and_reading_changes_nothing():
    kernel = ScaleKernel(
        RBFKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(0.5, 1.0)),
        outputscale_prior=GammaPrior(2.0, 0.15),
    ).double()
    model = DTCGP(*regression(20), covar_module=kernel)
    before = {k: (p.clone(), p._version) for k, p in model.named_parameters()}
    posterior = read_model(mll_of(model))
    assert posterior is not None
    assert [h.density is not None for h in posterior.hyperparameters] == [True, True, True, False]
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name][0]) and p._version == before[name][1]


class TestDataWithGradients:
    r"""Data that require gradients, as where they are computed by a model that is trained."""

    @pytest.mark.parametrize("which", ["X", "Y"])
    @pytest.mark.parametrize("dictionary", [None, torch.arange(12)], ids=["exact", "sparse"])
    def test_give_the_fit_of_the_same_numbers(self, which, dictionary):
        X, Y = regression(30)
        lengths = []
        for needed in (False, True):
            data = {"X": X.clone(), "Y": Y.clone()}
            data[which].requires_grad_(needed)
            model = DTCGP(data["X"], data["Y"], dictionary=dictionary)
            fit_gpytorch_mll(mll_of(model))
            lengths.append(model.covar_module.lengthscale.detach())
            assert model.posterior(X[:3].detach()).mean.isfinite().all()
        torch.testing.assert_close(*lengths)
