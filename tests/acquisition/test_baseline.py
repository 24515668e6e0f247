from __future__ import annotations

import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP

from botorch_bkb import DTCGP, CompressedGP, MultiTaskDTCGP, select_baseline
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
    with pytest.raises(UnsupportedError, match=r"DTCGP, a CompressedGP.* got SingleTaskGP"):
        select_baseline(SingleTaskGP(*regression(10)))


def test_a_list_of_models_ranks_by_its_transformed_posterior():
    X, Y = regression(200, 2, 2)
    models = ModelListGP(*(DTCGP(X, Y[:, [i]], dictionary=torch.arange(40)) for i in range(2)))
    both = DTCGP(X, Y, dictionary=torch.arange(40))
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, -0.5], dtype=torch.float64))
    of_list, of_one = (select_baseline(m, 30, weights) for m in (models, both))
    assert len(of_list) <= 30
    torch.testing.assert_close(of_list, of_one)


def test_a_list_of_models_without_a_transform_gives_each_an_equal_share():
    X, Y = regression(200, 2, 2)
    models = [DTCGP(X[i : 150 + i], Y[i : 150 + i, [i]]) for i in range(2)]
    baseline = select_baseline(ModelListGP(*models), 31)
    assert len(baseline) <= 31
    own = (select_baseline(m, size) for m, size in zip(models, (16, 15), strict=True))
    for part in own:
        assert (part.unsqueeze(1) == baseline).all(-1).any(-1).all()


def test_a_list_with_another_model_or_too_small_a_size_is_refused():
    X, Y = regression(20)
    with pytest.raises(UnsupportedError, match="got SingleTaskGP"):
        select_baseline(ModelListGP(DTCGP(X, Y), SingleTaskGP(X, Y)))
    with pytest.raises(InputDataError, match="at least as many inputs"):
        select_baseline(ModelListGP(DTCGP(X, Y), DTCGP(X, Y)), 1)


def test_the_baseline_of_a_multi_task_model_has_no_column_of_tasks():
    X, Y = regression(60, 3)
    X[:, 1] = torch.arange(60).remainder(2)
    model = MultiTaskDTCGP(X, Y, task_feature=1, output_tasks=[1])
    baseline = select_baseline(model, 20)
    assert baseline.shape == (20, 2)
    acqf = qLogNoisyExpectedImprovement(model, X_baseline=baseline)
    assert acqf(torch.rand(3, 2, 2, dtype=torch.float64)).isfinite().all()
