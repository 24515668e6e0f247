from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.exceptions.errors import InputDataError

from botorch_bkb import DTCGP, BudgetedUCB
from botorch_bkb.acquisition.constructors import check_constructor, construct
from tests.problems import regression


def model_of(n=25):
    return DTCGP(*regression(n), outcome_transform=None).eval()


def test_botorch_knows_how_to_construct_it():
    model = model_of()
    inputs = get_acqf_input_constructor(BudgetedUCB)(model=model, width=3.0)
    assert BudgetedUCB(**inputs).width == 3.0
    pending = torch.rand(2, 2, dtype=torch.float64)
    inputs = get_acqf_input_constructor(BudgetedUCB)(
        model=model, width=3.0, maximize=False, X_pending=pending
    )
    made, T = BudgetedUCB(**inputs), torch.rand(4, 1, 2, dtype=torch.float64)
    expected = BudgetedUCB(model, 3.0, maximize=False, X_pending=pending)
    torch.testing.assert_close(made(T), expected(T))


def said(code: str) -> str:
    r"""What a new process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_package_alone_does_not_import_the_registry():
    code = """
import sys, botorch_bkb, botorch_bkb.acquisition
print("botorch.acquisition.input_constructors" in sys.modules)
from {} import BudgetedUCB
print("botorch.acquisition.input_constructors" in sys.modules)
from botorch.acquisition.input_constructors import get_acqf_input_constructor
print(get_acqf_input_constructor(BudgetedUCB)(model=None)["width"])
"""
    for place in ("botorch_bkb", "botorch_bkb.acquisition"):
        lines = said(code.format(place)).splitlines()
        assert lines == ["False", "True", "2.0"]


def test_there_is_one_class_wherever_it_is_imported_from():
    import botorch_bkb
    from botorch_bkb import acquisition
    from botorch_bkb.acquisition import budgeted_ucb

    assert botorch_bkb.BudgetedUCB is acquisition.BudgetedUCB is budgeted_ucb.BudgetedUCB
    with pytest.raises(AttributeError, match="no attribute 'Budgeted'"):
        acquisition.Budgeted  # noqa: B018


def test_constructors_get_the_training_data():
    model = model_of()
    made = construct(LogExpectedImprovement, model)
    expected = LogExpectedImprovement(model, best_f=model.train_targets.max())
    T = torch.rand(4, 1, 2, dtype=torch.float64)
    torch.testing.assert_close(made(T), expected(T))


def test_constructors_get_a_small_baseline():
    made = construct(qLogNoisyExpectedImprovement, model_of(250))
    assert isinstance(made, qLogNoisyExpectedImprovement)
    assert len(made.X_baseline) <= 100
    assert made(torch.rand(3, 2, 2, dtype=torch.float64)).shape == (3,)


def test_classes_without_a_constructor_are_refused():
    class Own(AcquisitionFunction):
        pass

    with pytest.raises(InputDataError, match="no input constructor for Own"):
        check_constructor(Own)
    check_constructor(BudgetedUCB)


def test_a_model_with_observations_appended_lately():
    model = model_of()
    X = torch.rand(3, 2, dtype=torch.float64)
    conditioned = model.condition_on_observations(X, X[:, :1])
    made = construct(qLogNoisyExpectedImprovement, conditioned)
    assert made(X.unsqueeze(-2)).isfinite().all()
