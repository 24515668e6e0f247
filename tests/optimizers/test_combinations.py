r"""Thousands of hostile combinations: each is refused clearly and early, or its answers are finite.

``HOSTILE_COMBINATIONS=10000 pytest tests/optimizers/test_combinations.py`` tries more of them.
"""

from __future__ import annotations

import os
import signal
import warnings

import pytest

from tests.optimizers.combinations import Broke, Combination, Trial

NUMBER = int(os.environ.get("HOSTILE_COMBINATIONS", "2000"))
EACH = 100
#: Seconds after which a combination hangs. It takes a few hundredths of a second.
PATIENCE = 120


@pytest.fixture(autouse=True)
def _few_splits(monkeypatch):
    monkeypatch.setattr("botorch_bkb.batches.tree.MOST_SPLITS", 50)


@pytest.fixture
def _no_hangs():
    def stop(*_):
        raise Broke("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_no_hangs")
@pytest.mark.parametrize("start", range(0, NUMBER, EACH))
def test_each_is_refused_or_finite(start):
    answers = refusals = 0
    for number in range(start, min(start + EACH, NUMBER)):
        trial = Trial(Combination.draw(number))
        signal.alarm(PATIENCE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.run()
        answers, refusals = answers + trial.answers, refusals + len(trial.refusals)
    assert min(answers, refusals) > EACH  # neither are all refused, nor none


def test_a_combination_is_drawn_by_its_number():
    assert Combination.draw(7) == Combination.draw(7) != Combination.draw(8)
