r"""Theorems on BKB, BBKB and their relatives with the exact posterior, along runs over arms."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.theorems.problems import DELTA, NORM, Arms
from botorch_bkb import BBKB, BKB, GPBUCB, GPUCB, CompressedUCB, MiniGPUCB, confidence
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import Picks
from botorch_bkb.optimizers import Optimizer

THRESHOLD = 2.0
#: A figure without a target: the check of accuracy says something only if it is positive.
LEFT_OUT = "BKB, Theorem 1 a: share of points outside the dictionary"
PAPER = {"width": "paper", "delta": DELTA}
KNOWN = {**PAPER, "norm_bound": NORM}
ANYTIME = {**KNOWN, "width": "theory"}
FRESH = {"oversampling": "theory", "coupled": False}


class Guarantee(NamedTuple):
    r"""A width with a guarantee: the optimizer that uses it, and what the function may be."""

    kind: type[Optimizer]
    options: dict[str, Any]
    from_prior: bool = False  #: whether the function is a draw from the prior or of known norm


#: Widths by name. Every one is checked at all arms and picks of its runs. New ones go here.
WIDTHS = {
    "BKB, Theorem 2": Guarantee(BKB, {**KNOWN, **FRESH}),
    "BBKB, Theorem 2": Guarantee(
        BBKB, {**KNOWN, **FRESH, "batch_rule": "sum", "batch_threshold": THRESHOLD}
    ),
    "self-normalised bound, GP-UCB": Guarantee(GPUCB, KNOWN),
    "self-normalised bound, GP-BUCB": Guarantee(GPBUCB, {**KNOWN, "batch_threshold": THRESHOLD}),
    "self-normalised bound, mini-GP-UCB": Guarantee(
        MiniGPUCB, {**KNOWN, "batch_threshold": THRESHOLD}
    ),
    "anytime bound, BKB, oversampling 1": Guarantee(BKB, {**ANYTIME, "oversampling": 1.0}),
    "anytime bound, BBKB, oversampling 1": Guarantee(
        BBKB, {**ANYTIME, "oversampling": 1.0, "batch_threshold": THRESHOLD}
    ),
    "anytime bound, GP-UCB": Guarantee(GPUCB, ANYTIME),
    "anytime bound, GP-BUCB": Guarantee(GPBUCB, {**ANYTIME, "batch_threshold": THRESHOLD}),
    "compressed, Theorem 3.2 i": Guarantee(CompressedUCB, {**PAPER, "epsilon": 0.01}, True),
}


class Batch(NamedTuple):
    r"""One batch of a run: its picks, and what was known when it began and at its last pick."""

    before: Tensor  #: rows pulled before it
    picks: Tensor  #: rows pulled in it
    start: Tensor  #: scores of all arms at its start
    last: Tensor  #: scores of all arms at its last pick
    end: Tensor  #: scores of all arms after all its picks, with the old dictionary
    taught: Tensor  #: ``sum_s c_s(x)^2 / tau(x)`` of all arms, by what it has taught about each
    coverage: float  #: largest distance of the function from the mean, over the width at last
    dictionary: int  #: size of the next dictionary


class Trace(NamedTuple):
    r"""A run over arms."""

    problem: Arms
    oversampling: float | None
    batches: list[Batch]

    @property
    def rows(self) -> Tensor:
        r"""All rows pulled."""
        return torch.cat([self.batches[-1].before, self.batches[-1].picks])

    @property
    def horizon(self) -> int:
        r"""The number of pulls."""
        return len(self.rows)


def imagined(optimizer: Optimizer, rows: Tensor) -> Tensor:
    r"""Return all scores as if the given rows had been pulled, with the same dictionary."""
    table = optimizer.table
    if not len(rows):
        return table.scores()
    copy = ArmTable.from_log(optimizer.arms, table.kernel, table.noise_var, table.log)
    copy.observe(rows, torch.zeros(len(rows), dtype=torch.float64))
    return copy.scores()


def taught_by(optimizer: Optimizer, rows: Tensor) -> Tensor:
    r"""Return ``sum_s c_s(x)^2 / tau(x)`` of all arms for picks of one batch."""
    picks, scores = Picks(optimizer.table), optimizer.table.scores()
    squares = [picks.covariances_with(int(row)).square() for row in rows]
    return torch.stack(squares).sum(0) / scores


def follow(guarantee: Guarantee, noise_var: float, seed: int, horizon: int) -> Trace:
    r"""Run an optimizer, and record every batch."""
    problem = Arms(seed, noise_var, guarantee.from_prior)
    options = dict(guarantee.options)
    if options.get("oversampling") == "theory":
        options["horizon"] = horizon
    optimizer = guarantee.kind(problem.arms, seed=seed, **problem.model, **options)
    batches, before = [], torch.empty(0, dtype=torch.long)
    for _ in range(horizon):
        if len(before) >= horizon:
            break
        mean, _ = (values.clone() for values in optimizer.table.moments())
        width, start = optimizer.width_now, optimizer.table.scores().clone()
        suggestion = optimizer.ask(at_most=horizon - len(before))
        awaited = torch.tensor([id_ >= 0 for id_ in suggestion.ids])
        picks = suggestion.indices[awaited]
        if not len(picks):  # an uninformative candidate of a compressed belief, which stays
            continue
        last = imagined(optimizer, picks[:-1])
        distance = (problem.f - mean).abs() / (last * noise_var).sqrt()
        end, taught = imagined(optimizer, picks), taught_by(optimizer, picks)
        optimizer.tell(suggestion[awaited], problem.rewards(picks))
        size = len(optimizer.dictionary)
        coverage = float(distance.max()) / width
        batches.append(Batch(before, picks, start, last, end, taught, coverage, size))
        before = torch.cat([before, picks])
    return Trace(problem, optimizer.oversampling, batches)


def check(name: str, noise_var: float, seed: int, horizon: int) -> dict[str, float]:
    r"""Return measured values over their bounds for all theorems on one run, by name."""
    trace = follow(WIDTHS[name], noise_var, seed, horizon)
    found = {f"{name}: width": max(b.coverage for b in trace.batches)}
    more = {"BKB, Theorem 2": bkb, "BBKB, Theorem 2": bbkb}
    more |= {"self-normalised bound, GP-BUCB": gp_bucb, "self-normalised bound, mini-GP-UCB": mini}
    more |= {"anytime bound, BBKB, oversampling 1": local}
    return found | (more[name](trace) if name in more else {})


def bkb(trace: Trace) -> dict[str, float]:
    r"""Check BKB's dictionary and regret, and the log-determinant that they use."""
    problem, T, units = trace.problem, trace.horizon, {"noise_var": trace.problem.noise_var}
    dimension = problem.dimension(trace.rows)
    gain = 2 * problem.information_gain(trace.rows)
    return {
        "BKB, Theorem 1 b: dictionary": max(
            b.dictionary / confidence.bkb_dictionary_size(d, trace.oversampling, **units)
            for b, d in _dimensions(trace)
        ),
        "BKB, Theorem 2: regret": problem.regret(trace.rows)
        / confidence.bkb_regret(dimension, T, **problem.bounds),
        "log-determinant by the effective dimension": gain
        / confidence.log_determinant_bound(dimension, T, **units),
    }


