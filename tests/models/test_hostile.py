r"""Data at the limits of floating point: a clear error, or a finite answer."""

from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.models.transforms import Normalize
from gpytorch.kernels import (
    ConstantKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)

from botorch_bkb import (
    DTCGP,
    CompressedGP,
    MixedDTCGP,
    MultiFidelityDTCGP,
    MultiTaskDTCGP,
    RidgeLeverageSampling,
)
from tests.problems import regression


def mixed(X, Y, *args, **kwargs):
    return MixedDTCGP(*with_category(X, Y), [-1], *args, **kwargs)


def multitask(X, Y, *args, **kwargs):
    return MultiTaskDTCGP(*with_category(X, Y), -1, *args, **kwargs)


def fidelity(X, Y, *args, **kwargs):
    return MultiFidelityDTCGP(X, Y, *args, data_fidelities=[1], linear_truncated=False, **kwargs)


def polynomial():
    return PolynomialKernel(3)


def with_category(X, Y):
    category = torch.arange(len(X), dtype=X.dtype).remainder(2).unsqueeze(-1)
    return torch.cat([X, category], -1), Y


every_model = pytest.mark.parametrize(
    "build", [DTCGP, CompressedGP, mixed, multitask, fidelity], ids=lambda f: f.__name__
)
every_sparse_model = pytest.mark.parametrize(
    "build", [DTCGP, mixed, multitask, fidelity], ids=lambda f: f.__name__
)


def assert_finite(model, observation_noise=False):
    (X,) = model.train_inputs
    posterior = model.posterior(X[:3], observation_noise=observation_noise)
    assert posterior.mean.isfinite().all()
    assert posterior.variance.isfinite().all() and (posterior.variance >= 0).all()
    assert model.effective_dimension.isfinite()


@every_model
@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e20, torch.float32), (1e38, torch.float32), (1e155, torch.float64), (1e300, torch.float64)],
)
def test_inputs_whose_squares_overflow_are_refused(build, scale, dtype):
    X, Y = regression(12)
    with pytest.raises(InputDataError, match=r"train_X.*must be below.*squares fit.*rescale"):
        build((scale * X).to(dtype), Y.to(dtype))


@pytest.mark.parametrize("model_class", [DTCGP, CompressedGP])
@pytest.mark.parametrize("scale", [1e155, 1e300])
def test_inputs_that_a_transform_brings_into_range_are_taken(model_class, scale):
    X, Y = regression(12)
    plain, scaled = (
        model_class(s * X, Y, input_transform=Normalize(2)).posterior(s * X[:4]).mean
        for s in (1.0, scale)
    )
    torch.testing.assert_close(plain, scaled)


@pytest.mark.parametrize("kernel", [RBFKernel, MaternKernel])
@pytest.mark.parametrize("value", [1e160, -1e300])
def test_queries_whose_squares_overflow_are_refused(kernel, value):
    model = DTCGP(*regression(12), covar_module=kernel())
    with pytest.raises(InputDataError, match="must be below"):
        model.posterior(torch.full((1, 2), value, dtype=torch.float64))
    assert_finite(model)


@every_model
@pytest.mark.parametrize("scale", [1e-310, 1e-160, 1e-20, 1e20, 1e140])
def test_outcomes_of_extreme_scales_have_a_finite_posterior(build, scale):
    X, Y = regression(12)
    assert_finite(build(X, scale * Y), observation_noise=True)


@every_model
@pytest.mark.parametrize("scale", [1e155, 1e300])
def test_outcomes_whose_squares_overflow_are_refused(build, scale):
    X, Y = regression(12)
    with pytest.raises(InputDataError, match=r"train_Y must be below.*rescale"):
        build(X, scale * Y)


@every_model
@pytest.mark.parametrize("variances", [[1e-300], [1e300], [1e-300, 1e300], [1e-300, 1.0]])
@pytest.mark.filterwarnings("ignore:Very small noise")
def test_variances_of_extreme_scales_have_a_finite_posterior(build, variances):
    X, Y = regression(12)
    Yvar = torch.tensor(variances, dtype=Y.dtype).repeat(12 // len(variances)).unsqueeze(-1)
    assert_finite(build(X, Y, train_Yvar=Yvar))


@pytest.mark.parametrize("dictionary", [None, torch.arange(0, 30, 3)], ids=["exact", "sparse"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("kernel", "scale"), [(LinearKernel, 1e153), (polynomial, 1e20)])
def test_kernels_that_grow_with_the_inputs_have_a_clear_error_or_a_finite_posterior(
    kernel, scale, dictionary, seed
):
    torch.manual_seed(seed)
    X, Y = regression(30)
    model = DTCGP(scale * X, Y, covar_module=kernel().double(), dictionary=dictionary)
    try:
        posterior = model.posterior(scale * X[:3])
    except InputDataError as error:
        message = str(error)
    else:
        assert posterior.mean.isfinite().all() and posterior.variance.isfinite().all()
        return
    assert "Kernel values over noise variances must be below" in message and "Normalize" in message


@pytest.mark.parametrize("scale", [1e20, 1e50])
@pytest.mark.parametrize("repeats", [1, 3])
def test_all_points_explain_no_more_dimensions_than_there_are(scale, repeats):
    X, Y = regression(12)
    X, Y = X.repeat(repeats, 1), Y.repeat(repeats, 1)
    model = DTCGP(scale * X, Y, covar_module=polynomial().double())
    assert model.effective_dimension <= 12 * (1 + 1e-6)


@every_sparse_model
@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_observations(build, n):
    assert_finite(build(*regression(n), outcome_transform=None))


@every_sparse_model
def test_identical_rows_and_constant_outcomes(build):
    X, Y = regression(600)
    X[:], Y[:] = 0.5, 3.0
    model = build(X, Y, dictionary=RidgeLeverageSampling(4.0))
    assert_finite(model)
    torch.testing.assert_close(
        model.posterior(model.train_inputs[0][:1]).mean.item(), 3.0, atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("n", [20, 600])
@pytest.mark.parametrize("kernel", [ConstantKernel, lambda: ScaleKernel(ConstantKernel())])
def test_a_constant_kernel_predicts_the_mean(kernel, n):
    X, Y = regression(n)
    model = DTCGP(X, Y, covar_module=kernel(), outcome_transform=None)
    assert_finite(model)
    value = model.condition_on_observations(X[:1], Y[:1]).posterior(X[:5]).mean
    torch.testing.assert_close(value, value[:1].expand(5, 1))
