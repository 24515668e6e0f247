r"""Mistakes of a first hour: each says what was expected, what came, and what to do."""

from __future__ import annotations

import warnings

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import RBFKernel

from botorch_bkb import BBKB, AdaBKB, CompressedUCB, run

ARMS = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("minimize", "rewards are maximised, negate them"),
        ("maximize", "rewards are maximised, negate them"),
        ("kernel", "it is called covar_module"),
        ("oversample", "did you mean 'oversampling'"),
        ("xyz", "see its documentation"),
    ],
)
@pytest.mark.parametrize("cls", [BBKB, CompressedUCB])
def test_arguments_that_there_are_not(cls, name, says):
    with pytest.raises(TypeError, match=f"{cls.__name__} has no argument '{name}': {says}"):
        cls(ARMS, **{name: None})


def test_float32_warns_once_as_botorch_does():
    for domain in ({"arms": ARMS.float()}, {"bounds": BOUNDS.float()}):
        with pytest.warns(InputDataWarning, match=r"torch.float32. Double precision") as caught:
            BBKB(**domain)
        assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BBKB(ARMS)


def test_corners_passed_as_arms_are_noticed():
    with pytest.warns(InputDataWarning, match="corners of a box, pass them as bounds"):
        BBKB(BOUNDS)


@pytest.mark.parametrize("arms", [ARMS.numpy(), ARMS.tolist(), ARMS[:, 0]])
def test_arms_that_are_no_table(arms):
    with pytest.raises(BotorchTensorDimensionError, match=r"A x d tensor.*convert with"):
        BBKB(arms)


@pytest.mark.parametrize("bounds", [[(0, 1), (0, 1)], torch.zeros(3, 2)])
def test_bounds_as_pairs(bounds):
    with pytest.raises(BotorchTensorDimensionError, match=r"2 x d tensor.*torch.tensor\(pairs"):
        BBKB(bounds=bounds)
    with pytest.raises(InputDataError, match=r"got 1.0 and 0.0 in column 0: swap them"):
        AdaBKB(BOUNDS.flip(0))


def test_a_kernel_by_name_is_refused():
    with pytest.raises(InputDataError, match=r"gpytorch kernel or None, got 'rbf': pass for"):
        BBKB(ARMS, covar_module="rbf")


def test_an_objective_that_returns_nothing(caplog):
    result = run(BBKB(ARMS, seed=0), lambda X: None, 2, progress=False)
    assert result.num_failed == 2
    assert "the objective returned None, not 1 numbers" in result.failures[0].error


def test_an_optimizer_says_what_it_is():
    optimizer = BBKB(ARMS, seed=0)
    optimizer.ask()
    assert repr(optimizer) == "<BBKB over 30 arms in 2 dimensions, 0 observations, 1 pending>"
    assert repr(AdaBKB(BOUNDS)).startswith("<AdaBKB over a box of 2 dimensions")


@pytest.mark.parametrize("norm_bound", [None, 3.0])
@pytest.mark.parametrize("noise_var", [None, 0.5])
def test_the_default_width_follows_from_what_is_known(norm_bound, noise_var):
    given = {"covar_module": RBFKernel(), "noise_var": noise_var, "norm_bound": norm_bound}
    optimizer = BBKB(ARMS, seed=0, **given)
    known = norm_bound is not None and noise_var is not None
    name = "information" if known else "heuristic"
    expected = BBKB(ARMS, seed=0, width=name, **given)
    for one in (optimizer, expected):
        one.tell(ARMS[:9], ARMS[:9].sum(-1))
    assert optimizer.width_now == expected.width_now
    assert (optimizer.width_now == 2.0) != known
