from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
import torch

from botorch_bkb import BBKB, GPBUCB, Callback, read_journal, resume, run
from botorch_bkb.runs.executors import num_workers
from tests.runs.support import (
    BOUNDS,
    bbkb,
    deadly,
    hanging,
    in_a_worker,
    one,
    raising,
    slow,
    value,
)


def processes(n=2):
    return ProcessPoolExecutor(n, mp_context=get_context("fork"))


def test_processes_give_the_same_run_as_one_call():
    with processes() as pool:
        result = run(bbkb(), one, 40, executor=pool, keep_busy=False)
        assert torch.equal(result.X, run(bbkb(), value, 40).X)
        assert run(bbkb(), in_a_worker, 10, executor=pool).optimizer.noise_is_known
        assert run(bbkb(), raising, 40, executor=pool).num_failed > 0


def test_asynchronous_workers_do_not_wait_for_stragglers():
    def busy(asynchronous):
        waiting, most = [], []

        def objective(x):
            waiting.append(1)
            most.append(len(waiting))
            time.sleep(0.15 if len(most) % 5 == 0 else 0.01)
            waiting.pop()
            return one(x)

        with ThreadPoolExecutor(3) as pool:
            optimizer = bbkb(GPBUCB, batch_threshold=30.0)
            optimizer.tell(torch.arange(0, 40, 8), value(optimizer.arms[::8]))
            result = run(optimizer, objective, 60, executor=pool, asynchronous=asynchronous)
        assert len(result.Y) == 60 and len(optimizer.pending) == 0
        return result

    # A batch of results is told at a time, or each when it comes.
    assert len(set(busy(True).history["batch"])) > len(set(busy(False).history["batch"]))


@pytest.mark.parametrize("make", [bbkb, lambda: BBKB(bounds=BOUNDS, seed=0, num_initial=4)])
def test_an_asynchronous_run_is_replayed_as_it_was(make, tmp_path):
    path, lock = tmp_path / "run.sqlite", threading.Lock()
    count = iter(range(10**6))

    def objective(x):
        with lock:
            time.sleep(0.01 * (next(count) % 3))
        return one(x)

    with ThreadPoolExecutor(3) as pool:
        first = run(make(), objective, 15, executor=pool, asynchronous=True, journal=path)
        again = resume(path, objective, executor=pool, budget=18)
    assert torch.equal(again.X[:15], first.X) and len(again.Y) == 18


def test_workers_that_hang_are_given_up(caplog):
    with ThreadPoolExecutor(4) as pool:
        result = run(bbkb(), hanging, 30, executor=pool, timeout=0.3)
    assert result.num_failed + len(result.Y) == 30
    assert any("TimeoutError: no result after 0.3 seconds" in f.error for f in result.failures)


def test_all_workers_hang():
    event = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        result = run(bbkb(), lambda x: event.wait(20), 30, executor=pool, timeout=0.1)
        event.set()
    assert "all 2 workers hang" in result.stopped


def test_dying_workers_with_a_function_that_makes_pools(tmp_path):
    result = run(bbkb(), deadly, 40, executor=processes, journal=tmp_path / "run.sqlite")
    assert result.num_failed + len(result.Y) == 40
    assert 0 < result.num_failed < 40
    for failure in result.failures:  # nobody else is blamed
        assert float(failure.x[0]) > 3.5 and "BrokenProcessPool" in failure.error


def test_dying_workers_of_a_pool_end_the_run_and_nothing_is_lost(tmp_path):
    path = tmp_path / "run.sqlite"
    pool = processes()
    result = run(bbkb(), deadly, 60, executor=pool, journal=path, keep_busy=False)
    pool.shutdown()
    assert "the executor is broken" in result.stopped and "lambda" in result.stopped
    with processes() as pool:
        rest = resume(path, one, executor=pool)
    assert torch.equal(rest.X, run(bbkb(), value, 60).X)
    assert torch.equal(rest.X[: len(result.X)], result.X)


def test_a_pool_that_was_shut_down():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    assert "broken" in run(bbkb(), one, 10, executor=pool).stopped


def test_slow_objectives_use_all_workers():
    with ThreadPoolExecutor(4) as pool:
        assert num_workers(pool) == 4
        result = run(bbkb(), slow, 40, executor=pool)
    assert len(result.Y) == 40


