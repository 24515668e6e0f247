r"""Every argument of every class changes something that can be observed, or is refused."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import RBFKernel

from botorch_bkb import AllPoints, RidgeLeverageSampling
from botorch_bkb.acquisition import Greedy, Thompson
from botorch_bkb.batches import HoldingRule, LocalRule, OneAtATime, SumRule
from botorch_bkb.confidence import Confidence
from botorch_bkb.domains import Arms, Box, TrustRegion
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import ALGORITHMS, BatchCompleteError, Optimizer

GENERATOR = torch.Generator().manual_seed(0)
ARMS = torch.rand(40, 2, generator=GENERATOR, dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
INFORMED = {"covar_module": RBFKernel(), "noise_var": 0.1, "norm_bound": 1.0}
GIVEN = {"covar_module": RBFKernel(), "noise_var": 0.1}
QUICK = {"num_restarts": 1, "raw_samples": 8, "options": {"maxiter": 5}}
OVER_BOX = {"arms": None, "bounds": BOUNDS, "num_initial": 2, "acquisition_options": QUICK, **GIVEN}

#: For each argument other arguments beside which it is tried, and a value other than its default.
TRIED = {
    "arms": (GIVEN, ARMS[:20]),
    "bounds": (OVER_BOX, 2 * BOUNDS),
    "covar_module": ({"noise_var": 0.1, "refit": False}, RBFKernel()),
    "noise_var": ({"covar_module": RBFKernel(), "refit": False}, 0.5),
    "refit": (GIVEN, True),
    "half_life": (GIVEN, 3.0),
    "dictionary": (GIVEN, AllPoints()),
    "oversampling": (GIVEN, 0.01),
    "coupled": ({**GIVEN, "oversampling": 0.5}, False),
    "horizon": ({**GIVEN, "oversampling": 0.5}, 2),
    "max_dictionary": (GIVEN, 2),
    "max_replicates": ({**GIVEN, "width": 0.1}, 1),
    "width": (GIVEN, 0.1),
    "norm_bound": (GIVEN, 3.0),
    "noise_bound": (INFORMED, 2.0),
    "delta": (INFORMED, 0.01),
    "accuracy": ({**INFORMED, "width": "paper"}, 0.1),
    "epsilon": (GIVEN, 0.5),
    "discard": ({**GIVEN, "epsilon": 0.5, "on_uninformative": "evaluate"}, False),
    "on_uninformative": ({**GIVEN, "epsilon": 1.0}, "evaluate"),
    "batch_rule": (GIVEN, SumRule(7.0, max_size=3)),
    "batch_threshold": (GIVEN, 30.0),
    "max_batch_size": ({**GIVEN, "batch_threshold": 30.0}, 2),
    "acquisition": (GIVEN, "thompson"),
    "probability": (GIVEN, 0.9),
    "num_initial": (OVER_BOX, 6),
    "discrete_dims": (OVER_BOX, {0: [0.0, 0.5, 1.0]}),
    "acquisition_options": (OVER_BOX, {**QUICK, "fixed_features": {0: 0.25}}),
    "trust_region": (OVER_BOX, TrustRegion(length=0.1)),
    "keep_coordinates": (GIVEN, False),
    "seed": ({**GIVEN, "oversampling": 0.5}, 1),
    "num_children": (GIVEN, 2),
    "max_depth": ({**GIVEN, "norm_bound": 5.0}, 1),
    "radius": ({**GIVEN, "norm_bound": 5.0}, (0.1, 0.1)),
    "budget": (GIVEN, 20),
    "num_batches": (GIVEN, 20),
    "batch_sizes": (GIVEN, "growing"),
    "distinct": ({**GIVEN, "budget": 150}, False),
}
#: What a class cannot be constructed without.
NEEDED = {"BatchedElimination": {"budget": 60}}
#: Where a class needs another trial.
EXCEPTIONS = {
    ("AdaBKB", "bounds"): (GIVEN, 2 * BOUNDS),
    ("AdaBBKB", "bounds"): (GIVEN, 2 * BOUNDS),
    ("AdaGPUCB", "bounds"): (GIVEN, 2 * BOUNDS),
    ("EpsilonGreedy", "max_dictionary"): ({**GIVEN, "probability": 0.9}, 2),  # enough arms
    ("AdaGPUCB", "seed"): ({}, 1),  # which only fits to a random part of the results depend on
}
CASES = [
    (name, argument)
    for name, kind in ALGORITHMS.items()
    for argument in inspect.signature(kind).parameters
]


def tried(name, argument):
    r"""The trial of an argument, without what the class does not take."""
    beside, value = EXCEPTIONS.get((name, argument), TRIED[argument])
    known = inspect.signature(ALGORITHMS[name]).parameters
    start = {"arms": ARMS} if "arms" in known else {"bounds": BOUNDS}
    beside = {
        **start,
        **NEEDED.get(name, {}),
        "seed": 0,
        **{k: v for k, v in beside.items() if k in known},
    }
    return beside, {**beside, argument: value}


def observed(optimizer, steps=5):
    r"""Everything that can be seen of a short run."""
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            try:
                suggestion = optimizer.ask(at_most=4)
            except BatchCompleteError:
                suggestion = optimizer.pending
            expected = torch.tensor([id_ >= 0 for id_ in suggestion.ids])
            told = suggestion[expected]
            optimizer.tell(told, torch.sin(5 * told.X).sum(-1))
            seen += [suggestion.X.tolist(), suggestion.informative.tolist(), optimizer.width_now]
            seen += [optimizer.dictionary.tolist(), optimizer.num_steps, optimizer.norm_bound]
            seen += [len(optimizer.table.log.changes), optimizer.oversampling]
            seen += [optimizer.num_observations, optimizer.model_order]
        return [*seen, vars(optimizer.best()) | {"X": optimizer.best().X.tolist()}]


@pytest.mark.parametrize(("name", "argument"), CASES, ids=str)
def test_every_argument_has_an_effect(name, argument, monkeypatch):
    without, given = tried(name, argument)
    kind, steps = ALGORITHMS[name], 5
    if (name, argument) == ("AdaGPUCB", "seed"):
        monkeypatch.setattr("botorch_bkb.optimizers.updating.MOST_FITTED", 4)
        monkeypatch.setattr("botorch_bkb.optimizers.updating.FEW", 4)
        steps = 8
    assert observed(kind(**given), steps) != observed(kind(**without), steps)


def test_every_argument_is_tried():
    assert {argument for _, argument in CASES} == set(TRIED)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_signatures_are_explicit(name):
    parameters = inspect.signature(ALGORITHMS[name]).parameters.values()
    kinds = {p.kind for p in parameters}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters)
    documented = inspect.getdoc(ALGORITHMS[name])
    assert all(f"\n    {p.name}: " in documented for p in parameters)


def test_the_general_optimizer_takes_seven_arguments():
    assert list(inspect.signature(Optimizer).parameters) == [
        "domain", "model", "dictionary", "confidence", "batch", "acquisition", "seed"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "error", "match"),
    [
        # Arguments that a class does not have say where they belong.
        ("GPUCB", {"oversampling": 2.0}, TypeError, "BKB and BBKB sample it"),
        ("GPUCB", {"batch_threshold": 3.0}, TypeError, "GPBUCB pick batches"),
        ("GPUCB", {"epsilon": 0.1}, TypeError, "number of nats"),
        ("BKB", {"max_batch_size": 3}, TypeError, "pass batch_rule"),
        ("BBKB", {"epsilon": 0.1}, TypeError, "called probability"),
        ("EpsilonGreedy", {"epsilon": 0.1}, TypeError, "called probability"),
        ("EpsilonGreedy", {"acquisition": "ei"}, TypeError, "other acquisitions"),
        ("BBKB", {"compression": 1}, TypeError, "InformationThreshold"),
        ("CompressedUCB", {"oversampling": 2.0}, TypeError, "BKB and BBKB"),
        ("AdaBKB", {"num_initial": 3}, TypeError, "BKB\\(bounds"),
        ("AdaBKB", {"arms": ARMS}, TypeError, "cuts a box"),
        ("AdaGPUCB", {"arms": ARMS}, TypeError, "cuts a box"),
        ("AdaGPUCB", {"oversampling": 2.0}, TypeError, "every point observed"),
        ("AdaGPUCB", {"dictionary": AllPoints()}, TypeError, "every point observed"),
        ("AdaGPUCB", {"batch_threshold": 2.0}, TypeError, "pass batch_rule"),
        ("BBKB", {"kernel": RBFKernel()}, TypeError, "covar_module"),
        ("BBKB", {"oversamplng": 2.0}, TypeError, "did you mean 'oversampling'"),
        # Arguments without effect beside others are refused.
        ("BBKB", {"delta": 0.05}, InputDataError, "delta has no effect"),
        ("BBKB", {"noise_bound": 0.1}, InputDataError, "noise_bound has no effect"),
        ("BBKB", {"norm_bound": 2.0}, InputDataError, "norm_bound has no effect"),
        ("BKB", {"norm_bound": 2.0, "width": 1.0}, InputDataError, "norm_bound has no effect"),
        ("BBKB", {"norm_bound": "double"}, InputDataError, "depends on the norm"),
        (
            "BBKB",
            {"arms": None, "bounds": BOUNDS, "max_replicates": 1},
            InputDataError,
            "with arms",
        ),
        ("BBKB", {"discrete_dims": {0: [0.0]}}, InputDataError, "go with bounds"),
        ("BBKB", {"acquisition_options": {}}, InputDataError, "go with bounds"),
        (
            "BBKB",
            {"dictionary": AllPoints(), "oversampling": 2.0, "coupled": False},
            InputDataError,
            "oversampling, coupled has no effect",
        ),
        (
            "BBKB",
            {"batch_rule": SumRule(2.0), "batch_threshold": 3.0},
            InputDataError,
            "give them to the rule",
        ),
        ("BBKB", {"batch_rule": "one", "max_batch_size": 3}, InputDataError, "no effect"),
        ("BKB", {"oversampling": float("inf")}, InputDataError, "AllPoints"),
        ("BKB", {"oversampling": "theory"}, InputDataError, "horizon"),
        ("BKB", {"dictionary": 5}, InputDataError, "RidgeLeverageSampling"),
    ],
)
def test_what_has_no_effect_is_refused(name, arguments, error, match):
    kind = ALGORITHMS[name]
    start = {} if "arms" in arguments else {"arms": ARMS}
    start = start if "arms" in inspect.signature(kind).parameters else {"bounds": BOUNDS}
    start |= NEEDED.get(name, {})
    with pytest.raises(error, match=match):
        kind(**{**start, **arguments})


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"domain": ARMS}, "domain must be a Domain"),
        ({"model": RBFKernel()}, "model must be a Surrogate"),
        ({"dictionary": 100}, "dictionary must be a DictionaryRule"),
        ({"confidence": 2.0}, "confidence must be a Confidence"),
        ({"batch": "sum"}, "batch must be a BatchRule"),
        ({"acquisition": 3}, "acquisition must be one of"),
        ({"seed": "zero"}, "seed must be a whole number"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused(arguments, match):
    with pytest.raises(InputDataError, match=match):
        Optimizer(**{"domain": Arms(ARMS), **arguments})


@pytest.mark.parametrize(
    ("flat", "parts"),
    [
        ({"max_dictionary": 9}, {"dictionary": RidgeLeverageSampling(8.0, max_size=9)}),
        (
            {"oversampling": 3.0, "coupled": False},
            {"dictionary": RidgeLeverageSampling(3.0, coupled=False)},
        ),
        ({"batch_threshold": 9.0, "max_batch_size": 5}, {"batch": LocalRule(9.0, max_size=5)}),
        ({"batch_rule": "sum"}, {"batch": SumRule(2.0)}),
        ({"batch_rule": "one"}, {"batch": OneAtATime()}),
        ({"batch_rule": "hold"}, {"batch": HoldingRule(2.0)}),
        ({"acquisition": "thompson"}, {"acquisition": Thompson()}),
        ({"acquisition": Greedy(0.5)}, {"acquisition": Greedy(0.5)}),
        (
            {"norm_bound": 2.0, "delta": 0.2, "width": "information"},
            {"confidence": Confidence("information", 0.2, 2.0)},
        ),
    ],
    ids=str,
)
def test_flat_keywords_are_a_shorthand_for_parts(flat, parts):
    named = ALGORITHMS["BBKB"](ARMS, **GIVEN, **flat, seed=0)
    composed = Optimizer(
        Arms(ARMS), **{"model": Surrogate(**GIVEN), "batch": LocalRule(2.0), **parts}, seed=0
    )
    assert observed(named) == observed(composed)


def test_over_a_box_a_dictionary_is_capped_unless_a_theorem_forbids():
    def cap(**options):
        return ALGORITHMS["BBKB"](seed=0, **options).parts.dictionary.max_size

    box = {"bounds": torch.tensor([[0.0], [1.0]], dtype=torch.float64)}
    theory = {"oversampling": "theory", "horizon": 100}
    assert cap(**box) == 1000 and cap(**box, max_dictionary=7) == 7
    assert cap(**box, **theory) is None and cap(arms=ARMS) is None
    assert Optimizer(Box(box["bounds"])).parts.dictionary.max_size == 1000


def test_a_box_with_its_options_is_a_domain():
    flat = ALGORITHMS["BKB"](bounds=BOUNDS, num_initial=3, discrete_dims={1: [0.0, 1.0]}, seed=0)
    options = {"num_initial": 3, "discrete_dims": {1: [0.0, 1.0]}}
    composed = Optimizer(Box(BOUNDS, **options), seed=0)
    assert observed(flat, 3) == observed(composed, 3)


def test_a_subclass_may_pass_its_keywords_on():
    class Mine(ALGORITHMS["BBKB"]):
        def __init__(self, arms, *, mine=1, **kwargs):
            super().__init__(arms, **kwargs)

    mine = Mine(ARMS, mine=2, **GIVEN, seed=0)
    assert observed(mine) == observed(ALGORITHMS["BBKB"](ARMS, **GIVEN, seed=0))
    with pytest.raises(TypeError, match="Mine has no argument 'kernel': it is called covar_module"):
        Mine(ARMS, kernel=RBFKernel())
