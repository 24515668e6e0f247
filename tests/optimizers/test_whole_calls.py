r"""A call happens as a whole or not at all: errors, interrupts, threads, copies."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import botorch_bkb
from botorch_bkb import BBKB, BKB, BatchCompleteError, FinishedError
from botorch_bkb.encoding import encode
from tests.optimizers.every import ARMS, CASES, make, rewards

PACKAGE = str(Path(botorch_bkb.__file__).parent)
every_case = pytest.mark.parametrize("case", CASES)


def saved(optimizer):
    return encode(optimizer.state_dict())


def step(optimizer):
    r"""Ask and tell once; returns what was suggested, or nothing where all batches are done."""
    try:
        suggestion = optimizer.ask(at_most=3)
    except FinishedError:
        return torch.empty(0)
    to_do = suggestion[suggestion.informative] if -1 in suggestion.ids else suggestion
    optimizer.tell(to_do, rewards(to_do.X))
    return suggestion.X


@every_case
@pytest.mark.filterwarnings("ignore")
def test_a_copy_goes_on_with_the_same_picks_at_every_stage(case):
    optimizer, copies = make(case), []

    def through_copies():
        copies[:] = [pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)]
        assert all(saved(twin) == saved(optimizer) for twin in copies)

    for _ in range(3):
        through_copies()
        suggestion = optimizer.ask(at_most=2)
        assert all(torch.equal(twin.ask(at_most=2).X, suggestion.X) for twin in copies)
        through_copies()
        optimizer.tell(suggestion[:1], rewards(suggestion.X[:1]))
        for twin in copies:
            twin.tell(suggestion[:1], rewards(suggestion.X[:1]))
        assert all(saved(twin) == saved(optimizer) for twin in copies)
        through_copies()
        rest = optimizer.pending
        optimizer.tell(rest, rewards(rest.X))
        assert optimizer.best().mean == optimizer.best().mean
    through_copies()
    expected = step(optimizer)
    assert all(torch.equal(step(twin), expected) for twin in copies)


class Injected(BaseException):
    r"""Stands for an interrupt: nothing that handles errors handles it."""


class Tracer:
    r"""Counts the lines of the package that a call executes, and raises at one of them."""

    def __init__(self, at=None):
        self.at, self.lines = at, 0

    def __call__(self, frame, event, argument):
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE) or name.endswith("exclusive.py"):  # what undoes a call
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                sys.settrace(None)
                raise Injected
        return self

    def run(self, call):
        before = sys.gettrace()
        sys.settrace(self)
        try:
            return call()
        finally:
            sys.settrace(before)


def moments(optimizer):
    return torch.stack(optimizer.table.moments()).tolist()


def ask(optimizer, size):
    r"""Ask, and return what the answer was."""
    try:
        return optimizer.ask(at_most=size).X.tolist()
    except (BatchCompleteError, FinishedError) as answer:
        return str(answer)


def tell(optimizer):
    pending = optimizer.pending
    optimizer.tell(pending, rewards(pending.X))


def call(optimizer, name):
    if name in ("ask", "more"):
        return ask(optimizer, 1 if name == "ask" else 3)
    return tell(optimizer) if name == "tell" else getattr(optimizer, name)()


@every_case
@pytest.mark.filterwarnings("ignore")
def test_a_call_that_is_interrupted_anywhere_has_not_happened(case):
    optimizer, rng = make(case), random.Random(case)
    for round_ in range(2):
        for name in ("ask", "more", "tell", "gap"):

            def warm(optimizer=optimizer, name=name):
                r"""A copy that has its table, and the batch that goes on."""
                one = copy.deepcopy(optimizer)
                if name == "more":
                    ask(one, 1)
                return one, saved(one), moments(one)

            expected, *_ = warm()
            answer = call(expected, name)
            counter, (one, *_) = Tracer(), warm()
            counter.run(lambda one=one, name=name: call(one, name))
            for _ in range(2):
                one, before, belief = warm()
                at = rng.randint(1, counter.lines)
                with pytest.raises(Injected):
                    Tracer(at).run(lambda one=one, name=name: call(one, name))
                assert saved(one) == before, (round_, name, at)
                assert moments(one) == belief, (round_, name, at)
                assert str(call(one, name)) == str(answer), (round_, name, at)
                assert saved(one) == saved(expected), (round_, name, at)
            optimizer = expected


def exchange(optimizer):
    optimizer.set_arms(ARMS[5:])


def load(optimizer):
    other = copy.deepcopy(optimizer)
    other.tell([3], [1.0])
    optimizer.load_state_dict(other.state_dict())


def give_up(optimizer):
    optimizer.give_up(optimizer.pending[:1])


def plate(optimizer):
    optimizer.ask(6)


@pytest.mark.parametrize("call", [exchange, load, give_up, plate], ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_other_calls_that_are_interrupted_have_not_happened(call):
    optimizer = BBKB(ARMS, seed=0)
    step(optimizer)
    optimizer.ask(2)
    belief, before = moments(optimizer), saved(optimizer)
    counter, one = Tracer(), copy.deepcopy(optimizer)
    saved(one), moments(one)
    counter.run(lambda: call(one))
    rng = random.Random(0)
    for at in (rng.randint(1, counter.lines) for _ in range(20)):
        one = copy.deepcopy(optimizer)
        saved(one), moments(one)
        with pytest.raises(Injected):
            Tracer(at).run(lambda one=one: call(one))
        assert saved(one) == before and moments(one) == belief
        assert torch.equal(one.arms, ARMS)


def test_an_answer_that_the_batch_is_complete_costs_one_update():
    optimizer = BKB(ARMS, seed=0, covar_module=make("BKB-arms-given").parts.model.covar_module,
                    noise_var=0.05)  # fmt: skip
    optimizer.ask()
    with pytest.raises(BatchCompleteError):
        optimizer.ask()
    before = saved(optimizer)
    for _ in range(3):
        with pytest.raises(BatchCompleteError):
            optimizer.ask()
    assert saved(optimizer) == before


@pytest.fixture
def _impatient_threads():
    r"""Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("case", ["BBKB-arms-given", "BKB-bounds-fitted", "AdaBBKB-bounds-given"])
