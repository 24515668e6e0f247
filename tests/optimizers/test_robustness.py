r"""Units, order, constraints, growth: what must not matter does not."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from botorch.acquisition import (
    PosteriorStandardDeviation,
    UpperConfidenceBound,
    qUpperConfidenceBound,
)
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.exceptions.errors import InputDataError, UnsupportedError

from botorch_bkb import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    AllPoints,
    CompressedEI,
    CompressedUCB,
    ConvergedError,
    InformationThreshold,
)
from botorch_bkb.optimizers import Convergence
from tests.optimizers.support import Problem, kernel
from tests.optimizers.test_box import BOUNDS, FAST

ARMS = torch.linspace(0, 10, 100, dtype=torch.float64).unsqueeze(-1)
LINE = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
SQUARE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def given(noise_var=0.1, **more):
    return {"covar_module": kernel(1.0), "noise_var": noise_var, "seed": 0, **more}


@pytest.mark.parametrize("scale", [1e-9, 1e9])
@pytest.mark.parametrize("algorithm", [GPUCB, CompressedEI])
def test_scales_of_rewards_do_not_matter_over_a_box(algorithm, scale):
    results = []
    for s in (1.0, scale):
        optimizer = algorithm(bounds=LINE, seed=0, acquisition_options=FAST)
        for _ in range(8):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, -s * (suggestion.X - 0.3) ** 2)
        results.append((optimizer.best().X.item(), optimizer.gap() / s))
    assert results[0] == pytest.approx(results[1], rel=1e-2, abs=1e-3)


def test_the_model_has_small_units_too():
    optimizer = GPUCB(ARMS, seed=0)
    optimizer.tell(torch.arange(0, 100, 5), 1e-9 * ARMS[::5].sin())
    mean = optimizer.model.posterior(optimizer.best().X.unsqueeze(0)).mean.item()
    assert mean == pytest.approx(optimizer.best().mean, rel=1e-3)


@pytest.mark.parametrize("algorithm", [GPUCB, BKB, CompressedUCB])
def test_results_nobody_asked_for_teach_the_same_together_and_one_by_one(algorithm):
    rows = torch.randint(100, (60,), generator=torch.Generator().manual_seed(0))
    everything = {"dictionary": AllPoints()} if algorithm is BKB else {}
    together, single = (algorithm(ARMS, **given(**everything)) for _ in range(2))
    together.tell(rows, ARMS[rows].sin())
    for row in rows.tolist():
        single.tell([row], ARMS[row].sin())
    assert together.information_gain == pytest.approx(single.information_gain, rel=1e-6)
    assert together.width_now == pytest.approx(single.width_now, rel=1e-6)


def test_many_results_nobody_asked_for():
    rows = torch.randint(100, (3000,), generator=torch.Generator().manual_seed(0))
    optimizer = GPUCB(ARMS, **given())
    optimizer.tell(rows, ARMS[rows].sin())
    assert optimizer.information_gain == pytest.approx(optimizer.table.log_determinant / 2)


@pytest.mark.parametrize("algorithm", [GPUCB, BKB, BBKB, CompressedUCB])
def test_results_are_seen_while_something_is_pending(algorithm):
    optimizer = algorithm(ARMS, **given())
    optimizer.tell([50], [0.0])
    optimizer.ask(at_most=1)
    for _ in range(30):
        optimizer.tell([7], [1.0])
    assert optimizer.best().index == 7 and optimizer.best().mean > 0.9


def test_the_threshold_sees_results_while_something_is_pending():
    orders = []
    for straggler in (True, False):
        optimizer = CompressedUCB(ARMS, **given(epsilon=0.1))
        optimizer.tell([50], [0.0])
        if straggler:
            optimizer.ask(at_most=1)
        for _ in range(30):
            optimizer.tell([7], [1.0])
        orders.append(optimizer.model_order)
    assert orders[0] == orders[1] < 10


@pytest.mark.parametrize(
    "more",
    [
        {"acquisition_options": {"fixed_features": {0: 0.9}}},
        {"discrete_dims": {0: [0.0, 0.5, 1.0]}},
    ],
    ids=["fixed", "discrete"],
)
def test_designs_satisfy_linear_constraints(more):
    below = (torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]), -1.0)  # x0 + x1 <= 1
    options = {**more.get("acquisition_options", {}), "inequality_constraints": [below]}
    more = {**more, "acquisition_options": options}
    X = GPUCB(bounds=SQUARE, seed=0, num_initial=10, **more).ask().X
    assert len(X) == 10 and (X.sum(-1) <= 1 + 1e-6).all()


def test_told_points_help_where_a_design_does_not_find_the_feasible_set():
    def inside(x):
        return 1e-5 - (x - 0.5).square().sum(-1)

    options = {**FAST, "nonlinear_inequality_constraints": [(inside, True)]}
    optimizer = BKB(bounds=SQUARE, seed=0, acquisition_options=options)
    with pytest.raises(InputDataError, match="feasible points first"):
        optimizer.ask()
    X = 0.5 + 1e-3 * torch.rand(9, 2, generator=torch.Generator().manual_seed(0)).double()
    optimizer.tell(X, X.sum(-1))
    assert (inside(optimizer.ask().X) >= -1e-6).all()


@pytest.mark.parametrize("mode", ["skip", "stop", "evaluate"])
@pytest.mark.parametrize("discard", [True, False])
def test_a_box_where_nothing_is_informative(mode, discard):
    optimizer = CompressedEI(
        bounds=LINE, epsilon=0.3, discard=discard, on_uninformative=mode,
        **given(2.0), acquisition_options=FAST,
    )  # fmt: skip
    first = optimizer.ask()
    optimizer.tell(first, first.X)
    if mode == "stop":
        with pytest.raises(ConvergedError):
            optimizer.ask()
        return
    suggestion = optimizer.ask()
    assert not suggestion.informative.any() and suggestion.X.isfinite().all()


def test_nothing_grows_with_results_that_are_left_out(monkeypatch):
    monkeypatch.setattr("botorch_bkb.optimizers.optimizer.MOST_CHANGES", 20)
    optimizer = CompressedUCB(
        bounds=LINE, epsilon=0.3, on_uninformative="evaluate", **given(),
        acquisition_options={"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 5}},
    )  # fmt: skip
    other = CompressedUCB(bounds=LINE, epsilon=0.3, on_uninformative="evaluate", **given(),
                          acquisition_options=optimizer.domain.acquisition_options)  # fmt: skip
    for i in range(60):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, torch.sin(3 * suggestion.X))
        if i == 30:
            other.load_state_dict(optimizer.state_dict())
        elif i > 30:
            again = other.ask()
            assert torch.equal(again.X, suggestion.X)
            other.tell(again, torch.sin(3 * again.X))
    saved = optimizer.state_dict()
    assert len(saved["table"]["changes"]) <= 21 and len(saved["observations"]["added"]) < 40
    assert optimizer.num_observations > 60 > optimizer.model_order


def test_acquisition_functions_of_the_user_are_in_units_of_the_rewards():
    seen = {}

    def remember(name):
        def make(model):
            X = torch.zeros(100, 1, 1).double() if name == "arms" else torch.zeros(1, 1, 1).double()
            seen[name] = float(model.posterior(X).mean.max())
            return UpperConfidenceBound(model, beta=1.0)

        return make

    arms = GPUCB(ARMS, seed=0, acquisition=remember("arms"))
    box = GPUCB(bounds=ARMS[[0, -1]], seed=0, acquisition=remember("box"), acquisition_options=FAST)
    for optimizer in (arms, box):
        optimizer.tell(ARMS[::9], 1000 + 50 * ARMS[::9].sin())
        optimizer.ask()
    assert 900 < seen["arms"] < 1100 and 900 < seen["box"] < 1100


def test_classes_botorch_cannot_construct_are_refused_at_once():
    with pytest.raises(InputDataError, match="input constructor"):
        BKB(bounds=LINE, acquisition=PosteriorStandardDeviation)
    with pytest.raises(InputDataError, match="lambda model"):
        BKB(ARMS, acquisition=qKnowledgeGradient)
    optimizer = BKB(ARMS, acquisition=lambda m: qUpperConfidenceBound(m, beta=1.0), seed=0)
    optimizer.tell([0, 1, 2, 3], [0.0, 1.0, 0.5, 0.2])
    with pytest.raises(UnsupportedError, match="analytic"):
        optimizer.ask()


def test_classes_that_need_bounds():
    options = {"num_restarts": 1, "raw_samples": 2, "options": {"maxiter": 1}}
    optimizer = BKB(
        bounds=LINE, seed=0, acquisition=qKnowledgeGradient, acquisition_options=options
    )
    first = optimizer.ask()
    optimizer.tell(first, first.X)
    assert len(optimizer.ask()) == 1


@pytest.mark.parametrize("discard", [True, False])
def test_the_cap_holds_for_what_is_kept(discard):
    optimizer = CompressedUCB(
        ARMS, epsilon=0.01, discard=discard, max_dictionary=5,
        covar_module=kernel(0.1), noise_var=0.01, seed=0,
    )  # fmt: skip
    with pytest.warns(match="5 of them kept"):
        optimizer.tell(torch.arange(100), ARMS.sin())
    assert len(optimizer.dictionary) == 5


def test_a_batch_over_a_box_is_resumed_bit_for_bit():
    def make():
        return GPBUCB(bounds=SQUARE, seed=0, batch_threshold=1e30, max_batch_size=6,
                      acquisition_options=FAST)  # fmt: skip

    optimizer, resumed = make(), make()
    first = optimizer.ask()
    optimizer.tell(first, torch.sin(5 * first.X).sum(-1))
    optimizer.ask(at_most=4)
    resumed.load_state_dict(optimizer.state_dict())
    assert torch.equal(optimizer.ask(at_most=2).X, resumed.ask(at_most=2).X)


def test_a_skipped_point_that_is_told_counts_once():
    problem = Problem()
    optimizer = CompressedUCB(problem.arms, **problem.options(epsilon=0.5, width="theory"))
    for _ in range(40):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, problem.rewards(suggestion.indices))
    assert optimizer.num_steps == optimizer.num_observations == 40


@pytest.mark.parametrize(
    "options", [{"q": 2}, {"nope": 1}, {"bounds": 1}, {"num_restarts": 0}, {"raw_samples": 2}]
)
def test_options_that_are_none(options):
    with pytest.raises(InputDataError):
        BKB(bounds=BOUNDS, acquisition_options=options)


def test_states_of_another_kind_or_with_gaps_are_refused():
    optimizer = CompressedUCB(ARMS, **given())
    optimizer.tell([3, 4], [0.0, 1.0])
    state = optimizer.state_dict()
    with pytest.raises(InputDataError, match="believes"):
        CompressedUCB(ARMS, discard=False, **given()).load_state_dict(state)
    parts = ("observations", "in_flight", "model", "dictionary", "confidence", "table")
    for part, key in [(name, key) for name in parts for key in state[name]]:
        gap = {k: v for k, v in state[part].items() if k != key}
        with pytest.raises(InputDataError, match=f"damaged.*{key}"):
            CompressedUCB(ARMS, **given()).load_state_dict({**state, part: gap})


def test_parts_of_a_suggestion():
    suggestion = BBKB(bounds=BOUNDS, seed=0).ask()
    for part in (1, np.int64(1), torch.tensor(1), slice(1, 2), torch.tensor([1])):
        assert suggestion[part].ids == (1,)
    with pytest.raises((TypeError, IndexError)):
        suggestion[1.5]


def test_convergence_survives_pickling():
    error = pickle.loads(pickle.dumps(ConvergedError(Convergence(0.1, 0.2, 2.0))))
    assert error.convergence == Convergence(0.1, 0.2, 2.0)


def test_bad_thresholds():
    with pytest.raises(InputDataError, match="discard"):
        InformationThreshold(discard="no")
    rule = InformationThreshold(np.float32(0.1))
    assert rule.least_score == pytest.approx(math.expm1(0.2), rel=1e-6)
