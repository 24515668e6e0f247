r"""What optimisation over a finite set of arms costs, and what it earns.

BBKB's problems: Abalone (4,177 arms) and California housing (20,640), the kernel and the settings
of its authors, the information width with the noise's own standard deviation. Run
``python -m benchmarks.arms --data DIR [--quick] [--seeds 5] [--out DIR]``, on a machine that is
idle.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from tqdm import tqdm

from benchmarks.bandits import Bandit, generated, load, rbf
from benchmarks.common import circumstances, peak_memory, verdict, write_csv
from benchmarks.transcription import play_bbkb
from botorch_bkb import BBKB, BKB, GPBUCB, GPUCB, EpsilonGreedy, MiniGPUCB, arms
from botorch_bkb.optimizers import Optimizer

SQUARED_WIDTH = 5.0


class Setting(NamedTuple):
    r"""A problem with the model it is played with."""

    name: str
    bandit: Bandit
    noise_var: float
    norm_bound: float

    def options(self, horizon: int) -> dict[str, Any]:
        r"""Arguments of an optimizer."""
        return {
            "covar_module": rbf(SQUARED_WIDTH),
            "noise_var": self.noise_var,
            "norm_bound": self.norm_bound,
            "noise_bound": self.bandit.noise,
            "delta": 1 / horizon,
        }


class Played(NamedTuple):
    r"""A run: seconds at each number of pulls, cumulative regret, and what became of it."""

    seconds: float
    regret: float
    pulls: int
    batches: int
    largest: int
    dictionary: int
    distinct: int


def play(optimizer: Optimizer, bandit: Bandit, budget: int, seed: int) -> Played:
    r"""Ask and tell; the time is the optimizer's alone."""
    generator = torch.Generator().manual_seed(seed)
    seconds, regret, sizes, rows = 0.0, 0.0, [], set()
    while (left := budget - optimizer.num_observations) > 0:
        start = time.perf_counter()
        suggestion = optimizer.ask(left)
        seconds += time.perf_counter() - start
        rewards = bandit.rewards(suggestion.indices, generator)
        regret += float(bandit.regret(suggestion.indices).sum())
        sizes.append(len(suggestion))
        rows.update(suggestion.indices.tolist())
        start = time.perf_counter()
        optimizer.tell(suggestion, rewards)
        seconds += time.perf_counter() - start
    m = len(optimizer.dictionary)
    return Played(seconds, regret, budget, len(sizes), max(sizes), m, len(rows))


def play_plainly(setting: Setting, budget: int, seed: int, horizon: int, limit: float) -> Played:
    r"""The transcription, for ``budget`` pulls or ``limit`` seconds."""
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
    return Played(seconds, regret, len(picks), 0, 0, 0, len(set(picks)))


def play_stock(setting: Setting, limit: float, seed: int) -> Iterator[tuple[int, float]]:
    r"""``SingleTaskGP`` and ``optimize_acqf_discrete``, pull by pull: pulls and seconds."""
    bandit, generator = setting.bandit, torch.Generator().manual_seed(seed)
    X, Y = bandit.arms[:1], bandit.rewards(torch.tensor([0]), generator).unsqueeze(-1)
    seconds = 0.0
    while seconds < limit:
        start = time.perf_counter()
        Yvar = torch.full_like(Y, setting.noise_var)
        model = SingleTaskGP(X, Y, Yvar, covar_module=rbf(SQUARED_WIDTH), outcome_transform=None)
        model.mean_module.initialize(constant=0.0)
        ucb = UpperConfidenceBound(model, beta=setting.norm_bound**2)
        best, _ = optimize_acqf_discrete(ucb, q=1, choices=bandit.arms, max_batch_size=4096)
        seconds += time.perf_counter() - start
        row = (bandit.arms == best).all(-1).nonzero()[0]
        X = torch.cat([X, best])
        Y = torch.cat([Y, bandit.rewards(row, generator).unsqueeze(-1)])
        yield len(X), seconds


