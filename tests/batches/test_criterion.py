r"""Acquisition functions over arms, against BoTorch's own on the same moments."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition.analytic import (
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    UpperConfidenceBound,
)
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.exceptions.errors import UnsupportedError

from botorch_bkb.acquisition import EI, MPI, PI, UCB, FromBoTorch
from botorch_bkb.acquisition.moments import FixedMoments
from botorch_bkb.batches.criterion import AcquisitionCriterion, ArmsContext
from botorch_bkb.units import RewardUnits
from tests.batches.support import context_of, over_arms

DEVIATION = 3.0
X = torch.zeros(40, 1, 1, dtype=torch.float64)


@pytest.fixture(params=[1.0, 7.0], ids=["given", "standardised"])
def problem(request):
    r"""A context, the moments of its arms, and the best reward in the model's units."""
    context = context_of(over_arms(scale=request.param, amplitude=DEVIATION), width=2.5)
    rewards = context.state.history.means
    best = rewards.max()
    if request.param != 1:
        best = (best - rewards.mean()) / rewards.std(correction=0)
    mean, var = context.table.moments()
    return context, mean, var, float(best)


@pytest.mark.parametrize(
    ("rule", "function"), [(EI(), LogExpectedImprovement), (PI(), LogProbabilityOfImprovement)]
)
def test_improvement_on_the_best_reward(rule, function, problem):
    context, mean, var, best = problem
    model = FixedMoments(mean / DEVIATION, var / DEVIATION**2)
    expected = function(model, best_f=mean.new_tensor(best / DEVIATION))(X)
    torch.testing.assert_close(AcquisitionCriterion(rule, context)(mean, var), expected)


def test_improvement_on_the_best_mean(problem):
    context, mean, var, _ = problem
    model = FixedMoments(mean / DEVIATION, var / DEVIATION**2)
    expected = LogExpectedImprovement(model, best_f=mean.max() / DEVIATION)(X)
    torch.testing.assert_close(AcquisitionCriterion(MPI(), context)(mean, var), expected)


def test_upper_bounds_have_the_width_of_the_batch(problem):
    context, mean, var, _ = problem
    expected = (mean + 2.5 * var.sqrt()) / DEVIATION
    torch.testing.assert_close(AcquisitionCriterion(UCB(), context)(mean, var), expected)


def test_functions_of_the_user_see_units_of_the_rewards(problem):
    context, mean, var, _ = problem
    rule = FromBoTorch(lambda model: UpperConfidenceBound(model, beta=4.0))
    values = AcquisitionCriterion(rule, context)(mean, var)
    units, rewards = context.state.hyper.units, context.state.history.means
    torch.testing.assert_close(values, units.to_rewards(mean + 2 * var.sqrt()))
    if units != RewardUnits():
        assert units.offset == pytest.approx(float(rewards.mean()))


@pytest.mark.parametrize("rule", [EI(), PI(), MPI(), FromBoTorch(UpperConfidenceBound.forward)])
def test_before_the_first_result_bounds_of_width_one_are_maximised(rule):
    context = context_of(over_arms(results=0))
    mean, var = context.table.moments()
    var = var * torch.linspace(1, 2, 40)
    values = AcquisitionCriterion(rule, context)(mean, var)
    torch.testing.assert_close(values, mean + var.sqrt())


def test_values_depend_on_the_variances_at_hand(problem):
    context, mean, var, _ = problem
    criterion = AcquisitionCriterion(EI(), context)
    assert (criterion(mean, var / 4) < criterion(mean, var)).all()


def test_functions_that_need_more_than_marginals_are_refused(problem):
    context, mean, var, _ = problem
    rule = FromBoTorch(lambda model: qLogExpectedImprovement(model, best_f=0.0))
    with pytest.raises(UnsupportedError, match="means and variances only"):
        AcquisitionCriterion(rule, context)(mean, var)


def test_arms_have_no_sample_paths():
    arms = ArmsContext(X.flatten(), X.flatten() + 1, 2.0, 0.0, 1.0, RewardUnits(), seed=0)
    for joint in (arms.sample_path, lambda: arms.observed):
        with pytest.raises(UnsupportedError, match="means and variances only"):
            joint()
