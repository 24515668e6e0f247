r"""Warnings of models whose dictionary is capped."""

from __future__ import annotations

import warnings

import pytest
import torch
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskVariationalGP
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP, RidgeLeverageSampling
from tests.problems import regression


def of_caps(caught):
    return [w for w in caught if "dictionary points were drawn" in str(w.message)]


def model_of(max_size: int, noise: float, n: int = 300) -> DTCGP:
    torch.manual_seed(0)
    X, Y = regression(n, 2, noise=noise)
    return DTCGP(X, Y, dictionary=RidgeLeverageSampling(4.0, max_size=max_size))


def fit(model: DTCGP) -> None:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


def test_a_cap_that_binds_only_before_the_fit_is_not_warned_of():
    model = model_of(60, noise=0.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(model.dictionary_indices) == 60  # in training mode, with the initial noise
        fit(model)
        model.posterior(model.train_inputs[0][:3])
    assert not of_caps(caught)
    assert len(model.dictionary_indices) < 60


def test_a_cap_that_binds_after_the_fit_is_warned_of_once_with_the_share_that_is_lost_then():
    model = model_of(10, noise=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model)
        for _ in range(2):
            model.posterior(model.train_inputs[0][:3])
    (warning,) = of_caps(caught)
    assert "10 of them kept" in str(warning.message) and "Raise max_size" in str(warning.message)
    assert warning.filename == __file__


def test_a_dictionary_that_was_drawn_in_training_mode_is_warned_of_at_the_first_prediction():
    model = model_of(10, noise=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = model.dictionary_indices
    with pytest.warns(BotorchWarning, match="10 of them kept"):
        model.posterior(model.train_inputs[0][:3])
    assert torch.equal(model.dictionary_indices, before)


@pytest.mark.parametrize(
    ("rule", "argument"),
    [
        (RidgeLeverageSampling(50.0), "the number of inducing points"),
        (RidgeLeverageSampling(50.0, max_size=5), "max_size"),
    ],
)
def test_as_an_allocator_a_rule_names_the_argument_that_binds(rule, argument):
    X, Y = regression(100)
    kernel = RBFKernel().double()
    with pytest.warns(BotorchWarning, match=f"Raise {argument} if"):
        model = SingleTaskVariationalGP(
            X, Y, covar_module=kernel, inducing_points=10, inducing_point_allocator=rule
        )
    assert model.model.variational_strategy.inducing_points.shape[-2] <= 10
