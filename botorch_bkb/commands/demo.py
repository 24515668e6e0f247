r"""The demo ``python -m botorch_bkb``: BBKB on a large table and on a box, in a minute."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import torch
from botorch.test_functions import Hartmann
from torch import Tensor

from botorch_bkb import BBKB, GPUCB, Result, run
from botorch_bkb.commands.picture import picture

#: Number of pulls of exact GP-UCB; the time of more pulls is extrapolated.
FEW = 100


def add_to(parser: argparse.ArgumentParser) -> None:
    r"""Add the options of the demo to a parser."""
    parser.add_argument(
        "--arms", type=int, default=20_000, help="number of arms in the table (20000)"
    )
    parser.add_argument(
        "--pulls", type=int, default=5000, help="number of pulls of the table (5000)"
    )
    parser.add_argument(
        "--evaluations", type=int, default=120, help="number of evaluations of Hartmann6 (120)"
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=0.3,
        help="standard deviation of the noise, in standard deviations of f (0.3)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=Path("demo.png"), metavar="PNG")
    parser.set_defaults(run=demo)


@dataclass
class Table:
    r"""A bandit problem: random arms in a four-dimensional cube, and a sum of ten bumps.

    Attributes:
        arms: ``A x 4`` arms.
        f: ``A`` values of the function, in units of its standard deviation.
        noise: The standard deviation of the noise.
        generator: The source of randomness.
        lost: The regret of each pull since the last call of :meth:`regrets`.
    """

    arms: Tensor
    f: Tensor
    noise: float
    generator: torch.Generator
    lost: list[float] = field(default_factory=list)

    @classmethod
    def make(cls, size: int, noise: float, seed: int) -> Table:
        r"""Make a table with ``size`` arms."""
        generator = torch.Generator().manual_seed(seed)
        arms = torch.rand(size, 4, generator=generator, dtype=torch.float64)
        centres = torch.rand(10, 4, generator=generator, dtype=torch.float64)
        heights = torch.rand(10, generator=generator, dtype=torch.float64)
        f = torch.exp(-8 * torch.cdist(arms, centres) ** 2) @ heights
        return cls(arms, f / f.std(), noise, generator)

    def pull(self, rows: Tensor) -> Tensor:
        r"""Return noisy rewards of some rows, and note the regret of each pull."""
        self.lost += (self.f.max() - self.f[rows]).tolist()
        noise = torch.randn(len(rows), generator=self.generator, dtype=torch.float64)
        return self.f[rows] + self.noise * noise

    def regrets(self) -> Tensor:
        r"""Return the regret of each pull since the last call."""
        taken, self.lost = torch.tensor(self.lost, dtype=torch.float64), []
        return taken


def extrapolated(seconds: Tensor, pulls: int) -> float:
    r"""Extrapolate the seconds of a run to more pulls.

    The cost of pull ``t`` is modelled as ``a + b t``, fitted to the second half of the pulls.

    Args:
        seconds: Cumulative seconds after each pull.
        pulls: The number of pulls to extrapolate to.
    """
    t = torch.arange(1, len(seconds) + 1, dtype=torch.float64)
    half = len(seconds) // 2
    steps = seconds.diff(prepend=seconds[:1] * 0)
    design = torch.stack([torch.ones_like(t), t], -1)[half:]
    a, b = torch.linalg.lstsq(design, steps[half:].unsqueeze(-1)).solution.flatten().tolist()
    more = pulls - len(seconds)
    growth = max(0.0, b) * (pulls * (pulls + 1) - len(seconds) * (len(seconds) + 1)) / 2
    return float(seconds[-1]) + max(0.0, a) * more + growth


def demo(options: argparse.Namespace) -> None:
    r"""Run the demo: run the optimizers, print a table and draw a picture."""
    table = Table.make(options.arms, options.noise, options.seed)
    print(f"A table of {options.arms:,} arms in 4 dimensions, {options.pulls:,} noisy pulls:")
    bandit = run(BBKB(table.arms, seed=options.seed), table.pull, options.pulls, by_index=True)
    regrets = {"BBKB, table": table.regrets()}
    print(f"The same table with the exact posterior, {FEW} pulls, one at a time:")
    exact = run(GPUCB(table.arms, seed=options.seed), table.pull, FEW, by_index=True)
    regrets["exact GP-UCB, table"] = table.regrets()
    f = Hartmann(dim=6, negate=True).to(torch.float64)
    sample = f(torch.rand(4096, 6, generator=table.generator, dtype=torch.float64))
    mean, unit = float(sample.mean()), float(sample.std())

    def observe(X: Tensor) -> Tensor:
        noise = torch.randn(len(X), generator=table.generator, dtype=torch.float64)
        return f(X) / unit + options.noise * noise

    print(f"Hartmann6 on its box, {options.evaluations} noisy evaluations:")
    cube = torch.tensor([[0.0] * 6, [1.0] * 6], dtype=torch.float64)
    box = run(BBKB(bounds=cube, seed=options.seed), observe, options.evaluations)
    regrets["BBKB, Hartmann6"] = (f.optimal_value - f(box.X)) / unit
    uniform = {
        "BBKB, table": float(table.f.max() - table.f.mean()),
        "BBKB, Hartmann6": (float(f.optimal_value) - mean) / unit,
    }
    uniform["exact GP-UCB, table"] = uniform["BBKB, table"]
    first = f"first {FEW}"
    print(f"\n{'':22}{'':8}{'mean regret per pull':^27}")
    print(
        f"{'':22}{'pulls':>8}{'all':>9}{first:>10}{'random':>8}"
        f"{'dictionary':>12}{'batches':>9}{'seconds':>9}"
    )
    for (name, regret), result in zip(regrets.items(), (bandit, exact, box), strict=True):
        m, batches = result.history["dictionary"][-1], len(set(result.history["batch"]))
        means = float(regret.mean()), float(regret[:FEW].mean()), uniform[name]
        print(
            f"{name:22}{len(regret):8,}{means[0]:9.3f}{means[1]:10.3f}{means[2]:8.2f}"
            f"{m:12,}{batches:9,}{float(result.spent()[-1]):9.1f}"
        )
    whole = extrapolated(exact.spent(), options.pulls)
    print(
        f"\nRegret in standard deviations of the function. Exact GP-UCB would take {whole:,.0f} s "
        f"for {options.pulls:,} pulls\nif the cost per pull continued to grow as in the second "
        f"half of these {FEW}."
    )
    try:
        draw(options.picture, bandit, regrets, uniform)
    except ImportError as error:
        print(error)


def draw(path: Path, bandit: Result, regrets: dict[str, Tensor], uniform: dict[str, float]) -> None:
    r"""Draw the regret on both problems, and the batches on the table."""
    with picture(path) as axes:
        from botorch_bkb.plotting import plot_batches, plot_regret

        first, exact, box = regrets
        plot_regret(regrets[first], axes[0], label=first, uniform=uniform[first])
        plot_regret(regrets[exact], axes[0], label=exact)
        axes[0].set(xscale="log", yscale="log")
        plot_batches(bandit, axes[1])
        axes[1].set_title("batches of BBKB, table", fontsize=10)
        plot_regret(regrets[box], axes[2], label=box, uniform=uniform[box])
