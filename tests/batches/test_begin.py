from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from botorch.acquisition.analytic import PosteriorMean
from botorch.exceptions.errors import InputDataError

from botorch_bkb import AllPoints, InformationThreshold, RidgeLeverageSampling
from botorch_bkb.acquisition import EI, MPI, PI, UCB, FromBoTorch, Greedy, Thompson
from botorch_bkb.batches import (
    BoxBatch,
    DesignBatch,
    ExactBatch,
    GreedyBatch,
    LazyBatch,
    SumRule,
    ThompsonBatch,
    TreeBatch,
    UpperBound,
    begin_batch,
    highest_bound,
)
from botorch_bkb.domains import Arms, Box, Tree
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import Optimizer
from tests.arms.support import NOISE, kernel
from tests.batches.support import BOUNDS, context_of, over_arms, over_box

SAMPLED = RidgeLeverageSampling(2.0)


@pytest.fixture(autouse=True)
def _without_gradients():
    r"""Optimizers pick without gradients."""
    with torch.no_grad():
        yield


def begun(optimizer, **changes):
    return begin_batch(optimizer.domain, context_of(optimizer, **changes))


@pytest.mark.parametrize(
    ("acquisition", "dictionary", "kind"),
    [
        (UCB(), SAMPLED, LazyBatch),
        (UCB(), AllPoints(), ExactBatch),
        (UCB(), InformationThreshold(0.01), ExactBatch),
        (EI(), SAMPLED, ExactBatch),
        (MPI(), AllPoints(), ExactBatch),
        (PI(), SAMPLED, ExactBatch),
        (FromBoTorch(lambda model: PosteriorMean(model)), SAMPLED, ExactBatch),
        (Thompson(), SAMPLED, ThompsonBatch),
        (Thompson(), AllPoints(), ThompsonBatch),
        (Greedy(0.3), SAMPLED, GreedyBatch),
    ],
)
def test_batches_over_arms(acquisition, dictionary, kind):
    batch = begun(over_arms(), acquisition=acquisition, dictionary=dictionary)
    assert type(batch) is kind and batch.num_arms == 40
    assert 0 <= batch.pick() < 40


def test_batches_over_arms_get_the_options_of_the_context():
    options = {"stragglers": (3,), "given_up": (4, 5), "rule": SumRule(7.0)}
    for acquisition in (UCB(), EI(), Thompson(), Greedy(0.3)):
        batch = begun(over_arms(), acquisition=acquisition, **options)
        assert (batch.stragglers, batch.given_up) == ((3,), (4, 5))
        assert batch.rule == SumRule(7.0) and batch.threshold is None
    compressed = InformationThreshold(0.01)
    batch = begun(over_arms(), dictionary=compressed)
    assert batch.threshold == compressed.least_score and batch.ends_uninformed


def test_widths_and_probabilities_get_through():
    assert begun(over_arms(), width=1.3).width == 1.3
    assert begun(over_arms(), width=1.3, dictionary=AllPoints()).criterion == UpperBound(1.3)
    assert begun(over_arms(), acquisition=Greedy(0.3)).epsilon == 0.3


def test_random_batches_have_the_seed_of_the_record():
    optimizer = over_arms()

    def picks(seed):
        batch = begun(optimizer, acquisition=Thompson(), seed=seed, rule=SumRule(1e6))
        return [batch.pick() for _ in range(10)]

    assert picks(3) == picks(3) != picks(4)


def test_a_box_has_a_design_before_it_is_searched():
    optimizer = over_box(results=False)
    batch = begun(optimizer)
    assert isinstance(batch, DesignBatch) and batch.is_design
    while not batch.complete:
        batch.pick()
    assert len(batch.picks) == 6
    assert isinstance(begun(over_box()), BoxBatch)


