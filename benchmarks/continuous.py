r"""What optimisation over a box costs and earns.

Noisy test functions of BoTorch, outcomes in units of their standard deviation over the box, noise
of 0.1 of it; all optimizers with their defaults, hyperparameters fitted. Run
``python -m benchmarks.continuous [--quick] [--seeds 10] [--workers 2] [--out DIR]``; one study
alone with ``--study regret`` or ``--study speed``. Seconds of whole runs are those of one core.
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Ackley, Branin, Hartmann, Levy, Rosenbrock, Shekel
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor
from tqdm import tqdm

from benchmarks.common import circumstances, verdict, write_csv
from botorch_bkb import BBKB, BKB, GPUCB, AdaBBKB, AdaBKB
from botorch_bkb.optimizers import Optimizer

FUNCTIONS: dict[str, Callable[[], Any]] = {
    "Branin": lambda: Branin(negate=True),
    "Hartmann6": lambda: Hartmann(dim=6, negate=True),
    "Ackley5": lambda: Ackley(dim=5, negate=True),
    "Rosenbrock": lambda: Rosenbrock(dim=2, negate=True),
    "Levy": lambda: Levy(dim=4, negate=True),
    "Shekel": lambda: Shekel(negate=True),
}
#: In the study of speed alone.
ALSO = {"Rosenbrock4": lambda: Rosenbrock(dim=4, negate=True)}


class Problem:
    r"""A test function in units of its standard deviation over the box.

    Args:
        name: Its name.
        noise: Standard deviation of the noise, in the same units.
    """

    def __init__(self, name: str, noise: float = 0.1) -> None:
        self.noise = noise
        self.f = {**FUNCTIONS, **ALSO}[name]().to(torch.float64)
        self.bounds = self.f.bounds.to(torch.float64)
        sample = self.f(draw_sobol_samples(self.bounds, n=4096, q=1, seed=0).squeeze(1))
        self.unit, self.mean = float(sample.std()), float(sample.mean())
        self.best = (float(self.f.optimal_value) - self.mean) / self.unit

    def value(self, X: Tensor) -> Tensor:
        r"""Without noise."""
        return (self.f(X) - self.mean) / self.unit

    def observe(self, X: Tensor, generator: torch.Generator) -> Tensor:
        r"""With noise."""
        noise = torch.randn(len(X), generator=generator, dtype=torch.float64)
        return self.value(X) + self.noise * noise


class Case(NamedTuple):
    r"""One run."""

    function: str
    method: str
    steps: int
    seed: int


class Run(NamedTuple):
    r"""What became of it."""

    regret: np.ndarray  #: of each evaluation
    simple: np.ndarray  #: of the recommendation, now and then
    seconds: np.ndarray  #: of the optimizer, so far
    cells: int


def with_optimizer(make: Callable[[Tensor, int], Optimizer]) -> Callable[..., Run]:
    def run(problem: Problem, steps: int, seed: int) -> Run:
        generator = torch.Generator().manual_seed(seed)
        optimizer, clock = make(problem.bounds, seed), 0.0
        regret, simple, seconds = [], [], []
        while len(regret) < steps:
            start = time.process_time()
            suggestion = optimizer.ask(steps - len(regret))
            clock += time.process_time() - start
            Y = problem.observe(suggestion.X, generator)
            start = time.process_time()
            optimizer.tell(suggestion, Y)
            clock += time.process_time() - start
            regret += (problem.best - problem.value(suggestion.X)).tolist()
            best = problem.value(optimizer.best().X.unsqueeze(0))
            simple += [problem.best - float(best)] * len(suggestion)
            seconds += [clock] * len(suggestion)
        cells = len(optimizer.tree.leaves) if isinstance(optimizer, AdaBKB) else 0
        return Run(np.array(regret), np.array(simple), np.array(seconds), cells)

    return run


def qlognei(problem: Problem, steps: int, seed: int) -> Run:
    r"""``SingleTaskGP`` and ``qLogNoisyExpectedImprovement``, fitted at every step."""
    generator = torch.Generator().manual_seed(seed)
    d = problem.bounds.shape[-1]
    X = draw_sobol_samples(problem.bounds, n=2 * d + 2, q=1, seed=seed).squeeze(1)
    Y = problem.observe(X, generator)
    clock, simple, seconds = 0.0, [], []
    while len(X) < steps:
        start = time.process_time()
        model = fitted(X, Y, problem.bounds)
        acquisition = qLogNoisyExpectedImprovement(model, X_baseline=X, prune_baseline=True)
        new, _ = optimize_acqf(acquisition, problem.bounds, q=1, num_restarts=4, raw_samples=128)
        clock += time.process_time() - start
        best = X[model.posterior(X).mean.argmax()]
        simple.append(problem.best - float(problem.value(best.unsqueeze(0))))
        seconds.append(clock)
        X, Y = torch.cat([X, new]), torch.cat([Y, problem.observe(new, generator)])
    regret = (problem.best - problem.value(X)).numpy()
    pad = steps - len(simple)
    return Run(regret, np.array([np.nan] * pad + simple), np.array([0.0] * pad + seconds), 0)


def fitted(X: Tensor, Y: Tensor, bounds: Tensor) -> SingleTaskGP:
    model = SingleTaskGP(X, Y.unsqueeze(-1), input_transform=Normalize(X.shape[-1], bounds=bounds))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def sobol(problem: Problem, steps: int, seed: int) -> Run:
    r"""The best observation so far of a space-filling design."""
    generator = torch.Generator().manual_seed(seed)
    X = draw_sobol_samples(problem.bounds, n=steps, q=1, seed=seed).squeeze(1)
    Y, value = problem.observe(X, generator), problem.value(X)
    best = [int(Y[: i + 1].argmax()) for i in range(steps)]
    regret = (problem.best - value).numpy()
    return Run(regret, regret[best], np.zeros(steps), 0)


def grid(bounds: Tensor, cells: int) -> Tensor:
    r"""A regular grid of about so many cells."""
    d = bounds.shape[-1]
    side = max(2, round(cells ** (1 / d)))
    steps = (torch.arange(side, dtype=bounds.dtype) + 0.5) / side
    axes = [low + steps * (high - low) for low, high in bounds.T]
    return torch.cartesian_prod(*axes).reshape(-1, d)


METHODS: dict[str, Callable[..., Run]] = {
    "BKB": with_optimizer(lambda b, seed: BKB(bounds=b, seed=seed)),
    "BBKB": with_optimizer(lambda b, seed: BBKB(bounds=b, seed=seed)),
    "exact GP-UCB": with_optimizer(lambda b, seed: GPUCB(bounds=b, seed=seed)),
    "AdaBKB": with_optimizer(lambda b, seed: AdaBKB(bounds=b, seed=seed)),
    "AdaBKB (1, 1/2)": with_optimizer(
        lambda b, seed: AdaBKB(bounds=b, seed=seed, radius=(1.0, 0.5))
    ),
    "AdaBBKB": with_optimizer(lambda b, seed: AdaBBKB(bounds=b, seed=seed)),
    "BKB on a grid": with_optimizer(lambda b, seed: BKB(grid(b, 2000), seed=seed)),
    "Sobol": sobol,
    "SingleTaskGP + qLogNEI": qlognei,
}
#: Where the slow one is run.
SLOW = ("Branin", "Hartmann6")


def play(case: Case, cache: Path | None = None) -> Run:
    r"""One run, or what is in the cache of it."""
    name = re.sub(r"\W+", "_", f"{case.function}_{case.method}_{case.steps}_{case.seed}")
    file = None if cache is None else cache / f"{name}.npz"
    if file is not None and file.exists():
        with np.load(file) as saved:
            return Run(*(saved[field] for field in Run._fields[:-1]), int(saved["cells"]))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(case.seed)
    run = METHODS[case.method](Problem(case.function), case.steps, case.seed)
    if file is not None:
        np.savez(file, **run._asdict())
    return run


def cases(seeds: int, steps: int) -> Iterator[Case]:
    for seed, function, method in itertools.product(range(seeds), FUNCTIONS, METHODS):
        if "qLogNEI" not in method or function in SLOW:
            yield Case(function, method, steps, seed)


# ---------------------------------------------------------------------- what is read off


def rows(runs: dict[Case, Run]) -> Iterator[str]:
    for function, method in itertools.product(FUNCTIONS, METHODS):
        some = [r for c, r in runs.items() if (c.function, c.method) == (function, method)]
        if not some:
            continue
        figures = {
            "simple regret": [r.simple[-1] for r in some],
            "average regret at half time": [r.regret[: len(r.regret) // 2].mean() for r in some],
            "average regret": [r.regret.mean() for r in some],
            "seconds": [r.seconds[-1] for r in some],
            "cells": [r.cells for r in some],
        }
        for figure, values in figures.items():
            low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
            yield f"{function},{method},{figure},{len(some)},{median:.5g},{low:.5g},{high:.5g}"


def claims(runs: dict[Case, Run]) -> Iterator[str]:
    def final(function: str, method: str) -> np.ndarray:
        some = [r for c, r in runs.items() if (c.function, c.method) == (function, method)]
        return np.array([r.simple[-1] for r in some])

    for function, method in itertools.product(SLOW, ("BKB", "BBKB")):
        ours, theirs = np.median(final(function, method)), final(function, "SingleTaskGP + qLogNEI")
        if len(theirs):
            worst = theirs.max()
            what = f"{function}: median simple regret of {method}, worst of qLogNEI's {worst:.3g}"
            yield verdict(what, "within its spread", ours, ours <= worst)
    for function, method in itertools.product(FUNCTIONS, ("BKB", "BBKB")):
        ours, theirs = (np.median(final(function, m)) for m in (method, "Sobol"))
        what = f"{function}: median simple regret of {method} over Sobol's"
        yield verdict(what, "< 1", ours / theirs, ours < theirs)
    for function in SLOW:
        ratios = {}
        for method in ("AdaBKB", "AdaBKB (1, 1/2)"):
            some = [r for c, r in runs.items() if (c.function, c.method) == (function, method)]
            halves = [r.regret[: len(r.regret) // 2].mean() for r in some]
            ratios[method] = np.median([r.regret.mean() for r in some]) / np.median(halves)
        for method, ratio in ratios.items():
            what = f"{function}: {method}, average regret at T over at T/2"
            yield verdict(what, "< 0.8", ratio, ratio < 0.8)


def draw(runs: dict[Case, Run], path: Path) -> None:
    r"""Simple regret against evaluations and seconds, one column a function."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(3, len(FUNCTIONS), figsize=(4 * len(FUNCTIONS), 10),
                                layout="constrained")  # fmt: skip
    for column, function in enumerate(FUNCTIONS):
        for i, method in enumerate(METHODS):
            some = [r for c, r in runs.items() if (c.function, c.method) == (function, method)]
            if not some:
                continue
            simple = np.nanmedian(np.stack([r.simple for r in some]), 0)
            regret = np.stack([np.cumsum(r.regret) for r in some]).mean(0)
            seconds = np.stack([r.seconds for r in some]).mean(0)
            t, style = np.arange(1, len(simple) + 1), {"color": f"C{i}", "label": method}
            axes[0, column].plot(t, simple, **style)
            axes[1, column].plot(t, regret, **style)
            if seconds[-1] > 0:
                axes[2, column].plot(t, np.maximum(seconds, 1e-2), **style)
        axes[0, column].set_title(function)
        for row, label in enumerate(("simple regret", "cumulative regret", "seconds")):
            axes[row, column].set_yscale("log")
            axes[row, column].set_xlabel("evaluations")
            axes[row, column].set_ylabel(label)
            axes[row, column].grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    figure.savefig(path, dpi=60)
    plt.close(figure)


