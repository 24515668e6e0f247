r"""Growth of costs with observations, arms, dictionary and dimension, compared with other methods.

Slopes are those of least squares lines through the logarithms. The parts:

- ``box``: a step (ask and tell) over a box of four dimensions after ``t`` Sobol observations, with
  noise of 0.1 standard deviations and default settings. The time to tell ``t`` results at once
  counts as a fit. It is divided among the steps until the next fit, a quarter of ``t``. Other
  methods are run until a step or a fit takes a minute, those of cubic cost up to 2,000. The fits of
  SVGP and SGPR, with 200 inducing points, are stopped after a minute. Their figures are then lower
  bounds.
- ``pulls``: a pull among 10,000 arms in four dimensions, averaged between marks.
- ``arms``: 2,000 pulls among up to a million arms in eight dimensions, in float32.
- ``dictionary``: a pull among 10,000 arms for decreasing length-scales, and a posterior of
  ``DTCGP`` with its gradient at 20 times 4 points. A shorter length-scale also makes batches
  shorter, so whole batches have their own curve.
- ``dimension``: a step over the unit cube after 1,000 observations, and a pull among 10,000 arms in
  it. Length-scale ``sqrt(d) / 2`` and noise of variance 1 keep the dictionary small.

In all parts but the first, kernel and noise are given, the oversampling is 2 and the width is the
information width. Memory is the growth of the peak memory of a separate process, after a short run.
The number of threads is torch's default, which is printed. Half an hour on an idle machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor
from tqdm import tqdm

from benchmarks.arm_runs import Run, Setting, play, play_in_float32
from benchmarks.box_steps import OURS, WARM, measured, seconds_a_step
from benchmarks.curves import Curves
from benchmarks.machine import best_of, in_a_process, peak_memory
from benchmarks.peers.discrete import play_stock
from benchmarks.peers.steps import AX, PEERS, Cost
from benchmarks.peers.stock import QLOGNEI
from benchmarks.problems.bandits import generated, rbf
from benchmarks.report import Options, Report
from benchmarks.studies.model import gradient
from botorch_bkb import BBKB, DTCGP, GPUCB
from botorch_bkb.models import Surrogate

SEEDS = 1
COLUMNS = ("part", "what", "size", "figure", "value")
SMOOTH, ROUGH = "Rosenbrock4", "Levy"
NOISE, NORM_BOUND = 0.1, 2.0
SECONDS, MILLISECONDS, MICROSECONDS = "seconds a step", "milliseconds", "microseconds"
MEMORY = "MiB"
#: Number of pulls beyond which exact GP-UCB takes many minutes.
MOST_EXACT = 10_000
#: Legends are below the axes and as narrow as these.
LEGEND = {
    "loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2, "fontsize": 8,
    "handlelength": 1.0, "columnspacing": 0.8, "borderpad": 0.3, "handletextpad": 0.4,
}  # fmt: skip


def here(function: Callable[..., Any], *args: object) -> Any:
    r"""Call a function in this process, since another process takes seconds to start."""
    return function(*args)


class Sizes(NamedTuple):
    r"""The sizes of all parts of the study."""

    apart: Callable[..., Any]  #: calls a function whose memory is measured
    observations: tuple[int, ...]  #: numbers of observations over a box
    rough: tuple[int, int]  #: numbers of observations of the rougher function
    compared: int  #: number of observations at which methods are compared
    steps: tuple[int, int]  #: numbers of steps, of ours and of other methods
    limit: float  #: seconds that a step or fit of other methods may take
    num_arms: int
    marks: tuple[int, ...]  #: numbers of pulls, two per decade
    tables: tuple[int, ...]  #: numbers of arms
    pulls: int
    widths: tuple[float, ...]  #: squared length-scales
    dictionaries: tuple[int, ...]  #: sizes of the dictionary
    dims: tuple[int, ...]
    known: int  #: observations before a step in many dimensions
    effort: tuple[int, float]  #: number of turns and seconds for timing a posterior


FULL = Sizes(
    apart=in_a_process,
    observations=(100, 1_000, 2_000, 10_000, 100_000),
    rough=(1_000, 10_000),
    compared=2_000,
    steps=(20, 3),
    limit=60.0,
    num_arms=10_000,
    marks=(10, 32, 100, 316, 1_000, 3_162, 10_000, 31_623, 100_000),
    tables=(1_000, 10_000, 100_000, 1_000_000),
    pulls=2_000,
    widths=(4.0, 1.0, 0.5, 0.25, 0.125),
    dictionaries=(50, 100, 200, 400, 800),
    dims=(2, 4, 8, 16, 32),
    known=1_000,
    effort=(20, 2.0),
)
QUICK = Sizes(
    apart=here,
    observations=(12, 24),
    rough=(12, 24),
    compared=12,
    steps=(1, 1),
    limit=0.1,
    num_arms=300,
    marks=(3, 10, 32),
    tables=(200, 400),
    pulls=80,
    widths=(1.0, 0.25),
    dictionaries=(10, 20),
    dims=(2, 4),
    known=20,
    effort=(1, 0.0),
)


def run(options: Options, report: Report) -> None:
    r"""Run one part after the other, so that none competes for the cores."""
    curves, sizes = Curves(report), QUICK if options.quick else FULL
    parts = [box, pulls, arms, dictionary, posterior, dimension]
    for part in tqdm(parts, unit="part", disable=None):
        part(curves, sizes)
    curves.record_slopes(SECONDS, MILLISECONDS, MICROSECONDS, MEMORY)
    draw(curves, sizes)
    draw_step(curves)


def box(curves: Curves, sizes: Sizes) -> None:
    r"""Measure a step over a box for growing numbers of observations."""

    def add(method: str, function: str, t: int) -> Cost:
        steps = sizes.steps[method not in OURS]
        cost, memory = sizes.apart(measured, method, function, t, steps, sizes.limit)
        figures = {
            SECONDS: cost.step + cost.fit / (Surrogate().next_fit(t, t) - t),
            "seconds of a fit": cost.fit,
        }
        more = {MEMORY: max(memory, 1.0)}
        if method in OURS:
            more["dictionary"] = cost.dictionary
        what = method if function == SMOOTH else f"{method}, {function}"
        curves.add("box", what, t, figures, cost.stopped)
        curves.add("box", what, t, more | {"seconds without fits": cost.step})
        return cost

    for function, some in ((SMOOTH, sizes.observations), (ROUGH, sizes.rough)):
        for method, t in itertools.product(OURS, some):
            add(method, function, t)
    for method, peer in PEERS.items():
        for t in (t for t in sizes.observations if t <= peer.most):
            cost = add(method, SMOOTH, t)
            if max(cost.step, 0.0 if cost.stopped else cost.fit) > sizes.limit:
                break
    claim_box(curves, sizes)


def claim_box(curves: Curves, sizes: Sizes) -> None:
    report = curves.report
    for (peer, asked), method in itertools.product(((QLOGNEI, 20), (AX, 50)), OURS):
        theirs = curves.at("box", peer, SECONDS)
        t = max(t for t in theirs if t <= sizes.compared)
        ratio = theirs[t] / curves.at("box", method, SECONDS)[t]
        report.claim(f"box, t={t}: {peer} over {method}", f">= {asked}", ratio, ratio >= asked)
    for method in OURS:
        seconds = curves.at("box", method, "seconds of a fit")[sizes.rough[1]]
        what = f"box: seconds in which {method} is told {sizes.rough[1]} results at once"
        report.claim(what, "<= 5", seconds, seconds <= 5)
    small, large = sizes.rough
    pairs = [("", large), (f", {ROUGH}", large), ("", sizes.observations[-1])]
    for where, t in dict.fromkeys(pairs):
        for method in OURS:
            seconds = curves.at("box", method + where, SECONDS)
            ratio = seconds[t] / seconds[small]
            what = f"box: a step of {method}{where} at t={t} over t={small}"
            report.claim(what, "<= 2", ratio, ratio <= 2)


def setting(num_arms: int, dim: int, squared_width: float, noise: float = NOISE) -> Setting:
    r"""Return generated arms with kernel and noise given."""
    bandit = generated(num_arms, dim, noise, 0, torch.float64)
    return Setting(f"{num_arms} arms", bandit, noise**2, NORM_BOUND, squared_width)


def pulls(curves: Curves, sizes: Sizes) -> None:
    r"""Measure a pull, averaged between marks."""
    one, marks = setting(sizes.num_arms, 4, 0.25), sizes.marks
    spent = {0: 0.0}
    for name, kind, most in (("BBKB", BBKB, marks[-1]), ("exact GP-UCB", GPUCB, MOST_EXACT)):
        optimizer = one.make(kind, marks[-1], 0)
        for before, t in itertools.pairwise((0, *marks)):
            run = play(optimizer, one.bandit, t, t)
            seconds = float(run.seconds[-1])
            figures = {MICROSECONDS: 1e6 * seconds / (t - before), "batches": len(run.pulls)}
            curves.add("pulls", name, t, figures | {"dictionary": run.dictionary[-1]})
            if kind is BBKB:
                spent[t] = spent[before] + seconds
            elif seconds > sizes.limit or t >= most:
                break
    before, last = 0, 0.0
    for t, seconds in play_stock(one, sizes.limit, 0):
        if t in marks:
            each = 1e6 * (seconds - last) / (t - before)
            curves.add("pulls", "SingleTaskGP, discrete search", t, {MICROSECONDS: each})
            before, last = t, seconds
    first, tenth, T = [0, *marks][-5:][0], marks[-3], marks[-1]
    late = (spent[T] - spent[tenth]) / (T - tenth)
    early = (spent[tenth] - spent[first]) / (tenth - first)
    what = f"pulls: a pull of BBKB to t={T} over to t={tenth}"
    curves.report.claim(what, "<= 1", late / early, late <= early)


def many_arms(num_arms: int, budget: int) -> tuple[Run, float]:
    r"""Return a run in float32 and the growth of the peak memory in MiB."""
    play_in_float32(100, WARM)
    before = peak_memory()
    return play_in_float32(num_arms, budget), peak_memory() - before


def arms(curves: Curves, sizes: Sizes) -> None:
    r"""Measure a fixed number of pulls for growing numbers of arms."""
    for num_arms in sizes.tables:
        run, memory = sizes.apart(many_arms, num_arms, sizes.pulls)
        ms, batches = 1e3 * run.seconds[-1], len(run.pulls)
        figures = {MILLISECONDS: ms / batches, "batches": batches, "dictionary": run.dictionary[-1]}
        curves.add("arms", "a pull", num_arms, {MILLISECONDS: ms / run.pulls[-1]})
        curves.add("arms", "a batch", num_arms, figures)
        curves.add("arms", "BBKB among arms", num_arms, {MEMORY: max(memory, 1.0)})
    for what in ("a pull", "a batch"):
        claim_slope(curves, "arms", what, MILLISECONDS, 1.1)


def claim_slope(curves: Curves, part: str, what: str, figure: str, most: float) -> None:
    slope = curves.slope(part, what, figure)
    curves.report.claim(f"{part}: slope of {what}", f"<= {most}", slope, slope <= most)


def dictionary(curves: Curves, sizes: Sizes) -> None:
    r"""Measure a pull in the second half of a run, for growing dictionaries."""
    half = sizes.pulls // 4
    for width in sizes.widths:
        one = setting(sizes.num_arms, 4, width)
        optimizer = one.make(BBKB, 2 * half, 0)
        play(optimizer, one.bandit, half, 0)
        run = play(optimizer, one.bandit, 2 * half, 1)
        m, us, batches = round(run.dictionary.mean()), 1e6 * run.seconds[-1], len(run.pulls)
        curves.add("dictionary", "a pull of BBKB", m, {MICROSECONDS: us / half})
        figures = {MICROSECONDS: us / batches, "batches": batches}
        curves.add("dictionary", "a batch of BBKB", m, figures)
    claim_slope(curves, "dictionary", "a pull of BBKB", MICROSECONDS, 2)


def posterior(curves: Curves, sizes: Sizes) -> None:
    r"""Measure a posterior of ``DTCGP`` with gradient, for growing dictionaries."""
    what, generator = "a posterior of DTCGP", torch.Generator().manual_seed(0)
    X = torch.rand(2_000, 4, generator=generator, dtype=torch.float64)
    Y, at = torch.sin(5 * X).sum(-1, keepdim=True), X[:80].reshape(20, 4, 4) + 0.01
    cases = {}
    for m in sizes.dictionaries:
        rows = torch.arange(m)
        model = DTCGP(X, Y, covar_module=rbf(0.25), outcome_transform=None, dictionary=rows)
        cases[m] = partial(gradient, model, at)
    for m, seconds in best_of(cases, *sizes.effort).items():
        curves.add("dictionary", what, m, {MICROSECONDS: 1e6 * seconds})
    claim_slope(curves, "dictionary", what, MICROSECONDS, 2)


def dimension(curves: Curves, sizes: Sizes) -> None:
    r"""Measure a step over the unit cube and a pull among arms, for growing dimensions."""
    generator = torch.Generator().manual_seed(0)

    def observe(X: Tensor) -> Tensor:
        noise = torch.randn(len(X), generator=generator, dtype=X.dtype)
        return torch.sin(2 * X.sum(-1) / X.shape[-1] ** 0.5) + noise

    for d in sizes.dims:
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, d)
        given = {"covar_module": rbf(d / 4), "noise_var": 1.0, "width": "information"}
        optimizer = BBKB(bounds=bounds, seed=0, **given)
        X = draw_sobol_samples(bounds, n=sizes.known, q=1, seed=0).squeeze(1)
        optimizer.tell(X, observe(X))
        step = 1e3 * seconds_a_step(optimizer, observe, sizes.steps[0])
        figures = {MILLISECONDS: step, "dictionary": len(optimizer.dictionary)}
        curves.add("dimension", "a step over the cube", d, figures)
        one = setting(sizes.num_arms, d, d / 4, noise=1.0)
        optimizer = one.make(BBKB, sizes.known, 0)
        run = play(optimizer, one.bandit, sizes.known, 0)
        pull = 1e3 * run.seconds[-1] / sizes.known
        figures = {MILLISECONDS: pull, "dictionary": run.dictionary[-1]}
        curves.add("dimension", "a pull among arms", d, figures)


def draw(curves: Curves, sizes: Sizes) -> None:
    r"""Plot one panel per part and one for memory, with slopes in the legends."""
    panels = [
        ("A step over a box", "observations", SECONDS, ["box"]),
        ("A pull among arms", "pulls so far", MICROSECONDS, ["pulls"]),
        ("BBKB among many arms", "arms", MILLISECONDS, ["arms"]),
        ("A larger dictionary", "points in the dictionary", MICROSECONDS, ["dictionary"]),
        ("BBKB in many dimensions", "dimensions", MILLISECONDS, ["dimension"]),
        ("Memory", "observations, or arms", MEMORY, ["box", "arms"]),
    ]
    with curves.report.picture("scaling", 2, 3, figsize=(13, 8.5)) as axes:
        for ax, (title, size, figure, parts) in zip(axes.flat, panels, strict=True):
            ax.set(xscale="log", yscale="log", title=title, xlabel=size, ylabel=figure)
            for part in parts:
                curves.draw(ax, part, figure)
            ax.minorticks_off()
            ax.grid(alpha=0.3)
            ax.legend(**LEGEND)
        for ax, ticks in ((axes[1, 0], sizes.dictionaries), (axes[1, 1], sizes.dims)):
            ax.set_xticks(ticks, map(str, ticks))


def draw_step(curves: Curves) -> None:
    r"""Plot a step over a box for the main methods."""
    with curves.report.picture("scaling_step", 1, 1, figsize=(7, 4)) as axes:
        ax = axes[0, 0]
        curves.draw(ax, "box", SECONDS, ("BBKB", QLOGNEI, "SingleTaskGP + UCB", AX))
        ax.set(xscale="log", yscale="log", xlabel="observations", ylabel=SECONDS)
        ax.set_title("A step over a box of four dimensions, fits shared out (slopes)")
        ax.grid(alpha=0.3)
        ax.legend()
