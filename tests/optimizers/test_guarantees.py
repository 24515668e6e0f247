r"""Bounds with a guarantee: they hold, in any units, and at the last pick of a batch."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from botorch_bkb.batches import HoldingRule, LocalRule, OneAtATime, ProductRule, SumRule
from botorch_bkb.confidence import Confidence, Progress, widths
from botorch_bkb.dictionaries import AllPoints, InformationThreshold, RidgeLeverageSampling
from botorch_bkb.domains import Arms, Box, Tree
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import ALGORITHMS, Optimizer
from tests.problems import rbf

BOUNDS = torch.tensor([[0.0, 0.0], [2.0, 2.0]], dtype=torch.float64)
QUICK = {"num_restarts": 1, "raw_samples": 8, "options": {"maxiter": 5}}
LENGTHSCALE = 0.4


def kernel(variance: float) -> ScaleKernel:
    r"""The RBF kernel of ``tests.problems.rbf`` with a prior variance."""
    k = ScaleKernel(RBFKernel()).double()
    k.base_kernel.lengthscale, k.outputscale = LENGTHSCALE, variance
    return k


class Problem:
    r"""Arms, and a function whose norm is known whatever the prior variance."""

    def __init__(self, seed: int, variance: float, noise_var: float, norm: float, n: int = 25):
        self.generator = torch.Generator().manual_seed(seed)
        self.arms = 2 * torch.rand(n, 2, generator=self.generator, dtype=torch.float64)
        weights = torch.randn(n, generator=self.generator, dtype=torch.float64)
        K = variance * rbf(self.arms, self.arms)
        self.f = norm * (K @ weights) / (weights @ K @ weights).sqrt()
        self.noise, self.norm = noise_var**0.5, norm
        self.model = {"covar_module": kernel(variance), "noise_var": noise_var}

    def rewards(self, rows):
        eps = torch.randn(len(rows), generator=self.generator, dtype=torch.float64)
        return self.f[rows] + self.noise * eps


class OverBox:
    r"""A function of known norm on a box."""

    def __init__(self, seed: int, norm: float) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = 2 * torch.rand(8, 2, generator=self.generator, dtype=torch.float64)
        weights = torch.randn(8, generator=self.generator, dtype=torch.float64)
        K = rbf(self.centres, self.centres)
        self.weights, self.norm = norm * weights / (weights @ K @ weights).sqrt(), norm
        self.model = {"covar_module": kernel(1.0), "noise_var": 0.01}

    def __call__(self, X):
        return rbf(X, self.centres) @ self.weights

    def rewards(self, X):
        eps = torch.randn(len(X), generator=self.generator, dtype=torch.float64)
        return self(X) + 0.1 * eps


class Watched:
    r"""The width of a rule; the progress with which it was computed last is kept."""

    def __init__(self, rule) -> None:
        self.rule, self.progress = rule, None

    def __call__(self, p: Progress) -> float:
        self.progress = p
        return self.rule(p)


# ---------------------------------------------------------------------- coverage

#: Dictionaries, and the widths that hold for them.
DICTIONARIES = {
    "theory": (
        RidgeLeverageSampling("theory", horizon=15, coupled=False),
        (widths.anytime, widths.bkb, widths.bbkb),
    ),
    "practice": (RidgeLeverageSampling(1.0), (widths.anytime,)),
    "capped": (AllPoints(4), (widths.anytime,)),
    "everything": (AllPoints(), (widths.anytime_exact, widths.anytime, widths.exact)),
    "informative": (
        InformationThreshold(0.01, on_uninformative="evaluate"),
        (widths.anytime_exact, widths.anytime),
    ),
}


@pytest.mark.parametrize("dictionary", DICTIONARIES)
@pytest.mark.parametrize("variance", [1e-4, 1e-2, 1.0, 1e2])
@pytest.mark.filterwarnings("ignore:.*dictionary points were drawn")
def test_all_arms_stay_in_their_intervals_whatever_the_units(variance, dictionary):
    # 250 problems for each prior variance, 50 with each dictionary: noise in proportion to the
    # prior, and not; the function zero, and of norm one.
    rule, proved = DICTIONARIES[dictionary]
    delta, runs = 0.1, 50
    failures, gap_failures = dict.fromkeys(proved, 0), 0
    for seed in range(runs):
        noise_var = 1e-2 * variance if seed % 2 else 0.01
        problem = Problem(seed, variance, noise_var, norm=float(seed % 4 > 1))
        watched = Watched(proved[0])
        confidence = Confidence(watched, delta=delta, norm_bound=max(problem.norm, 1e-3))
        optimizer = Optimizer(
            Arms(problem.arms),
            model=Surrogate(**problem.model),
            dictionary=rule,
            confidence=confidence,
            seed=seed,
        )
        left, gap_left = dict.fromkeys(proved, False), False
        for _ in range(15):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, problem.rewards(suggestion.indices))
            mean, var = optimizer.table.moments()
            gap, half = optimizer.gap(), var.sqrt()
            for width in proved:
                outside = (problem.f - mean).abs() > width(watched.progress) * half * (1 + 1e-9)
                left[width] |= bool(outside.any())
            surest = (mean - optimizer.width_now * half).argmax()
            regret = float(problem.f.max() - problem.f[surest])
            gap_left |= regret > gap * (1 + 1e-9) + 1e-12 * variance**0.5
        for width in proved:
            failures[width] += left[width]
        gap_failures += gap_left
    assert max(failures.values()) <= delta * runs and gap_failures <= delta * runs


def with_known_norm(problem, domain, rule=None, seed=0):
    r"""An optimizer with a guarantee that discards results of little information."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is assumed that is not given
        return Optimizer(
            domain,
            model=Surrogate(**problem.model),
            dictionary=InformationThreshold(0.7, on_uninformative="evaluate"),
            confidence=Confidence("theory", delta=0.1, norm_bound=problem.norm),
            batch=rule,
            seed=seed,
        )