def bbkb(trace: Trace) -> dict[str, float]:
    r"""Check BBKB's lemmas, dictionary, number of batches and regret."""
    problem, T, full = trace.problem, trace.horizon, trace.batches[:-1]
    units = {"noise_var": problem.noise_var, "batch_threshold": THRESHOLD}
    dimension, found = problem.dimension(trace.rows), lemmas(trace)
    spent = sum(float(b.start[b.picks].sum()) for b in trace.batches)
    found["BBKB, Theorem 1: dictionary"] = max(
        b.dictionary / confidence.bbkb_dictionary_size(d, trace.oversampling, **units)
        for b, d in _dimensions(trace)
    )
    found["BBKB, Theorem 1: batches"] = len(full) / confidence.bbkb_batches(dimension, T, **units)
    found["BBKB, sum rule: batches by the scores"] = len(full) * (THRESHOLD - 1) / spent
    logs = sum(float(torch.log1p(3 * b.start[b.picks]).sum()) for b in trace.batches)
    gain = 2 * problem.information_gain(trace.rows)
    found["BBKB, Theorem 2: log-determinant by the logged scores"] = gain / logs
    scores = sum(float(problem.scores(trace.rows[:t])[trace.rows[t]]) for t in range(trace.horizon))
    bound = confidence.bbkb_regret(scores, T, **problem.bounds, batch_threshold=THRESHOLD)
    found["BBKB, Theorem 2: regret"] = problem.regret(trace.rows) / bound
    return found