def spread(values: list[float]) -> str:
    t = torch.tensor(values)
    return f"{t.mean():,.0f} +- {t.std():,.0f}" if len(values) > 1 else f"{t.mean():,.0f}"


class Report:
    r"""Lines for the screen and rows for the file."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.claims: list[str] = []

    def row(self, study: str, what: str, figure: str, value: float) -> None:
        r"""One figure for the file."""
        self.rows.append(f"{study},{what.replace(',', ';')},{figure},{value:.6g}")

    def played(self, study: str, what: str, runs: list[Played]) -> None:
        r"""All figures of some runs that differ in their seeds."""
        for figure in Played._fields:
            values = [float(getattr(run, figure)) for run in runs]
            self.row(study, what, figure, sum(values) / len(values))
            if figure in ("regret", "seconds") and len(values) > 1:
                self.row(study, what, f"{figure} sd", float(torch.tensor(values).std()))
        last = runs[-1]
        regrets, seconds = ([getattr(r, f) for r in runs] for f in ("regret", "seconds"))
        tqdm.write(
            f"{study:12} {what:34} T={last.pulls:6} {min(seconds):8.2f} s  regret "
            f"{spread(regrets):18} batches {last.batches:5} (to {last.largest:4}) "
            f"m {last.dictionary:4} distinct {last.distinct}"
        )

    def claim(self, what: str, asked: str, value: float, holds: bool) -> None:
        r"""What was asked, what was measured, and whether it holds."""
        line = verdict(what, asked, value, holds)
        self.claims.append(line)
        tqdm.write(f"   {line}")


# ---------------------------------------------------------------------- the studies


def against_the_transcription(
    report: Report, setting: Setting, budget: int, compared: int, seeds: int, limit: float
) -> None:
    r"""The same algorithm without any of the shortcuts: the time of one run, the regret of some."""

    def ours(pulls: int, seed: int) -> Played:
        optimizer = BBKB(setting.bandit.arms, seed=seed, **setting.options(budget))
        return play(optimizer, setting.bandit, pulls, seed)

    plain = play_plainly(setting, budget, 0, budget, limit)
    t = plain.pulls  # as far as it came
    fast = ours(t, 0)
    report.played(setting.name, "BBKB", [fast])
    report.played(setting.name, "BBKB, plain transcription", [plain])
    ratio = plain.seconds / fast.seconds
    report.claim(f"{setting.name}: plain over ours, t={t}", ">= 20", ratio, ratio >= 20)
    runs = [ours(compared, seed) for seed in range(seeds)]
    plains = [play_plainly(setting, compared, seed, budget, math.inf) for seed in range(seeds)]
    report.played(setting.name, "BBKB", runs)
    report.played(setting.name, "BBKB, plain transcription", plains)
    a, b = (torch.tensor([run.regret for run in some]) for some in (runs, plains))
    gap = float((a.mean() - b.mean()).abs() / torch.maximum(a.std(), b.std()))
    what = f"{setting.name}: gap of mean regrets at t={compared} in standard deviations"
    report.claim(what, "<= 1", gap, gap <= 1)


def algorithms(report: Report, setting: Setting, budget: int, seeds: int, short: int) -> None:
    r"""All of them, with both widths; those that go one by one on a shorter run."""
    cases: list[tuple[str, type[Optimizer], dict[str, Any], int]] = [
        ("BBKB", BBKB, {}, budget),
        ("BBKB fresh coins", BBKB, {"coupled": False}, max(short, budget // 4)),
        ("BBKB oversampling 8", BBKB, {"oversampling": 8.0}, budget),
        ("BBKB heuristic", BBKB, {"width": "heuristic"}, budget),
        ("BBKB Thompson", BBKB, {"acquisition": "thompson"}, budget),
        ("GP-BUCB", GPBUCB, {}, budget),
        ("mini-GP-UCB", MiniGPUCB, {}, budget),
        ("BKB", BKB, {}, short),
        ("GP-UCB", GPUCB, {}, short),
        ("epsilon-greedy", EpsilonGreedy, {}, budget),
    ]
    for what, algorithm, more, pulls in cases:
        runs = []
        for seed in range(seeds):
            options = {**setting.options(budget), **more}
            optimizer = algorithm(setting.bandit.arms, seed=seed, **options)
            runs.append(play(optimizer, setting.bandit, pulls, seed))
        report.played(setting.name, what, runs)
    uniform = float(setting.bandit.f.max() - setting.bandit.f.mean()) * budget
    report.row(setting.name, "uniform policy", "regret", uniform)
    tqdm.write(
        f"{setting.name:12} {'uniform policy':34} T={budget:6} {'':10}  regret {uniform:,.0f}"
    )


def stock(report: Report, setting: Setting, limit: float) -> None:
    r"""How far BoTorch's own pieces come in the time."""
    for t, seconds in play_stock(setting, limit, 0):
        pulls, total = t, seconds
    report.row(setting.name, "SingleTaskGP + optimize_acqf_discrete", "pulls", pulls)
    report.row(setting.name, "SingleTaskGP + optimize_acqf_discrete", "seconds", total)
    tqdm.write(
        f"{setting.name:12} SingleTaskGP + optimize_acqf_discrete: {pulls} pulls in {total:.0f} s"
    )


