r"""Kernels with other dimensions than the data, which length-scales would broadcast to."""

from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP
from tests.problems import regression

KERNELS = {
    "rbf": lambda d: RBFKernel(ard_num_dims=d),
    "1/2": lambda d: MaternKernel(nu=0.5, ard_num_dims=d),
    "linear": lambda d: LinearKernel(ard_num_dims=d),
    "scaled": lambda d: ScaleKernel(RBFKernel(ard_num_dims=d)),
    "some dimensions": lambda d: RBFKernel(ard_num_dims=d, active_dims=(0,)),
}
DICTIONARIES = {
    "exact": {},
    "sparse": {"dictionary": torch.arange(10)},
    "trace term": {"dictionary": torch.arange(10), "trace_term": True},
}


def model_of(kernel, d, model_class=DTCGP, **options):
    return model_class(*regression(40, d), covar_module=kernel.double(), **options)


def fit(model):
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


def posterior(model):
    model.posterior(model.train_inputs[0][:3])


@pytest.mark.parametrize("use", [fit, posterior])
@pytest.mark.parametrize("options", DICTIONARIES.values(), ids=list(DICTIONARIES))
@pytest.mark.parametrize("kind", list(KERNELS))
@pytest.mark.parametrize("d", [1, 2])
def test_are_refused_in_the_words_of_gpytorch(kind, d, options, use):
    read = 1 if kind == "some dimensions" else d
    expected = f"Expected the input to have 3 dimensionality .*ard_num_dims.* Got {read}"
    with pytest.raises(RuntimeError, match=expected) as caught:
        use(model_of(KERNELS[kind](3), d, **options))
    assert isinstance(caught.value, BotorchTensorDimensionError)
    if use is fit and kind != "scaled":  # elsewhere it broadcasts
        with pytest.raises(RuntimeError, match=expected):
            use(model_of(KERNELS[kind](3), d, SingleTaskGP))


@pytest.mark.parametrize("use", [fit, posterior])
def test_one_length_scale_of_a_single_dimension_is_refused_for_two(use):
    with pytest.raises(RuntimeError, match="have 1 dimensionality"):
        use(model_of(RBFKernel(ard_num_dims=1), 2))
    use(model_of(RBFKernel(ard_num_dims=1), 1))
    use(model_of(RBFKernel(), 2))
