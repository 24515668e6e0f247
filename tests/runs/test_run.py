from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pandas
import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    AdaBBKB,
    Callback,
    CompressedUCB,
    StopAfter,
    StopAtGap,
    StopAtTarget,
    resume,
    run,
)
from tests.runs.support import ARMS, BOUNDS, bbkb, one, raising, value


def by_hand(optimizer, budget):
    X = []
    while len(X) < budget:
        suggestion = optimizer.ask(at_most=budget - len(X))
        optimizer.tell(suggestion, value(suggestion.X))
        X += suggestion.X.tolist()
    return torch.tensor(X, dtype=torch.float64)


@pytest.mark.parametrize("cls", [BBKB, BKB, GPBUCB, GPUCB])
def test_a_run_is_asking_and_telling(cls, tmp_path):
    X = by_hand(bbkb(cls), 60)
    for journal in (None, tmp_path / "run.sqlite"):
        result = run(bbkb(cls), value, 60, journal=journal)
        assert torch.equal(result.X, X) and torch.equal(result.Y, value(X))
        assert result.stopped == "budget spent"
        assert result.best.mean == result.optimizer.best().mean


@pytest.mark.parametrize("make", [lambda b: BBKB(bounds=b, seed=0), lambda b: AdaBBKB(bounds=b)])
def test_over_a_box(make):
    result = run(make(BOUNDS), value, 20)
    assert result.X.shape == (20, 2)
    assert result.history["t"] == list(range(20))


def test_single_points_on_an_executor_are_the_same_run_whoever_is_faster():
    def moody(x):
        time.sleep(0.003 * (hash(float(x[0])) % 3))
        return one(x)

    for keep_busy in (False, True):
        with ThreadPoolExecutor(3) as pool:
            runs = [run(bbkb(), moody, 60, executor=pool, keep_busy=keep_busy) for _ in range(2)]
        assert torch.equal(runs[0].X, runs[1].X)
        assert torch.equal(runs[0].X, by_hand(bbkb(), 60)) is not keep_busy


def test_history_has_plain_columns_of_equal_length(tmp_path):
    result = run(bbkb(), value, 50)
    history = result.history
    assert list(history) == [
        "t", "batch", "reward", "best", "dictionary", "dimension", "width", "asking", "telling",
        "waiting",
    ]  # fmt: skip
    assert {len(column) for column in history.values()} == {50}
    assert history["best"] == torch.cummax(result.Y, 0).values.tolist()
    assert history["batch"] == sorted(history["batch"]) and history["batch"][0] == 0
    assert history["dictionary"][-1] == len(result.optimizer.dictionary)
    assert history["dimension"][-1] == pytest.approx(result.optimizer.effective_dimension)
    result.to_csv(tmp_path / "run.csv")
    read = pandas.read_csv(tmp_path / "run.csv")
    assert read["reward"].tolist() == result.Y.tolist()
    assert result.to_pandas()["x0"].tolist() == result.X[:, 0].tolist()


def test_seconds_of_a_batch_count_once():
    result = run(bbkb(), value, 30, progress=False)
    batches = {row[0]: row[1:] for row in zip(
        *(result.history[name] for name in ("batch", "asking", "telling", "waiting")), strict=True
    )}  # fmt: skip
    assert 1 < len(batches) < 30
    own = [asking + telling for asking, telling, _ in batches.values()]
    spent = result.spent()
    assert spent.shape == (30,) and (spent.diff() >= 0).all()
    assert spent.unique().tolist() == pytest.approx(
        torch.tensor(own, dtype=torch.float64).cumsum(0).tolist()
    )
    waited = result.spent("waiting")[-1]
    assert waited == pytest.approx(sum(row[2] for row in batches.values()))
    assert result.spent("asking", "telling", "waiting")[-1] == pytest.approx(spent[-1] + waited)


def test_rewards_with_variances():
    result = run(BBKB(ARMS, seed=0), lambda X: (value(X), torch.full((len(X),), 0.04)), 20)
    assert len(result.Y) == 20 and result.optimizer.noise_is_known


