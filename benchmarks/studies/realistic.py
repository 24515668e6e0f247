r"""Tuning a learner on all cores: BBKB's scores and seconds beside Optuna's and random search.

Eight settings of ``HistGradientBoostingClassifier`` on scikit-learn's digits (three floats, four
integers, one choice), 2,000 evaluations of some 60 ms on one thread. An evaluation learns from 200
images and returns the average log-likelihood of 200 others, all drawn anew: near the best settings
its standard deviation is about 0.09 nats. Everything has its defaults, and as many processes
evaluate as there are workers: BBKB through ``run``, batch by batch and asynchronously; Optuna's
TPE, GP and random samplers, asked whenever a worker is free. A run ends after ten minutes at the
latest. Optuna's GP is a fifth to a quarter quicker up to 300 trials with greenlet installed.

A score is that of the recommended setting on 100 splits that no method has seen. BBKB recommends
by its posterior mean. Optuna has the best trial, and so it was taken: with noise it is one that was
lucky, which costs its methods part of what they found. No other rule was tried for them; the
average of the last tenth of all evaluations is recorded too, and depends on no recommendation.

About an hour with two workers, on a machine that is idle: it measures wall clocks.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases import of, play_all
from benchmarks.drawing import band
from benchmarks.problems.boosting import SPACE, on_split, prepare, score, score_at, score_now
from benchmarks.report import Options, Report
from botorch_bkb import Callback, StopAfter
from botorch_bkb import run as optimise

SEEDS = 3
COLUMNS = ("method", "figure", "runs", "mean", "sd")
OURS = ("BBKB", "BBKB asynchronous")
THEIRS = ("TPE", "Optuna's GP", "random")
#: Evaluations after which a recommendation is judged; after the last one it is as well.
MARKS = (50, 100, 200, 500, 1000)
#: Splits of one seed, of which the first are for judging.
SPLITS, JUDGING = 1_000_000, 1000

Parameters = dict[str, Any]


class Case(NamedTuple):
    r"""One run."""

    method: str
    evaluations: int
    fresh: int  #: splits on which recommendations are judged
    limit: float  #: seconds
    workers: int
    seed: int


class Run(NamedTuple):
    r"""What became of it."""

    evaluations: int
    seconds: float
    own: float  #: seconds of the optimizer an evaluation
    late: float  #: average value of the last tenth of the evaluations
    marks: np.ndarray
    at: np.ndarray  #: seconds at the marks, NaN where none was reached
    scores: np.ndarray  #: ``marks x fresh``, of the recommendations
    final: np.ndarray  #: ``fresh``, of the last recommendation


def run(options: Options, report: Report) -> None:
    r"""All methods, one after the other."""
    evaluations, fresh, limit = (12, 3, 60.0) if options.quick else (2000, 100, 600.0)
    cases = [
        Case(method, evaluations, fresh, limit, options.workers, seed)
        for seed, method in itertools.product(range(options.seeds), METHODS)
    ]
    study(cases, options, report)


def study(cases: list[Case], options: Options, report: Report) -> None:
    r"""Runs, figures, claims and the picture."""
    runs = play_all(play, Run, cases, replace(options, workers=1))
    record(runs, report)
    claims(runs, report)
    draw(runs, report)


# ---------------------------------------------------------------------- one run


class Numbered(Executor):
    r"""A pool whose tasks are evaluated on consecutive splits, in the order of submission.

    Args:
        pool: Where tasks go.
        first: The first split.
    """

    def __init__(self, pool: Executor, first: int) -> None:
        self.pool, self.splits = pool, itertools.count(first)

    def submit(self, task: Callable, /, *args: Any, **kwargs: Any) -> Future:
        r"""The task on the next split."""
        return self.pool.submit(on_split, next(self.splits), partial(task, **kwargs), *args)


class Trail:
    r"""What a method recommends when it first has as many results as a mark says, and when.

    Args:
        marks: Numbers of evaluations.
    """

    def __init__(self, marks: Iterable[int]) -> None:
        self.marks, self.start = list(marks), time.perf_counter()
        self.at: list[float] = []
        self.recommended: list[Parameters] = []

    @property
    def seconds(self) -> float:
        r"""Since the start."""
        return time.perf_counter() - self.start

    def look(self, done: int, recommend: Callable[[], Parameters]) -> None:
        r"""Note the recommendation if a mark is reached."""
        reached = sum(mark <= done for mark in self.marks) - len(self.at)
        if reached:
            self.at += [self.seconds] * reached
            self.recommended += [recommend()] * reached


class AtMarks(Callback):
    r"""Looks at the marks whenever the optimizer was told something."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail

    def on_batch(self, loop: Any) -> None:
        r"""Look."""
        self.trail.look(loop.num_done, lambda: SPACE.decode(loop.optimizer.best().X))


class End(NamedTuple):
    r"""Where a method has come."""

    values: list[float]  #: of all evaluations
    own: float  #: seconds of the optimizer
    recommended: Parameters


Method = Callable[[Case, Executor, Trail], End]


def design(evaluations: int) -> int:
    r"""Points of the initial design: as many as by default, unless there is little to come."""
    return min(2 * len(SPACE.dimensions) + 2, evaluations - 3)


