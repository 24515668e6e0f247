from __future__ import annotations

import io

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb import BBKB, BKB, GPBUCB, GPUCB, BatchCompleteError, EpsilonGreedy, MiniGPUCB
from tests.optimizers.support import Problem, takes

CASES = [
    (BBKB, {}),
    (BBKB, {"coupled": False}),
    (BBKB, {"batch_rule": "sum"}),
    (GPBUCB, {"batch_rule": "local"}),
    (BBKB, {"acquisition": "thompson"}),
    (BBKB, {"covar_module": None, "noise_var": None}),
    (BBKB, {"norm_bound": "double", "horizon": 20}),
    (BBKB, {"keep_coordinates": False}),
    (BKB, {}),
    (GPUCB, {}),
    (MiniGPUCB, {}),
    (EpsilonGreedy, {}),
]


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def steps(optimizer, problem, n):
    r"""``n`` steps with partial results and points nobody asked for."""
    out = []
    for i in range(n):
        try:
            suggestion = optimizer.ask(at_most=2)
        except BatchCompleteError:
            optimizer.tell(optimizer.pending, problem.f[optimizer.pending.indices])
            suggestion = optimizer.ask(at_most=2)
        out.append(suggestion.indices.tolist())
        part = suggestion[:1] if i % 3 == 1 else suggestion
        optimizer.tell(part, problem.f[part.indices] + 0.1 * i)
        if i % 4 == 2:
            optimizer.tell(torch.full((1, 2), 0.1 * i, dtype=torch.float64), [0.5])
        while len(optimizer.pending) and i % 3 != 1:
            optimizer.tell(optimizer.pending, problem.f[optimizer.pending.indices])
    return out


@pytest.mark.parametrize(("algorithm", "options"), CASES, ids=str)
@pytest.mark.parametrize("when", [0, 1, 8, 13])
def test_a_run_saved_and_resumed_goes_on_bit_for_bit(algorithm, options, when):
    problem = Problem()
    batches = {"batch_threshold": 20.0} if takes(algorithm, "batch_threshold") else {}
    options = problem.options(**batches, **options)

    def make():
        return algorithm(problem.arms, **options)

    whole, first, second = make(), make(), make()
    steps(whole, problem, when)
    steps(first, problem, when)
    second.load_state_dict(through_a_file(first.state_dict()))
    if when == 13:  # in the middle of a batch
        assert whole.ask(at_most=1).indices.tolist() == second.ask(at_most=1).indices.tolist()
        for o in (whole, second):
            o.tell(o.pending, problem.f[o.pending.indices])
    assert steps(whole, problem, 12) == steps(second, problem, 12)
    for ours, theirs in zip(whole.table.moments(), second.table.moments(), strict=True):
        assert torch.equal(ours, theirs)
    assert whole.width_now == second.width_now
    assert whole.best().mean == second.best().mean


def test_the_middle_of_a_batch_is_saved():
    problem = Problem()
    options = problem.options(batch_threshold=30.0)
    a, b = BBKB(problem.arms, **options), BBKB(problem.arms, **options)
    rows = torch.arange(30)
    a.tell(rows, problem.f[:30])
    a.ask(at_most=2)
    b.load_state_dict(through_a_file(a.state_dict()))
    assert torch.equal(a.pending.indices, b.pending.indices)
    assert torch.equal(a.ask().indices, b.ask().indices)


def test_a_state_of_something_else_is_refused():
    problem = Problem()
    a = BBKB(problem.arms, **problem.options())
    a.tell([0, 1], [1.0, 2.0])
    saved = a.state_dict()
    others = [
        BKB(problem.arms, **problem.options()),
        BBKB(problem.arms[1:], **problem.options()),
        BBKB(problem.arms.flip(0), **problem.options()),
    ]
    for other in others:
        with pytest.raises(InputDataError, match="another optimizer"):
            other.load_state_dict(saved)
        assert other.num_observations == 0
    without_history = {**saved["observations"], "history": None}
    for damaged in (
        {},
        {**saved, "observations": None},
        {**saved, "observations": without_history},
        *({k: v for k, v in saved.items() if k != key} for key in saved),
    ):
        fresh = BBKB(problem.arms, **problem.options())
        with pytest.raises(InputDataError):
            fresh.load_state_dict(damaged)
        assert fresh.num_observations == 0


def test_a_state_of_an_older_version_is_refused():
    problem = Problem()
    optimizer = BBKB(problem.arms, **problem.options())
    optimizer.tell([0, 1], [1.0, 2.0])
    old = {**optimizer.state_dict(), "version": 7}
    fresh = BBKB(problem.arms, **problem.options())
    with pytest.raises(
        InputDataError,
        match=r"must have version 8, got 7: it was saved by another version of botorch_bkb\. Load",
    ):
        fresh.load_state_dict(old)
    assert fresh.num_observations == 0


def test_other_arms_are_scaled_as_the_first_ones_after_loading():
    arms = torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(-1)
    a, b = GPUCB(arms, seed=0), GPUCB(5 * arms, seed=0)
    a.tell([0, 5, 10], [0.0, 1.0, 0.0])
    a.set_arms(5 * arms)
    b.load_state_dict(through_a_file(a.state_dict()))
    assert a.best().mean == b.best().mean
    assert torch.equal(a.ask().indices, b.ask().indices)


def test_saving_is_small_and_leaves_the_run_alone():
    problem = Problem(num_arms=2000)
    optimizer = BBKB(problem.arms, **problem.options())
    rows = torch.arange(100)
    optimizer.tell(rows, problem.f[rows])
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    assert file.tell() < 100_000  # neither the arms nor their coordinates
