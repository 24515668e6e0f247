from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction
from gpytorch.kernels import RBFKernel

from botorch_bkb import (
    BBKB,
    BKB,
    AdaBKB,
    AllPoints,
    FromAllocator,
    JournalError,
    Optimizer,
    RidgeLeverageSampling,
)
from botorch_bkb.acquisition import Greedy
from botorch_bkb.batches import BatchRule, LocalRule, ProductRule, SumRule
from botorch_bkb.confidence import Confidence
from botorch_bkb.domains import Arms, Tree
from botorch_bkb.encoding import decode, encode
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import ALGORITHMS
from botorch_bkb.runs.settings import arguments, constructed, described
from tests.runs.support import ARMS, BOUNDS, value

GIVEN = {"covar_module": RBFKernel(), "noise_var": 0.01}


def again(optimizer):
    r"""The optimizer that a journal would construct."""
    return constructed(decode(encode(described(optimizer))))


def picks(optimizer, budget=15):
    X = []
    while len(X) < budget:
        suggestion = optimizer.ask(at_most=budget - len(X))
        optimizer.tell(suggestion, value(suggestion.X))
        X += suggestion.X.tolist()
    return X


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_comes_back(name):
    where = {"bounds": BOUNDS} if name.startswith("Ada") else {"arms": ARMS}
    where |= {"budget": 60} if name == "BatchedElimination" else {}
    optimizer = ALGORITHMS[name](**where, **GIVEN, width="theory", norm_bound=2.0, seed=4)
    back = again(optimizer)
    assert type(back) is type(optimizer) and back.seed == 4
    assert picks(back) == picks(optimizer)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BKB(ARMS, dictionary=RidgeLeverageSampling(0.5, coupled=False), seed=1),
        lambda: BBKB(ARMS, oversampling=0.5, batch_rule=ProductRule(9.0, max_size=3), seed=1),
        lambda: BBKB(ARMS, acquisition=Greedy(0.5), **GIVEN, seed=1),
        lambda: AdaBKB(BOUNDS, dictionary=AllPoints(), radius=(2.0, 0.7), num_children=2, seed=1),
        lambda: Optimizer(
            Tree(BOUNDS, max_depth=3),
            model=Surrogate(RBFKernel(), 0.01),
            dictionary=AllPoints(),
            confidence=Confidence("theory", 0.2, 3.0),
            batch=SumRule(30.0),
            seed=1,
        ),
    ],
    ids=["dictionary", "batch", "acquisition", "tree", "composed"],
)
def test_every_part_comes_back(make):
    optimizer = make()
    back = again(optimizer)
    for name in ("dictionary", "confidence", "batch", "acquisition"):
        assert getattr(back.parts, name) == getattr(optimizer.parts, name)
    assert picks(back) == picks(optimizer)


def test_exchanged_arms_come_back():
    optimizer = BKB(ARMS, seed=1)
    optimizer.set_arms(ARMS[::2] + 0.5)
    back = again(optimizer)
    back.load_state_dict(optimizer.state_dict())
    assert picks(back) == picks(optimizer)


class OwnRule(BatchRule):
    pass


class OwnOptimizer(BKB):
    pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BKB(ARMS, width=lambda p: math.log(2 + p.num_observations)), "width = function"),
        (lambda: BKB(ARMS, acquisition=lambda m: LogExpectedImprovement(m, 0.0)), "acquisition = "),
        (lambda: BKB(ARMS, batch_rule=OwnRule()), "batch = a OwnRule"),
        (
            lambda: BKB(ARMS, dictionary=FromAllocator(GreedyVarianceReduction())),
            "dictionary = a FromAllocator",
        ),
        (lambda: AdaBKB(BOUNDS, radius=lambda lower, upper: upper[:, 0]), "radius = function"),
        (lambda: OwnOptimizer(ARMS), "the optimizer = a class OwnOptimizer"),
    ],
    ids=["width", "acquisition", "batch", "dictionary", "radius", "class"],
)
def test_what_cannot_be_kept_is_named(make, message):
    with pytest.raises(JournalError, match=f"{message}.*pass `optimizer`"):
        again(make())


def test_arguments_are_shown_where_they_differ_from_their_defaults():
    optimizer = BBKB(ARMS, **GIVEN, width="theory", norm_bound=2.0, batch_threshold=3.0, seed=5)
    shown = arguments(decode(encode(described(optimizer))))
    assert torch.equal(shown.pop("arms"), ARMS)
    assert isinstance(shown.pop("covar_module"), RBFKernel)
    assert shown == {
        "noise_var": 0.01,
        "dictionary": RidgeLeverageSampling(8.0),
        "width": "theory",
        "norm_bound": 2.0,
        "batch": LocalRule(3.0),
        "acquisition": optimizer.parts.acquisition,
        "seed": 5,
    }
    composed = Optimizer(Arms(ARMS), confidence=Confidence(lambda progress: 2.0))
    shown = arguments(described(composed))
    assert "seed" not in shown and "delta" not in shown
    assert shown["width"].startswith("function")