@pytest.mark.parametrize("norm", [1.0, 20.0])
@pytest.mark.parametrize("rule", [OneAtATime(), SumRule(3.0)], ids=str)
def test_a_function_of_bounded_norm_is_covered_where_results_are_discarded(norm, rule):
    # The theorem on draws from the prior misses a function of norm 20 in every one of these runs.
    delta, runs = 0.1, 20
    missed = gap_missed = discarded = 0
    for seed in range(runs):
        problem = Problem(seed, 1.0, 0.01, norm=norm, n=30)
        optimizer = with_known_norm(problem, Arms(problem.arms), rule, seed)
        left = gap_left = False
        for _ in range(25):
            suggestion = optimizer.ask(at_most=5)
            optimizer.tell(suggestion, problem.rewards(suggestion.indices))
            mean, var = optimizer.table.moments()
            left |= bool(((problem.f - mean).abs() > optimizer.width_now * var.sqrt()).any())
            best = optimizer.best(by="lower").index
            gap_left |= float(problem.f.max() - problem.f[best]) > optimizer.gap()
        missed += left
        gap_missed += gap_left
        discarded += optimizer.num_observations - optimizer.model_order
    assert max(missed, gap_missed) <= delta * runs and discarded > 2 * runs


def test_the_gap_over_a_tree_is_covered_where_results_are_discarded():
    delta, runs = 0.1, 10
    missed = 0
    line = torch.linspace(0, 2, 61, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    for seed in range(runs):
        problem = OverBox(seed, norm=20.0)
        optimizer, left = with_known_norm(problem, Tree(BOUNDS, max_depth=6), seed=seed), False
        highest = float(problem(grid).max())
        for _ in range(15):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, problem.rewards(suggestion.X))
            best = optimizer.best(by="lower").X.unsqueeze(0)
            left |= highest - float(problem(best)) > optimizer.gap()
        missed += left
    assert missed <= delta * runs


# ---------------------------------------------------------------------- units


def widths_of_a_run(name: str, width: str, scale: float) -> list[float]:
    problem = Problem(0, 1.0, 0.05, norm=1.0)
    kind = ALGORITHMS[name]
    known = inspect.signature(kind).parameters
    more = {"oversampling": 2.0, "epsilon": 0.1, "delta": 0.2, "num_initial": 3, "budget": 60}
    rounds = 3 if name == "BatchedElimination" else 6
    over_arms = "arms" in known and width != "box"
    start = {"arms": problem.arms} if over_arms else {"bounds": BOUNDS}
    if over_arms or "num_initial" not in known:
        del more["num_initial"]
    else:
        start["acquisition_options"] = QUICK
    if not (name.startswith("Compressed") and width in ("paper", "box")):  # a draw has no norm
        start |= {"noise_bound": 0.3 * scale, "norm_bound": 2.0}
    optimizer = kind(
        **start,
        **{k: v for k, v in more.items() if k in known},
        covar_module=kernel(scale**2),
        noise_var=0.05 * scale**2,
        width="paper" if width == "box" else width,
        seed=0,
    )
    seen = []
    if name == "AdaGPUCB":  # else cells on both sides of the centre tie, and rounding decides
        X = torch.tensor([[0.4, 1.3]], dtype=torch.float64)
        optimizer.tell(X, scale * torch.sin(3 * X).sum(-1))
    for _ in range(rounds):
        suggestion = optimizer.ask()
        told = suggestion[torch.tensor([id_ >= 0 for id_ in suggestion.ids])]
        optimizer.tell(told, scale * torch.sin(3 * told.X).sum(-1))
        seen += [optimizer.width_now, optimizer.gap() / scale]
    return seen


