r"""The cost of ``DTCGP`` compared with exact and variational alternatives.

The problem is noisy Hartmann6 with ``m = 200`` dictionary (or inducing) points, the same for every
model. Figures are CPU seconds of one thread. Except for fits, each is the best of several runs, in
which the models take turns. The second part (:mod:`benchmarks.model_steps`) has the steps and fits
of 50 to a million observations, and acquisition functions. About fifteen minutes on an idle
machine.
"""

from __future__ import annotations

import math
import time
from functools import partial

import torch
from botorch.fit import fit_gpytorch_mll

from benchmarks import model_steps
from benchmarks.machine import best_of, in_a_process, peak_memory, stopwatch
from benchmarks.model_cases import (
    BATCH,
    BUILD,
    CONDITION,
    FIT,
    GRADIENT,
    KERNEL,
    MODELS,
    OURS,
    OURS_SAMPLED,
    PRODUCT,
    SAMPLED,
    SGPR,
    SINGLE,
    STEP,
    D,
    Problem,
    Times,
    condition,
    gradient,
    kernel,
    make,
    objective,
    possible,
    posterior,
    problem,
    step,
)
from benchmarks.peers.sparse import evidence
from benchmarks.report import Options, Report

SEEDS = 1
COLUMNS = ("operation", "model", "n", "seconds")
#: Seconds after which a competitor's fit is stopped. A model whose build takes longer is not timed
#: any further.
LIMIT = 60.0

NOTES = """
'-': not possible, not measured, or more than a minute or several gigabytes. SVGP is
SingleTaskVariationalGP, which does not use the data before its fit. SGPR is SingleTaskGP on an
InducingPointKernel with gpytorch's low-rank marginal likelihood. The fits of both also move the
inducing points. Fits are one run each. inf: a competitor's fit was stopped after {limit:.0f} s."""


def run(options: Options, report: Report) -> None:
    r"""Time builds, posteriors, likelihood steps and fits of all models."""
    sizes = [250, 500] if options.quick else [1_000, 10_000, 50_000]
    effort, limit = ((2, 0.1), 2.0) if options.quick else ((20, 2.0), LIMIT)
    torch.set_num_threads(1)
    memory = in_a_process(memory_growth, sizes[-1])
    warm = [problem(500)]  # excludes imports at first use from the timing
    time_posteriors(*time_builds(warm, (1, 0.0)), (1, 0.0))
    time_steps(warm, (1, 0.0))
    problems = [problem(n) for n in sizes]
    times, built = time_builds(problems, effort)
    show(report, times)
    drawn = (len(built[SAMPLED, OURS, n].dictionary_indices) for n in sizes)
    report.say(f"points sampled: {', '.join(map(str, drawn))}")
    found = time_posteriors(times, built, effort)
    built.clear()
    for more in (found, time_steps(problems, effort), time_fits(problems, limit)):
        show(report, more)
        times |= more
    report.say(NOTES.format(limit=limit))
    for (operation, name, n), seconds in times.items():
        report.row(operation, name, n, seconds)
    claim(report, times, sizes, memory)
    model_steps.run(options, report)
    draw(report, times)


@torch.no_grad()
def time_builds(problems: list[Problem], effort: tuple[int, float]) -> tuple[Times, dict]:
    r"""Time the build with its first posterior, and the unavoidable kernel matrix and product."""
    cases, built = {}, {}

    def build(key: tuple, name: str, p: Problem) -> None:
        built[key] = make(name, p)
        posterior(built[key], torch.full((1, D), 0.5).to(p.X))

    for p in problems:
        todo = [(BUILD, name, name) for name in MODELS if possible(BUILD, name, p.n)]
        for operation, column, name in [*todo, (SAMPLED, OURS, OURS_SAMPLED)]:
            cases[operation, column, p.n] = partial(build, (operation, column, p.n), name, p)
        k, S = kernel(p), p.X[p.indices]
        Z = k(p.X, S).to_dense()
        cases[KERNEL, OURS, p.n] = lambda k=k, X=p.X, S=S: k(X, S).to_dense()
        cases[PRODUCT, OURS, p.n] = partial(torch.matmul, Z.mT, Z)
    return best_of(cases, *effort, time.process_time), built