def test_ctrl_c_does_not_wait_for_slow_points(tmp_path):
    path, event = tmp_path / "run.sqlite", threading.Event()
    count, over = iter(range(10**6)), []

    def objective(x):
        if next(count) == 6:
            os.kill(os.getpid(), signal.SIGINT)
            over.append(event.wait(60))
        return one(x)

    with ThreadPoolExecutor(2) as pool:
        result = run(bbkb(), objective, 40, executor=pool, journal=path, keep_busy=False)
        assert not over
        event.set()
    assert result.stopped == "interrupted" and 5 <= len(result.Y) <= 8
    with ThreadPoolExecutor(2) as pool:
        rest = resume(path, one, executor=pool)
    assert torch.equal(rest.X, run(bbkb(), value, 40).X)


class Kill(Callback):
    r"""Kill a process in the middle of a batch."""

    def __init__(self, process):
        self.process, self.killed = process, False

    def on_tell(self, loop, outcomes):
        if loop.num_done >= 20 and loop.evaluator.busy > 2 and not self.killed:
            os.kill(self.process, signal.SIGKILL)
            self.killed = True


def test_a_dask_cluster_that_loses_a_worker(tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        kill = Kill(next(iter(client.run(os.getpid).values())))
        executor = client.get_executor()
        assert num_workers(executor) == 2
        path = tmp_path / "run.sqlite"
        options = {"executor": executor, "journal": path, "keep_busy": False}
        result = run(bbkb(), in_a_worker, 60, callbacks=[kill], **options)
        assert kill.killed and kill.process not in client.run(os.getpid).values()
        executor.shutdown()
    assert len(result.Y) == 60 and result.num_failed == 0
    assert torch.equal(result.X, run(bbkb(), lambda X: (value(X), 0.01 + 0 * value(X)), 60).X)


class Noting(ThreadPoolExecutor):
    r"""Writes down what is submitted."""

    def __init__(self, log):
        super().__init__(2)
        self.log = log

    def submit(self, *args, **kwargs):
        self.log.append("submit")
        return super().submit(*args, **kwargs)


class Asks(Callback):
    r"""Writes down asks, and ends of batches."""

    def __init__(self, log):
        self.log = log

    def on_ask(self, loop, points):
        self.log.append("ask")

    def on_batch(self, loop):
        self.log.append("batch")


@pytest.mark.parametrize("make", [bbkb, lambda: BBKB(bounds=BOUNDS, seed=0, num_initial=7)])
def test_workers_begin_while_the_batch_is_chosen(make, monkeypatch):
    monkeypatch.setattr("botorch_bkb.runs.loop.PIECE_SECONDS", 0.0)  # two points at a time
    log = []
    with Noting(log) as pool:
        options = {"executor": pool, "callbacks": [Asks(log)], "progress": False}
        result = run(make(), one, 30, keep_busy=False, **options)
    assert torch.equal(result.X, run(make(), value, 30, progress=False).X)
    batches = " ".join(log).split("batch")
    assert any("ask submit submit ask submit" in batch for batch in batches)
    assert log.count("submit") == 30


def test_quick_picks_are_handed_over_in_few_pieces(monkeypatch):
    monkeypatch.setattr("botorch_bkb.runs.loop.PIECE_SECONDS", 1e9)
    log = []
    with Noting(log) as pool:
        optimizer = bbkb(batch_threshold=1e9)
        run(optimizer, one, 300, executor=pool, callbacks=[Asks(log)], progress=False)
    assert log.count("batch") == 1 and log.count("ask") == 8  # 2, 4, .. 128 and the rest


def test_seconds_of_an_evaluation_are_its_own(tmp_path):
    class Slowly(Callback):
        def on_ask(self, loop, points):
            time.sleep(0.3)  # while the first two are long done

    with ThreadPoolExecutor(2) as pool:
        optimizer = bbkb(batch_threshold=1e9)
        run(optimizer, one, 6, executor=pool, callbacks=[Slowly()], journal=tmp_path / "run.sqlite")
    assert max(read_journal(tmp_path / "run.sqlite")["seconds"]) < 0.25
