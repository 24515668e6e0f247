r"""The cost of accuracy, feedback and guarantees: regret against model size, batches and widths.

One setting is varied, and the others keep their defaults. The first problems are 4,000 generated
arms in two and six dimensions, for 2,000 pulls of BBKB, with hyperparameters given or fitted.
Rewards are in units of their standard deviation over the arms, with noise of 0.1 and of 1. With
``--data`` there is also Abalone as in the BBKB paper, for 10,000 pulls. The second part varies
width and oversampling over a box, for 200 evaluations of the six functions of the study
``continuous``. There everything is fitted, and the noises are the same two (for oversampling the
lower one). Widths that are close to each other have eight seeds there. Regrets are divided by the
uniform policy's. About two hours with two processes.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.arm_runs import is_constant, setting
from benchmarks.arm_runs import play as play_bandit
from benchmarks.box_runs import with_optimizer
from benchmarks.cases import of, play_all
from benchmarks.problems.bandits import Bandit, generated, rbf
from benchmarks.problems.functions import FUNCTIONS, Problem
from benchmarks.report import Options, Report
from botorch_bkb import BBKB, CompressedUCB
from botorch_bkb.acquisition import UCB, InTurn
from botorch_bkb.confidence import Progress
from botorch_bkb.confidence.widths import compressed as finite_set
from botorch_bkb.optimizers import Optimizer

SEEDS = 3
COLUMNS = ("knob", "setting", "problem", "figure", "runs", "mean", "sd")


def growing(p: Progress) -> float:
    r"""Return ``sqrt(0.2 d log 2t)``, a width that is often used."""
    return math.sqrt(0.2 * p.dim * math.log(2 * max(1, p.num_observations)))


#: The varied parameters, with the optimizer's arguments for each of their settings.
KNOBS: dict[str, dict[str, dict[str, Any]]] = {
    "oversampling": {f"{q:g}": {"oversampling": q} for q in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)},
    "batch_threshold": {
        f"{C:g}": {"batch_threshold": C} for C in (1.1, 1.5, 2.0, 4.0, 10.0, 100.0)
    },
    "epsilon": {f"{e:g}": {"epsilon": e} for e in (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3)},
    "width": {
        **{f"{w:g} sd": {"width": w} for w in (1.0, 1.5, 2.0, 3.0, 5.0)},
        "sqrt(0.2 d log 2t)": {"width": growing},
        "finite set": {"width": finite_set},
        "information": {"width": "information"},
        "theory": {"width": "theory"},
        "paper": {"width": "paper"},
    },
}
#: Widths over a box that three seeds do not distinguish, and the number of extra seeds for them.
CLOSE, MORE_SEEDS = ("1 sd", "1.5 sd", "2 sd", "sqrt(0.2 d log 2t)", "alternating"), 5
#: Two deviations and half of one in turn.
ALTERNATING: dict[str, Any] = {"acquisition": InTurn((UCB(), UCB(share=0.25)))}
OVER_A_BOX = {
    "width": (*CLOSE, "3 sd", "finite set", "information"),
    "oversampling": ("1", "2", "4", "8"),
}
#: Problems for which kernel, noise and a norm bound are given.
TABLES = ("abalone 0.2",)
DIMENSIONS, NOISES = (2, 6), (0.1, 1.0)
#: Function and noise of each problem over a box.
BOXES = {f"{name} noise {noise:g}": (name, noise) for name in FUNCTIONS for noise in NOISES}


class Case(NamedTuple):
    r"""The settings of one run."""

    knob: str
    setting: str
    problem: str
    steps: int
    seed: int
    data: str = ""


class Run(NamedTuple):
    r"""The outcome of one run."""

    regret: float  #: mean regret of all evaluations, divided by the uniform policy's
    simple: float  #: regret of the recommendation, divided by the uniform policy's
    size: int  #: number of points in the model
    batches: int
    seconds: float


#: Mean and standard deviation over seeds, by knob, setting, problem and figure.
Figures = dict[tuple[str, str, str, str], tuple[float, float]]


def run(options: Options, report: Report) -> None:
    r"""Run all settings on all problems."""
    runs = play_all(play, Run, list(cases(options)), options)
    figures: Figures = {}
    for knob, chosen, problem in dict.fromkeys(case[:3] for case in runs):
        some = of(runs, knob=knob, setting=chosen, problem=problem)
        for figure in Run._fields:
            values = [float(getattr(r, figure)) for r in some]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            figures[knob, chosen, problem, figure] = float(np.mean(values)), spread
            report.row(knob, chosen, problem, figure, len(some), float(np.mean(values)), spread)
    claims(report, figures)
    draw(report, figures)


def arm_problems(data: Path | None) -> list[str]:
    names = [
        f"d={d} noise {noise:g} {how}"
        for d, noise, how in itertools.product(DIMENSIONS, NOISES, ("given", "fitted"))
    ]
    return [*names, *TABLES] if data else names


def cases(options: Options) -> Iterator[Case]:
    T, long, short = (12, 12, 5) if options.quick else (2000, 10_000, 200)
    problems, boxes = arm_problems(options.data), list(BOXES)
    if options.quick:
        problems, boxes = [*problems[:2], problems[-1]], boxes[:1]
    for knob, some in OVER_A_BOX.items():
        for chosen, problem in itertools.product(some, boxes):
            is_close = knob == "width" and chosen in CLOSE and not options.quick
            if knob == "width" or BOXES[problem][1] == NOISES[0]:
                for seed in range(options.seeds + MORE_SEEDS * is_close):
                    yield Case(knob, chosen, problem, short, seed)
    for seed in range(options.seeds):
        for knob, settings in KNOBS.items():
            for chosen, problem in itertools.product(settings, problems):
                is_table = problem in TABLES
                data = str(options.data) if is_table else ""
                if not (is_table and knob == "epsilon"):
                    yield Case(knob, chosen, problem, long if is_table else T, seed, data)


def play(case: Case) -> Run:
    r"""Run one case, over arms or over a box."""
    more = ALTERNATING if case.setting == "alternating" else KNOBS[case.knob][case.setting]
    if case.problem in BOXES:
        return play_box(case, more)
    torch.set_default_dtype(torch.float64)
    width = more.get("width")
    bandit, given = arm_problem(case, not (is_constant(width) or width is finite_set))
    optimizer = make(bandit, {**given, **more}, case)
    run = play_bandit(optimizer, bandit, case.steps, case.seed, time.process_time)
    uniform = float(bandit.f.max() - bandit.f.mean())
    share = float(run.regret[-1]) / case.steps / uniform
    simple = float(bandit.regret(torch.tensor(optimizer.best().index))) / uniform
    return Run(share, simple, int(run.dictionary[-1]), len(run.pulls), float(run.seconds[-1]))


def arm_problem(case: Case, with_norm: bool) -> tuple[Bandit, dict[str, Any]]:
    r"""Return the arms of a case, and the optimizer's arguments that are known for them.

    Args:
        case: The case.
        with_norm: Whether a norm bound is among them. Constant widths do not depend on it, nor
            does that for draws from the prior.
    """
    if case.data:
        table = setting(case.problem, Path(case.data))
        return table.bandit, table.model | (table.bounds(case.steps) if with_norm else {})
    name, noise, how = case.problem.replace(" noise", "").split()
    bandit = generated(4000, int(name[2:]), float(noise), case.seed, torch.float64)
    bandit = bandit._replace(f=(bandit.f - bandit.f.mean()) / bandit.f.std())
    known = {"covar_module": rbf(0.25), "noise_var": bandit.noise**2}
    return bandit, known if how == "given" else {}


def make(bandit: Bandit, options: dict[str, Any], case: Case) -> Optimizer:
    if case.knob != "epsilon":
        return BBKB(bandit.arms, seed=case.seed, **options)
    # Every point is evaluated and informs the belief through the points kept.
    keep = {"discard": False, "on_uninformative": "evaluate"}
    return CompressedUCB(bandit.arms, seed=case.seed, **keep, **options)


def play_box(case: Case, more: dict[str, Any]) -> Run:
    problem, made = Problem(*BOXES[case.problem]), []

    def optimizer(bounds: torch.Tensor, seed: int) -> Optimizer:
        made.append(BBKB(bounds=bounds, seed=seed, **more))
        return made[0]

    run = with_optimizer(optimizer)(problem, case.steps, case.seed)
    # The mean over the box is zero in these units.
    share, simple = run.regret.mean() / problem.best, run.simple[-1] / problem.best
    batches = len(np.unique(run.seconds))
    size = len(made[0].dictionary)
    return Run(float(share), float(simple), size, batches, float(run.seconds[-1]))


def table(
    figures: Figures, knob: str, problems: list[str], figure: str = "regret"
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return means and deviations over seeds, one row per problem, one column per setting."""
    chosen = settings_of(figures, knob, problems)
    found = [[figures[knob, s, problem, figure] for s in chosen] for problem in problems]
    mean, sd = np.moveaxis(np.array(found), -1, 0)
    return mean, sd


