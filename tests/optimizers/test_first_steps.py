r"""Mistakes of a first hour: each says what was expected, what came, and what to do."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from botorch_bkb import BBKB, AdaBKB, CompressedUCB, StopAfter, resume, run

ARMS = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("minimize", "rewards are maximised, negate them"),
        ("maximize", "rewards are maximised, negate them"),
        ("direction", "rewards are maximised, negate them"),
        ("batch_size", r"ask\(n\) gives n points"),
        ("num_restarts", "it belongs into acquisition_options"),
        ("kernel", "it is called covar_module"),
        ("noise_vars", "did you mean 'noise_var'"),
        ("xyz", "there are .*acquisition, .*, width."),
    ],
)
@pytest.mark.parametrize("cls", [BBKB, CompressedUCB])
def test_arguments_that_there_are_not(cls, name, says):
    with pytest.raises(TypeError, match=f"{cls.__name__} has no argument '{name}': {says}"):
        cls(ARMS, **{name: None})


def test_a_class_of_botorchs_is_passed_by_itself_not_by_its_name():
    with pytest.raises(
        InputDataError, match=r"a class of BoTorch's \(not its name\), got 'qLogNEI'"
    ):
        BBKB(bounds=BOUNDS, acquisition="qLogNEI")


def test_float32_warns_once_as_botorch_does():
    for domain in ({"arms": ARMS.float()}, {"bounds": BOUNDS.float()}):
        with pytest.warns(InputDataWarning, match=r"torch.float32. Double precision") as caught:
            BBKB(**domain)
        assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BBKB(ARMS)


def test_corners_passed_as_arms_are_noticed():
    with pytest.warns(InputDataWarning, match="corners of a box, pass them as bounds") as caught:
        BBKB(BOUNDS)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("arms", [ARMS.numpy(), ARMS.tolist(), ARMS[:, 0]])
def test_arms_that_are_no_table(arms):
    with pytest.raises(BotorchTensorDimensionError, match=r"A x d tensor.*convert with"):
        BBKB(arms)


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ([(0, 1), (0, 1)], r"torch.as_tensor\(bounds, dtype=torch.float64\), and append .T if"),
        (BOUNDS.numpy(), r"torch.as_tensor\(bounds, dtype=torch.float64\), and append .T if"),
        (torch.zeros(3, 2), r"got shape \(3, 2\): if its rows are pairs \(lower, upper\), pass"),
    ],
)
def test_bounds_of_another_form(bounds, says):
    with pytest.raises(BotorchTensorDimensionError, match=f"2 x d tensor.*{says}"):
        BBKB(bounds=bounds)


def test_bounds_that_bound_nothing():
    with pytest.raises(InputDataError, match=r"got torch.int64: convert with .double\(\)"):
        BBKB(bounds=BOUNDS.long())
    with pytest.raises(InputDataError, match=r"got nan at .*choose finite ends"):
        BBKB(bounds=BOUNDS / 0)
    with pytest.raises(InputDataError, match=r"got 1.0 and 0.0 in column 0: swap them"):
        AdaBKB(BOUNDS.flip(0))


def test_a_kernel_by_name_is_refused():
    with pytest.raises(InputDataError, match=r"gpytorch kernel or None, got 'rbf': pass for"):
        BBKB(ARMS, covar_module="rbf")


@pytest.mark.parametrize("kernel", [RBFKernel(), ScaleKernel(MaternKernel())])
def test_a_given_kernel_does_not_scale_inputs(kernel):
    apart = torch.tensor([1e6, 1.0])
    with pytest.warns(
        InputDataWarning, match=r"ranges go from 0\.\d+ to .*e\+05: scale them"
    ) as said:
        BBKB(ARMS * apart, covar_module=kernel, noise_var=0.1)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BBKB(ARMS * apart, covar_module=RBFKernel(ard_num_dims=2), noise_var=0.1)
        BBKB(ARMS * apart)
        BBKB(torch.ones(3, 2, dtype=torch.float64), covar_module=kernel, noise_var=0.1)


@pytest.mark.parametrize("domain", [{"arms": ARMS}, {"bounds": BOUNDS}])
def test_there_is_no_best_point_before_the_first_result(domain):
    with pytest.raises(InputDataError, match="no best point before the first result: tell one"):
        BBKB(**domain).best()


def test_arguments_of_other_types():
    with pytest.raises(
        InputDataError, match=r"seed must be a whole number from .* or None, got '0'"
    ):
        BBKB(ARMS, seed="0")
    with pytest.raises(InputDataError, match=r"discrete_dims must map coordinates.*got \[0\]"):
        BBKB(bounds=BOUNDS, discrete_dims=[0])
    for callbacks in (StopAfter(10), [print]):
        with pytest.raises(InputDataError, match=r"callbacks must be a list.*\[StopAfter\(60\)\]"):
            run(BBKB(ARMS), len, 2, callbacks=callbacks)
    with pytest.raises(InputDataError, match="workers needs an executor"):
        run(BBKB(ARMS), len, 2, workers=4)


def test_an_objective_of_one_point_without_an_executor_costs_nothing(tmp_path):
    def one(X):
        return -X.square().sum()

    path = tmp_path / "run.sqlite"
    optimizer = BBKB(bounds=BOUNDS, seed=0)
    with pytest.raises(InputDataError, match=r"returned 1 values for 6 points.*pass an executor"):
        run(optimizer, one, 8, journal=path, progress=False)
    with ThreadPoolExecutor(1) as pool:
        assert len(resume(path, one, executor=pool, progress=False).Y) == 8


def test_an_objective_that_raises_what_botorch_does_fails_and_the_run_goes_on():
    calls = []

    def refuses_once(X):
        calls.append(len(X))
        if len(calls) == 1:
            raise InputDataError("not today")
        return -X.square().sum(-1)

    result = run(BBKB(bounds=BOUNDS, seed=0), refuses_once, 8, progress=False)
    assert result.num_failed == calls[0] == 6 and len(result.Y) == 2


def test_an_objective_that_returns_nothing(caplog):
    result = run(BBKB(ARMS, seed=0), lambda X: None, 2, progress=False)
    assert result.num_failed == 2
    assert "the objective returned None, not 2 numbers" in result.failures[0].error


def test_an_optimizer_says_what_it_is():
    optimizer = BBKB(ARMS, num_initial=1, seed=0)
    optimizer.ask()
    assert repr(optimizer) == "<BBKB over 30 arms in 2 dimensions, 0 observations, 1 pending>"
    assert repr(AdaBKB(BOUNDS)).startswith("<AdaBKB over a box of 2 dimensions")


@pytest.mark.parametrize(
    ("norm_bound", "noise_var", "name"),
    [(None, None, "heuristic"), (None, 0.5, "heuristic"), (3.0, 0.5, "information")],
)
def test_the_default_width_follows_from_what_is_known(norm_bound, noise_var, name):
    given = {"covar_module": RBFKernel(), "noise_var": noise_var, "norm_bound": norm_bound}
    optimizer = BBKB(ARMS, seed=0, **given)
    expected = BBKB(ARMS, seed=0, width=name, **given)
    for one in (optimizer, expected):
        one.tell(ARMS[:9], ARMS[:9].sum(-1))
    assert optimizer.width_now == expected.width_now
    assert (optimizer.width_now == 2.0) == (name == "heuristic")


@pytest.mark.parametrize("width", [None, "heuristic", 2.0])
def test_a_norm_beside_a_width_that_ignores_it_is_refused(width):
    with pytest.raises(InputDataError, match="norm_bound has no effect on a constant width of 2"):
        BBKB(ARMS, covar_module=RBFKernel(), norm_bound=3.0, width=width)


@pytest.mark.parametrize("results", [9, 10])
def test_over_a_box_every_second_point_has_a_narrow_bound(results):
    given = {"covar_module": RBFKernel(), "noise_var": 0.01, "bounds": BOUNDS, "seed": 0}
    alternating, wide, narrow = (BBKB(width=w, **given) for w in (None, 2.0, 0.5))
    for optimizer in (alternating, wide, narrow):
        optimizer.tell(ARMS[:results], -10 * (ARMS[:results] - 0.4).square().sum(-1))
    expected = narrow if results % 2 else wide
    X = [optimizer.ask(at_most=1).X for optimizer in (alternating, wide, narrow)]
    assert torch.equal(X[0], X[2 if expected is narrow else 1]) and not torch.equal(X[1], X[2])


def test_the_default_width_is_two_deviations_everywhere():
    for optimizer in (BBKB(ARMS), BBKB(bounds=BOUNDS), AdaBKB(bounds=BOUNDS)):
        optimizer.tell(ARMS[:9], ARMS[:9].sum(-1))
        assert optimizer.width_now == 2.0