# ---------------------------------------------------------------------- speed


def speed(quick: bool) -> tuple[list[str], list[str]]:
    r"""Seconds of a step with many observations, in four dimensions; rows and claims."""
    warnings.simplefilter("ignore")
    sizes, steps = ((200, 400), 3) if quick else ((1000, 2000, 10_000), 20)
    out, said = [], []
    for function in ("Rosenbrock4", "Levy"):
        problem, generator = Problem(function), torch.Generator().manual_seed(0)
        X = draw_sobol_samples(problem.bounds, n=max(sizes), q=1, seed=0).squeeze(1)
        Y = problem.observe(X, generator)
        peers = {}
        if function == "Rosenbrock4":
            few = X[: sizes[1]], Y[: sizes[1]]
            peers = {"qLogNEI": (qlognei_step(problem, *few), 20),
                     "Ax default": (ax_step(problem, *few), 50)}  # fmt: skip
        for peer, (seconds, _) in peers.items():
            out.append(f"{function},{peer},seconds a step at n={sizes[1]},1,{seconds:.5g},,")
        for make in (BKB, BBKB):
            name, each = make.__name__, {}
            for n in sizes:
                optimizer = make(bounds=problem.bounds, seed=0)
                start = time.perf_counter()
                optimizer.tell(X[:n], Y[:n])  # with a fit
                fit = time.perf_counter() - start
                # The next fit comes after n steps.
                each[n] = seconds_a_step(optimizer, problem, steps, generator) + fit / n
                out += [
                    f"{function},{name},seconds a step at n={n},1,{each[n]:.5g},,",
                    f"{function},{name},seconds of a fit at n={n},1,{fit:.5g},,",
                    f"{function},{name},dictionary at n={n},1,{len(optimizer.dictionary)},,",
                ]
            for peer, (seconds, asked) in peers.items():
                ratio = seconds / each[sizes[1]]
                what = f"{function}, n={sizes[1]}: {peer} over {name}"
                said.append(verdict(what, f">= {asked}", ratio, ratio >= asked))
            growth = each[sizes[-1]] / each[sizes[0]]
            what = f"{function}: a step of {name} at n={sizes[-1]} over n={sizes[0]}"
            said.append(verdict(what, "<= 2", growth, growth <= 2))
    return out, said


