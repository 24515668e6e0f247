from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import LinearKernel

from botorch_bkb import InformationThreshold, RidgeLeverageSampling
from botorch_bkb.batches import OneAtATime
from botorch_bkb.domains import Arms
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import Optimizer
from tests.batches.support import context_of, over_arms


def test_the_record_is_that_of_the_batch():
    context = context_of(over_arms(), width=1.7, seed=5, stragglers=(3, 4), given_up=(9,))
    record = context.record
    assert (record.width, record.seed, record.stragglers) == (1.7, 5, (3, 4))
    assert (record.given_up, record.picks) == ((9,), ())


def test_the_best_reward_is_in_the_models_units():
    context = context_of(over_arms(scale=7.0))
    rewards = context.state.history.means
    expected = (rewards.max() - rewards.mean()) / rewards.std(correction=0)
    assert context.best_reward == pytest.approx(float(expected))
    assert context_of(over_arms(results=0)).best_reward == -math.inf


def test_the_prior_deviation_is_the_largest():
    assert context_of(over_arms(amplitude=3.0)).prior_deviation == pytest.approx(3.0)
    X = torch.tensor([[1.0], [-4.0], [0.0]], dtype=torch.float64)
    linear = LinearKernel().double()
    linear.variance = 1.0
    model = Surrogate(linear, 0.1)
    assert context_of(Optimizer(Arms(X), model=model)).prior_deviation == pytest.approx(4.0)
    assert context_of(Optimizer(Arms(0 * X), model=model)).prior_deviation == 1.0


@pytest.mark.parametrize(
    ("dictionary", "threshold", "ends"),
    [
        (RidgeLeverageSampling(2.0), None, False),
        (InformationThreshold(0.0), None, True),
        (InformationThreshold(0.5 * math.log(3)), 2.0, True),
        (InformationThreshold(0.5 * math.log(3), on_uninformative="evaluate"), 2.0, False),
    ],
)
def test_options_of_all_batches(dictionary, threshold, ends):
    context = context_of(
        over_arms(), dictionary=dictionary, rule=OneAtATime(), stragglers=(3,), given_up=(9, 9)
    )
    options = context.options
    assert options.pop("threshold") == (None if threshold is None else pytest.approx(threshold))
    assert options.pop("joins") == isinstance(dictionary, InformationThreshold)
    assert options == {"stragglers": (3,), "given_up": (9, 9), "ends_uninformed": ends}


def test_every_batch_has_a_source_of_randomness_of_its_own():
    optimizer = over_arms()
    draws = [torch.rand(3, generator=context_of(optimizer, seed=s).generator()) for s in (4, 4, 5)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    context = context_of(optimizer, seed=4)
    assert torch.equal(torch.rand(3, generator=context.generator()), draws[0])
    assert torch.equal(torch.rand(3, generator=context.generator()), draws[0])
