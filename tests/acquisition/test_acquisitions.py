from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition import AcquisitionFunction, PosteriorMean
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.exceptions.errors import InputDataError
from botorch.models.deterministic import GenericDeterministicModel
from gpytorch.kernels import RBFKernel
from torch.distributions import Normal

from botorch_bkb import BKB, GPBUCB
from botorch_bkb.acquisition import (
    EI,
    MPI,
    PI,
    UCB,
    Acquisition,
    AcquisitionContext,
    FromBoTorch,
    Greedy,
    InTurn,
    NoisyEI,
    Thompson,
    as_acquisition,
)
from botorch_bkb.acquisition.moments import FixedMoments
from botorch_bkb.confidence import Confidence
from botorch_bkb.domains import Arms, Box, Tree
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import Optimizer

MEAN = torch.tensor([0.0, 0.5, -1.0], dtype=torch.float64)
VAR = torch.tensor([1.0, 0.04, 4.0], dtype=torch.float64)
SQUARE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
GIVEN = {"covar_module": RBFKernel(), "noise_var": 0.1}


class Known(AcquisitionContext):
    r"""Three points whose belief is known."""

    width = 1.5
    seed = 0
    observed = SQUARE
    marginals = FixedMoments(MEAN, VAR)
    best_reward = 0.3
    best_mean = 0.5
    model = FixedMoments(10 * MEAN, 100 * VAR)

    def sample_path(self):
        return GenericDeterministicModel(lambda X: X.square())


def values(acquisition: Acquisition) -> torch.Tensor:
    X = torch.arange(3, dtype=torch.float64).reshape(3, 1, 1)
    return acquisition.function(Known())(X)


def log_expected_improvement(best: float) -> torch.Tensor:
    sd, normal = VAR.sqrt(), Normal(0.0, 1.0)
    z = (MEAN - best) / sd
    return (sd * (normal.log_prob(z).exp() + z * normal.cdf(z))).log()


def upper(model, width=2.0):
    r"""A function that makes an acquisition function of a model."""
    return UCB().function(type("Wide", (Known,), {"marginals": model, "width": width})())


@pytest.mark.parametrize(
    ("acquisition", "expected"),
    [
        (UCB(), MEAN + 1.5 * VAR.sqrt()),
        (UCB(0.5), MEAN + 0.75 * VAR.sqrt()),
        (EI(), log_expected_improvement(0.3)),
        (MPI(), log_expected_improvement(0.5)),
        (PI(), Normal(0.0, 1.0).cdf((MEAN - 0.3) / VAR.sqrt()).log()),
        (Thompson(), torch.tensor([0.0, 1.0, 4.0]).double()),
        (Greedy(0.3), MEAN),
        (FromBoTorch(upper), 10 * MEAN + 20 * VAR.sqrt()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Acquisition) else "",
)
def test_values_are_those_of_the_formulas(acquisition, expected):
    torch.testing.assert_close(values(acquisition), expected, atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("ucb", UCB()),
        ("ei", EI()),
        ("mpi", MPI()),
        ("pi", PI()),
        ("thompson", Thompson()),
        ("greedy", Greedy(0.1)),
    ],
)
def test_names(name, rule):
    assert as_acquisition(name) == rule
    assert as_acquisition(rule) is rule


def test_functions_and_classes_of_botorch_are_wrapped():
    assert as_acquisition(upper) == FromBoTorch(upper)
    assert as_acquisition(LogExpectedImprovement).make is LogExpectedImprovement


@pytest.mark.parametrize("acquisition", ["UCB", "qLogNoisyExpectedImprovement", "", 3, None, []])
def test_what_is_no_acquisition_is_refused(acquisition):
    with pytest.raises(InputDataError, match="acquisition must be one of ucb, ei"):
        as_acquisition(acquisition)


@pytest.mark.parametrize("probability", [-0.1, 1.1, math.nan])
def test_greedy_needs_a_probability(probability):
    with pytest.raises(InputDataError, match="probability must be"):
        Greedy(probability)


def test_both_ends_are_probabilities():
    assert (Greedy(0).probability, Greedy(1).probability) == (0, 1)


class Own(AcquisitionFunction):
    r"""A class that BoTorch does not know."""


def test_a_class_needs_an_input_constructor():
    with pytest.raises(InputDataError, match="no input constructor for Own"):
        FromBoTorch(Own)


def test_over_arms_a_class_is_refused():
    with pytest.raises(InputDataError, match="Over arms pass a function that makes an analytic"):
        FromBoTorch(LogExpectedImprovement).check_arms()
    with pytest.raises(InputDataError, match="got the class itself"):
        Optimizer(Arms(SQUARE), acquisition=qLogNoisyExpectedImprovement)
    Optimizer(Box(SQUARE), acquisition=qLogNoisyExpectedImprovement)


