from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf, optimize_acqf_discrete

from botorch_bkb import DTCGP, BudgetedUCB, CompressedGP
from tests.problems import regression

CUBE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
MODELS = [SingleTaskGP, DTCGP, CompressedGP]


def rand(*shape):
    return torch.rand(*shape, dtype=torch.float64)


@pytest.mark.parametrize("cls", MODELS)
def test_without_pending_points_it_is_ucb(cls):
    model, T = cls(*regression(25)), rand(5, 1, 2)
    for maximize in (True, False):
        ours = BudgetedUCB(model, 1.5, maximize=maximize)(T)
        theirs = UpperConfidenceBound(model, beta=2.25, maximize=maximize)(T)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("fixed", [True, False], ids=["fixed noise", "inferred"])
def test_pending_points_lower_variances_and_leave_means(cls, fixed):
    X, Y = regression(25)
    Yvar = torch.full_like(Y, 0.05) if fixed else None
    model = cls(X, Y, Yvar, input_transform=Normalize(2)).eval()
    T, pending = rand(7, 1, 2), rand(3, 2)
    mean = BudgetedUCB(model, 0.0, X_pending=pending)(T)
    torch.testing.assert_close(mean, BudgetedUCB(model, 0.0)(T), atol=1e-7, rtol=1e-7)
    before, after = BudgetedUCB(model, 2.0), BudgetedUCB(model, 2.0, X_pending=pending)
    assert (after(T) <= before(T) + 1e-9).all() and (after(T) < before(T) - 1e-6).any()
    after.set_X_pending(None)
    torch.testing.assert_close(after(T), before(T))


@pytest.mark.parametrize("pending", [None, 3])
def test_gradients_match_difference_quotients(pending):
    model = DTCGP(*regression(200), dictionary=torch.arange(30))
    X_pending = None if pending is None else rand(pending, 2)
    ucb = BudgetedUCB(model, 2.0, X_pending=X_pending)
    T = rand(4, 1, 2).requires_grad_()
    (grad,) = torch.autograd.grad(ucb(T).sum(), T)
    h = 1e-6
    for i in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[i] = h
        slope = (ucb(T + step) - ucb(T - step)).detach() / (2 * h)
        torch.testing.assert_close(grad[:, 0, i], slope, atol=1e-6, rtol=1e-5)


def test_batches_of_boxes_and_of_choices():
    model = DTCGP(*regression(25))
    ucb = BudgetedUCB(model, 2.0)
    X, _ = optimize_acqf(ucb, CUBE, q=3, num_restarts=2, raw_samples=16, sequential=True)
    assert X.shape == (3, 2) and torch.cdist(X, X).fill_diagonal_(1).min() > 1e-4
    assert optimize_acqf_discrete(ucb, q=2, choices=rand(30, 2))[0].shape == (2, 2)


def test_several_outputs():
    X, Y = regression(25, m=2)
    with pytest.raises(UnsupportedError, match="posterior transform"):
        BudgetedUCB(DTCGP(X, Y), 2.0)
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    transform = ScalarizedPosteriorTransform(weights)
    ucb = BudgetedUCB(DTCGP(X, Y), 2.0, posterior_transform=transform, X_pending=rand(2, 2))
    assert ucb(rand(4, 1, 2)).shape == (4,)


@pytest.mark.parametrize("width", [-1.0, math.nan, math.inf])
def test_bad_widths(width):
    with pytest.raises(InputDataError, match="width"):
        BudgetedUCB(DTCGP(*regression(5)), width)
