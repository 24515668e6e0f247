r"""When dictionaries are drawn and hyperparameters are fitted."""

from __future__ import annotations

import warnings

import pytest
import torch

from botorch_bkb import BBKB, AllPoints, RidgeLeverageSampling
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import updating
from botorch_bkb.optimizers.tables import build_table
from botorch_bkb.optimizers.updating import Updater
from tests.optimizers.inside import state_of
from tests.optimizers.support import Problem, kernel, make


@pytest.fixture
def problem():
    return Problem()


def updated(optimizer, seed=0):
    state = state_of(optimizer)
    updater = Updater(optimizer.parts, torch.Generator().manual_seed(seed))
    return updater.update(state, build_table(optimizer.domain, state))


def test_an_update_leaves_its_state_alone_and_repeats_itself(problem):
    optimizer = make(problem)
    optimizer.tell(torch.arange(20), problem.f[:20])
    before = optimizer.state_dict()
    (one, first), (_, second) = updated(optimizer, 0), updated(optimizer, 7)
    # The random state of the run decides, not that of the generator.
    assert torch.equal(first.dictionary, second.dictionary) and one.dictionary.is_current
    assert torch.equal(optimizer.state_dict()["random"], before["random"])
    assert not torch.equal(one.random, torch.Generator().get_state())


def test_coins_are_the_smallest_of_one_per_pull(problem):
    optimizer = make(problem, oversampling=1e-9)
    optimizer.tell([4, 9], [0.0, 0.0])
    before = optimizer.state_dict()["dictionary"]["coins"]
    optimizer.tell([4] * 2000 + [2], [0.0] * 2001)
    after = optimizer.state_dict()["dictionary"]["coins"]
    assert torch.equal(optimizer.history.rows, torch.tensor([2, 4, 9]))
    assert after[1] <= before[0] and after[1] < 0.01 and after[2] == before[1]


def test_fresh_coins_are_not_kept(problem):
    optimizer = make(problem, coupled=False)
    optimizer.tell([4, 9], [0.0, 0.0])
    assert len(optimizer.state_dict()["dictionary"]["coins"]) == 0


def test_many_unsolicited_results_are_drawn_from_scratch(problem, monkeypatch):
    drawn = []

    class Watched(RidgeLeverageSampling):
        def draw(self, inputs, generator):
            drawn.append(inputs.scores is None)
            return super().draw(inputs, generator)

    monkeypatch.setattr(updating, "WARM_START", 30)
    options = {"covar_module": kernel(), "noise_var": 0.1, "seed": 0}
    optimizer = BBKB(problem.arms, dictionary=Watched(4.0), **options)
    optimizer.tell(torch.arange(20), problem.f[:20])
    optimizer.tell(torch.arange(40), problem.f[:40])
    assert drawn == [False, True]
    exact = BBKB(problem.arms, dictionary=AllPoints(), **options)
    exact.tell(torch.arange(40), problem.f[:40])
    assert len(exact.dictionary) == 40


def test_fits_use_a_dictionary_of_bounded_size(problem, monkeypatch):
    sizes, fit = [], Surrogate.fit

    def watched(self, X, history, dictionary, noise_known, seed, **start):
        sizes.append(len(dictionary))
        return fit(self, X, history, dictionary, noise_known, seed, **start)

    monkeypatch.setattr(Surrogate, "fit", watched)
    monkeypatch.setattr(updating, "MOST_FITTED", 7)
    for few, size in ((29, 7), (30, 30)):  # the exact evidence of few points is cheaper
        monkeypatch.setattr(updating, "FEW", few)
        optimizer = BBKB(problem.arms, dictionary=AllPoints(), seed=0)
        optimizer.tell(torch.arange(30), problem.f[:30])
        assert sizes.pop() == size and len(optimizer.dictionary) == 30


def test_new_hyperparameters_score_all_points_at_once(problem):
    optimizer = BBKB(problem.arms, seed=0)
    optimizer.tell(torch.arange(30), problem.f[:30])
    saved = optimizer.state_dict()["confidence"]
    assert saved["log_sum_alpha"] == pytest.approx(3 * saved["log_sum"])


def test_the_cap_warns_once_also_after_an_exchange_of_arms(problem):
    optimizer = make(problem, max_dictionary=3)
    with pytest.warns(match="max_dictionary"):
        optimizer.tell(torch.arange(20), problem.f[:20])
    optimizer.set_arms(problem.arms[:40])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.tell(torch.arange(20, 40), problem.f[20:40])
    assert len(optimizer.dictionary) == 3
