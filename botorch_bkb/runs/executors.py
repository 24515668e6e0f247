r"""Single points on any executor: workers that fail, hang and die."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from typing import Any

import torch

from botorch_bkb.runs.evaluation import Answer, Evaluator, EvaluatorLost, Objective, answer_of
from botorch_bkb.runs.points import Point


@dataclass(eq=False)
class _Running:
    point: Point
    since: float = field(default_factory=time.perf_counter)
    until: float | None = None  #: it was done, perhaps before anybody looked

    def done(self, future: Future) -> None:
        self.until = time.perf_counter()

    @property
    def seconds(self) -> float:
        return (self.until or time.perf_counter()) - self.since


class OnExecutor(Evaluator):
    r"""One point at a time on any ``concurrent.futures.Executor``, as many as there are workers.

    Args:
        objective: What is evaluated; with a process pool it must be importable.
        by_index: Whether it takes rows of the arms in place of inputs.
        executor: The executor, or a function that makes one: whenever its workers die so that it is
            of no more use, a new one is made.
        workers: How many points are evaluated at a time.
        timeout: Seconds after which a point is given up. Its worker cannot be stopped: it counts
            as busy until it has finished after all.
    """

    def __init__(
        self,
        objective: Objective,
        by_index: bool,
        executor: Executor | Callable[[], Executor],
        workers: int | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__(objective, by_index)
        self._make: Callable[[], Any] | None = None
        self._executor: Any = executor
        if not hasattr(executor, "submit"):
            self._make, self._executor = executor, executor()  # type: ignore[operator]
        self._timeout = timeout
        self.workers = workers or num_workers(self._executor)
        self._waiting: deque[Point] = deque()
        self._running: dict[Future, _Running] = {}
        self._hung: set[Future] = set()
        self._lost: EvaluatorLost | None = None
        self._is_new = True  # nothing was submitted to the executor yet
        self._suspects: set[int] = set()  # one of them may have killed its worker

    @property
    def busy(self) -> int:
        r"""How many points wait or are evaluated."""
        return len(self._waiting) + len(self._running)

    @property
    def free(self) -> int | None:
        r"""Workers without a point."""
        return max(0, self._able - self.busy)

    @property
    def _able(self) -> int:
        r"""Workers that do not hang."""
        self._hung = {future for future in self._hung if not future.done()}
        return self.workers - len(self._hung)

    def submit(self, points: Sequence[Point]) -> None:
        r"""Evaluate these as workers become free."""
        self._waiting += points
        self._start()

    def _start(self) -> None:
        # Points that may have killed a worker are tried alone.
        most = 1 if self._suspects else self._able
        under_way = sum(not future.done() for future in self._running)
        while self._waiting and under_way < most and self._lost is None:
            point = self._waiting[0]
            argument = point.arm if self.by_index else point.x.tolist()
            dtype = None if self.by_index else str(point.x.dtype).removeprefix("torch.")
            try:
                future = self._executor.submit(_call, self.objective, argument, dtype)
            except RuntimeError as error:  # BrokenExecutor is one
                if self._running:  # what becomes of these says more, and is not lost
                    return
                self._replace_executor(error)
                continue
            self._is_new = False
            self._running[future] = running = _Running(point)
            future.add_done_callback(running.done)
            self._waiting.popleft()
            under_way += 1

    def collect(self) -> list[Answer]:
        r"""Wait for the first results."""
        self._start()
        if self._lost is not None and not self._running:
            raise self._lost
        if not self._running:
            self._wait_for_hung()
            return []
        wait_for(self._running, self._next_timeout(), FIRST_COMPLETED)
        answers: list[Answer] = []
        broken: list[tuple[_Running, BrokenExecutor]] = []
        for future in [future for future in self._running if future.done()]:
            running = self._running.pop(future)
            try:
                value = future.result()
            except BrokenExecutor as error:
                broken.append((running, error))
                continue
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit of a worker, for one
                value = error
            answers.append(self._answered(running, value))
        answers += self._timed_out()
        if broken:
            answers += self._after_a_death(broken)
        self._start()
        return answers

    def _answered(self, running: _Running, value: Any) -> Answer:
        self._suspects.discard(running.point.number)
        return answer_of(running.point, value, running.seconds)

    def _after_a_death(self, broken: list[tuple[_Running, BrokenExecutor]]) -> list[Answer]:
        r"""A worker has died, and all points under way with it: a single one is to blame."""
        affected = [running for running, _ in broken] + list(self._running.values())
        error = broken[0][1]
        self._running = {}
        answers = []
        if len(affected) == 1 and self._make is not None:
            answers = [self._answered(affected[0], error)]
        else:
            self._waiting.extendleft(running.point for running in reversed(affected))
            self._suspects |= {running.point.number for running in affected}
        self._replace_executor(error)
        return answers

    def _next_timeout(self) -> float | None:
        if self._timeout is None:
            return None
        oldest = min(running.since for running in self._running.values())
        return max(0.0, oldest + self._timeout - time.perf_counter())

    def _timed_out(self) -> list[Answer]:
        answers: list[Answer] = []
        if self._timeout is None:
            return answers
        for future, running in list(self._running.items()):
            elapsed = time.perf_counter() - running.since
            if elapsed >= self._timeout:
                del self._running[future]
                if not future.cancel():
                    self._hung.add(future)
                error = TimeoutError(f"no result after {self._timeout:g} seconds")
                answers.append(answer_of(running.point, error, elapsed))
        return answers

    def _wait_for_hung(self) -> None:
        r"""Every worker is busy with a point that was given up."""
        wait_for(self._hung, self._timeout, FIRST_COMPLETED)
        if not any(future.done() for future in self._hung):
            raise EvaluatorLost(
                f"all {self.workers} workers hang: none has returned in twice the time-out of "
                f"{self._timeout:g} seconds"
            )

    def _replace_executor(self, error: BaseException) -> None:
        r"""Or remember that there is none, once all that has come is handed over."""
        if self._make is None or self._is_new:
            self._lost = EvaluatorLost(
                f"the executor is broken ({error}): pass a function that makes one, such as "
                "lambda: ProcessPoolExecutor(4), to go on after that"
            )
            return
        self._executor.shutdown(wait=False, cancel_futures=True)
        try:
            self._executor, self._hung, self._is_new = self._make(), set(), True
        except Exception as failure:
            self._lost = EvaluatorLost(f"no new executor could be made: {failure}")

    def withdraw(self) -> None:
        r"""Forget what waits for a worker."""
        self._waiting.clear()

    def close(self) -> None:
        r"""Cancel what has not begun, and shut down an executor that was made here."""
        for future in self._running:
            future.cancel()
        if self._make is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def num_workers(executor: Executor) -> int:
    r"""How many points an executor can evaluate at a time, as far as it says."""
    for name in ("_max_workers", "num_workers"):
        count = getattr(executor, name, None)
        if isinstance(count, int) and count > 0:
            return count
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None and hasattr(client, "nthreads"):
        return max(1, sum(client.nthreads().values()))
    return os.cpu_count() or 1


def _call(objective: Objective, argument: Any, dtype: str | None) -> Any:
    r"""In the worker: plain numbers travel better than tensors."""
    if dtype is None:
        return objective(argument)
    return objective(torch.tensor(argument, dtype=getattr(torch, dtype), device="cpu"))