def settings_of(figures: Figures, knob: str, problems: list[str]) -> list[str]:
    every = dict.fromkeys((*KNOBS[knob], *OVER_A_BOX.get(knob, ())))
    return [s for s in every if (knob, s, problems[0], "regret") in figures]


def problems_of(figures: Figures, knob: str, over_a_box: bool) -> list[str]:
    names = dict.fromkeys(problem for k, _, problem, _ in figures if k == knob)
    return [name for name in names if (name in BOXES) == over_a_box]


def default_of(knob: str, problem: str) -> str:
    r"""Return the package's default setting of a knob."""
    over_arms = "information" if problem in TABLES else "2 sd"
    return {
        "oversampling": "2" if problem in BOXES else "8",
        "batch_threshold": "2",
        "epsilon": "0.0001",
        "width": "alternating" if problem in BOXES else over_arms,
    }[knob]


def claims(report: Report, figures: Figures) -> None:
    r"""Report the claims for every knob, over arms and over a box."""
    for knob in KNOBS:
        problems = problems_of(figures, knob, over_a_box=False)
        for where in ("given", "fitted"):
            claim(report, figures, knob, where, [p for p in problems if where in p])
        claim(report, figures, knob, "with a norm bound", [p for p in problems if p in TABLES])
        if knob in OVER_A_BOX:
            boxes = problems_of(figures, knob, over_a_box=True)
            claim(report, figures, knob, "over a box", boxes)
            claim(report, figures, knob, "over a box", boxes, "simple")
            for noise in NOISES:
                some = [p for p in boxes if BOXES[p][1] == noise]
                claim(report, figures, knob, f"over a box, noise {noise:g}", some)


