r"""What users see of a fit: why it failed, and how far it is."""

from __future__ import annotations

import sys

import pytest
import torch
from botorch.exceptions.errors import ModelFittingError, UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.optim.fit import fit_gpytorch_mll_torch
from gpytorch.kernels import Kernel
from gpytorch.means import LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood

from botorch_bkb import DTCGP, CompressedGP, fit_progress
from botorch_bkb.linalg import KernelNotPSDError
from tests.problems import regression


class Indefinite(Kernel):
    r"""``-1`` on the diagonal of two blocks: no kernel."""

    def __init__(self):
        super().__init__()
        self.register_parameter("raw", torch.nn.Parameter(torch.zeros(1)))

    def forward(self, x1, x2, diag=False, **params):
        value = -torch.exp(self.raw) * torch.ones(x1.shape[:-1], dtype=x1.dtype)
        return value if diag else value.unsqueeze(-1).expand(*x1.shape[:-1], x2.shape[-2])


def mll_of(model):
    return ExactMarginalLogLikelihood(model.likelihood, model)


def test_a_kernel_that_is_no_kernel_is_named_as_the_reason():
    X, Y = regression(30)
    model = DTCGP(X, Y, covar_module=Indefinite(), dictionary=torch.arange(10))
    before = [p.clone() for p in model.parameters()]
    message = r"All attempts to fit the model have failed.*kernel matrix of the dictionary must be"
    with pytest.raises(ModelFittingError, match=message) as caught:
        fit_gpytorch_mll(mll_of(model))
    assert isinstance(caught.value.__cause__, KernelNotPSDError)
    assert all(map(torch.equal, before, model.parameters()))


def test_the_reason_is_given_where_all_points_are_in_the_dictionary():
    model = DTCGP(*regression(30), covar_module=Indefinite())
    with pytest.raises(ModelFittingError, match=r"noise included.*a kernel that is not positive"):
        fit_gpytorch_mll(mll_of(model))


def test_the_reason_reaches_the_user_of_a_list_of_models():
    X, Y = regression(30)
    bad = DTCGP(X, Y, covar_module=Indefinite(), dictionary=torch.arange(10))
    models = ModelListGP(DTCGP(X, Y), bad)
    with pytest.raises(ModelFittingError, match="must be finite and positive"):
        fit_gpytorch_mll(SumMarginalLogLikelihood(models.likelihood, models))


class NotFinite(Indefinite):
    r"""A kernel that returns NaN, as custom kernels do where they divide by zero."""

    def forward(self, x1, x2, diag=False, **params):
        return float("nan") * super().forward(x1, x2, diag, **params)


@pytest.mark.parametrize("dictionary", [None, torch.arange(10)], ids=["exact", "sparse"])
def test_values_that_are_not_finite_are_named(dictionary):
    model = DTCGP(*regression(30), covar_module=NotFinite(), dictionary=dictionary)
    with pytest.raises(ModelFittingError, match=r"have failed.*kernel matrix.*must be finite"):
        fit_gpytorch_mll(mll_of(model))


def test_a_mean_that_is_not_finite_is_named():
    model = DTCGP(*regression(30))
    model.mean_module = LinearMean(2).double()
    model.mean_module.weights.data.fill_(torch.nan)
    with pytest.raises(ModelFittingError, match=r"have failed.*the prior mean must be finite"):
        fit_gpytorch_mll(mll_of(model))


def test_a_failure_without_a_reason_is_reported_as_botorch_does():
    model = DTCGP(*regression(30))
    options = {"max_attempts": 0}
    with pytest.raises(ModelFittingError, match=r"have failed.$"):
        fit_gpytorch_mll(mll_of(model), **options)


@pytest.mark.parametrize("model_class", [DTCGP, CompressedGP])
def test_a_model_without_free_hyperparameters_is_refused(model_class):
    model = model_class(*regression(30)).requires_grad_(False)
    with pytest.raises(UnsupportedError, match=r"needs a hyperparameter.*requires_grad_\(True\)"):
        fit_gpytorch_mll(mll_of(model))
    assert model.posterior(torch.zeros(1, 2, dtype=torch.float64)).mean.isfinite().all()


def test_an_optimizer_of_the_users_is_used():
    model = DTCGP(*regression(30))
    mll = fit_gpytorch_mll(
        mll_of(model), optimizer=fit_gpytorch_mll_torch, optimizer_kwargs={"step_limit": 3}
    )
    assert not mll.training


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("model_class", [DTCGP, CompressedGP])
def test_a_fit_shows_its_progress(model_class, outputs, capsys, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    model = model_class(*regression(30, 2, outputs))
    fit_gpytorch_mll(mll_of(model), optimizer_kwargs=fit_progress())
    shown = capsys.readouterr().err
    assert "fit: " in shown and "step" in shown
    assert ("loss=" in shown) == (outputs == 1)


def test_progress_without_tqdm_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"pip install 'botorch-bkb\[progress\]'"):
        fit_progress()
