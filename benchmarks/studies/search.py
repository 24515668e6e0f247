r"""Regret over a box of BKB, BBKB and Ada-BKB against qLogNEI, LogEI, Ax, Optuna, TuRBO and others.

Written down before any choice was made on it:

- *Hypothesis.* At 100 evaluations the defaults of BKB and BBKB have, on the half ``report``,
  relative to ``SingleTaskGP`` with qLogNEI that is fitted at every step: a geometric mean of the
  simple regret of at most 0.85, no function above 1.5, an average regret of at most 0.75, and at
  most a thirtieth of the CPU time. A step at 1,000 observations takes at most a hundredth.
- *Functions.* Sixteen, in ``benchmarks.problems.search.FUNCTIONS``: 2 to 20 dimensions, none with
  its maximum at the centre or in a corner, in units of their standard deviation over the box. The
  noise is 0.1 of these units, on two functions 0.01 and on two 1. Two functions depend on few of
  their coordinates, and two are drawn from Gaussian processes.
- *Halves.* Choices are made on the half ``choose`` alone: Branin2, Hartmann4, Rosenbrock4, Ackley5,
  StyblinskiTang5, DrawRBF4, Levy12, Hartmann3in10. Results are reported on the half ``report``:
  SixHumpCamel2, Hartmann6, Michalewicz5, Rastrigin4, Cosine8, DrawMatern6, Ackley10, Hartmann6in20.
- *Seeds.* 0 to 9. A seed gives all methods the same initial design, ``2 d + 2`` Sobol points, and
  the same noise. Ada-BKB has no design.
- *Budgets.* Results are reported at 50, 100 and 200 evaluations. The reference takes long and
  goes on to 200 on two functions only, with the seeds 7 to 9. Others that take long have the seeds
  0 to 2 and run on the half ``report`` only (``benchmarks.search_methods.METHODS``). HEBO is
  left out: version 0.3.2 needs versions of pymoo and pandas with which Ax does not install.

Three rules give the point whose regret is the simple regret. *Recommended* is the method's own: the
evaluated point with the highest posterior mean for those that fit a Gaussian process or a sparse
one in the loop, the best observation for others. *Common* is the evaluated point with the highest
posterior mean of a ``SingleTaskGP`` fitted to the run afterwards, for all methods. *Evaluated* is
the best evaluated point, which nobody knows. Claims are about the first. A ratio is the geometric
mean over paired runs of the quotients of regrets, and over functions. Regrets below a thousandth of
the noise's standard deviation count as that.
Intervals are bootstrapped over paired runs. CPU seconds are the method's own, on one core.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases import of, play_all
from benchmarks.paired import Ratio, ratio
from benchmarks.problems.search import CHOOSE, FUNCTIONS, REPORT, SearchProblem
from benchmarks.report import Options, Report
from benchmarks.search_methods import METHODS, QLOGNEI, installed, steps_of
from benchmarks.search_runs import MARKS, Trace, simple_regret
from benchmarks.search_steps import OURS, TIMED, Step, StepCase, play_step

SEEDS = 10
COLUMNS = ("half", "function", "method", "evaluations", "figure", "runs", "value", "over", "low",
           "high")  # fmt: skip
RULES = ("recommended", "common", "evaluated")
AVERAGE, SECONDS = "average regret", "CPU seconds"
FIGURES = (*(f"simple regret, {rule}" for rule in RULES), AVERAGE, SECONDS)
SIMPLE = FIGURES[0]
#: Least regret that counts, in standard deviations of the noise, and least CPU seconds.
LEAST_REGRET, LEAST_SECONDS = 1e-3, 1e-3
#: The number of evaluations of the claims, and the observations before steps are timed.
CLAIMED, MANY = 100, 1_000


class Case(NamedTuple):
    r"""One run."""

    function: str
    method: str
    steps: int
    seed: int


def play(case: Case) -> Trace:
    r"""Run one case."""
    return METHODS[case.method].play(SearchProblem(case.function), case.seed, case.steps)


def run(options: Options, report: Report) -> None:
    r"""Run the methods on the functions, and compare them."""
    methods = chosen(options, report)
    runs = play_all(play, Trace, list(cases(options, methods)), options)
    study = Study(runs, report, CLAIMED if not options.quick else 8)
    halves = [options.half] if options.half else [CHOOSE, REPORT]
    for half in halves:
        study.record(half)
    if QLOGNEI in methods:
        for half, method in itertools.product(halves, OURS):
            if method in methods:
                study.claim(half, method)
        claim_steps(options, report, [method for method in OURS if method in methods])
    study.draw(halves)


def chosen(options: Options, report: Report) -> list[str]:
    r"""Return the methods to run, and print which are missing."""
    unknown = set(options.only) - set(METHODS)
    if unknown:
        raise SystemExit(f"--only takes {', '.join(METHODS)}; got {', '.join(sorted(unknown))}")
    methods = [name for name in METHODS if not options.only or name in options.only]
    for name in methods:
        if not installed(name):
            report.say(f"{name} is left out: {METHODS[name].package} is not installed")
    found = [name for name in methods if installed(name)]
    if not found:
        raise SystemExit("none of the methods is installed: pip install -e '.[benchmarks]'")
    return found


def cases(options: Options, methods: list[str]) -> Iterator[Case]:
    r"""Yield the runs, seed after seed, so that an interrupted study has whole seeds."""
    names = [n for n, f in FUNCTIONS.items() if options.half in (None, f.half)]
    if options.quick:
        names = [n for n in names if FUNCTIONS[n].dim == 2]
    for seed, method, function in itertools.product(range(options.seeds), methods, names):
        steps = steps_of(method, function, seed)
        if steps:
            yield Case(function, method, 8 if options.quick else steps, seed)


def figure_of(trace: Trace, figure: str, n: int) -> float:
    r"""Return a figure of a run after ``n`` evaluations."""
    if figure == AVERAGE:
        return float(trace.regret[:n].mean())
    if figure == SECONDS:
        return float(trace.seconds[n - 1])
    return simple_regret(trace, n, figure.split(", ")[1])


def least(function: str, figure: str) -> float:
    r"""Return the least value of a figure, below which differences do not count."""
    return LEAST_SECONDS if figure == SECONDS else LEAST_REGRET * FUNCTIONS[function].noise


class Study:
    r"""Comparisons of finished runs with those of the reference on the same seeds.

    Args:
        runs: Finished runs.
        report: Report that they are written to.
        claimed: Number of evaluations of claims and plots.
    """

    def __init__(self, runs: dict[Case, Trace], report: Report, claimed: int) -> None:
        self.runs, self.report, self.claimed = runs, report, claimed
        self.methods = list(dict.fromkeys(case.method for case in runs))
        self._found = {(case.function, case.method, case.seed): run for case, run in runs.items()}

    def functions(self, half: str) -> list[str]:
        r"""Return the functions of a half that were run."""
        run = {case.function for case in self.runs}
        return [name for name in FUNCTIONS if name in run and FUNCTIONS[name].half == half]

    def values(self, function: str, method: str, figure: str, n: int) -> dict[int, float]:
        r"""Return the logarithms of a figure by seed, of the runs with ``n`` evaluations."""
        return {
            seed: math.log(max(figure_of(run, figure, n), least(function, figure)))
            for (f, m, seed), run in self._found.items()
            if (f, m) == (function, method) and len(run.regret) >= n
        }

    def logarithms(self, function: str, method: str, figure: str, n: int) -> np.ndarray:
        r"""Return the logarithms of the ratios to the reference on the seeds that both have."""
        ours = self.values(function, method, figure, n)
        theirs = self.values(function, QLOGNEI, figure, n)
        return np.array([ours[seed] - theirs[seed] for seed in ours if seed in theirs])

    def ratio(self, functions: list[str], method: str, figure: str, n: int) -> Ratio | None:
        r"""Return the geometric mean of the ratios over functions, None without paired runs."""
        some = [self.logarithms(function, method, figure, n) for function in functions]
        some = [one for one in some if len(one)]
        return ratio(some) if some else None

    def record(self, half: str) -> None:
        r"""Record and print ratios to the reference."""
        names, marks = self.functions(half), [m for m in (*MARKS, self.claimed) if m]
        for n, method, figure in itertools.product(sorted(set(marks)), self.methods, FIGURES):
            for function in names:
                logs = list(self.values(function, method, figure, n).values())
                if logs:
                    found = self.ratio([function], method, figure, n)
                    ratios = found[:3] if found else ("", "", "")
                    mean = float(np.exp(np.mean(logs)))
                    self.report.row(half, function, method, n, figure, len(logs), mean, *ratios)
            found = self.ratio(names, method, figure, n)
            if found:
                row = (half, "geometric mean", method, n, figure, found.runs, "", *found[:3])
                self.report.row(*row)
        self._show(half, names)

    def _show(self, half: str, names: list[str]) -> None:
        n = self.claimed
        self.report.say(f"\nhalf {half}, {n} evaluations, ratios to {QLOGNEI}")
        for method, figure in itertools.product(self.methods, FIGURES):
            found = self.ratio(names, method, figure, n)
            if found and method != QLOGNEI:
                interval = f"[{found.low:.3g}, {found.high:.3g}]"
                line = f"{method:24}{figure:28}{found.value:8.3g} {interval:18} {found.runs} runs"
                self.report.say(line)

    def claim(self, half: str, method: str) -> None:
        r"""Claim the hypothesis for one half."""
        names, n = self.functions(half), self.claimed
        each = {f: self.ratio([f], method, SIMPLE, n) for f in names}
        worst, most = max(((f, r.value) for f, r in each.items() if r), key=lambda pair: pair[1])
        claims = [
            (f"geometric mean of {SIMPLE}", 0.85, self.ratio(names, method, SIMPLE, n)),
            (f"geometric mean of {AVERAGE}", 0.75, self.ratio(names, method, AVERAGE, n)),
            (f"geometric mean of {SECONDS}", 1 / 30, self.ratio(names, method, SECONDS, n)),
        ]
        for what, most_asked, found in claims:
            assert found is not None
            what = f"{half}: {what}, {method} over {QLOGNEI}"
            what += f", interval [{found.low:.3g}, {found.high:.3g}]"
            holds = found.value <= most_asked
            self.report.claim(what, f"<= {most_asked:.3g}", found.value, holds)
        what = f"{half}: {SIMPLE}, {method} over {QLOGNEI}, worst function ({worst})"
        self.report.claim(what, "<= 1.5", most, most <= 1.5)

    def draw(self, halves: list[str]) -> None:
        r"""Plot ratios by function, and regret against evaluations."""
        names = [name for half in halves for name in self.functions(half)]
        with self.report.picture("search", 1, 2, figsize=(13, 0.5 * len(names) + 2.5)) as axes:
            for ax, figure in zip(axes[0], (SIMPLE, AVERAGE), strict=True):
                self._draw_ratios(ax, names, figure)
            self._legend(axes[0, 0])
        rows = math.ceil(len(names) / 4)
        size = (16, 3.2 * rows + 0.8)
        with self.report.picture("search_regret", rows, 4, figsize=size) as axes:
            for ax, name in zip(axes.flat, names, strict=False):
                self._draw_regret(ax, name)
            for ax in axes.flat[len(names) :]:
                ax.set_axis_off()
            self._legend(axes[0, 0])

    def _legend(self, ax: Any) -> None:
        handles, labels = ax.get_legend_handles_labels()
        ax.figure.legend(handles, labels, loc="outside upper center", ncols=7)

    def _draw_ratios(self, ax: Any, names: list[str], figure: str) -> None:
        rows = [*names, "geometric mean"]
        for i, method in enumerate(self.methods):
            color, marker = style(i)
            some = [self.ratio([name], method, figure, self.claimed) for name in names]
            some.append(self.ratio(names, method, figure, self.claimed))
            offset = 0.7 * ((i + 0.5) / len(self.methods) - 0.5)
            places = [row + offset for row, found in enumerate(some) if found]
            values = [found.value for found in some if found]
            ax.plot(values, places, marker, color=color, ms=5, ls="", label=method)
            if some[-1]:
                ax.hlines(places[-1], some[-1].low, some[-1].high, color=color, lw=1.2)
        ax.set_yticks(range(len(rows)), rows)
        ax.set(xscale="log", xlabel=f"{figure}, over {QLOGNEI}'s", ylim=(len(rows) - 0.4, -0.6))
        ax.xaxis.set_minor_formatter("")  # a log scale over one decade would label every step
        ax.axhline(len(names) - 0.5, color="0.6", lw=0.8)
        ax.axvline(1, color="0.6", lw=0.8)
        ax.grid(alpha=0.3, axis="x")

    def _draw_regret(self, ax: Any, name: str) -> None:
        for i, method in enumerate(self.methods):
            some = [run.recommended for run in of(self.runs, function=name, method=method)]
            if some:
                length = min(map(len, some))
                values = np.log(np.stack([one[:length] for one in some]).clip(least(name, SIMPLE)))
                steps = np.arange(1, length + 1)
                ax.plot(steps, np.exp(values.mean(0)), color=style(i)[0], lw=1.2, label=method)
        ax.set(title=name, yscale="log", xlabel="evaluations", ylabel="simple regret")
        ax.grid(alpha=0.3)


def style(i: int) -> tuple[str, str]:
    r"""Return the color and the marker of a method."""
    return [*(f"C{k}" for k in range(10)), "k", "gold", "0.6"][i], "osD^vP"[i % 6]


def claim_steps(options: Options, report: Report, methods: list[str]) -> None:
    r"""Compare steps after many observations."""
    n = 12 if options.quick else MANY
    steps = play_all(play_step, Step, [StepCase(m, n) for m in (QLOGNEI, *methods)], options)
    theirs = steps[StepCase(QLOGNEI, n)].seconds
    for method in (QLOGNEI, *methods):
        seconds = steps[StepCase(method, n)].seconds
        report.row("", TIMED, method, n, "CPU seconds of a step", 1, seconds, seconds / theirs, "",
                   "")  # fmt: skip
        if method != QLOGNEI:
            what = f"{SECONDS} of a step after {n} observations, {method} over {QLOGNEI}"
            report.claim(what, "<= 0.01", seconds / theirs, seconds <= theirs / 100)