def seconds_a_step(
    optimizer: Optimizer, problem: Problem, steps: int, generator: torch.Generator
) -> float:
    r"""Of asking and telling, whole batches where they are larger than ``steps``."""
    seconds, done = 0.0, 0
    while done < steps:
        start = time.perf_counter()
        suggestion = optimizer.ask(steps - done)
        seconds += time.perf_counter() - start
        Y = problem.observe(suggestion.X, generator)
        start = time.perf_counter()
        optimizer.tell(suggestion, Y)
        seconds += time.perf_counter() - start
        done += len(suggestion)
    return seconds / done


def qlognei_step(problem: Problem, X: Tensor, Y: Tensor) -> float:
    r"""Seconds of one step of ``SingleTaskGP`` with qLogNEI, the fit included."""
    start = time.perf_counter()
    model = fitted(X, Y, problem.bounds)
    acquisition = qLogNoisyExpectedImprovement(model, X_baseline=X, prune_baseline=True)
    optimize_acqf(acquisition, problem.bounds, q=1, num_restarts=4, raw_samples=128)
    return time.perf_counter() - start


def ax_step(problem: Problem, X: Tensor, Y: Tensor) -> float:
    r"""Seconds of one trial of Ax's default strategy after so many."""
    from benchmarks.ax_client import client_after, seconds_a_trial

    return seconds_a_trial(client_after(problem.bounds, X, Y), float(Y.mean()))


