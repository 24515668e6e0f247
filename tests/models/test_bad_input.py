from __future__ import annotations

import warnings

import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.exceptions.warnings import InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.utils.warnings import NumericalWarning
from torch import Tensor

from botorch_bkb import DTCGP, RidgeLeverageSampling, select_baseline
from tests.problems import regression


@pytest.mark.parametrize("which", ["train_X", "train_Y", "train_Yvar"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_are_refused(which, value):
    X, Y = regression(10)
    data = {"train_X": X, "train_Y": Y, "train_Yvar": torch.full_like(Y, 0.1)}
    data[which] = data[which].clone()
    data[which][3, 0] = value
    with pytest.raises(InputDataError, match=rf"{which} must be finite, got .* at \(3, 0\)"):
        DTCGP(**data)


@pytest.mark.parametrize("which", ["train_X", "train_Y", "train_Yvar"])
def test_arrays_and_lists_are_refused(which):
    X, Y = regression(10)
    data = {"train_X": X, "train_Y": Y, "train_Yvar": torch.full_like(Y, 0.1)}
    for made in (Tensor.numpy, Tensor.tolist):
        with pytest.raises(InputDataError, match=rf"{which} must be a tensor.*as_tensor\({which}"):
            DTCGP(**{**data, which: made(data[which])})


def test_what_is_no_kernel_is_refused():
    with pytest.raises(InputDataError, match=r"gpytorch kernel or None, got 'rbf'"):
        DTCGP(*regression(10), covar_module="rbf")


def test_a_number_is_no_dictionary():
    with pytest.raises(InputDataError, match=r"got 10: .* RidgeLeverageSampling\(max_size"):
        DTCGP(*regression(20), dictionary=10)


def test_a_baseline_is_chosen_from_sparse_models():
    with pytest.raises(UnsupportedError, match=r"DTCGP, a CompressedGP.* got SingleTaskGP"):
        select_baseline(SingleTaskGP(*regression(10)), 3)


def test_negative_variances_are_refused():
    X, Y = regression(10)
    with pytest.raises(InputDataError, match="train_Yvar must not be negative"):
        DTCGP(X, Y, torch.full_like(Y, -1.0))


def test_variances_of_zero_are_rounded_up_with_one_warning():
    r"""As in ``SingleTaskGP``: gpytorch rounds up to 1e-6. Ax says "no noise" this way."""
    X, Y = regression(10)
    with pytest.warns(NumericalWarning, match="Very small noise") as caught:
        model = DTCGP(X, Y, torch.zeros_like(Y))
    assert len(caught) == 1
    torch.testing.assert_close(model.posterior(X).mean, Y, atol=1e-3, rtol=1e-3)


def test_mismatched_shapes_are_refused():
    X, Y = regression(10)
    with pytest.raises(BotorchTensorDimensionError, match="all but the last dimension"):
        DTCGP(X, Y[:9])
    with pytest.raises(BotorchTensorDimensionError, match="output dimension"):
        DTCGP(X, Y.squeeze(-1))
    with pytest.raises(BotorchTensorDimensionError, match="Yvar"):
        DTCGP(X, Y, Y[:5].abs() + 1)
    with pytest.raises(InputDataError, match="dtype"):
        DTCGP(X, Y.float())
    with pytest.raises(InputDataError, match="at least one row"):
        DTCGP(X[:0], Y[:0])


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (torch.tensor([], dtype=torch.long), "at least one point"),
        (torch.tensor([0, 10]), r"0\.\.9"),
        (torch.tensor([-1]), r"0\.\.9"),
        (torch.tensor([0.5]), "LongTensor"),
        (torch.tensor([[1, 2]]), "one-dimensional"),
        (torch.tensor([True] * 10), "LongTensor"),
    ],
)
def test_bad_dictionaries_are_refused(indices, message):
    X, Y = regression(10)
    with pytest.raises(InputDataError, match=message):
        DTCGP(X, Y, dictionary=indices)
    with pytest.raises(InputDataError, match=message):
        DTCGP(X, Y).with_dictionary(indices)


def test_repeated_dictionary_points_bring_one_warning():
    X, Y = regression(10)
    X[3] = X[1]
    with pytest.warns(InputDataWarning, match="1 of the 4 dictionary points") as caught:
        model = DTCGP(X, Y, dictionary=torch.arange(4))
    assert len(caught) == 1
    assert model.dictionary_indices.tolist() == [0, 1, 2]
    assert model.posterior(X).variance.isfinite().all()