def claim(
    report: Report,
    figures: Figures,
    knob: str,
    where: str,
    problems: list[str],
    figure: str = "regret",
) -> None:
    r"""Compare the default with the best setting, by geometric means over problems."""
    if not problems:
        return
    chosen, default = settings_of(figures, knob, problems), default_of(knob, problems[0])
    # Regrets are clipped at a thousandth of the uniform policy's, since smaller ones are luck.
    means = np.exp(np.log(table(figures, knob, problems, figure)[0].clip(1e-3)).mean(0))
    ratio = float(means[chosen.index(default)] / means.min())
    best = chosen[int(means.argmin())]
    kind = "simple regret" if figure == "simple" else "regret"
    what = f"{knob} {where}: {kind} at the default of {default} over that at {best}, the best"
    report.claim(what, "<= 1.2", ratio, ratio <= 1.2)


def draw(report: Report, figures: Figures) -> None:
    r"""Plot regret against the cost of each knob, one line per problem, with deviations."""
    bought = {"oversampling": "size", "batch_threshold": "batches", "epsilon": "size"}
    labels = {"size": "points in the model", "batches": "batches"}
    panels = [(knob, False, "regret") for knob in (*bought, "width")]
    panels += [("oversampling", True, "regret"), ("width", True, "regret")]
    panels += [("width", True, "simple")]
    with report.picture("trade-off", 2, 4, figsize=(18, 9)) as axes:
        for ax, (knob, over_a_box, figure) in zip(axes.flat, panels, strict=False):
            problems = problems_of(figures, knob, over_a_box)
            settings = settings_of(figures, knob, problems)
            regret, sd = table(figures, knob, problems, figure)
            if knob in bought:
                x = table(figures, knob, problems, bought[knob])[0]
                ax.set(xscale="log", xlabel=labels[bought[knob]])
                ax.tick_params(axis="x", which="minor", labelsize=6)
            else:
                x = np.tile(np.arange(len(settings)), (len(problems), 1))
                ax.set_xticks(x[0], settings, rotation=30, ha="right")
            for i, problem in enumerate(problems):
                color, style = appearance(problem)
                low = np.minimum(sd[i], 0.9 * regret[i])  # positive on the log axis
                ax.errorbar(
                    x[i], regret[i], (low, sd[i]), ls=style, marker="o", ms=3, elinewidth=0.6,
                    color=color, label=problem,
                )  # fmt: skip
            where = "a box" if over_a_box else "arms"
            kind = "simple regret" if figure == "simple" else "regret"
            ax.set(yscale="log", ylabel=f"{kind} over uniform policy's", title=f"{knob}, {where}")
            ax.grid(alpha=0.3)
        axes[0, 0].legend(fontsize=7)
        axes[1, 3].axis("off")
        handles, names = axes[1, 1].get_legend_handles_labels()
        axes[1, 3].legend(handles, names, fontsize=9, loc="upper left")


def appearance(problem: str) -> tuple[str, str]:
    r"""Return color and line style. The style shows the noise, or fitted hyperparameters."""
    kinds = [f"d={d} noise {noise:g}" for d, noise in itertools.product(DIMENSIONS, NOISES)]
    kinds = list(FUNCTIONS) if problem in BOXES else [*kinds, *TABLES]
    number = next(
        i for i, kind in enumerate(kinds) if problem.startswith(kind + " ") or kind == problem
    )
    return f"C{number}", "--" if problem.endswith(("fitted", "noise 1")) else "-"