def lemmas(trace: Trace) -> dict[str, float]:
    r"""Check BBKB's lemmas on scores within a batch, and its rule against the product rule."""
    problem, found = trace.problem, dict.fromkeys(LEMMAS, 0.0)
    for b in trace.batches:
        exact_start = problem.scores(b.before)
        exact_last = problem.scores(torch.cat([b.before, b.picks[:-1]]))
        total = 1 + float(b.start[b.picks].sum())
        worst = torch.maximum(b.start / exact_start, exact_start / b.start).max()
        sizes = [_length(b.start[b.picks], product) for product in (True, False)]
        values = (
            float(worst) / 3,
            float((b.start / b.end).max()) / total,
            float((b.end / b.start).max()),
            float((exact_start / exact_last).max()) / (3 * THRESHOLD),
            sizes[0] / sizes[1],
        )
        for name, value in zip(LEMMAS, values, strict=True):
            found[name] = max(found[name], value)
    return found


LEMMAS = (
    "BBKB, Lemma 3: scores at the start of a batch",
    "BBKB, Lemma 4: scores fall by at most 1 + sum of scores",
    "BBKB, Lemma 4: scores never rise",
    "BBKB, Lemma 5: exact scores within a batch",
    "BBKB, section 3: batches by the product over those by the sum",
)


def _length(scores: Tensor, product: bool) -> int:
    r"""Return how many picks of these scores a batch has, by the product or the sum rule."""
    spent = torch.log1p(scores).cumsum(0).exp() if product else 1 + scores.cumsum(0)
    return min(len(scores), 1 + int((spent <= THRESHOLD).sum()))


def gp_bucb(trace: Trace) -> dict[str, float]:
    r"""Check that exact scores fall by at most the product of ``1 + score``."""
    ratios = [float((b.start / b.end).max() / (1 + b.start[b.picks]).prod()) for b in trace.batches]
    return {"GP-BUCB: scores fall by at most the product": max(ratios)}


def mini(trace: Trace) -> dict[str, float]:
    r"""Check that a choice is held only while scores fall by at most ``C^2``."""
    ratios = [float((b.start / b.last).max()) / THRESHOLD**2 for b in trace.batches]
    return {"mini-GP-UCB: scores fall by at most C^2 while a choice is held": max(ratios)}


def local(trace: Trace) -> dict[str, float]:
    r"""Check the inequalities of the local rule at all arms."""
    falls, sums, thresholds = [], [], []
    for b in trace.batches:
        bound = 1 + b.taught
        falls.append(float((b.start / b.end / bound).max()))
        sums.append(float(bound.max() / (1 + b.start[b.picks].sum())))
        thresholds.append(float((b.start / b.last).max()) / THRESHOLD)
    return {
        "BBKB, local rule: scores fall by at most the local bound": max(falls),
        "BBKB, local rule: local bound over that of the sum rule": max(sums),
        "BBKB, local rule: scores at the last pick fall by at most C": max(thresholds),
    }


def _dimensions(trace: Trace) -> list[tuple[Batch, float]]:
    r"""Return every batch with the effective dimension after it."""
    rows = [torch.cat([b.before, b.picks]) for b in trace.batches]
    return [(b, trace.problem.dimension(r)) for b, r in zip(trace.batches, rows, strict=True)]


def accuracy(seed: int, num_points: int) -> dict[str, float]:
    r"""Check Theorem 1 a of BKB where its oversampling leaves points out of the dictionary."""
    noise_var = 0.7 * num_points
    problem = Arms(seed, noise_var, num_arms=num_points, dim=1)
    optimizer = BKB(
        problem.arms, **problem.model, oversampling="theory", horizon=num_points, coupled=False,
        delta=DELTA, width="information", norm_bound=NORM, seed=seed,
    )  # fmt: skip
    rows = torch.arange(num_points)
    for part in (rows[:-10], rows[-10:]):
        optimizer.tell(part, problem.rewards(part))
    ratio = optimizer.table.scores() / problem.scores(rows)
    alpha = 3.0
    return {
        "BKB, Theorem 1 a: variances": max(float(ratio.max()), 1 / float(ratio.min())) / alpha,
        LEFT_OUT: 1 - len(optimizer.dictionary) / num_points,
    }


def noise_over_time(seed: int, steps: int) -> dict[str, float]:
    r"""Check the level that noise exceeds at no step."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(steps, generator=generator, dtype=torch.float64).abs().tolist()
    levels = (confidence.noise_over_time(t, 1.0, DELTA) for t in range(1, steps + 1))
    ratio = max(value / level for value, level in zip(noise, levels, strict=True))
    return {"level of noise over time": ratio}
