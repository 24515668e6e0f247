r"""Points whose results never come."""

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import RBFKernel

from botorch_bkb import BBKB, BKB, GPBUCB, GPUCB, AdaBBKB, AdaBKB, CompressedUCB, EpsilonGreedy

ARMS = torch.linspace(0, 4, 60, dtype=torch.float64).unsqueeze(-1)
BOUNDS = torch.tensor([[0.0], [4.0]], dtype=torch.float64)
GIVEN = {"covar_module": RBFKernel(), "noise_var": 0.01, "seed": 0}


def value(X):
    return torch.sin(3 * X).squeeze(-1)


def over_arms(cls):
    return cls(ARMS, **GIVEN)


def over_box(cls):
    return cls(bounds=BOUNDS, **GIVEN)


MAKERS = [
    pytest.param(lambda cls=cls, make=make: make(cls), id=f"{cls.__name__}-{make.__name__}")
    for make, classes in (
        (over_arms, (BKB, BBKB, GPUCB, GPBUCB, EpsilonGreedy, CompressedUCB)),
        (over_box, (BKB, BBKB, GPUCB, AdaBKB, AdaBBKB)),
    )
    for cls in classes
]


def given_up(optimizer):
    r"""Rows of the last points that were given up."""
    return optimizer.state_dict()["in_flight"]["given_up"]


def warmed_up(optimizer, rounds=4):
    for _ in range(rounds):
        suggestion = optimizer.ask(at_most=8)
        optimizer.tell(suggestion, value(suggestion.X))
    return optimizer


@pytest.mark.parametrize("make", MAKERS)
class TestGivingUp:
    def test_belief_stays_and_nothing_is_pending(self, make):
        optimizer = warmed_up(make())
        mean = optimizer.best().mean
        optimizer.give_up(optimizer.ask(at_most=3))
        assert len(optimizer.pending) == 0
        assert optimizer.best().mean == mean
        assert len(optimizer.ask()) >= 1

    def test_a_point_that_always_fails_is_not_asked_for_ever(self, make):
        optimizer, asked = warmed_up(make()), []
        for _ in range(6):
            suggestion = optimizer.ask(at_most=1)
            asked.append(round(float(suggestion.X), 2))
            optimizer.give_up(suggestion)
        assert len(set(asked)) > 1

    def test_the_rest_of_a_batch_is_settled(self, make):
        optimizer = warmed_up(make())
        suggestion = optimizer.ask()
        half = len(suggestion) // 2
        if half:
            optimizer.tell(suggestion[:half], value(suggestion[:half].X))
        before = optimizer.num_observations
        optimizer.give_up(suggestion[half:])
        assert optimizer.num_observations == before
        assert len(optimizer.pending) == 0
        optimizer.ask(at_most=1)

    def test_saved_and_loaded(self, make):
        optimizer = warmed_up(make())
        optimizer.give_up(optimizer.ask(at_most=2))
        other = make()
        other.load_state_dict(optimizer.state_dict())
        assert torch.equal(optimizer.ask(at_most=3).X, other.ask(at_most=3).X)

    def test_everything_fails_from_the_start(self, make):
        optimizer = make()
        for _ in range(5):
            optimizer.give_up(optimizer.ask(at_most=4))
        assert optimizer.num_observations == 0
        suggestion = optimizer.ask(at_most=2)
        optimizer.tell(suggestion, value(suggestion.X))
        assert optimizer.num_observations == len(suggestion)


def test_points_given_up_spend_nothing_of_the_batch():
    optimizer = warmed_up(over_arms(BBKB), rounds=1)
    for _ in range(150):
        optimizer.give_up(optimizer.ask(at_most=1))
    assert len(given_up(optimizer)) == 100
    assert len(optimizer.ask()) >= 1


def test_a_result_after_all():
    optimizer = warmed_up(over_arms(BKB))
    suggestion = optimizer.ask()
    optimizer.give_up(suggestion)
    assert given_up(optimizer) == suggestion.indices.tolist()
    optimizer.tell(suggestion.indices, value(suggestion.X))
    assert given_up(optimizer) == []


def test_rows_given_up_follow_other_arms():
    optimizer = warmed_up(over_arms(BKB))
    suggestion = optimizer.ask()
    optimizer.give_up(suggestion)
    optimizer.set_arms(ARMS.flip(0)[:40])
    (row,) = given_up(optimizer)
    assert torch.equal(optimizer.table.X[[row]], suggestion.X)


def test_what_cannot_be_given_up():
    optimizer = warmed_up(over_arms(BKB))
    suggestion = optimizer.ask()
    optimizer.tell(suggestion, value(suggestion.X))
    with pytest.raises(InputDataError, match="not pending"):
        optimizer.give_up(suggestion)
    with pytest.raises(InputDataError, match="Only a suggestion"):
        optimizer.give_up([1])