def test_variances_that_come_and_go():
    calls = []

    def sometimes(X):
        calls.append(len(X))
        Y = value(X)
        return (Y, torch.full_like(Y, 0.04)) if len(calls) % 2 else Y

    assert len(run(BBKB(ARMS, seed=0), sometimes, 20).Y) == 20
    assert len(run(BBKB(ARMS, seed=0), lambda X: sometimes(X), 20).Y) == 20


def test_by_index():
    table = value(ARMS)
    result = run(bbkb(), lambda rows: table[rows], 30, by_index=True)
    assert torch.equal(result.X, by_hand(bbkb(), 30))
    with ThreadPoolExecutor(2) as pool:
        same = run(
            bbkb(), lambda row: table[row], 30, by_index=True, executor=pool, keep_busy=False
        )
    assert torch.equal(result.X, same.X)


def test_pending_points_of_the_optimizer_are_evaluated_first(tmp_path):
    optimizer = bbkb()
    suggestion = optimizer.ask()
    result = run(optimizer, value, 30, journal=tmp_path / "run.sqlite")
    assert torch.equal(result.X[: len(suggestion)], suggestion.X)
    assert len(optimizer.pending) == 0


def test_skipped_points_count_as_steps():
    optimizer = bbkb(CompressedUCB, epsilon=0.3)
    result = run(optimizer, value, 60)
    assert result.num_skipped == 60 - len(result.Y) > 0
    assert optimizer.num_steps == 60


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("retries", [0, 2])
def test_failures_are_left_out_and_counted(retries, caplog):
    calls = []

    def counted(x):
        calls.append(float(x[0]))
        return raising(x)

    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING, "botorch_bkb"):
        result = run(bbkb(), counted, 40, executor=pool, retries=retries)
    assert result.num_failed + len(result.Y) == 40
    assert result.num_failed > 0 and (result.X[:, 0] <= 2).all()
    assert result.failures[0].error == "ValueError: too far right"
    assert result.failures[0].attempts == retries + 1
    assert len(calls) == len(result.Y) + (retries + 1) * result.num_failed
    assert "too far right" in caplog.text


@pytest.mark.parametrize("bad", [math.nan, math.inf, "text", None, (1.0, -1.0), (1, 2, 3)])
def test_results_that_are_no_rewards(bad):
    with ThreadPoolExecutor(1) as pool:
        result = run(
            bbkb(), lambda x: bad if float(x[0]) > 2 else one(x), 30, executor=pool, retries=1
        )
    assert result.num_failed > 0 and len(result.Y) + result.num_failed == 30


def test_single_bad_values_of_a_vectorised_objective():
    def sometimes(X):
        return torch.where(X[:, 0] > 2, torch.nan, value(X))

    result = run(bbkb(), sometimes, 60)
    assert result.num_failed + len(result.Y) == 60
    assert torch.isfinite(result.Y).all()


def test_a_flaky_objective_succeeds_at_the_second_attempt():
    seen = set()

    def flaky(x):
        key = (len(seen), float(x[0]))
        if not any(k[1] == key[1] for k in seen):
            seen.add(key)
            raise OSError("try again")
        return one(x)

    with ThreadPoolExecutor(1) as pool:
        result = run(bbkb(), flaky, 30, executor=pool, retries=1)
    assert result.num_failed == 0 and torch.equal(result.X, by_hand(bbkb(), 30))


@pytest.mark.parametrize("shape", [lambda X: 1.0, lambda X: X, lambda X: X[:, :0]])
def test_an_objective_that_never_works_stops_the_run(shape):
    optimizer = BBKB(torch.rand(50, 3, dtype=torch.float64), num_initial=1, seed=0)
    result = run(optimizer, shape, 500, progress=False)
    assert "failed in a row" in result.stopped and "values for" in result.stopped
    assert len(result.Y) < 50 and len(result.Y) + result.num_failed < 500


# ---------------------------------------------------------------------- stopping


def test_target():
    result = run(bbkb(), value, 500, callbacks=[StopAtTarget(0.9)])
    assert result.stopped == "target 0.9 reached"
    assert result.best.mean >= 0.9 and len(result.Y) < 500


def test_gap():
    result = run(bbkb(), value, 500, callbacks=[StopAtGap(0.3)])
    assert "gap below" in result.stopped and result.optimizer.gap() <= 0.3


