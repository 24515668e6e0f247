r"""The cost of a step over a finite set, compared with the pseudo-code, BoTorch and a rebuild.

The problems and settings are those of the BBKB paper: Abalone (4,177 arms) and California housing
(20,640), the information width with the true standard deviation of the noise, and an oversampling
of 2. There is also a problem with a million generated arms. Forty minutes on an idle machine. Needs
``--data``.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.arm_runs import (
    SQUARED_WIDTH,
    Run,
    Setting,
    play,
    play_in_float32,
    setting,
)
from benchmarks.machine import in_a_process, peak_memory
from benchmarks.peers.discrete import play_stock
from benchmarks.peers.transcription import play_bbkb
from benchmarks.report import Options, Report
from botorch_bkb import BBKB
from botorch_bkb.arms import table

SEEDS = 5
COLUMNS = ("problem", "what", "figure", "value")


def run(options: Options, report: Report) -> None:
    r"""Run one part after the other, so that none competes for the cores."""
    torch.set_default_dtype(torch.float64)
    seeds, scale = options.seeds, 100 if options.quick else 1
    T, limit = 10_000 // scale, 120.0 / scale
    abalone, little_noise, cadata = (
        setting(name, options.data) for name in ("abalone", "abalone 0.2", "cadata")
    )
    play(abalone.make(BBKB, T, 0), abalone.bandit, 50, 0)  # warm-up
    parts = [
        (picking, abalone, 9 * T // 10, T // 5),
        (over_time, abalone, 10 * T),
        (against_the_transcription, abalone, T, T // 5, seeds, limit),
        (against_the_transcription, little_noise, T, T // 5, seeds, limit),
        (against_the_transcription, cadata, T, T // 20, seeds, limit),
        (against_rebuilding, cadata, 6_400 // scale, T),
        *((stock, s, limit / 2) for s in (abalone, cadata)),
        (report_a_million, 1_000_000 // scale, T),
    ]
    for part, *arguments in tqdm(parts, unit="part", disable=None):
        part(report, *arguments)
    draw(report)


def play_plainly(setting: Setting, budget: int, seed: int, horizon: int, limit: float) -> Run:
    r"""Run the transcription for ``budget`` pulls or ``limit`` seconds."""
    noise_var, norm_bound = setting.noise_var, setting.norm_bound
    picks: list[int] = []
    start = time.perf_counter()
    for row in play_bbkb(
        setting.bandit, squared_width=SQUARED_WIDTH, noise_var=noise_var, norm_bound=norm_bound,
        delta=1 / horizon, seed=seed,
    ):  # fmt: skip
        picks.append(row)
        if len(picks) >= budget or time.perf_counter() - start > limit:
            break
    seconds = time.perf_counter() - start
    regret = float(setting.bandit.regret(torch.tensor(picks)).sum())
    end = (np.array([value]) for value in (len(picks), regret, seconds, 0))
    return Run(*end, len(set(picks)), math.nan)


def record(report: Report, problem: str, what: str, runs: list[Run]) -> None:
    r"""Record mean figures at the end of runs that differ in their seeds."""
    figures = {
        "seconds": [run.seconds[-1] for run in runs],
        "regret": [run.regret[-1] for run in runs],
        "pulls": [run.pulls[-1] for run in runs],
        "batches": [len(run.pulls) for run in runs],
        "largest batch": [run.batches.max() for run in runs],
        "dictionary": [run.dictionary[-1] for run in runs],
        "distinct": [run.distinct for run in runs],
    }
    for figure, values in figures.items():
        report.row(problem, what, figure, float(np.mean(values)))
        if figure in ("regret", "seconds") and len(values) > 1:
            report.row(problem, what, f"{figure} sd", float(np.std(values, ddof=1)))
    means = (f"{figure} {np.mean(values):,.4g}" for figure, values in figures.items())
    report.say(f"{problem}, {what}: {', '.join(means)}")


def against_the_transcription(
    report: Report, setting: Setting, budget: int, compared: int, seeds: int, limit: float
) -> None:
    r"""Compare BBKB with its plain transcription, by the time of one run and the regret of some."""

    def ours(pulls: int, seed: int) -> Run:
        optimizer = setting.make(BBKB, budget, seed, batch_rule="sum")
        return play(optimizer, setting.bandit, pulls, seed)

    plain = play_plainly(setting, budget, 0, budget, limit)
    t = int(plain.pulls[-1])  # may be fewer than the budget
    fast = ours(t, 0)
    record(report, setting.name, "BBKB", [fast])
    record(report, setting.name, "BBKB, plain transcription", [plain])
    ratio = plain.seconds[-1] / fast.seconds[-1]
    report.claim(f"{setting.name}: plain over ours, t={t}", ">= 20", ratio, ratio >= 20)
    runs = [ours(compared, seed) for seed in range(seeds)]
    plains = [play_plainly(setting, compared, seed, budget, math.inf) for seed in range(seeds)]
    record(report, setting.name, "BBKB", runs)
    record(report, setting.name, "BBKB, plain transcription", plains)
    a, b = (np.array([run.regret[-1] for run in some]) for some in (runs, plains))
    gap = abs(a.mean() - b.mean()) / max(a.std(ddof=1), b.std(ddof=1))
    what = f"{setting.name}: gap of mean regrets at t={compared} in standard deviations"
    report.claim(what, "<= 1", gap, gap <= 1)


def stock(report: Report, setting: Setting, limit: float) -> None:
    r"""Count the pulls that BoTorch's own components make within the time limit."""
    for t, seconds in play_stock(setting, limit, 0):
        pulls, total = t, seconds
    report.row(setting.name, "SingleTaskGP + optimize_acqf_discrete", "pulls", pulls)
    report.row(setting.name, "SingleTaskGP + optimize_acqf_discrete", "seconds", total)
    report.say(
        f"{setting.name:12} SingleTaskGP + optimize_acqf_discrete: {pulls} pulls in {total:.0f} s"
    )


