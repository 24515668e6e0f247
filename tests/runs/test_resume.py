from __future__ import annotations

import itertools
import math
import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from botorch_bkb import (
    BBKB,
    BKB,
    AdaBKB,
    Callback,
    CompressedUCB,
    JournalError,
    read_journal,
    resume,
    run,
)
from botorch_bkb.domains import TrustRegion
from botorch_bkb.journal import Journal, recover
from botorch_bkb.runs import loop
from tests.runs.support import ARMS, BOUNDS, bbkb, one, value

#: Two regions that shrink with every failure and begin anew soon.
BRISK = TrustRegion(2, min_length=0.3, failure_tolerance=1, num_initial=3)


class Crash(Callback):
    r"""Raise after some points."""

    def __init__(self, after):
        self.after = after

    def on_ask(self, loop, points):
        if loop.num_done >= self.after:
            raise MemoryError("crash")

    on_tell = on_ask


def crashed(optimizer, path, after, budget=60, **options):
    with pytest.raises(MemoryError):
        run(optimizer, value, budget, journal=path, callbacks=[Crash(after)], **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.sqlite"


CASES = {
    "BBKB": lambda: bbkb(),
    "BKB fitted": lambda: BKB(ARMS, seed=1),
    "no seed": lambda: BBKB(ARMS, covar_module=ScaleKernel(RBFKernel()), noise_var=0.01),
    "box": lambda: BBKB(bounds=BOUNDS, seed=1, acquisition_options={"num_restarts": 2}),
    "trust regions": lambda: BKB(bounds=BOUNDS, seed=1, trust_region=BRISK),
    "mixed box": lambda: BKB(bounds=BOUNDS, seed=1, discrete_dims={1: [-1.0, 0.0, 1.0]}),
    "tree": lambda: AdaBKB(bounds=BOUNDS, seed=1),
    "compressed": lambda: bbkb(CompressedUCB, epsilon=0.2),
    "float32": lambda: BBKB(ARMS.float(), seed=1),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("snapshots", [0.0, 100.0])
def test_a_crashed_run_goes_on_as_if_nothing_had_been(case, path, snapshots, monkeypatch):
    monkeypatch.setattr(loop, "SNAPSHOT_SECONDS", snapshots)
    monkeypatch.setattr(loop, "SNAPSHOT_SHARE", 1e9)
    optimizer, budget = CASES[case](), 24
    start = optimizer.state_dict()
    for after in (5, 11, 12):
        if after == 5:
            crashed(optimizer, path, after, budget)
        else:
            with pytest.raises(MemoryError):
                resume(path, value, callbacks=[Crash(after)])
    result = resume(path, value)
    twin = CASES[case]()
    twin.load_state_dict(start)
    expected = run(twin, value, budget)
    assert torch.equal(result.X, expected.X) and torch.equal(result.Y, expected.Y)
    assert result.best.mean == expected.best.mean
    for name in ("t", "batch", "reward", "best", "dictionary", "dimension", "width"):
        assert result.history[name] == expected.history[name]
    assert result.num_skipped == expected.num_skipped


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
@pytest.mark.parametrize("after", [2, 5])
def test_a_crash_in_the_middle_of_a_batch_changes_nothing(make, after, path, monkeypatch):
    monkeypatch.setattr(loop, "PIECE_SECONDS", 0.0)  # two points at a time
    optimizer = make()
    start = optimizer.state_dict()
    count, ask = iter(range(10**6)), optimizer.ask

    def ask_until_memory_ends(*args, **kwargs):
        if next(count) == after:
            raise MemoryError
        return ask(*args, **kwargs)

    optimizer.ask = ask_until_memory_ends
    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(MemoryError):
            run(optimizer, one, 24, executor=pool, journal=path, progress=False)
        result = resume(path, one, executor=pool, progress=False)
        again = make()
        again.load_state_dict(start)
        assert torch.equal(result.X, run(again, one, 24, executor=pool, progress=False).X)


def test_a_crash_before_results_were_told_leaves_no_hole_in_the_history(path):
    optimizer = bbkb(BKB)
    count, hear = iter(range(10**6)), optimizer.tell

    def hear_until_memory_ends(*args):
        if next(count) == 7:
            raise MemoryError
        hear(*args)

    optimizer.tell = hear_until_memory_ends
    with pytest.raises(MemoryError):
        run(optimizer, value, 12, journal=path, progress=False)
    result, expected = resume(path, value), run(bbkb(BKB), value, 12)
    for name in ("dictionary", "dimension", "width"):
        assert result.history[name] == expected.history[name] == read_journal(path)[name]


def test_a_finished_run_has_nothing_to_do(path):
    done = run(bbkb(), value, 30, journal=path)
    again = resume(path, lambda X: pytest.fail("evaluated again"))
    assert torch.equal(done.X, again.X) and again.stopped == "budget spent"


def test_a_larger_budget(path):
    run(bbkb(BKB), value, 30, journal=path)
    longer = resume(path, value, budget=50)
    assert torch.equal(longer.X, run(bbkb(BKB), value, 50).X)
    with Journal.read(path) as journal:
        assert journal.settings["run"]["budget"] == 50


def test_arguments_a_journal_cannot_keep(path):
    def make():
        return bbkb(width=lambda progress: 2.0)

    crashed(make(), path, 20)
    with pytest.raises(JournalError, match=r"width = function .*pass `optimizer`"):
        resume(path, value)
    result = resume(path, value, optimizer=make())
    assert torch.equal(result.X, run(make(), value, 60).X)


def test_another_optimizer_is_refused(path):
    crashed(bbkb(), path, 20)
    with pytest.raises(JournalError, match="not the one of the run"):
        resume(path, value, optimizer=bbkb(BKB))


class OwnBBKB(BBKB):
    pass


def test_an_optimizer_of_the_users_own(path):
    crashed(bbkb(OwnBBKB), path, 20)
    with pytest.raises(JournalError, match="the optimizer = a class OwnBBKB"):
        resume(path, value)
    resume(path, value, optimizer=bbkb(OwnBBKB))


def test_the_table_of_a_journal(path):
    crashed(bbkb(BKB), path, 20)
    table = read_journal(path)
    assert table["status"] == ["done"] * 20
    assert table["x0"] == ARMS[table["arm"], 0].tolist()
    assert table["reward"] == value(ARMS[table["arm"]]).tolist()


def test_an_optimizer_that_does_not_repeat_itself_is_told_everything(path, caplog):
    crashed(bbkb(), path, 30)
    Journal.append(path).close()
    connection = Journal.append(path)
    connection._connection.execute("DELETE FROM snapshots")
    connection.close()
    other = bbkb(seed=11, width=0.1)  # asks for other points from the beginning
    result = resume(path, value, optimizer=other)
    assert "does not repeat itself" in caplog.text
    assert other.num_observations == len(result.Y) == 60
    again = resume(path, value, optimizer=bbkb(seed=11, width=0.1), budget=70)
    assert len(again.Y) == 70 and torch.equal(again.X[:60], result.X)


@pytest.mark.parametrize("table", ["events", "suggestions", "settings", "measurements"])
def test_a_recovered_journal_goes_on_without_lost_records(path, tmp_path, table):
    crashed(bbkb(BKB), path, 30)
    journal = Journal.append(path)
    journal._connection.execute(f"DELETE FROM {table} WHERE rowid % 7 = 3")
    journal._connection.execute("DELETE FROM snapshots WHERE event > 0")
    journal.close()
    new = tmp_path / "new.sqlite"
    recover(path, new)
    result = resume(new, value, optimizer=bbkb(BKB), budget=60)
    assert len(result.Y) + result.num_failed >= 50
    assert result.optimizer.num_observations == len(result.Y)


# ---------------------------------------------------------------------- killed

#: The longest delay, in seconds, between the call that decides on the end and the end itself.
DELAY = 0.002


class Acknowledge(Callback):
    def __init__(self, file):
        self.file = file

    def on_tell(self, loop, outcomes):
        for outcome in outcomes:
            os.write(self.file, f"ack {outcome.suggestion} {outcome.reward!r}\n".encode())


class Death:
    r"""Kills the process shortly after one of its function calls or returns.

    How far the process comes does not depend on the speed of the machine. The delay lets the kernel
    kill it inside a call, as well.

    Args:
        after: Number of calls and returns, of Python and C functions in the main thread.
        delay: Seconds from there to the end.
    """

    def __init__(self, after, delay):
        self.after, self.delay, self.seen = after, delay, 0

    def __call__(self, frame, event, argument):
        self.seen += 1
        if self.seen == self.after:
            signal.setitimer(signal.ITIMER_REAL, self.delay)

    def awaits(self):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process like SIGKILL
        sys.setprofile(self)


def child(make, path, log, budget, death, **options):
    r"""Begin or go on, in a process that may be killed at any moment."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def objective(X):
        for x in X:
            os.write(file, f"evaluate {float(x[0])!r}\n".encode())
        return value(X)

    def flaky(x):
        time.sleep(0.004 * random.random())
        return math.nan if random.random() < 0.1 else float(value(x))

    given = {"callbacks": [Acknowledge(file)], "progress": False}
    if options:
        given["executor"], objective = ThreadPoolExecutor(3), flaky
    try:
        death.awaits()
        try:
            resume(path, objective, **given)
        except JournalError as error:
            if "no journal" not in str(error) and "not a journal" not in str(error):
                raise
            run(make(), objective, budget, journal=path, **given, **options)
        sys.setprofile(None)
        os.write(file, f"calls {death.seen}\n".encode())
        code = 0
    except BaseException as error:
        os.write(file, f"error {error!r}\n".encode())
        code = 1
    os._exit(code)


def lives(make, path, log, budget, death, **options):
    r"""Return whether a process came to its end, and was not killed."""
    process = os.fork()
    if process == 0:
        child(make, path, log, budget, death, **options)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGALRM
        return False
    assert os.WEXITSTATUS(status) == 0, log.read_text()[-1000:]
    return True


def calls_of_a_life(make, folder, budget, **options):
    r"""Return the number of calls and returns of a run that is not killed."""
    log = folder / "whole.log"
    assert lives(make, folder / "whole.sqlite", log, budget, Death(-1, 0.0), **options)
    return int(log.read_text().split()[-1])


def killed_again_and_again(make, path, log, budget, rng, longest, **options):
    r"""Return how often it was killed before it came to its end.

    Args:
        make: Function that makes the optimizer.
        path: Path of the journal.
        log: Path of the log.
        budget: Number of points.
        rng: Source of randomness.
        longest: Number of calls and returns after which the first process is killed, at most.
        options: Further arguments of ``run``.
    """
    kills = 0
    while True:
        # Longer and longer, so that it comes to its end although it repeats its past each time.
        after = 1 + int(rng.uniform(0, longest * 1.08**kills))
        if lives(make, path, log, budget, Death(after, rng.uniform(1e-6, DELAY)), **options):
            return kills
        kills += 1


def check_against_the_log(path, log, distinct):
    with Journal.read(path) as journal:
        rewards = {o.suggestion: o.reward for o in journal.outcome_list()}
        points = {a.suggestion: a for a in journal.suggestion_list()}
        told = [n for e in journal.events() if e.kind == "tell" for n in e.members]
    assert sorted(told) == sorted(rewards) == sorted(points)  # all of them, none twice
    x = {torch.frombuffer(bytearray(a.point), dtype=torch.float64)[0].item(): n
         for n, a in points.items()}  # fmt: skip
    acknowledged = set()
    for line in log.read_text().splitlines():
        kind, *rest = line.split()
        assert kind != "error", line
        if kind == "ack":
            number = int(rest[0])
            reward = None if rest[1] == "None" else float(rest[1])
            assert number not in acknowledged
            assert rewards[number] == reward
            acknowledged.add(number)
        elif kind == "evaluate" and distinct:
            assert x[float(rest[0])] not in acknowledged


def test_an_asynchronous_run_killed_at_any_moment(tmp_path):
    options = {"asynchronous": True, "retries": 1}

    def make():
        return bbkb(batch_threshold=20.0)

    calls = calls_of_a_life(make, tmp_path, 60, **options)
    rng, count = random.Random(1), 0
    for i in itertools.count():
        path, log = tmp_path / f"{i}.sqlite", tmp_path / f"{i}.log"
        count += killed_again_and_again(make, path, log, 60, rng, calls, **options)
        check_against_the_log(path, log, distinct=False)
        with Journal.read(path) as journal:
            assert {event.kind for event in journal.events()} <= {"ask", "fill", "tell"}
        if count >= 20:
            return


@pytest.mark.parametrize(
    ("make", "budget", "kills", "share", "snapshots", "distinct"),
    [
        pytest.param(bbkb, 150, 100, 1.0, 1.0, False, id="replayed"),
        pytest.param(bbkb, 150, 60, 0.25, 0.0, False, id="from snapshots"),
        pytest.param(
            lambda: BKB(
                bounds=BOUNDS,
                seed=1,
                covar_module=RBFKernel(),
                noise_var=0.01,
                acquisition_options={"num_restarts": 1, "raw_samples": 8},
            ),
            30,
            40,
            0.25,
            0.0,
            True,
            id="box",
        ),
    ],
)
def test_killed_at_any_moment(
    make, budget, kills, share, snapshots, distinct, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "SNAPSHOT_SECONDS", snapshots)
    monkeypatch.setattr(loop, "SNAPSHOT_SHARE", 1e9)
    rng, expected, count = random.Random(0), run(make(), value, budget), 0
    longest = share * calls_of_a_life(make, tmp_path, budget)
    for i in itertools.count():
        path, log = tmp_path / f"{i}.sqlite", tmp_path / f"{i}.log"
        count += killed_again_and_again(make, path, log, budget, rng, longest)
        check_against_the_log(path, log, distinct)
        result = resume(path, lambda X: pytest.fail("evaluated again"), progress=False)
        assert torch.equal(result.X, expected.X) and torch.equal(result.Y, expected.Y)
        assert result.best.mean == expected.best.mean
        if count >= kills:
            return