def against_a_grid(budget: int) -> tuple[list[str], list[str]]:
    r"""Ada-BKB on Branin beside BKB on a grid of the resolution its tree reaches.

    Kernel and noise are given, and the noise is small, so that a high resolution is worthwhile.
    """
    warnings.simplefilter("ignore")
    problem = Problem("Branin", noise=0.01)
    kernel = RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = 0.3 * (problem.bounds[1] - problem.bounds[0])
    given = {"covar_module": kernel, "noise_var": problem.noise**2, "width": 2.0, "seed": 0}
    ada = AdaBKB(bounds=problem.bounds, **given)
    ours = with_optimizer(lambda b, seed: ada)(problem, budget, 0)
    cells = int(3 ** ada.tree.depth.max())
    arms = grid(problem.bounds, cells)
    theirs = with_optimizer(lambda b, seed: BKB(arms, **given))(problem, budget, 0)
    ratio = theirs.seconds[-1] / ours.seconds[-1]
    out = []
    for name, run in (("AdaBKB", ours), (f"BKB on {len(arms)} cells", theirs)):
        seconds, regret = run.seconds[-1], run.regret.sum()
        out += [
            f"Branin given kernel,{name},seconds of {budget} evaluations,1,{seconds:.5g},,",
            f"Branin given kernel,{name},cumulative regret,1,{regret:.5g},,",
        ]
    out.append(f"Branin given kernel,AdaBKB,cells,1,{ours.cells},,")
    what = f"Branin: BKB on {len(arms)} cells over AdaBKB ({ours.cells} cells), seconds"
    return out, [verdict(what, ">= 10", ratio, ratio >= 10)]


def regrets(
    seeds: int, steps: int, workers: int, out: Path | None, cache: Path | None
) -> tuple[list[str], list[str]]:
    r"""All methods on all functions; rows and claims, and a picture."""
    every = list(cases(seeds, steps))
    if cache:
        cache.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers) as pool:
        progress = tqdm(pool.map(partial(play, cache=cache), every), total=len(every), disable=None)
        runs = dict(zip(every, progress, strict=True))
    if out:
        out.mkdir(parents=True, exist_ok=True)
        draw(runs, out / "continuous.png")
    return list(rows(runs)), list(claims(runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--study", choices=("all", "regret", "speed"), default="all")
    parser.add_argument("--out", type=Path, help="folder for the figures and a picture")
    parser.add_argument("--cache", type=Path, help="folder from which an interrupted one goes on")
    args = parser.parse_args()
    seeds, steps = (2, 20) if args.quick else (args.seeds, args.steps)
    studies: dict[str, Callable[[], tuple[list[str], list[str]]]] = {
        "continuous_speed": lambda: speed(args.quick),
        "continuous_grid": lambda: against_a_grid(20 if args.quick else 300),
        "continuous": lambda: regrets(seeds, steps, args.workers, args.out, args.cache),
    }
    if args.study != "all":
        is_regret = args.study == "regret"
        studies = {k: v for k, v in studies.items() if (k == "continuous") is is_regret}
    columns = "function,method,figure,runs,median,tenth,ninetieth"
    for name, study in studies.items():
        header = circumstances(f"0..{seeds - 1}" if name == "continuous" else 0)
        print(*header, sep="\n", flush=True)
        lines, said = study()
        print(columns, *lines, "", "claim | asked | measured | verdict", *said, "", sep="\n")
        if args.out:
            write_csv(args.out / f"{name}.csv", header + said, columns, lines)


if __name__ == "__main__":
    main()