def test_seconds():
    result = run(bbkb(BKB), lambda X: (time.sleep(0.05), value(X))[1], 500,
                 callbacks=[StopAfter(0.2)])  # fmt: skip
    assert "time limit of 0.2 seconds" in result.stopped and 2 <= len(result.Y) < 50


def test_stopping_begins_no_more_evaluations(tmp_path):
    path, calls = tmp_path / "run.sqlite", []

    class Enough(Callback):
        def on_tell(self, loop, outcomes):
            if loop.num_done >= 25 and loop.evaluator.busy > 3:
                loop.stop("enough")

    def counted(x):
        calls.append(1)
        return one(x)

    with ThreadPoolExecutor(1) as pool:
        optimizer = bbkb(batch_threshold=40.0)
        result = run(optimizer, counted, 200, executor=pool, journal=path, callbacks=[Enough()])
        assert result.stopped == "enough" and len(calls) < 190
        assert len(optimizer.pending) > 0
        assert len(resume(path, one, executor=pool).Y) == 200


def test_convergence():
    optimizer = bbkb(CompressedUCB, epsilon=0.3, on_uninformative="stop")
    result = run(optimizer, value, 500)
    assert result.stopped.startswith("converged") and len(result.Y) < 500


def test_callbacks_see_everything_in_order():
    seen = []

    class Log(Callback):
        def on_ask(self, loop, points):
            seen.append(("ask", len(points)))

        def on_tell(self, loop, outcomes):
            seen.append(("tell", len(outcomes)))

        def on_batch(self, loop):
            seen.append(("batch", loop.num_done))

        def on_stop(self, loop):
            seen.append(("stop", loop.stopped))

    run(bbkb(), value, 30, callbacks=[Log()])
    kinds = [kind for kind, _ in seen]
    assert kinds == ["ask", "tell", "batch"] * (len(kinds) // 3) + ["stop"]
    assert sum(n for kind, n in seen if kind == "ask") == 30
    assert seen[-1] == ("stop", "budget spent")


def interrupt_after(calls):
    count = iter(range(10**6))

    def objective(X):
        if next(count) == calls:
            os.kill(os.getpid(), signal.SIGINT)
        return value(X)

    return objective


def test_ctrl_c_ends_cleanly(tmp_path):
    result = run(bbkb(BKB), interrupt_after(10), 100, journal=tmp_path / "run.sqlite")
    assert result.stopped == "interrupted"
    assert 10 <= len(result.Y) <= 11
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_telling_waits_for_the_end_of_it(monkeypatch):
    optimizer = bbkb(BKB)
    tell, count = optimizer.tell, iter(range(10**6))

    def interrupted(*args):
        if next(count) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        tell(*args)

    monkeypatch.setattr(optimizer, "tell", interrupted)
    result = run(optimizer, value, 100)
    assert result.stopped == "interrupted"
    assert len(result.Y) == optimizer.num_observations == 6


def test_in_a_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(run(bbkb(), value, 20)))
    thread.start()
    thread.join()
    assert len(results[0].Y) == 20


def test_quiet_where_there_is_no_terminal(capfd):
    run(bbkb(), value, 20)
    out, err = capfd.readouterr()
    assert out == err == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": 2.5}, "budget"),
        ({"retries": -1}, "retries"),
        ({"timeout": 1.0}, "needs an executor"),
        ({"asynchronous": True}, "needs an executor"),
        ({"executor": 3}, "concurrent.futures.Executor"),
        ({"optimizer": None}, "one of the optimizers"),
        ({"workers": 0}, "workers"),
    ],
)
def test_arguments_that_make_no_sense(change, message, tmp_path):
    path = tmp_path / "run.sqlite"
    arguments = {"optimizer": bbkb(), "objective": value, "budget": 5, "journal": path, **change}
    with pytest.raises(InputDataError, match=message):
        run(**arguments)
    assert not path.exists()


def test_by_index_needs_arms():
    with pytest.raises(InputDataError, match="box has no rows"):
        run(BBKB(bounds=BOUNDS), value, 5, by_index=True)
