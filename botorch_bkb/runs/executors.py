r"""Evaluate single points on an executor whose workers may fail, hang or die."""

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

from botorch_bkb.runs.evaluation import Answer, Evaluator, EvaluatorLostError, Objective, answer_of
from botorch_bkb.runs.points import Point


@dataclass(eq=False)
class _Running:
    r"""A point that is being evaluated, and the times of its start and end."""

    point: Point
    since: float = field(default_factory=time.perf_counter)
    until: float | None = None  #: end of the evaluation, which may precede its collection

    def done(self, future: Future) -> None:
        self.until = time.perf_counter()

    @property
    def seconds(self) -> float:
        return (self.until or time.perf_counter()) - self.since


class OnExecutor(Evaluator):
    r"""An evaluator that evaluates single points on any ``concurrent.futures.Executor``.

    Args:
        objective: The objective; with a process pool it must be importable.
        by_index: Whether it takes a row index of the arms instead of an input.
        executor: The executor, or a function that makes one. The function is called again whenever
            the executor breaks because its workers died.
        workers: The number of points evaluated at a time.
        timeout: Seconds after which a point is given up. Its worker cannot be stopped and counts as
            busy until it returns.
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
        self.workers: int = workers or num_workers(self._executor)
        self._waiting: deque[Point] = deque()
        self._running: dict[Future, _Running] = {}
        self._hung: set[Future] = set()
        self._lost: EvaluatorLostError | None = None
        self._is_new = True  # whether nothing was submitted to the executor yet
        self._suspects: set[int] = set()  # points that may have killed their worker

    @property
    def busy(self) -> int:
        r"""The number of points that wait or are being evaluated."""
        return len(self._waiting) + len(self._running)

    @property
    def free(self) -> int | None:
        r"""The number of workers without a point."""
        return max(0, self._able - self.busy)

    @property
    def _able(self) -> int:
        r"""The number of workers that do not hang."""
        self._hung = {future for future in self._hung if not future.done()}
        return self.workers - len(self._hung)

    def submit(self, points: Sequence[Point]) -> None:
        r"""Evaluate points as workers become free."""
        self._waiting += points
        self._start()

    def _start(self) -> None:
        # Points that may have killed a worker are evaluated one at a time, to find which did.
        most = 1 if self._suspects else self._able
        under_way = sum(not future.done() for future in self._running)
        while self._waiting and under_way < most and self._lost is None:
            point = self._waiting[0]
            argument = point.arm if self.by_index else point.x.tolist()
            dtype = None if self.by_index else str(point.x.dtype).removeprefix("torch.")
            try:
                future = self._executor.submit(_call, self.objective, argument, dtype)
            except RuntimeError as error:  # a BrokenExecutor is a RuntimeError
                if self._running:  # collect their results first
                    return
                self._replace_executor(error)
                continue
            self._is_new = False
            self._running[future] = running = _Running(point)
            future.add_done_callback(running.done)
            self._waiting.popleft()
            under_way += 1

    def collect(self) -> list[Answer]:
        r"""Wait for the first results, and return all that are available."""
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
            except BaseException as error:  # for example a SystemExit in a worker
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
        r"""Handle the death of a worker, which breaks all points being evaluated.

        A point that was evaluated alone has killed its worker and fails, if a new executor can be
        made. Otherwise all of the points become suspects and wait to be evaluated again.
        """
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
        r"""Wait until one of the hanging workers returns; all workers hang."""
        wait_for(self._hung, self._timeout, FIRST_COMPLETED)
        if not any(future.done() for future in self._hung):
            raise EvaluatorLostError(
                f"all {self.workers} workers hang: none has returned within twice the timeout of "
                f"{self._timeout:g} seconds. Increase `timeout`, or check the objective"
            )

    def _replace_executor(self, error: BaseException) -> None:
        r"""Replace a broken executor by a new one.

        If that is impossible, :meth:`collect` raises an error once all results were returned.
        """
        if self._make is None or self._is_new:
            self._lost = EvaluatorLostError(
                f"the executor is broken ({error}): to continue after the death of a worker, pass "
                "a function that makes an executor, such as lambda: ProcessPoolExecutor(4)"
            )
            return
        self._executor.shutdown(wait=False, cancel_futures=True)
        try:
            self._executor, self._hung, self._is_new = self._make(), set(), True
        except Exception as failure:
            self._lost = EvaluatorLostError(
                f"no new executor could be made ({failure}): check the function `executor`"
            )

    def withdraw(self) -> None:
        r"""Discard the points that wait for a worker."""
        self._waiting.clear()

    def close(self) -> None:
        r"""Cancel evaluations that have not started, and shut down an executor made here."""
        for future in self._running:
            future.cancel()
        if self._make is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def num_workers(executor: Executor) -> int:
    r"""Return the number of workers of an executor, or of cores if it is not known."""
    for name in ("_max_workers", "num_workers"):
        count = getattr(executor, name, None)
        if isinstance(count, int) and count > 0:
            return count
    client = getattr(executor, "_client", None)  # of Dask
    if client is not None and hasattr(client, "nthreads"):
        return max(1, sum(client.nthreads().values()))
    return os.cpu_count() or 1


def _call(objective: Objective, argument: Any, dtype: str | None) -> Any:
    r"""Call the objective in a worker.

    The point is sent as plain numbers, which are simpler to transfer than tensors.
    """
    if dtype is None:
        return objective(argument)
    return objective(torch.tensor(argument, dtype=getattr(torch, dtype), device="cpu"))
