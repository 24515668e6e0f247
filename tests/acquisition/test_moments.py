from __future__ import annotations

import pytest
import torch
from botorch.acquisition.analytic import LogExpectedImprovement, UpperConfidenceBound
from botorch.exceptions.errors import UnsupportedError
from botorch.optim import optimize_acqf

from botorch_bkb import DTCGP
from botorch_bkb.acquisition.moments import FixedMoments, Marginals
from tests.problems import regression

MEAN = torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)
VAR = torch.tensor([1.0, 0.25, 9.0], dtype=torch.float64)


def model_of(n=40):
    X, Y = regression(n)
    return DTCGP(X, Y, dictionary=torch.arange(15), outcome_transform=None).eval()


def test_fixed_moments_are_those_of_each_point():
    model = FixedMoments(MEAN, VAR)
    posterior = model.posterior(torch.zeros(3, 1, 1))
    assert posterior.mean.shape == posterior.variance.shape == (3, 1, 1)
    assert (posterior.dtype, posterior.device) == (MEAN.dtype, MEAN.device)
    bound = UpperConfidenceBound(model, beta=4.0)(torch.zeros(3, 1, 1).double())
    torch.testing.assert_close(bound, MEAN + 2 * VAR.sqrt())
    assert (model.num_outputs, model.batch_shape) == (1, ())


@pytest.mark.parametrize("model", [FixedMoments(MEAN, VAR), "marginals"], ids=["fixed", "model"])
def test_there_is_no_joint_distribution_to_sample_from(model):
    model = Marginals(model_of(), 1.0) if model == "marginals" else model
    with pytest.raises(UnsupportedError, match="means and variances only"):
        model.posterior(torch.zeros(3, 1, 2).double()).rsample(torch.Size([2]))


@pytest.mark.parametrize("shape", [(5, 1), (2, 3, 1), (1,)], ids=str)
def test_marginals_are_those_of_the_model_in_other_units(shape):
    model, X = model_of(), torch.rand(*shape, 2, dtype=torch.float64)
    ours, theirs = Marginals(model, 4.0).posterior(X), model.posterior(X)
    torch.testing.assert_close(ours.mean, theirs.mean / 4)
    torch.testing.assert_close(ours.variance, theirs.variance / 16)


def test_marginals_have_gradients():
    model = model_of()
    X = torch.rand(4, 1, 2, dtype=torch.float64, requires_grad=True)
    ours = LogExpectedImprovement(Marginals(model, 1.0), best_f=0.5)
    theirs = LogExpectedImprovement(model, best_f=0.5)
    slopes = [torch.autograd.grad(function(X).sum(), X)[0] for function in (ours, theirs)]
    torch.testing.assert_close(*slopes, atol=1e-8, rtol=1e-6)


def test_the_model_behind_marginals_is_no_submodule():
    marginals = Marginals(model_of(), 1.0)
    assert list(marginals.parameters()) == [] and list(marginals.children()) == []


def test_botorch_maximises_over_marginals():
    cube = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    bound = UpperConfidenceBound(Marginals(model_of(), 2.0), beta=1.0)
    X, value = optimize_acqf(bound, cube, q=1, num_restarts=2, raw_samples=16)
    assert value >= bound(torch.rand(100, 1, 2, dtype=torch.float64)).max()
    torch.testing.assert_close(bound(X), value.reshape(1))