def test_nearly_repeated_points_are_harmless():
    X, Y = regression(40)
    X = torch.cat([X, X + 1e-9, X - 1e-12])
    model = DTCGP(X, Y.repeat(3, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = model.posterior(torch.rand(5, 2, dtype=torch.float64))
    assert posterior.mean.isfinite().all() and (posterior.variance > 0).all()


class Indefinite(Kernel):
    r"""``k(x, x') = |x - x'|``: symmetric, and far from positive definite."""

    def forward(self, x1, x2, diag=False, **params):
        if diag:
            return torch.zeros(x1.shape[:-1], dtype=x1.dtype)
        return torch.cdist(x1, x2)


def test_a_kernel_that_is_not_positive_definite_is_named():
    X, Y = regression(10)
    with pytest.raises(InputDataError, match="kernel that is not positive definite"):
        DTCGP(X, Y, covar_module=Indefinite()).posterior(X)


def test_bad_observations_leave_the_model_as_it_was():
    X, Y = regression(20)
    model = DTCGP(X, Y)
    before = model.posterior(X).mean
    new = torch.rand(2, 2, dtype=torch.float64)
    for bad_X, bad_Y in (
        (new, torch.tensor([[1.0], [torch.nan]]).double()),
        (new * torch.inf, Y[:2]),
    ):
        with pytest.raises(InputDataError, match="must be finite"):
            model.condition_on_observations(bad_X, bad_Y)
    with pytest.raises(BotorchTensorDimensionError):
        model.condition_on_observations(new, Y[:3])
    assert torch.equal(model.posterior(X).mean, before)
    assert model.train_inputs[0].shape == (20, 2)


@pytest.mark.parametrize("value", [torch.nan, -1.0])
def test_bad_noise_of_new_observations_is_refused(value):
    X, Y = regression(20)
    model = DTCGP(X, Y, torch.full_like(Y, 0.1))
    with pytest.raises(InputDataError, match="noise must"):
        model.condition_on_observations(X[:2], Y[:2], noise=torch.full_like(Y[:2], value))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_queries_that_are_not_finite_are_refused(value):
    X, Y = regression(20)
    with pytest.raises(InputDataError, match="X must be finite"):
        DTCGP(X, Y).posterior(torch.full((1, 2), value, dtype=torch.float64))


def test_fixed_noise_needs_the_noise_of_new_observations():
    X, Y = regression(20)
    model = DTCGP(X, Y, torch.full_like(Y, 0.1))
    with pytest.raises(InputDataError, match="pass `noise`"):
        model.condition_on_observations(X[:2], Y[:2])


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.filterwarnings("ignore")
def test_outcomes_of_any_scale(scale, dtype):
    X, Y = regression(600, dtype=dtype)
    model = DTCGP(X, scale * Y, dictionary=RidgeLeverageSampling(2.0, max_size=50))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    posterior = model.posterior(torch.rand(5, 2, dtype=dtype))
    assert (posterior.mean / scale).isfinite().all()
    assert (posterior.variance.double() / scale**2 > 0).all()


@pytest.mark.filterwarnings("ignore")
def test_constant_outcomes_and_far_away_points():
    X, _ = regression(30)
    model = DTCGP(X - 0.5, torch.full((30, 1), 3.0, dtype=torch.float64))
    far = torch.tensor([[1e6, -1e6], [-1e-300, 0.0]], dtype=torch.float64)
    posterior = model.posterior(far)
    assert posterior.mean.isfinite().all() and (posterior.variance >= 0).all()


@pytest.mark.filterwarnings("ignore")
def test_all_inputs_equal():
    X = torch.full((50, 2), 0.3, dtype=torch.float64)
    Y = torch.randn(50, 1, dtype=torch.float64)
    model = DTCGP(X, Y)
    assert model.dictionary_indices.tolist() == [0]
    posterior = model.posterior(X[:1])
    torch.testing.assert_close(posterior.mean, Y.mean(0, keepdim=True), atol=0.05, rtol=0)


def test_batches_that_do_not_broadcast_are_refused_in_the_words_of_gpytorch():
    model = DTCGP(*regression(10, batch=(3,)))
    two = torch.rand(2, 4, 2, dtype=torch.float64)
    message = r"Attempting to broadcast a dimension of length 2 .*\(3,\)"
    for error in (RuntimeError, BotorchTensorDimensionError):
        with pytest.raises(error, match=message):
            model.posterior(two)
    with pytest.raises(BotorchTensorDimensionError, match=message):
        model.condition_on_observations(two, two[..., :1])
    fantasies = DTCGP(*regression(10)).condition_on_observations(two, two[..., :1])
    five = torch.rand(5, 4, 2, dtype=torch.float64)
    with pytest.raises(BotorchTensorDimensionError, match="broadcast a dimension of length 5"):
        fantasies.posterior(five)
    with pytest.raises(BotorchTensorDimensionError, match="the batch shape of Y"):
        DTCGP(*regression(10)).condition_on_observations(five, two[..., :1])


def test_queries_with_other_columns_are_refused():
    model = DTCGP(*regression(10))
    with pytest.raises(BotorchTensorDimensionError, match="X must have 2 columns"):
        model.posterior(torch.rand(4, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda value: value + 1j, "be real"),
        (Tensor.to_sparse, "dense tensor with values, got one of layout"),
        (lambda value: value.to("meta"), "got a meta tensor"),
    ],
    ids=["complex", "sparse", "meta"],
)
@pytest.mark.parametrize("which", ["train_X", "train_Y", "train_Yvar", "X"])
def test_what_is_no_real_number_is_refused(which, change, match):
    X, Y = regression(10)
    data = {"train_X": X, "train_Y": Y, "train_Yvar": torch.full_like(Y, 0.1)}
    build = {which: change(data[which])} if which in data else {}
    with pytest.raises(InputDataError, match=f"{which} .*{match}"):
        DTCGP(**{**data, **build}).posterior(X if build else change(X))


def test_a_query_without_dimensions_is_refused():
    with pytest.raises(BotorchTensorDimensionError, match=r"q x 2 tensor.*got shape \(\)"):
        DTCGP(*regression(10)).posterior(torch.tensor(0.5, dtype=torch.float64))
