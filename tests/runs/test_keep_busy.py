r"""Runs whose workers the batch rule would leave idle."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from botorch_bkb import (
    BBKB,
    BKB,
    BatchedElimination,
    Callback,
    CompressedUCB,
    read_journal,
    resume,
    run,
)
from tests.runs.support import ARMS, BOUNDS, bbkb, one

BOX = {"bounds": BOUNDS, "num_initial": 2, "acquisition_options": {"num_restarts": 2}}


def batches(result):
    r"""The number of points of each batch."""
    _, counts = torch.tensor(result.history["batch"]).unique_consecutive(return_counts=True)
    return counts.tolist()


def make_box():
    return BKB(**BOX, seed=0)


@pytest.mark.parametrize(("make", "beyond"), [(lambda: bbkb(BKB), 13), (make_box, 10)])
def test_every_worker_gets_a_point_of_each_batch(make, beyond, tmp_path):
    path = tmp_path / "run.sqlite"
    with ThreadPoolExecutor(4) as pool:
        result = run(make(), one, 18, executor=pool, journal=path)
    assert batches(result) == [4, 4, 4, 4, 2]
    table = read_journal(path)
    assert sum(table["beyond"]) == beyond and table["beyond"][0] is False


def test_without_it_workers_wait():
    with ThreadPoolExecutor(4) as pool:
        result = run(bbkb(BKB), one, 6, executor=pool, keep_busy=False)
    assert batches(result) == [1] * 6


def test_a_batch_with_enough_points_stays_as_it_is():
    with ThreadPoolExecutor(2) as pool:
        strict, busy = (
            run(bbkb(batch_threshold=1000.0), one, 40, executor=pool, keep_busy=keep)
            for keep in (False, True)
        )
    assert torch.equal(strict.X, busy.X) and min(batches(busy)) >= 2


def test_asynchronous_workers_are_all_busy():
    barrier = threading.Barrier(3, timeout=60)  # which only three workers at a time can pass

    def together(x):
        barrier.wait()
        return one(x)

    with ThreadPoolExecutor(3) as pool:
        result = run(bbkb(BKB), together, 12, executor=pool, asynchronous=True)
    assert len(result.Y) == 12 and result.num_failed == 0


def test_without_it_asynchronous_workers_wait():
    running, most, lock = [0], [], threading.Lock()

    def counted(x):
        with lock:
            running[0] += 1
            most.append(running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return one(x)

    with ThreadPoolExecutor(3) as pool:
        run(bbkb(BKB), counted, 8, executor=pool, asynchronous=True, keep_busy=False)
    assert max(most) == 1


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("make", [lambda: bbkb(BKB), make_box])
def test_a_run_is_resumed_as_if_it_had_never_stopped(make, asynchronous, tmp_path):
    class Interrupting(Callback):
        asks = 0

        def on_ask(self, loop, points):
            self.asks += 1
            if self.asks == 3:
                raise KeyboardInterrupt

    class InTurn(ThreadPoolExecutor):
        r"""Evaluates one point after another, so that results arrive in their order."""

        def __init__(self):
            super().__init__(1)

    path = tmp_path / "run.sqlite"
    with InTurn() as pool:
        options = {"executor": pool, "asynchronous": asynchronous, "workers": 3}
        if not asynchronous:
            whole = run(make(), one, 14, **options)
        begun = run(make(), one, 14, journal=path, callbacks=[Interrupting()], **options)
        assert begun.stopped == "interrupted"
        result = resume(path, one, executor=pool, workers=3)
    assert len(result.Y) == 14
    if not asynchronous:
        assert torch.equal(result.X, whole.X)
        assert batches(result) == batches(whole) == [3, 3, 3, 3, 2]


def test_a_run_ends_when_all_candidates_were_evaluated():
    optimizer = BBKB(ARMS, max_replicates=1, seed=0)
    with ThreadPoolExecutor(3) as pool:
        result = run(optimizer, one, 100, executor=pool)
    assert len(result.Y) == 40 == len(result.X.unique())
    assert result.stopped == "all candidates were evaluated as often as is allowed"
    assert run(BBKB(ARMS, max_replicates=1, seed=0), lambda X: X[:, 0], 100).stopped.startswith(
        "all candidates"
    )


def test_points_that_teach_too_little_are_not_paid_for():
    optimizer = bbkb(CompressedUCB, epsilon=0.5)
    assert not optimizer.can_exceed_batches
    with ThreadPoolExecutor(4) as pool:
        result = run(optimizer, one, 12, executor=pool)
    assert result.num_skipped > 0


def test_fixed_batches_keep_their_sizes():
    optimizer = BatchedElimination(ARMS, batch_sizes=[5, 3], seed=0)
    with ThreadPoolExecutor(7) as pool:
        result = run(optimizer, one, 20, executor=pool)
    assert batches(result) == [5, 3] and result.stopped.startswith("finished")