def with_bbkb(asynchronous: bool) -> Method:
    r"""BBKB through ``run``."""

    def tune(case: Case, executor: Executor, trail: Trail) -> End:
        result = optimise(
            SPACE.make_optimizer("BBKB", case.seed, {"num_initial": design(case.evaluations)}),
            score_at,
            case.evaluations,
            executor=executor,
            workers=case.workers,
            asynchronous=asynchronous,
            callbacks=[StopAfter(case.limit), AtMarks(trail)],
            progress=False,
        )
        own = float(result.spent()[-1])
        return End(result.Y.tolist(), own, SPACE.decode(result.optimizer.best().X))

    return tune


def with_sampler(name: str, **options: Any) -> Method:
    r"""A sampler of Optuna's by its name."""

    def tune(case: Case, executor: Executor, trail: Trail) -> End:
        from optuna import samplers

        from benchmarks.peers.optuna_samplers import play_sampler

        sampler = getattr(samplers, name)(seed=case.seed, **options)
        for told in play_sampler(
            sampler,
            SPACE,
            score_now,
            executor,
            case.workers,
            case.evaluations,
            goes_on=lambda: trail.seconds < case.limit,
        ):
            trail.look(told.trials, told.best)
        return End([trial.value for trial in told.study.trials], told.own, told.best())

    return tune


METHODS: dict[str, Method] = {
    "BBKB": with_bbkb(asynchronous=False),
    "BBKB asynchronous": with_bbkb(asynchronous=True),
    "TPE": with_sampler("TPESampler", constant_liar=True),
    "Optuna's GP": with_sampler("GPSampler"),
    "random": with_sampler("RandomSampler"),
}


def play(case: Case) -> Run:
    r"""One run, and then what its recommendations are worth."""
    prepare()
    marks = [mark for mark in MARKS if mark < case.evaluations] + [case.evaluations]
    first = SPLITS * case.seed
    with ProcessPoolExecutor(case.workers, initializer=prepare) as pool:
        list(pool.map(abs, range(case.workers)))  # starts the processes
        trail = Trail(marks)
        end = METHODS[case.method](case, Numbered(pool, first + JUDGING), trail)
        seconds = trail.seconds
        judged = judge(
            pool, [*trail.recommended, end.recommended], range(first, first + case.fresh)
        )
    missing, evaluations = len(marks) - len(trail.at), len(end.values)
    return Run(
        evaluations,
        seconds,
        end.own / evaluations,
        float(np.mean(end.values[-math.ceil(evaluations / 10) :])),
        np.array(marks),
        np.array(trail.at + [math.nan] * missing),
        np.array(judged[:-1] + [np.full(case.fresh, math.nan)] * missing),
        judged[-1],
    )


def judge(pool: Executor, recommended: list[Parameters], splits: range) -> list[np.ndarray]:
    r"""Scores of settings on all splits; each setting is judged once."""
    known: dict[str, np.ndarray] = {}
    for parameters in recommended:
        if str(parameters) not in known:
            scores = list(pool.map(partial(score, parameters), splits))
            known[str(parameters)] = np.array(scores)
    return [known[str(parameters)] for parameters in recommended]


# ---------------------------------------------------------------------- all of them


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(values.size))


def record(runs: dict[Case, Run], report: Report) -> None:
    r"""What became of every method, and where it stood at the marks that all its runs reached."""
    for method in METHODS:
        some = of(runs, method=method)
        figures = {
            "score": [r.final.mean() for r in some],
            "standard error of a score": [standard_error(r.final) for r in some],
            "average of the last tenth": [r.late for r in some],
            "evaluations": [r.evaluations for r in some],
            "seconds": [r.seconds for r in some],
            "seconds of the optimizer an evaluation": [r.own for r in some],
        }
        for i, mark in enumerate(some[0].marks):
            figures[f"score after {mark}"] = [r.scores[i].mean() for r in some]
            figures[f"seconds after {mark}"] = [r.at[i] for r in some]
        for figure, values in figures.items():
            if np.isfinite(values).all():
                spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
                report.row(method, figure, len(some), float(np.mean(values)), spread)


def claims(runs: dict[Case, Run], report: Report) -> None:
    for ours, theirs in itertools.product(OURS, THEIRS):
        pairs = list(zip(of(runs, method=ours), of(runs, method=theirs), strict=True))
        gains = np.concatenate([one.final - other.final for one, other in pairs])
        gain = float(gains.mean())
        what = f"score of {ours} less {theirs}'s ± {standard_error(gains):.2g}"
        report.claim(what, "> 0", gain, gain > 0)
    for ours, theirs in itertools.product(OURS, THEIRS[:2]):
        some = of(runs, method=ours)
        one, other = (
            np.mean([r.at for r in group], axis=0) for group in (some, of(runs, method=theirs))
        )
        reached = np.flatnonzero(np.isfinite(one + other))
        if len(reached):
            last = reached[-1]
            what = f"seconds of {theirs} over {ours}'s, {some[0].marks[last]} evaluations"
            report.claim(what, "> 1", other[last] / one[last], other[last] > one[last])


def draw(runs: dict[Case, Run], report: Report) -> None:
    r"""Scores of recommendations against evaluations and against seconds."""
    with report.picture("realistic", 1, 2, figsize=(10.5, 3.6)) as axes:
        for i, method in enumerate(METHODS):
            some = of(runs, method=method)
            scores = np.stack([r.scores.mean(-1) for r in some])
            places = some[0].marks, np.median([r.at for r in some], axis=0)
            for ax, x in zip(axes[0], places, strict=True):
                band(ax, scores, method, f"C{i}", x)
        for ax, label in zip(axes[0], ("evaluations", "seconds"), strict=True):
            ax.set(xscale="log", xlabel=label, ylabel="score of the recommendation")
            ax.grid(alpha=0.3)
        axes[0, 1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
