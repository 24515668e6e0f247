r"""What went wrong once, or could."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import gpytorch
import pytest
import torch

from botorch_bkb import BBKB, BKB, Callback, JournalError, StopAfter, read_journal, resume, run
from botorch_bkb.encoding import NotWritable, encode
from botorch_bkb.journal import Journal, recover
from botorch_bkb.journal.schema import PAGE_SIZE, TABLES
from botorch_bkb.runs.points import Reward, points_of, tell
from tests.runs.support import ARMS, BOUNDS, bbkb, one, value


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.sqlite"


def test_negative_zeros(path):
    def minus(X):
        return -((X[:, 0] - float(ARMS[20])) ** 2) * torch.where(X[:, 0] > 3, 0.0, 1.0)

    first = run(BKB(ARMS, seed=0), minus, 30, journal=path)
    assert (first.Y == 0).any()
    again = resume(path, minus, budget=34)
    assert torch.equal(again.X[:30], first.X)
    assert torch.equal(again.X, run(BKB(ARMS, seed=0), minus, 34).X)


@pytest.mark.parametrize(
    "bad", [1e200, (1.0, 1e300), (1.0, 1e-320), (1.0, 1e-200), 10**400, True, torch.tensor([2.0])]
)
def test_strange_rewards_never_spoil_a_journal(bad, path):
    count = iter(range(10**6))

    def strange(x):
        return bad if next(count) == 4 else one(x)

    with ThreadPoolExecutor(1) as pool:
        result = run(BKB(ARMS, seed=0), strange, 8, executor=pool, journal=path)
        again = resume(path, one, executor=pool, budget=10)
    assert len(result.Y) + result.num_failed == 8
    assert len(again.Y) + again.num_failed == 10
    assert torch.equal(again.X[: len(result.X)], result.X)


def test_workers_that_hang_and_come_back_in_an_asynchronous_run():
    count = iter(range(10**6))

    def late(x):
        if next(count) < 2:
            time.sleep(0.8)
        return one(x)

    with ThreadPoolExecutor(2) as pool:
        result = run(bbkb(), late, 10, executor=pool, asynchronous=True, timeout=0.5)
    assert result.num_failed == 2 and len(result.Y) == 8


class Recording(Executor):
    r"""Two workers, of which the second dies."""

    _max_workers, calls = 2, 0

    def submit(self, fn, /, *args, **kwargs):
        self.calls, future = self.calls + 1, Future()
        if self.calls > 2:
            raise BrokenExecutor("died")
        if self.calls == 2:
            future.set_exception(BrokenExecutor("died"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_what_came_before_an_executor_broke_is_kept(path):
    result = run(BBKB(bounds=BOUNDS, seed=0), one, 6, executor=Recording(), journal=path)
    assert "broken" in result.stopped and len(result.Y) == 1
    assert read_journal(path)["status"].count("done") == 1


def test_a_factory_that_fails():
    made = []

    def factory():
        if made:
            raise OSError("no more slots")
        made.append(Recording())
        return made[0]

    assert "no more slots" in run(bbkb(), one, 10, executor=factory).stopped


def test_a_factory_of_useless_executors():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    assert "broken" in run(bbkb(), one, 4, executor=lambda: pool).stopped


def test_a_worker_that_exits():
    def leaving(x):
        if float(x[0]) > 2:
            sys.exit(1)
        return one(x)

    with ThreadPoolExecutor(2) as pool:
        result = run(bbkb(), leaving, 20, executor=pool)
    assert result.num_failed > 0 and len(result.Y) + result.num_failed == 20
    assert "SystemExit" in result.failures[0].error


def test_interrupted_without_a_journal_the_optimizer_knows_what_came():
    count = iter(range(10**6))

    def interrupting(x):
        if next(count) == 3:
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
        return one(x)

    optimizer = BBKB(bounds=BOUNDS, seed=0)
    with ThreadPoolExecutor(1) as pool:
        result = run(optimizer, interrupting, 10, executor=pool)
    assert len(result.Y) == optimizer.num_observations == 3
    assert result.best is not None and len(optimizer.pending) == 3


def test_an_old_result_does_not_answer_a_new_point():
    optimizer = BKB(ARMS, num_initial=1, seed=0)
    (new,) = points_of(optimizer.ask(), 1, 0)
    tell(optimizer, [(new._replace(number=0, id=-2), Reward(1.0)), (new, Reward(1.0))])
    assert optimizer.num_observations == 2 and len(optimizer.pending) == 0


def kernels():
    own = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
    shared = gpytorch.kernels.RBFKernel()
    return [
        gpytorch.kernels.RBFKernel(lengthscale_constraint=own),
        shared + shared,
        gpytorch.kernels.RBFKernel(batch_shape=torch.Size([2])),
    ]


@pytest.mark.parametrize("kernel", kernels(), ids=["transform", "shared", "batch"])
def test_kernels_that_would_come_back_as_others(kernel):
    with pytest.raises(NotWritable):
        encode(kernel)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error", [OSError("bad file \udcff"), Unspeakable(), ValueError("x" * 9999)]
)
def test_errors_that_are_hard_to_write_down(error, path):
    def failing(X):
        if len(X) and float(X[0, 0]) > 0:
            raise error
        return value(X)

    result = run(bbkb(), failing, 25, journal=path)
    assert result.num_failed > 0
    assert type(error).__name__ in result.failures[0].error


def test_an_objective_that_returns_nothing():
    assert "failed in a row" in run(bbkb(), lambda X: (), 50).stopped


def test_attempts_are_counted_across_resumptions(path):
    calls = []

    def failing(x):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
        raise ValueError("never")

    with ThreadPoolExecutor(1) as pool:
        run(BKB(ARMS, seed=0), failing, 1, executor=pool, journal=path, retries=3)
    with ThreadPoolExecutor(1) as pool:
        result = resume(path, failing, executor=pool)
    assert result.failures[0].attempts == 4 and len(calls) <= 5


def test_seconds_count_from_the_beginning_of_the_run():
    stop = StopAfter(0.5)
    time.sleep(0.6)
    assert len(run(bbkb(), value, 30, callbacks=[stop]).Y) == 30


@pytest.mark.parametrize("name", ["", ".", "a folder"])
def test_a_folder_is_no_journal(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a folder").mkdir()
    with pytest.raises(JournalError, match="must be a file"):
        run(bbkb(), value, 5, journal=name)


@pytest.mark.parametrize("name", ["a b.sqlite", "ä?#%20.sqlite", "x;y'.sqlite"])
def test_strange_file_names(name, tmp_path):
    run(bbkb(), value, 10, journal=tmp_path / name)
    assert len(resume(tmp_path / name, value, budget=12).Y) == 12


def test_a_link_is_the_same_journal(path, tmp_path):
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)
    seen = []

    class Second(Callback):
        def on_batch(self, loop):
            if not seen:
                seen.append(1)
                with pytest.raises(JournalError, match="in use"):
                    resume(link, value)
                assert recover(link, tmp_path / "new.sqlite")["outcomes"] == loop.num_done

    run(bbkb(), value, 20, journal=path, callbacks=[Second()])
    assert seen


# ---------------------------------------------------------------------- lost records


def check_once_each(result):
    r"""Every result was told once, and belongs to its point."""
    assert result.optimizer.num_observations == len(result.Y)
    assert torch.allclose(result.Y, value(result.X))


@pytest.mark.parametrize("table", ["events", "suggestions", "outcomes", "measurements"])
@pytest.mark.parametrize("lost", ["< 40", "> 150", "= 77"])
def test_lost_records(table, lost, path):
    run(bbkb(BKB), value, 100, journal=path)
    key = next(iter(TABLES[table]))
    connection = sqlite3.connect(path)
    connection.execute(f"DELETE FROM {table} WHERE {key} {lost.replace('150', '90')}")
    connection.commit()
    connection.close()
    check_once_each(resume(path, value, budget=105))
    check_once_each(again := resume(path, value, budget=110))
    assert len(again.Y) == 110 or table == "suggestions"


def test_lost_pages(path, tmp_path):
    run(bbkb(BKB), value, 200, journal=path)
    data = path.read_bytes()
    for page in range(1, len(data) // PAGE_SIZE):
        place = page * PAGE_SIZE
        path.write_bytes(data[:place] + b"\x00" * PAGE_SIZE + data[place + PAGE_SIZE :])
        new = tmp_path / f"{page}.sqlite"
        recover(path, new)
        check_once_each(resume(new, value, optimizer=bbkb(BKB), budget=203))


def test_settings_that_became_text(path, tmp_path):
    run(bbkb(), value, 5, journal=path)
    data, blob = bytearray(path.read_bytes()), encode("float64")
    place = data.find(b"dtype" + blob)
    header = data.rfind(bytes([23, 12 + 2 * len(blob)]), place - 12, place)
    data[header + 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match="damaged"):
        resume(path, value)
    assert recover(path, tmp_path / "new.sqlite")["outcomes"] == 5


@pytest.mark.parametrize("place", [17, 32 + 9, 32 + 24 + PAGE_SIZE + 9])
def test_damage_to_the_log_of_a_killed_run(place, path, tmp_path):
    journal = Journal.create(path, {})
    journal.close()
    process = os.fork()
    if process == 0:
        run(bbkb(), value, 20, journal=tmp_path / "killed.sqlite", callbacks=[Dying()])
        os._exit(1)
    os.waitpid(process, 0)
    log = tmp_path / "killed.sqlite-wal"
    data = bytearray(log.read_bytes())
    data[place] ^= 4
    log.write_bytes(data)
    assert recover(tmp_path / "killed.sqlite", tmp_path / "new.sqlite")["outcomes"] >= 15


class Dying(Callback):
    def on_batch(self, loop):
        if loop.num_done >= 15:
            os.kill(os.getpid(), signal.SIGKILL)