@pytest.mark.usefixtures("_impatient_threads")
@pytest.mark.filterwarnings("ignore")
def test_threads_that_ask_tell_and_read_at_once_take_turns(case):
    optimizer, asked, start = make(case), [], threading.Barrier(4)

    def work(number):
        start.wait()
        for _ in range(6):
            suggestion = optimizer.ask(1)
            asked.extend(suggestion.ids)
            if number % 2:
                optimizer.gap(), optimizer.state_dict(), optimizer.effective_dimension
            optimizer.tell(suggestion, rewards(suggestion.X))
            best = optimizer.best()
            assert best.lower <= best.mean <= best.upper
            assert len(optimizer.pending) < 4

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, number) for number in range(4)]:
            done.result()
    assert sorted(asked) == list(range(24))
    assert optimizer.num_observations == 24 and not len(optimizer.pending)
    assert moments(optimizer) == moments(copy.deepcopy(optimizer))  # rebuilt from its log


@pytest.mark.parametrize("n", [1, 100_000])
def test_a_state_does_not_grow_with_results_of_one_arm(n, monkeypatch):
    monkeypatch.setattr("botorch_bkb.optimizers.optimizer.MOST_CHANGES", 3)
    optimizer, sizes = make("BBKB-arms-given"), []
    for i in range(12):
        optimizer.tell([0] * n, torch.full((n,), float(i % 2)))
        sizes.append(len(saved(optimizer)))
    assert optimizer.num_observations == 12 * n and len(optimizer.history.rows) == 1
    assert max(sizes[6:]) < max(sizes[:6]) + 100