def against_rebuilding(report: Report, setting: Setting, budget: int, horizon: int) -> None:
    r"""Compare BBKB with the same code that embeds all arms anew at every resparsification."""
    changes = table.CHANGES_BEFORE_REBUILD
    # With fresh coins nearly every pick closes a batch here, so a shorter run is enough.
    for what, coupled, asked, pulls in (
        ("coupled", True, 8, budget),
        ("fresh", False, 4, budget // 4),
    ):
        runs = {}
        for mode, allowed in (("slides", changes), ("rebuilds", 0)):
            table.CHANGES_BEFORE_REBUILD = allowed
            optimizer = setting.make(BBKB, horizon, 0, coupled=coupled)
            runs[mode] = play(optimizer, setting.bandit, pulls, 0)
            record(report, setting.name, f"{what} coins, {mode}", [runs[mode]])
        table.CHANGES_BEFORE_REBUILD = changes
        ratio = runs["rebuilds"].seconds[-1] / runs["slides"].seconds[-1]
        report.claim(
            f"{setting.name} to t={pulls}, {what} coins: rebuilding over sliding",
            f">= {asked}", ratio, ratio >= asked,
        )  # fmt: skip


def over_time(report: Report, setting: Setting, budget: int) -> None:
    r"""Compare the cost per pull in two decades of pulls."""
    optimizer = setting.make(BBKB, budget, 0)
    marks = [budget // 100, budget // 10, budget]
    seconds = [play(optimizer, setting.bandit, mark, mark).seconds[-1] for mark in marks]
    early, late = (1e6 * seconds[i] / (marks[i] - marks[i - 1]) for i in (1, 2))
    for what, value in ((f"t to {marks[1]}", early), (f"t to {marks[2]}", late)):
        report.row(setting.name, what, "microseconds a pull", value)
    report.claim(
        f"{setting.name}: cost per pull to t={marks[2]} over to t={marks[1]}",
        "<= 1", late / early, late <= early,
    )  # fmt: skip


def picking(report: Report, setting: Setting, after: int, least: int) -> None:
    r"""Measure the time per pick inside a batch, after a number of pulls."""
    optimizer = setting.make(BBKB, 10 * after // 9, 0)
    play(optimizer, setting.bandit, after, 0)
    generator, picks, seconds = torch.Generator().manual_seed(1), 0, 0.0
    while picks < least:
        start = time.perf_counter()
        suggestion = optimizer.ask()
        seconds += time.perf_counter() - start
        picks += len(suggestion)
        optimizer.tell(suggestion, setting.bandit.rewards(suggestion.indices, generator))
    value = 1e6 * seconds / picks
    what = f"{setting.name}: microseconds a pick, {picks} picks"
    report.claim(what, "< 100", value, value < 100)


class Million(NamedTuple):
    r"""A run with a million arms, its memory, and the time of the product that it avoids."""

    run: Run
    memory: float
    product: float


def a_million(num_arms: int, budget: int) -> Million:
    r"""Run BBKB on many arms. Call it in a separate process, to measure its memory."""
    run = play_in_float32(num_arms, budget)
    memory, m = peak_memory(), int(run.dictionary[-1])
    Z, square = torch.randn(num_arms // 10, m), torch.randn(m, m)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        Z @ square
        times.append(10 * (time.perf_counter() - start))
    return Million(run, memory, min(times))


def report_a_million(report: Report, num_arms: int, budget: int) -> None:
    run, memory, product = in_a_process(a_million, num_arms, budget)
    name = f"{num_arms} arms"
    record(report, name, "BBKB float32", [run])
    each = run.seconds[-1] / len(run.pulls)
    report.row(name, "BBKB float32", "seconds a resparsification", each)
    report.row(name, "one A x m x m product in float32", "seconds", product)
    report.say(
        f"   a resparsification, picks included, {each:.2f} s; "
        f"one A x m x m product in float32 {product:.2f} s"
    )
    report.claim(f"{name}: peak memory in MiB", "<= 6144", memory, memory <= 6144)


def draw(report: Report) -> None:
    r"""Plot the seconds of all runs, in the order of the comparisons."""
    seconds = [row for row in report.rows if row[2] == "seconds" and "product" not in row[1]]
    pulls = [row[3] for row in report.rows if row[2] == "pulls"]
    names = [
        f"{problem}: {what}, {float(t):,.0f} pulls"
        for (problem, what, *_), t in zip(seconds, pulls, strict=True)
    ]
    with report.picture("arms", 1, 1, figsize=(8, 0.3 * len(names) + 1)) as axes:
        ax = axes[0, 0]
        peers = [any(w in row[1] for w in ("plain", "rebuilds", "SingleTaskGP")) for row in seconds]
        colors = ["C7" if peer else "C0" for peer in peers]
        ax.barh(names, [float(row[3]) for row in seconds], color=colors)
        ax.set(xscale="log", xlabel="seconds")
        ax.invert_yaxis()
        ax.grid(alpha=0.3, axis="x")