def test_results_of_the_user_and_points_asked_count_for_the_design():
    optimizer = over_box(results=False)
    X = BOUNDS[0] + torch.rand(4, 2, dtype=torch.float64) * (BOUNDS[1] - BOUNDS[0])
    optimizer.tell(X, X.sum(-1))
    batch = begun(optimizer)
    while not batch.complete:
        batch.pick()
    assert isinstance(batch, DesignBatch) and len(batch.picks) == 2
    optimizer.tell(X + 0.01 * (1 - X), X.sum(-1))
    assert isinstance(begun(optimizer), BoxBatch)


def test_where_nothing_is_believed_more_points_of_a_design_are_asked():
    optimizer = over_box(results=False)
    optimizer.give_up(optimizer.ask())
    batch = begun(optimizer)
    assert isinstance(batch, DesignBatch)
    batch.pick()
    assert batch.complete and len(batch.picks) == 1


def test_a_tree_is_searched_by_its_cells():
    optimizer = Optimizer(Tree(BOUNDS), model=Surrogate(kernel(), NOISE), seed=0)
    batch = begun(optimizer)
    assert isinstance(batch, TreeBatch) and batch.tree is not None
    batch.pick()
    assert torch.equal(batch.inputs_of(torch.tensor(batch.picks), BOUNDS), BOUNDS.mean(0)[None])


class Square(Box):
    r"""A domain of one's own."""


class Few(Arms):
    r"""Another one."""


def test_a_domain_is_picked_from_as_from_its_base():
    assert isinstance(begun(over_box(Square, results=False)), DesignBatch)
    assert isinstance(begun(over_box(Square)), BoxBatch)
    optimizer = Optimizer(Few(torch.eye(5, dtype=torch.float64)), seed=0)
    assert isinstance(begun(optimizer), LazyBatch)


@dataclass
class Foreign:
    r"""No domain at all."""


@pytest.mark.parametrize("function", [begin_batch, highest_bound])
def test_a_foreign_domain_is_refused(function):
    with pytest.raises(InputDataError, match="must be an Arms, a Box or a Tree, got Foreign"):
        function(Foreign(), context_of(over_arms()))


def test_the_highest_bound_over_arms():
    optimizer = over_arms()
    mean, var = optimizer.table.moments()
    got = highest_bound(optimizer.domain, context_of(optimizer, width=1.3))
    assert got == pytest.approx(float((mean + 1.3 * var.sqrt()).max()))


def test_rows_that_are_no_arms_have_no_highest_bound():
    optimizer = over_arms()
    far = torch.tensor([[50.0, 50.0]], dtype=torch.float64)
    optimizer.tell(far, [1000.0])
    got = highest_bound(optimizer.domain, context_of(optimizer, width=1.3))
    mean, var = (t[:40] for t in optimizer.table.moments())
    assert got == pytest.approx(float((mean + 1.3 * var.sqrt()).max())) and got < 100


def test_the_highest_bound_over_a_box_before_and_after_the_first_result():
    empty = over_box(results=False)
    assert highest_bound(empty.domain, context_of(empty, width=1.3)) == pytest.approx(1.3)
    optimizer = over_box()
    context = context_of(optimizer, width=1.3)
    got = highest_bound(optimizer.domain, context)
    rows = optimizer.history.rows
    mean, var = (t[rows] for t in optimizer.table.moments())
    assert got == pytest.approx(BoxBatch(optimizer.domain, context).highest_bound())
    assert got >= float((mean + 1.3 * var.sqrt()).max()) - 0.1


def test_the_highest_bound_over_a_tree_is_the_highest_index_of_its_leaves():
    optimizer = Optimizer(Tree(BOUNDS), model=Surrogate(kernel(), NOISE), seed=0)
    for _ in range(5):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, -suggestion.X.square().sum(-1))
    context = context_of(optimizer, width=2.0)
    got, batch = highest_bound(optimizer.domain, context), TreeBatch(optimizer.domain, context)
    assert got == float(batch.index[batch.cells.is_leaf].max())
    mean, var = optimizer.table.moments()
    assert got > float((mean - 2 * var.sqrt()).max())