def against_rebuilding(report: Report, setting: Setting, budget: int, horizon: int) -> None:
    r"""The same code made to embed all arms anew at every resparsification."""
    changes = arms.CHANGES_BEFORE_REBUILD
    # Fresh coins close a batch with nearly every pick here: a shorter run says as much.
    for what, coupled, asked, pulls in (
        ("coupled", True, 8, budget),
        ("fresh", False, 4, budget // 4),
    ):
        runs = {}
        for mode, allowed in (("slides", changes), ("rebuilds", 0)):
            arms.CHANGES_BEFORE_REBUILD = allowed
            options = setting.options(horizon)
            optimizer = BBKB(setting.bandit.arms, seed=0, coupled=coupled, **options)
            runs[mode] = play(optimizer, setting.bandit, pulls, 0)
            report.played(setting.name, f"{what} coins, {mode}", [runs[mode]])
        arms.CHANGES_BEFORE_REBUILD = changes
        ratio = runs["rebuilds"].seconds / runs["slides"].seconds
        report.claim(
            f"{setting.name} to t={pulls}, {what} coins: rebuilding over sliding",
            f">= {asked}", ratio, ratio >= asked,
        )  # fmt: skip


def over_time(report: Report, setting: Setting, budget: int) -> None:
    r"""Cost per pull in two decades."""
    optimizer = BBKB(setting.bandit.arms, seed=0, **setting.options(budget))
    marks = [budget // 100, budget // 10, budget]
    seconds = [play(optimizer, setting.bandit, mark, mark).seconds for mark in marks]
    early, late = (1e6 * seconds[i] / (marks[i] - marks[i - 1]) for i in (1, 2))
    for what, value in ((f"t to {marks[1]}", early), (f"t to {marks[2]}", late)):
        report.row(setting.name, what, "microseconds a pull", value)
    report.claim(
        f"{setting.name}: cost per pull to t={marks[2]} over to t={marks[1]}",
        "<= 1", late / early, late <= early,
    )  # fmt: skip


def picking(report: Report, setting: Setting) -> None:
    r"""A pick inside a batch: the time of all asks from 9,000 pulls on, over their picks."""
    optimizer = BBKB(setting.bandit.arms, seed=0, **setting.options(10_000))
    play(optimizer, setting.bandit, 9_000, 0)
    generator, picks, seconds = torch.Generator().manual_seed(1), 0, 0.0
    while picks < 2_000:
        start = time.perf_counter()
        suggestion = optimizer.ask()
        seconds += time.perf_counter() - start
        picks += len(suggestion)
        optimizer.tell(suggestion, setting.bandit.rewards(suggestion.indices, generator))
    value = 1e6 * seconds / picks
    what = f"{setting.name}: microseconds a pick, {picks} picks"
    report.claim(what, "< 100", value, value < 100)


def a_million(num_arms: int, budget: int) -> str:
    r"""One big run in a process of its own, for its memory."""
    bandit = generated(num_arms, 8, 0.1, 0, torch.float32)
    optimizer = BBKB(
        bandit.arms, covar_module=rbf(SQUARED_WIDTH, torch.float32), noise_var=0.05, norm_bound=2.0,
        noise_bound=0.1, seed=0,
    )  # fmt: skip
    run = play(optimizer, bandit, budget, 0)
    Z = torch.randn(num_arms // 10, run.dictionary, dtype=torch.float32)
    square = torch.randn(run.dictionary, run.dictionary, dtype=torch.float32)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        Z @ square
        times.append(10 * (time.perf_counter() - start))
    each = run.seconds / run.batches
    return " ".join(map(str, (*run, peak_memory(), each, min(times))))


def report_a_million(report: Report, num_arms: int, budget: int) -> None:
    again = [sys.executable, *sys.orig_argv[1:], "--million", str(num_arms), str(budget)]
    out = subprocess.run(again, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    *played, memory, each, product = map(float, out)
    name = f"{num_arms} arms"
    run = Played(played[0], played[1], *map(int, played[2:]))
    report.played(name, "BBKB float32", [run])
    report.row(name, "BBKB float32", "seconds a resparsification", each)
    report.row(name, "one A x m x m product in float32", "seconds", product)
    tqdm.write(
        f"   a resparsification, picks included, {each:.2f} s; "
        f"one A x m x m product in float32 {product:.2f} s"
    )
    report.claim(f"{name}: peak memory in MiB", "<= 6144", memory, memory <= 6144)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with abalone.csv and cal_housing.data")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for arms.csv")
    parser.add_argument("--million", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    if args.million:
        return print(a_million(*args.million))
    if args.data is None:
        parser.error("pass --data, a folder with abalone.csv and cal_housing.data")
    seeds, scale = (2, 10) if args.quick else (args.seeds, 1)
    T, limit = 10_000 // scale, 120.0 / scale
    abalone = load("abalone", args.data, noise=1.0)
    settings = [
        Setting("abalone", abalone, 1.0, 20.0),
        Setting("abalone 0.2", abalone, 0.2, 20.0),
        Setting("cadata", load("cadata", args.data, noise=0.1), 0.2, 5.0),
    ]
    print(*(header := circumstances(f"0..{seeds - 1}")), sep="\n", flush=True)
    report = Report()
    play(BBKB(abalone.arms, seed=0, **settings[0].options(T)), abalone, 100, 0)  # warm
    studies = [
        *((picking, s) for s in settings[:1]),
        *((over_time, s, 10 * T) for s in settings[:1]),
        *((against_the_transcription, s, T, T // 5, seeds, limit) for s in settings[:2]),
        (against_the_transcription, settings[2], T, T // 20, seeds, limit),
        (against_rebuilding, settings[2], 6_400 // scale, T),
        *((algorithms, s, T, seeds, T // 5) for s in settings[:2]),
        (algorithms, settings[2], T // 2, 1, T // 10),
        *((stock, s, limit / 2) for s in settings[::2]),
        (report_a_million, 1_000_000 // scale, T),
    ]
    for study, *arguments in tqdm(studies, unit="study", disable=None):
        study(report, *arguments)
    print("", "claim | asked | measured | verdict", *report.claims, sep="\n")
    if args.out:
        path = args.out / "arms.csv"
        write_csv(path, header + report.claims, "study,what,figure,value", report.rows)


if __name__ == "__main__":
    main()
