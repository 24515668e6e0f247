r"""Hyperparameter tuning on all cores: BBKB compared with Optuna and random search.

The problem has eight parameters of ``HistGradientBoostingClassifier`` on scikit-learn's digits
(three floats, four integers, one choice). A run has 2,000 evaluations of about 60 ms on one thread.
An evaluation trains on 200 images and returns the mean log-likelihood of 200 others, all drawn
anew. Near the best parameters its standard deviation is about 0.09 nats. All methods use their
defaults, except that TPE uses ``constant_liar``. There are as many evaluating processes as workers.
BBKB runs through ``run``, batch by batch and asynchronously. Optuna's TPE, GP and random samplers
are asked whenever a worker is free. A run ends after ten minutes at the latest. With greenlet
installed, Optuna's GP is a fifth to a quarter faster up to 300 trials.

The score of a method is that of its recommended parameters on 100 splits that no method has seen.
BBKB recommends the point of highest posterior mean. Optuna's methods recommend their best trial.
Under noise the best trial is partly a lucky one, which lowers their scores. No other rule was tried
for them. The average of the last tenth of all evaluations is also recorded, and depends on no
recommendation.

About an hour with two workers on an idle machine, since it measures wall-clock time.
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
#: Numbers of evaluations after which the recommendation is scored, besides the last.
MARKS = (50, 100, 200, 500, 1000)
#: Number of splits per seed, and how many of the first ones are reserved for scoring.
SPLITS, JUDGING = 1_000_000, 1000

Parameters = dict[str, Any]


class Case(NamedTuple):
    r"""The settings of one run."""

    method: str
    evaluations: int
    fresh: int  #: number of splits on which recommendations are scored
    limit: float  #: time limit in seconds
    workers: int
    seed: int


class Run(NamedTuple):
    r"""The outcome of one run."""

    evaluations: int
    seconds: float
    own: float  #: seconds of the optimizer per evaluation
    late: float  #: average value of the last tenth of the evaluations
    marks: np.ndarray
    at: np.ndarray  #: seconds at the marks, NaN at marks not reached
    scores: np.ndarray  #: scores of the recommendations, ``marks x fresh``
    final: np.ndarray  #: scores of the last recommendation, ``fresh``


def run(options: Options, report: Report) -> None:
    r"""Run all methods, one after the other."""
    evaluations, fresh, limit = (12, 3, 60.0) if options.quick else (2000, 100, 600.0)
    cases = [
        Case(method, evaluations, fresh, limit, options.workers, seed)
        for seed, method in itertools.product(range(options.seeds), METHODS)
    ]
    study(cases, options, report)


def study(cases: list[Case], options: Options, report: Report) -> None:
    r"""Run the cases, and report figures, claims and the plot."""
    runs = play_all(play, Run, cases, replace(options, workers=1))
    record(runs, report)
    claims(runs, report)
    draw(runs, report)


# ---------------------------------------------------------------------- one run


class Numbered(Executor):
    r"""An executor that runs tasks on consecutive splits, in the order of submission.

    Args:
        pool: Executor that runs the tasks.
        first: First split.
    """

    def __init__(self, pool: Executor, first: int) -> None:
        self.pool, self.splits = pool, itertools.count(first)

    def submit(self, task: Callable, /, *args: Any, **kwargs: Any) -> Future:
        r"""Submit a task on the next split."""
        return self.pool.submit(on_split, next(self.splits), partial(task, **kwargs), *args)


class Trail:
    r"""A record of a method's recommendations, and of their times, at the marks.

    Args:
        marks: Numbers of evaluations at which to record the recommendation.
    """

    def __init__(self, marks: Iterable[int]) -> None:
        self.marks, self.start = list(marks), time.perf_counter()
        self.at: list[float] = []
        self.recommended: list[Parameters] = []

    @property
    def seconds(self) -> float:
        r"""The seconds since the start."""
        return time.perf_counter() - self.start

    def look(self, done: int, recommend: Callable[[], Parameters]) -> None:
        r"""Record the recommendation if a mark is reached."""
        reached = sum(mark <= done for mark in self.marks) - len(self.at)
        if reached:
            self.at += [self.seconds] * reached
            self.recommended += [recommend()] * reached


class AtMarks(Callback):
    r"""A callback that checks the marks after each batch of results."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail

    def on_batch(self, loop: Any) -> None:
        r"""Record the recommendation if a mark is reached."""
        self.trail.look(loop.num_done, lambda: SPACE.decode(loop.optimizer.best().X))


class End(NamedTuple):
    r"""The end of a method's run."""

    values: list[float]  #: values of all evaluations
    own: float  #: total seconds of the optimizer
    recommended: Parameters


Method = Callable[[Case, Executor, Trail], End]


def design(evaluations: int) -> int:
    r"""Return the size of the initial design, the default unless there are few evaluations."""
    return min(2 * len(SPACE.dimensions) + 2, evaluations - 3)


def with_bbkb(asynchronous: bool) -> Method:
    r"""Return a method that runs BBKB through ``run``."""

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
    r"""Return a method that runs an Optuna sampler, given by name."""

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
    r"""Run one case, and then score its recommendations."""
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
    r"""Return the scores of parameters on all splits. Equal parameters are scored only once."""
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
    r"""Record each method's outcome, and its state at the marks that all its runs reached."""
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
    r"""Plot the scores of recommendations against evaluations and against seconds."""
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