@pytest.mark.parametrize("width", ["theory", "paper", "information", "box"])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.filterwarnings("ignore:width=")
def test_widths_do_not_depend_on_the_units_of_the_rewards(name, width):
    if width == "box" and name != "CompressedUCB":
        pytest.skip("only this theorem depends on the domain")
    one = widths_of_a_run(name, width, 1.0)
    for scale in (0.1, 0.01, 10.0):
        assert widths_of_a_run(name, width, scale) == pytest.approx(one, rel=1e-5)


# ---------------------------------------------------------------------- batches

RULES = [OneAtATime(), HoldingRule(3.0), SumRule(1.0), SumRule(3.0), SumRule(50.0),
         ProductRule(3.0), ProductRule(500.0), LocalRule(3.0), LocalRule(50.0)]  # fmt: skip
BELIEFS = {
    "sampled": (RidgeLeverageSampling(1.0), widths.anytime),
    "exact": (AllPoints(), widths.anytime_exact),
    "papers exact": (AllPoints(), widths.exact),
    "informative": (
        InformationThreshold(1e-3, on_uninformative="evaluate"),
        widths.anytime_exact,
    ),
    "compressed": (InformationThreshold(1e-3, on_uninformative="evaluate"), widths.compressed),
}


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("belief", BELIEFS)
@pytest.mark.parametrize("over", ["arms", "box", "tree"])
def test_bounds_still_hold_at_the_last_pick_of_a_batch(belief, rule, over):
    # If all intervals hold with the width for picks one by one when the batch begins, they hold
    # with the batch's own width for variances conditioned on all picks before the last. These are
    # the smallest variances that a batch may use, whatever it hallucinates.
    dictionary, width = BELIEFS[belief]
    problem = Problem(1, 1.0, 0.2, norm=1.0)
    watched = Watched(width)
    domain = {
        "arms": Arms(problem.arms),
        "box": Box(BOUNDS, num_initial=3, acquisition_options=QUICK),
        "tree": Tree(BOUNDS, max_depth=4),
    }[over]
    norm = None if width is widths.compressed else 1.0
    optimizer = Optimizer(
        domain,
        model=Surrogate(**problem.model),
        dictionary=dictionary,
        confidence=Confidence(watched if over == "arms" else width, norm_bound=norm),
        batch=rule,
        seed=0,
    )
    longest = 0
    rounds, most = (2, 6) if over == "box" else (4, 25)
    for _ in range(rounds):
        suggestion = optimizer.ask(at_most=most)
        optimizer.tell(suggestion, torch.sin(3 * suggestion.X).sum(-1))
        if not optimizer.num_observations >= 3:
            continue
        before, model = optimizer.width_now, optimizer.model
        suggestion = optimizer.ask(at_most=most)
        X = torch.cat([problem.arms, suggestion.X]) if over == "arms" else suggestion.X
        chosen = suggestion.X[:-1] if not isinstance(rule, HoldingRule) else suggestion.X[:0]
        covariance = model.posterior(torch.cat([X, chosen])).mvn.covariance_matrix
        k, cross = covariance[: len(X), : len(X)].diagonal(), covariance[: len(X), len(X) :]
        inner = covariance[len(X) :, len(X) :] + problem.noise**2 * torch.eye(
            len(chosen), dtype=torch.float64
        )
        fallen = k - (cross * torch.linalg.solve(inner, cross.mT).mT).sum(-1)
        inflation = rule.inflation**0.5
        assert (before * fallen.clamp_min(0).sqrt() >= before / inflation * k.sqrt() - 1e-9).all()
        longest = max(longest, len(suggestion))
        optimizer.tell(suggestion, torch.sin(3 * suggestion.X).sum(-1))
        if watched.progress is not None:
            one_by_one = Progress(**{**vars(watched.progress), "batch_threshold": 1.0})
            assert watched(watched.progress) == pytest.approx(inflation * width(one_by_one))
    assert longest > 1 or rule.inflation < 10


@pytest.mark.parametrize("name", ["BKB", "CompressedUCB", "GPUCB", "BBKB", "MiniGPUCB"])
@pytest.mark.parametrize("rule", [SumRule, ProductRule, LocalRule])
def test_a_batch_rule_on_any_class_widens_its_bounds(name, rule):
    problem = Problem(1, 1.0, 0.2, norm=1.0)

    def width(threshold):
        optimizer = ALGORITHMS[name](
            problem.arms, **problem.model, norm_bound=1.0, width="theory",
            batch_rule=rule(threshold), seed=0,
        )  # fmt: skip
        optimizer.tell([1, 2, 3], [0.1, 0.2, 0.3])
        return optimizer.width_now

    assert width(50.0) == pytest.approx(50**0.5 * width(1.0))
