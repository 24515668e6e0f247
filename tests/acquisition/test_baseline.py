from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP

from botorch_bkb import DTCGP, CompressedGP, select_baseline
from tests.problems import regression


def rows_of(points, X):
    r"""Which rows of ``X`` the points are; each is exactly one."""
    equal = (points.unsqueeze(-2) == X).all(-1)
    assert (equal.sum(-1) == 1).all()
    return set(equal.long().argmax(-1).tolist())


def test_half_has_the_best_means_and_half_the_best_bounds_of_the_dictionary():
    X, Y = regression(200)
    Yvar = 10 ** (5 * X[:, :1] - 3)  # much is known at one end and little at the other
    model = DTCGP(X, Y, Yvar, dictionary=torch.arange(0, 200, 4)).eval()
    posterior = model.posterior(X)
    mean, sd = posterior.mean.squeeze(-1), posterior.variance.sqrt().squeeze(-1)
    best = mean.topk(10).indices.tolist()
    others = [row for row in range(0, 200, 4) if row not in best]
    upper = (mean + 2 * sd)[others].topk(10).indices.tolist()
    for other in (mean, mean - 2 * sd):
        assert set(upper) != set(other[others].topk(10).indices.tolist())
    expected = {*best, *(others[i] for i in upper)}
    assert rows_of(select_baseline(model, 20), X) == expected


def test_an_odd_size_favours_the_best_means():
    X, Y = regression(50)
    order = Y.squeeze(-1).argsort()
    X, Y = X[order], Y[order]
    model = DTCGP(X, Y, dictionary=torch.arange(20)).eval()
    best = model.posterior(X).mean.argmax()
    assert best >= 20  # not in the dictionary
    assert rows_of(select_baseline(model, 1), X) == {int(best)}
    assert len(select_baseline(model, 7)) == 7


def test_a_small_dictionary_leaves_the_baseline_short():
    X, Y = regression(100)
    baseline = select_baseline(DTCGP(X, Y, dictionary=torch.arange(3)), 40)
    assert 20 <= len(baseline) <= 23


def test_repeated_inputs_count_once():
    X, Y = regression(30)
    model = DTCGP(torch.cat([X, X]), torch.cat([Y, Y]))
    assert len(rows_of(select_baseline(model, 12), X)) == 12
    assert len(select_baseline(model, 30)) == 30


def test_a_compressed_model_has_a_baseline():
    X, Y = regression(100)
    model = CompressedGP(X, Y, epsilon=0.2, discard=False)
    assert len(rows_of(select_baseline(model, 10), X)) == 10


def test_other_models_are_refused():
    with pytest.raises(UnsupportedError, match="DTCGP or a CompressedGP, got SingleTaskGP"):
        select_baseline(SingleTaskGP(*regression(10)))