@torch.no_grad()
def time_posteriors(times: Times, built: dict, effort: tuple[int, float]) -> Times:
    one, batch, new = (torch.rand(*size, D).double() for size in ((1,), (20, 4), (4,)))
    calls = {
        SINGLE: (posterior, one),
        BATCH: (posterior, batch),
        GRADIENT: (gradient, batch),
        CONDITION: (condition, new, torch.randn(4, 1).double(), one),
    }
    found: Times = {}
    for operation, (call, *args) in calls.items():
        cases = {
            (operation, name, n): partial(call, model, *args)
            for (how, name, n), model in built.items()
            if how == BUILD and possible(operation, name, n) and times[how, name, n] < LIMIT
        }
        found |= best_of(cases, *effort, time.process_time)
    return found


def time_steps(problems: list[Problem], effort: tuple[int, float]) -> Times:
    pairs = [(name, p) for p in problems for name in MODELS if possible(STEP, name, p.n)]
    cases = {(STEP, m, p.n): partial(step, m, objective(m, p)) for m, p in pairs}
    return best_of(cases, *effort, time.process_time)


def time_fits(problems: list[Problem], limit: float) -> Times:
    r"""Time one fit per model. A competitor's fit that was stopped counts as infinite."""
    times = {}
    for name, p in [(m, p) for p in problems for m in MODELS if possible(FIT, m, p.n)]:
        mll = objective(name, p)
        stop = {} if name == OURS else {"optimizer_kwargs": {"timeout_sec": limit}}
        started = time.perf_counter()
        with evidence(low_rank=name == SGPR):
            seconds = stopwatch(partial(fit_gpytorch_mll, mll, **stop), time.process_time)
        stopped = stop and time.perf_counter() - started >= limit
        times[FIT, name, p.n] = math.inf if stopped else seconds
    return times


def memory_growth(n: int) -> float:
    r"""Return the growth of the peak memory in MiB, for the data and all operations of a model."""
    before = peak_memory()
    p = problem(n)
    mll, x = objective(OURS_SAMPLED, p), torch.rand(20, 4, D).to(p.X)
    gradient(mll.model, x)
    condition(mll.model, p.X[:4] + 0.01, p.Y[:4], x)
    step(OURS, mll.train())
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 3}})
    return peak_memory() - before


def show(report: Report, times: Times) -> None:
    r"""Print milliseconds, one line per operation and size, one column per model."""
    report.say(f"\n{'milliseconds':32}{'n':>6}" + "".join(f"{name:>14}" for name in MODELS))
    lines = dict.fromkeys((operation, n) for operation, _, n in times)
    for operation, n in sorted(lines, key=lambda line: [op for op, _ in lines].index(line[0])):
        cells = (1e3 * times.get((operation, name, n), math.nan) for name in MODELS)
        line = "".join(f"{ms:14.0f}" if ms >= 1e3 else f"{ms:14.3g}" for ms in cells)
        report.say(f"{operation:32}{n:6}" + line.replace("nan", "  -"))


def claim(report: Report, times: Times, sizes: list[int], memory: float) -> None:
    small, before, large = sizes[0], sizes[-2], sizes[-1]
    unavoidable = times[KERNEL, OURS, large] + times[PRODUCT, OURS, large]
    ratios = [(op, small, 1.5) for op in (SINGLE, BATCH, GRADIENT, CONDITION)] + [(STEP, before, 6)]
    for op, n, most in ratios:
        ratio = times[op, OURS, large] / times[op, OURS, n]
        report.claim(f"{op}: n={large} over n={n}", f"<= {most}", ratio, ratio <= most)
    for op, most in ((BUILD, 3), (SAMPLED, 8)):
        ratio = times[op, OURS, large] / unavoidable
        report.claim(f"{op}: n={large} over the unavoidable", f"<= {most}", ratio, ratio <= most)
    what = f"peak memory above the imports in MiB, n={large}"
    report.claim(what, "<= 1024", memory, memory <= 1024)


def draw(report: Report, times: Times) -> None:
    r"""Plot milliseconds against observations, one panel per operation."""
    operations = (BUILD, SINGLE, GRADIENT, CONDITION, STEP, FIT)
    with report.picture("model", 2, 3, sharex=True) as axes:
        for ax, operation in zip(axes.flat, operations, strict=True):
            for i, model in enumerate(MODELS):
                found = {n: t for (op, m, n), t in times.items() if (op, m) == (operation, model)}
                sizes = [n for n, seconds in found.items() if math.isfinite(seconds)]
                ms = [1e3 * found[n] for n in sizes]
                ax.plot(sizes, ms, "o-", ms=4, color=f"C{i}", label=model)
            ax.set(xscale="log", yscale="log", title=operation)
            ax.grid(alpha=0.3)
        for ax in axes[1]:
            ax.set_xlabel("observations")
        for ax in axes[:, 0]:
            ax.set_ylabel("milliseconds")
        axes[0, 0].legend(fontsize=7)
