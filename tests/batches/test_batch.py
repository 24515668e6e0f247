from __future__ import annotations

import pytest
import torch

from botorch_bkb.batches import Batch, HoldingRule, OneAtATime, ProductRule, SumRule
from tests.arms.support import make
from tests.batches.support import apart, whole


class InTurn(Batch):
    r"""One arm after the other."""

    chosen = 0

    def _choose(self):
        self.chosen += 1
        return (self.chosen - 1) % self.num_arms


class First(Batch):
    r"""Always the first arm."""

    def _choose(self):
        return 0


@pytest.mark.parametrize(
    ("rule", "picks"),
    [
        (OneAtATime(), [0]),
        (SumRule(1.0), [0]),  # every pick has a score of 5, and the last one may exceed the limit
        (SumRule(10.9), [0, 1]),
        (SumRule(11.1), [0, 1, 2]),
        (SumRule(1000.0, max_size=2), [0, 1]),
        (ProductRule(35.9), [0, 1]),
        (ProductRule(36.1), [0, 1, 2]),
        (HoldingRule(2.0), [0]),
        (HoldingRule(4.1), [0, 0, 0]),
        (HoldingRule(4.1, max_size=2), [0, 0]),
    ],
    ids=str,
)
def test_picks_until_the_limit_is_spent(rule, picks):
    batch = whole(InTurn(apart(), rule))
    assert batch.picks == picks
    assert batch.scores == pytest.approx([5.0] * len(picks))
    assert batch.informative == [True] * len(picks)


def test_a_pick_that_is_held_is_chosen_once():
    batch = whole(InTurn(apart(), HoldingRule(4.1)))
    assert batch.chosen == 1 and len(batch.picks) == 3


def test_scores_are_those_at_the_start():
    table = make(n=20, m=6)
    batch = whole(InTurn(table, SumRule(30.0)))
    assert len(batch.picks) > 5
    assert batch.scores == table.scores()[batch.picks].tolist()


@pytest.mark.parametrize(
    ("stragglers", "picks"), [((4,), [0, 1]), ((4, 4), [0]), ((4, 5, 3), []), ((), [0, 1, 2])]
)
def test_stragglers_spend_what_picks_do(stragglers, picks):
    assert whole(InTurn(apart(), SumRule(11.1), stragglers=stragglers)).picks == picks


def test_one_straggler_is_all_that_one_at_a_time_allows():
    assert InTurn(apart(), OneAtATime(), stragglers=(3,)).complete
    assert InTurn(apart(), HoldingRule(4.1), stragglers=(3,)).complete


def test_points_given_up_spend_nothing():
    given_up = tuple(range(6)) * 10
    assert whole(InTurn(apart(), SumRule(11.1), given_up=given_up)).picks == [0, 1, 2]
    assert not InTurn(apart(), OneAtATime(), given_up=given_up).complete


def test_only_the_first_rows_are_arms():
    assert InTurn(apart(6), SumRule(1.0)).num_arms == 6
    batch = whole(InTurn(apart(6), SumRule(26.0), num_arms=2))
    assert batch.picks == [0, 1, 0, 1, 0, 1]


# After c pulls the score of an arm is 5 / (1 + 5 c): 5, 0.83, 0.45, ...


def test_later_picks_of_an_arm_teach_less():
    batch = whole(First(apart(), SumRule(16.1), threshold=0.8))
    assert batch.informative == [True, True, False, False]
    assert whole(First(apart(), SumRule(11.1), threshold=0.9)).informative == [True, False, False]


@pytest.mark.parametrize("earlier", ["stragglers", "given_up"])
def test_earlier_picks_of_an_arm_count_as_well(earlier):
    batch = First(apart(), SumRule(26.0), threshold=0.8, **{earlier: (0, 0, 3)})
    batch.pick()
    assert batch.informative == [False]
    other = InTurn(apart(), SumRule(26.0), threshold=0.8, **{earlier: (3, 3)})
    assert [other.pick() for _ in range(3)] == [0, 1, 2] and all(other.informative)


def test_a_pick_that_teaches_too_little_may_end_the_batch():
    rule = SumRule(1000.0)
    batch = whole(First(apart(), rule, threshold=0.8, ends_uninformed=True))
    assert batch.picks == [0, 0, 0] and batch.informative == [True, True, False]
    longer = First(apart(), rule, threshold=0.8)
    for _ in range(10):
        longer.pick()
    assert not longer.complete


def test_a_threshold_must_be_exceeded():
    table = apart()
    score = float(table.scores()[0])
    assert whole(First(table, OneAtATime(), threshold=score)).informative == [False]


def test_a_held_pick_keeps_its_mark():
    batch = whole(First(apart(), HoldingRule(4.1), threshold=10.0))
    assert batch.informative == [False] * 3


@pytest.mark.parametrize("rule", [SumRule(30.0), HoldingRule(4.1)], ids=str)
@pytest.mark.parametrize("done", [0, 1, 2])
def test_following_an_interrupted_run(rule, done):
    table = make(n=20, m=6)
    batch = whole(InTurn(table, rule))
    other = InTurn(table, rule)
    other.follow(batch.picks[:done])
    assert other.picks == batch.picks[:done]
    whole(other)
    assert (other.picks, other.scores) == (batch.picks, batch.scores)


def test_arms_have_no_design_and_no_tree():
    batch = InTurn(apart(), OneAtATime())
    assert not batch.is_design and batch.tree is None and batch.added == []
    arms = torch.rand(6, 2)
    assert torch.equal(batch.inputs_of(torch.tensor([3, 1]), arms), arms[[3, 1]])
