r"""Parts of one's own, in each of the six places."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_bkb import AllPoints, InformationThreshold, JournalError, RidgeLeverageSampling, resume
from botorch_bkb import run as run_optimizer
from botorch_bkb.acquisition import UCB, Acquisition, BudgetedUCB, Thompson
from botorch_bkb.batches import (
    BatchRule,
    HoldingRule,
    LocalRule,
    OneAtATime,
    ProductRule,
    SumRule,
)
from botorch_bkb.confidence import Confidence, widths
from botorch_bkb.dictionaries import DictionaryRule, Draw, first_occurrences
from botorch_bkb.domains import Arms, Box, Tree
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import ALGORITHMS, Optimizer, Parts
from botorch_bkb.optimizers.guarantees import paper_for, theory_for

ARMS = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BOUNDS = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
GIVEN = Surrogate(RBFKernel(), 0.1)


def f(X):
    return torch.sin(4 * X).sum(-1)


def played(optimizer, steps=8):
    for _ in range(steps):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, f(suggestion.X))
    return optimizer


class Ring(Box):
    r"""A ring in a square, searched by the best of many points."""

    def points(self, n, seed):
        angle = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=self.dtype)
        return torch.stack([(6.28 * angle).cos(), (6.28 * angle).sin()], -1)

    def design(self, start, n, seed):
        return self.points(start + n, seed)[start:]

    def maximise(self, acquisition, starts, seed):
        X = self.cube.to_unit(self.points(200, seed))
        return X[acquisition(X.unsqueeze(-2)).argmax()].unsqueeze(0)


def test_a_domain_of_ones_own():
    optimizer = Optimizer(Ring(BOUNDS), model=GIVEN, seed=0)
    for _ in range(8):
        suggestion = optimizer.ask()
        assert (suggestion.X.norm(dim=-1) - 1).abs().max() < 1e-6
        optimizer.tell(suggestion, f(suggestion.X))
    assert optimizer.best().mean > f(Ring(BOUNDS).points(200, 1)).quantile(0.9)


class FixedSchedule(Surrogate):
    r"""Fits at given numbers of observations."""

    def first_fit(self, dim):
        return 4

    def next_fit(self, num_observations, num_rows):
        return num_observations + 3

    def fit(self, X, history, dictionary, noise_known, seed, **start):
        FITS.append(history.num_observations)
        return super().fit(X, history, dictionary, noise_known, seed, **start)


FITS: list[int] = []


def test_a_model_of_ones_own():
    FITS.clear()
    played(Optimizer(Arms(ARMS, num_initial=1), model=FixedSchedule(), seed=0), 12)
    assert FITS == [4, 7, 10]


@dataclass(frozen=True)
class Newest(DictionaryRule):
    size: int = 3

    def _select(self, inputs, generator):
        return first_occurrences(inputs.X)[-self.size :]

    def _capped(self, size):
        return replace(self, size=min(size, self.size))


@dataclass(frozen=True)
class MostPulled(Newest):
    r"""Draws by what only an optimizer knows."""

    def draw(self, inputs, generator):
        top = inputs.counts.topk(min(self.size, len(inputs.counts))).indices
        return Draw(top.sort().values, len(inputs.counts))


def test_a_dictionary_of_ones_own():
    optimizer = played(Optimizer(Arms(ARMS), model=GIVEN, dictionary=Newest(3), seed=0))
    rows = optimizer.history.rows[-3:]
    assert torch.equal(optimizer.dictionary, ARMS[rows])
    optimizer = Optimizer(Arms(ARMS), model=GIVEN, dictionary=MostPulled(2), seed=0)
    with pytest.warns(match="2 of them kept"):
        optimizer.tell([4, 4, 9, 9, 9, 2], [0.0] * 6)
    assert torch.equal(optimizer.dictionary, ARMS[[4, 9]])
    optimizer.tell([1, 1, 1, 1], [0.0] * 4)  # warns only once
    assert torch.equal(optimizer.dictionary, ARMS[[1, 9]])


def test_a_confidence_of_ones_own():
    seen = []

    def width(progress):
        seen.append(progress.num_arms)
        return 1.0 + progress.num_observations

    optimizer = played(Optimizer(Arms(ARMS), model=GIVEN, confidence=Confidence(width), seed=0))
    assert optimizer.width_now == 9.0 and set(seen) == {30}


class InPairs(BatchRule):
    @property
    def limit(self):
        return 1.0


def test_a_batch_rule_of_ones_own():
    for domain in (Arms(ARMS), Tree(BOUNDS)):
        optimizer = Optimizer(domain, model=GIVEN, batch=InPairs(), seed=0)
        assert [len(optimizer.ask()), len(played(optimizer, 0).pending)] == [2, 2]


class WideInPairs(InPairs):
    r"""Two picks of which each has a score of at most ten."""

    @property
    def inflation(self):
        return 11.0


class ByTheirNumber(BatchRule):
    r"""Two picks, counted by what the rule sees of them."""

    def total(self, picks):
        return float(picks.counts.sum()) - 1.0


class LowerBound(Acquisition):
    r"""Where the model is sure of the most."""

    def function(self, context):
        return BudgetedUCB(context.marginals, 0.0)


@pytest.mark.parametrize("domain", [Arms(ARMS), Box(BOUNDS, num_initial=4)], ids=["arms", "box"])
def test_an_acquisition_of_ones_own(domain):
    own = Optimizer(domain, model=GIVEN, acquisition=LowerBound(), seed=0)
    same = Optimizer(domain, model=GIVEN, confidence=Confidence(0.0), seed=0)
    for optimizer in (own, same):
        X = torch.tensor([[0.1, 0.2], [0.7, 0.3], [0.4, 0.9], [0.2, 0.6]], dtype=torch.float64)
        optimizer.tell(X, f(X))
    torch.testing.assert_close(own.ask().X, same.ask().X, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("dictionary", "batch", "theory", "paper"),
    [
        (AllPoints(), OneAtATime(), widths.anytime_exact, widths.exact),
        (AllPoints(), ProductRule(2.0), widths.anytime_exact, widths.exact),
        (AllPoints(9), OneAtATime(), widths.anytime, widths.exact),
        (RidgeLeverageSampling(), OneAtATime(), widths.anytime, widths.bkb),
        (RidgeLeverageSampling(), HoldingRule(2.0), widths.anytime, widths.bkb),
        (RidgeLeverageSampling(), SumRule(1.0), widths.anytime, widths.bbkb),
        (RidgeLeverageSampling(), ProductRule(2.0), widths.anytime, widths.bbkb),
        (InformationThreshold(0.1), OneAtATime(), widths.anytime_exact, widths.compressed),
        (InformationThreshold(0.1), SumRule(2.0), widths.anytime_exact, widths.compressed),
        (InformationThreshold(0.1, 5), OneAtATime(), widths.anytime, widths.compressed),
        (InformationThreshold(0.1, discard=False), OneAtATime(), widths.anytime, None),
        (Newest(), OneAtATime(), widths.anytime, None),
    ],
)
@pytest.mark.filterwarnings("ignore:width=")
def test_dictionary_and_batch_rule_decide_the_theorem(dictionary, batch, theory, paper):
    assert theory_for(dictionary, batch, has_norm=True) is theory
    assert paper_for(dictionary, batch) is paper

    def width(name, norm=None):
        confidence = Confidence(name, norm_bound=norm)
        rules = {"dictionary": dictionary, "batch": batch, "confidence": confidence}
        return Optimizer(Arms(ARMS), model=GIVEN, **rules).parts.width

    assert width("theory", 1.0) is width("theory", "double") is theory
    without = widths.compressed if paper is widths.compressed else theory
    assert width("theory") is without
    if paper is None:
        with pytest.raises(InputDataError, match="no theorem covers"):
            width("paper")
    else:
        assert width("paper") is paper


THEORY = RidgeLeverageSampling("theory", horizon=100, coupled=False)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("theory", {"confidence": Confidence("theory")}, "a norm_bound, a bound on the norm"),
        ("theory", {"confidence": Confidence("theory", norm_bound="double")}, "not learnt"),
        ("theory", {"model": Surrogate()}, "kernel and noise_var are given and not fitted"),
        ("paper", {"dictionary": RidgeLeverageSampling()}, "Theorem 2 of BKB. It assumes overs"),
        ("paper", {"dictionary": replace(THEORY, coupled=True)}, "coupled=False"),
        ("paper", {"dictionary": replace(THEORY, max_size=9)}, "without a largest size"),
        ("paper", {"dictionary": AllPoints(9)}, "every observed point is in the dictionary"),
        ("theory", {}, None),
        ("paper", {}, None),
        ("theory", {"dictionary": RidgeLeverageSampling()}, None),
        ("theory", {"dictionary": AllPoints(9)}, None),
        ("theory", {"dictionary": InformationThreshold(0.1)}, None),
        ("theory", {"dictionary": InformationThreshold(0.1), "confidence": Confidence("theory")},
         "a draw from the prior (pass norm_bound"),
        ("paper", {"dictionary": InformationThreshold(0.1), "confidence": Confidence("paper")},
         None),
        ("paper", {"dictionary": InformationThreshold(0.1, 9), "confidence": Confidence("paper")},
         "every kept point is in the dictionary"),
        ("theory", {"batch": InPairs()}, "no variance falls within a batch"),
        ("theory", {"batch": ByTheirNumber()}, "inflation of 1 of ByTheirNumber"),
        ("theory", {"batch": HoldingRule(2.0)}, None),
        ("theory", {"batch": SumRule(1.0)}, None),
        ("theory", {"batch": LocalRule(1.0)}, None),
        ("theory", {"batch": WideInPairs()}, None),
    ],
)  # fmt: skip
def test_what_a_theorem_assumes_is_checked(name, changes, words):
    parts = {
        "model": GIVEN,
        "dictionary": THEORY,
        "confidence": Confidence(name, norm_bound=1.0),
        **changes,
    }
    if words is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Optimizer(Arms(ARMS), **parts)
    else:
        with pytest.warns(InputDataWarning, match=re.escape(words)):
            Optimizer(Arms(ARMS), **parts)


def test_the_theorem_over_a_box_needs_a_kernel_with_derivatives():
    rough = Surrogate(MaternKernel(nu=0.5), 0.1)
    for name in ("theory", "paper"):
        parts = {"dictionary": InformationThreshold(0.1), "confidence": Confidence(name)}
        with pytest.raises(InputDataError, match=r"^Theorem 3\.2 ii"):
            Optimizer(Box(BOUNDS), model=rough, **parts)
        Optimizer(Arms(ARMS), model=rough, **parts)  # over arms no derivative is needed
        Optimizer(Box(BOUNDS), model=Surrogate(MaternKernel(nu=1.5), 0.1), **parts)
    known = {**parts, "confidence": Confidence("theory", norm_bound=1.0)}
    assert Optimizer(Box(BOUNDS), model=rough, **known).parts.width is widths.anytime_exact


@pytest.mark.parametrize("confidence", [Confidence("theory"), Confidence("paper"),
                                        Confidence("paper", norm_bound=1.0)], ids=str)  # fmt: skip
def test_over_a_tree_the_function_must_have_a_norm(confidence):
    parts = {"model": GIVEN, "dictionary": InformationThreshold(0.1)}
    with pytest.raises(InputDataError, match='pass width="theory" and a norm_bound'):
        Optimizer(Tree(BOUNDS), confidence=confidence, **parts)
    known = Confidence("theory", norm_bound=1.0)
    assert Optimizer(Tree(BOUNDS), confidence=known, **parts).parts.width is widths.anytime_exact


@pytest.mark.parametrize(
    ("confidence", "name"),
    [
        (Confidence("paper", norm_bound=2.0), "norm_bound"),
        (Confidence("paper", noise_bound=0.3), "noise_bound"),
        (Confidence("theory", noise_bound=0.3), "noise_bound"),
    ],
    ids=str,
)
def test_bounds_that_a_theorem_on_draws_ignores_are_refused(confidence, name):
    parts = {"model": GIVEN, "dictionary": InformationThreshold(0.1)}
    with pytest.raises(InputDataError, match=f"{name} has no effect on the width of Theorem 3.2"):
        Optimizer(Arms(ARMS), confidence=confidence, **parts)
    given = replace(confidence, width="theory", norm_bound=2.0)
    Optimizer(Arms(ARMS), confidence=given, **parts)


@pytest.mark.parametrize("name", ["theory", "paper"])
def test_a_theorem_over_a_tree_assumes_the_radius(name):
    confidence = Confidence(name, norm_bound=1.0)
    parts = {"model": GIVEN, "dictionary": THEORY, "confidence": confidence}
    for radius in ((0.2, 0.5), lambda tree, ids, metric: tree.radii(ids, metric)):
        with pytest.warns(InputDataWarning, match="radius bounds how far the function varies"):
            Optimizer(Tree(BOUNDS, radius=radius), **parts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Optimizer(Tree(BOUNDS), **parts)
        Optimizer(Tree(BOUNDS, radius=(0.2, 0.5)), model=GIVEN, dictionary=THEORY)


def test_a_tree_is_searched_by_upper_bounds():
    with pytest.raises(InputDataError, match="searched by upper bounds"):
        Optimizer(Tree(BOUNDS), acquisition=Thompson())
    assert isinstance(Optimizer(Tree(BOUNDS), acquisition="ucb").parts.acquisition, UCB)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_optimizer_can_be_made_again_from_its_parts(name):
    kind = ALGORITHMS[name]
    start = {"bounds": BOUNDS} if name.startswith("Ada") else {"arms": ARMS}
    start |= {"batch_sizes": [5] * 9} if name == "BatchedElimination" else {}
    one = kind(**start, covar_module=RBFKernel(), noise_var=0.1, seed=3)
    other = kind.from_parts(one.parts, one.seed)
    assert type(other) is kind
    assert torch.equal(played(one, 4).best().X, played(other, 4).best().X)
    third = kind.from_parts(one.parts)
    third.load_state_dict(one.state_dict())
    assert torch.equal(third.ask().X, one.ask().X)


def test_parts_do_not_change():
    parts = Optimizer(Arms(ARMS)).parts
    for name in ("domain", "model", "dictionary", "confidence", "batch", "acquisition"):
        with pytest.raises(AttributeError):
            setattr(parts, name, None)
    given = RBFKernel()
    surrogate = Surrogate(given, 0.1)
    given.lengthscale = 100.0
    assert surrogate.covar_module.lengthscale.item() < 1.0


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"dictionary": Newest()}, "dictionary = a Newest of your own"),
        ({"confidence": Confidence(lambda progress: 1.0)}, "width = function"),
        ({"acquisition": LowerBound()}, "acquisition = a LowerBound of your own"),
    ],
)
def test_a_journal_names_the_part_that_it_cannot_keep(tmp_path, parts, named):
    path = tmp_path / "run.sqlite"
    make = lambda: Optimizer(Arms(ARMS), model=GIVEN, seed=0, **parts)  # noqa: E731
    run_optimizer(make(), f, budget=3, journal=path, progress=False)
    with pytest.raises(JournalError, match=named):
        resume(path, f, budget=5, progress=False)
    result = resume(path, f, budget=5, progress=False, optimizer=make())
    assert len(result.Y) == 5


def test_a_journal_keeps_the_general_optimizer(tmp_path):
    path = tmp_path / "run.sqlite"
    optimizer = Optimizer(
        Box(BOUNDS, num_initial=3),
        model=GIVEN,
        dictionary=InformationThreshold(0.01, on_uninformative="evaluate"),
        batch=HoldingRule(1.5, max_size=7),
        acquisition="ei",
        seed=0,
    )
    run_optimizer(optimizer, f, budget=4, journal=path, progress=False)
    result = resume(path, f, budget=8, progress=False)
    parts = result.optimizer.parts
    assert isinstance(parts, Parts) and parts.dictionary == optimizer.parts.dictionary
    assert parts.batch == optimizer.parts.batch and len(result.Y) == 8