@pytest.mark.parametrize("rule", [UCB(), EI(), Thompson(), Greedy(), FromBoTorch(upper)])
def test_other_rules_rank_arms(rule):
    Optimizer(Arms(SQUARE), acquisition=rule)


def test_a_rule_of_ones_own_is_used():
    class Least(Acquisition):
        def function(self, context):
            return PosteriorMean(context.marginals, maximize=False)

    optimizer = Optimizer(Arms(torch.eye(4, dtype=torch.float64)), acquisition=Least(), seed=0)
    optimizer.tell([0, 1, 2, 3], [0.0, 1.0, -5.0, 2.0])
    assert optimizer.ask().indices.tolist() == [2]


def test_exploration_picks_the_largest_variance_given_the_picks_before():
    X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.3
    options = {"covar_module": kernel, "noise_var": 0.1, "batch_threshold": 1e3, "seed": 0}
    optimizer = GPBUCB(X, acquisition="explore", **options)
    optimizer.tell([3, 8], [100.0, -100.0])
    picks = optimizer.ask(at_most=6).indices.tolist()
    K = kernel(X).to_dense().detach()
    seen = [3, 8]
    for pick in picks:
        inner = K[seen][:, seen] + 0.1 * torch.eye(len(seen), dtype=torch.float64)
        var = K.diagonal() - (K[:, seen] * torch.linalg.solve(inner, K[seen]).mT).sum(-1)
        assert pick == int(var.argmax())
        seen.append(pick)


def test_exploration_over_a_box_ignores_the_rewards():
    bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    asked = []
    for scale in (1.0, -5.0):
        kernel = RBFKernel().double()
        kernel.lengthscale = 0.2
        optimizer = BKB(
            bounds=bounds, covar_module=kernel, noise_var=0.1, acquisition="explore", seed=0
        )
        X = torch.tensor([[0.1], [0.2], [0.6], [0.7]], dtype=torch.float64)
        optimizer.tell(X, scale * X)
        asked.append(float(optimizer.ask().X))
    assert asked[0] == pytest.approx(asked[1], abs=1e-3) == pytest.approx(1.0, abs=1e-2)


def test_rules_take_turns():
    in_turn = InTurn((UCB(), EI(), MPI()))
    assert [in_turn.turn(n) for n in (0, 4, 8)] == [UCB(), EI(), MPI()]
    assert in_turn.rules == (UCB(), EI(), MPI()) and UCB().turn(5) == UCB()
    assert torch.equal(values(in_turn), values(UCB()))


@pytest.mark.parametrize("rules", [(), [UCB()], UCB(), (UCB(), "ei"), (InTurn((UCB(),)),)])
def test_what_cannot_take_turns(rules):
    with pytest.raises(InputDataError, match="tuple of one or more other acquisition rules"):
        InTurn(rules)


def test_over_arms_batches_take_turns():
    arms = torch.eye(3, dtype=torch.float64)
    optimizer = BKB(arms, acquisition=InTurn((UCB(), Greedy(0.0))), num_initial=1, seed=0)
    optimizer.tell([0], [1.0])
    assert int(optimizer.ask().indices) == 0  # the highest mean
    optimizer.tell([0], [1.0])
    assert int(optimizer.ask(distinct=True).indices) != 0  # the highest bound
    with pytest.raises(InputDataError, match="for a box, got arms"):
        BKB(arms, acquisition=InTurn((UCB(), NoisyEI())))


@pytest.mark.parametrize("n", [None, 1])
def test_a_share_of_the_width_over_arms(n):
    arms = torch.eye(3, dtype=torch.float64)
    for share, expected in ((0.0, {0}), (1.0, {1, 2})):
        optimizer = BKB(arms, acquisition=UCB(share), num_initial=1, **GIVEN, seed=0)
        optimizer.tell([0], [0.5])
        assert int(optimizer.ask(n).indices) in expected
    with pytest.raises(InputDataError, match="share must be"):
        UCB(-1.0)
    with pytest.raises(InputDataError, match="A tree is searched by upper bounds"):
        Optimizer(Tree(SQUARE), acquisition=UCB(0.5))


@pytest.mark.parametrize(
    ("domain", "options", "expected"),
    [
        (Box(SQUARE), {}, InTurn((UCB(), UCB(0.25)))),
        (Box(SQUARE), {"model": Surrogate(RBFKernel())}, InTurn((UCB(), UCB(0.25)))),
        (Box(SQUARE), {"model": Surrogate(**GIVEN)}, InTurn((UCB(), UCB(0.25)))),
        (Box(SQUARE), {"confidence": Confidence("theory", norm_bound=1.0)}, UCB()),
        (Box(SQUARE), {"confidence": Confidence(1.5)}, UCB()),
        (Tree(SQUARE), {}, UCB()),
        (Arms(SQUARE), {}, UCB()),
    ],
)
def test_what_is_maximised_by_default(domain, options, expected):
    assert Optimizer(domain, **options).parts.acquisition == expected
