r"""Optimizers with features in place of a dictionary: QFF-UCB, QFF-TS and their relatives."""

from __future__ import annotations

import warnings

import pytest
import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.exceptions.errors import InputDataError, UnsupportedError
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from botorch_bkb import (
    BBKB,
    BKB,
    AdaBBKB,
    AdaBKB,
    EpsilonGreedy,
    QuadratureFeatures,
    RandomFeatures,
    resume,
)
from botorch_bkb import run as run_optimizer
from botorch_bkb.acquisition import EI, UCB, Greedy, Thompson
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import HoldingRule, OneAtATime, ProductRule, SumRule
from botorch_bkb.confidence import Confidence
from botorch_bkb.domains import Arms, Box, Tree
from botorch_bkb.features import FeatureKernel
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import Optimizer
from botorch_bkb.optimizers.guarantees import paper_for, theory_for
from tests import naive
from tests.optimizers.inside import batch_of, hyper_of, inputs_of
from tests.optimizers.support import NOISE, Problem, kernel, play
from tests.optimizers.tree.support import through_a_file

#: For arms in a square with sides of five length-scales.
QFF, RFF = QuadratureFeatures(16), RandomFeatures(60)
BOUNDS = torch.tensor([[-1.0, 2.0], [1.0, 3.5]], dtype=torch.float64)
DOMAINS = [Arms(Problem().arms), Box(BOUNDS), Tree(BOUNDS)]


def f(X):
    return torch.sin(3 * X).sum(-1).double()


def ard():
    k = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    k.base_kernel.lengthscale = torch.tensor([0.5, 0.8], dtype=torch.float64)
    k.outputscale = torch.tensor(2.5, dtype=torch.float64)
    return k


def played(optimizer, steps=15):
    for _ in range(steps):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, f(suggestion.X))
    return optimizer


def dense(optimizer):
    r"""Mean and variance at all rows of the table, by the linear model on their features."""
    table, history, hyper = optimizer.table, optimizer.history, hyper_of(optimizer)
    with torch.no_grad():
        phi = table.kernel.features(table.X)
    y = hyper.units.to_model(history.means)
    noise = hyper.noise_var / history.weights
    mean, cov = naive.feature_regression(phi[history.rows], phi, y, noise)
    return mean, cov.diagonal()


def assert_current(optimizer, tolerance=1e-8):
    table = optimizer.table
    for ours, theirs in zip(table.moments(), dense(optimizer), strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)
    assert (table.residual() == 0).all()
    expected = float((table.counts * table.scores()).sum())
    assert table.effective_dimension == pytest.approx(expected, rel=max(1e-6, tolerance))


# ---------------------------------------------------------------------- the belief


@pytest.mark.parametrize("rule", [QFF, RFF], ids=["qff", "rff"])
@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: type(domain).__name__)
@pytest.mark.parametrize("given", [None, kernel, ard], ids=["fitted", "one", "ard"])
def test_moments_are_those_of_the_dense_regression(rule, domain, given):
    model = None if given is None else Surrogate(given(), NOISE)
    optimizer = Optimizer(domain, model=model, dictionary=rule, seed=0)
    for _ in range(4):
        played(optimizer, 5)
        assert_current(optimizer)
    assert len(optimizer.dictionary) == 0 and len(optimizer.table.dictionary) == 0
    # The model says the same at any input, in units of the rewards.
    table, units = optimizer.table, hyper_of(optimizer).units
    with torch.no_grad():
        posterior = optimizer.model.posterior(inputs_of(optimizer, torch.arange(len(table.X))))
    mean, var = units.to_rewards(table.mean()), table.variance() * units.variance_to_rewards(1.0)
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-7, rtol=0)
    torch.testing.assert_close(posterior.variance.squeeze(-1), var, atol=1e-7, rtol=0)


@pytest.mark.parametrize("keep", [True, False])
def test_any_sequence_of_changes_of_a_table(keep):
    torch.manual_seed(0)
    X = 2 * torch.rand(60, 2, dtype=torch.float64)
    features = RFF.belief_kernel(ard().requires_grad_(False), X)
    table = ArmTable(X, features, NOISE, torch.tensor([0]), keep=keep)
    for i in range(40):
        rows = torch.randint(len(table.X), (1 + 10 * (i % 7),))
        table.observe(rows, torch.randn(len(rows), dtype=torch.float64))
        if i % 3:
            table.set_dictionary(rows)
        if i % 10 == 5:
            table.extend(torch.rand(2, 2, dtype=torch.float64))
        phi, pulled = features.features(table.X), table.pulled
        counts = table.counts[pulled]
        mean, cov = naive.feature_regression(
            phi[pulled], phi, table.sums[pulled] / counts, NOISE / counts
        )
        for ours, theirs in zip(table.moments(), (mean, cov.diagonal()), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)
        some = torch.tensor([3, 3, 40])
        torch.testing.assert_close(table.covariance(some), cov[some][:, some])
        torch.testing.assert_close(table.covariance_with(7), cov[7])
        for ours, theirs in zip(table.moments_at(some), (mean, cov.diagonal()), strict=True):
            torch.testing.assert_close(ours, theirs[some], atol=1e-9, rtol=0)
        assert len(table.dictionary) == len(table.log.dictionary) == 0
        start = table.X[: table.log.num_rows]
        again = ArmTable.from_log(start, features, NOISE, table.log, keep=keep)
        assert torch.equal(torch.stack(again.moments()), torch.stack(table.moments()))
    expected = torch.linalg.slogdet(
        (phi[pulled].mT * counts) @ phi[pulled] / NOISE + torch.eye(60)
    ).logabsdet
    assert table.log_determinant == pytest.approx(float(expected), rel=1e-9)


def test_nothing_is_embedded_again_while_features_stay(monkeypatch):
    optimizer = played(Optimizer(DOMAINS[0], model=Surrogate(kernel(), NOISE), dictionary=RFF))
    rows = []
    plain = FeatureKernel.features

    def counted(self, X):
        rows.append(len(X))
        return plain(self, X)

    monkeypatch.setattr(FeatureKernel, "features", counted)
    for _ in range(100):
        played(optimizer, 1)
    assert sum(rows) == 0
    assert_current(optimizer)


@pytest.mark.parametrize("rule", [QFF, RFF], ids=["qff", "rff"])
def test_features_follow_fitted_length_scales(rule):
    problem = Problem(num_arms=200, noise=0.04)
    optimizer = BKB(problem.arms, dictionary=rule, seed=0)
    frequencies = optimizer.table.kernel.frequencies
    before = optimizer.table.kernel.base_kernel.lengthscale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the nodes are few while length-scales are short
        optimizer.tell(torch.arange(20), problem.rewards(torch.arange(20)))
        for _ in play(optimizer, problem, 60):
            assert_current(optimizer)
    after = optimizer.table.kernel
    assert torch.equal(after.frequencies, frequencies)
    assert not torch.equal(after.base_kernel.lengthscale, before)
    assert problem.f.max() - problem.f[optimizer.best().index] < 0.3


# ---------------------------------------------------------------------- picks


@pytest.mark.parametrize("threshold", [None, 3.0], ids=["one", "sum"])
def test_every_pick_of_qff_ucb_equals_the_plain_transcription(threshold):
    problem = Problem()
    rule = OneAtATime() if threshold is None else SumRule(threshold)
    optimizer = Optimizer(
        Arms(problem.arms),
        model=Surrogate(kernel(), NOISE),
        dictionary=QFF,
        confidence=Confidence(2.0),
        batch=rule,
        acquisition=UCB(),
        seed=0,
    )
    run = naive.FeatureRun(naive.quadrature_features(problem.arms / 0.4, 16), NOISE, 2.0)
    first = optimizer.ask()
    rewards = problem.rewards(first.indices)
    run.observe(first.indices.tolist(), rewards.tolist())
    optimizer.tell(first, rewards)
    while optimizer.num_observations < 50:
        expected = run.next_batch(threshold)
        suggestion = optimizer.ask()
        assert suggestion.indices.tolist() == expected
        rewards = problem.rewards(suggestion.indices)
        run.observe(expected, rewards.tolist())
        optimizer.tell(suggestion, rewards)
    for ours, theirs in zip(optimizer.table.moments(), run.moments(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=0)


def test_many_nodes_make_the_picks_of_the_exact_gp():
    problem, same = Problem(), Problem()
    options = problem.options(width=2.0)
    ours = BKB(problem.arms, dictionary=QuadratureFeatures(36), **options)
    exact = naive.Run(problem.K, NOISE, 2.0, 0.1, 1.0)
    exact.width = lambda: 2.0
    first = ours.ask()
    ours.tell(first, problem.rewards(first.indices))
    exact.observe(first.indices.tolist(), same.rewards(first.indices).tolist())
    for suggestion in play(ours, problem, 60):
        picks = exact.next_batch(list(range(60)), 1.0, "one", exact=True)
        assert suggestion.indices.tolist() == picks
        exact.observe(picks, same.rewards(suggestion.indices).tolist())


def test_thompson_samples_over_arms_have_the_posterior_moments():
    problem = Problem(num_arms=6)
    optimizer = BKB(problem.arms, dictionary=QFF, acquisition="thompson", **problem.options())
    optimizer.tell([0, 1, 2], problem.f[:3])
    table, generator = optimizer.table, torch.Generator().manual_seed(0)
    values = table.mean().unsqueeze(-1) + table.coordinates(slice(None)) @ table.draw(
        40_000, generator
    )
    covariance = table.covariance(torch.arange(6))
    sd = covariance.diagonal().sqrt()
    # Five standard deviations of a covariance of 40,000 normal samples.
    size = torch.outer(sd, sd) * (2 / 40_000) ** 0.5
    assert ((values.cov() - covariance).abs() < 5 * size).all()


@pytest.mark.parametrize("batch", [SumRule(20.0), ProductRule(30.0), HoldingRule(4.0)], ids=str)
@pytest.mark.parametrize("acquisition", [UCB(), EI(), Thompson(), Greedy(0.3)], ids=str)
def test_batch_rules_and_acquisitions_over_arms(batch, acquisition):
    optimizer = Optimizer(
        DOMAINS[0],
        model=Surrogate(kernel(), NOISE),
        dictionary=QFF,
        batch=batch,
        acquisition=acquisition,
        seed=0,
    )
    sizes = []
    for _ in range(6):
        suggestion = optimizer.ask()
        sizes.append(len(suggestion))
        optimizer.tell(suggestion[:1], f(suggestion.X[:1]))  # results come one by one
        assert_current(optimizer)
        while len(optimizer.pending):
            optimizer.tell(optimizer.pending, f(optimizer.pending.X))
        assert_current(optimizer)
    assert max(sizes) > 1


@pytest.mark.parametrize("acquisition", [UCB(), EI(), Thompson(), qLogNoisyExpectedImprovement])
def test_acquisitions_over_a_box(acquisition):
    optimizer = Optimizer(
        Box(BOUNDS),
        model=Surrogate(ard(), NOISE),
        dictionary=QFF,
        batch=SumRule(max_size=3, threshold=8.0),
        acquisition=acquisition,
        seed=0,
    )
    played(optimizer, 6)
    assert_current(optimizer)
    assert optimizer.num_observations > 8 and optimizer.gap() >= 0


def test_hallucinated_picks_are_conditioned_on_exactly():
    optimizer = played(
        Optimizer(DOMAINS[0], model=Surrogate(kernel(), NOISE), dictionary=RFF, seed=0), 5
    )
    cov = optimizer.table.covariance(torch.arange(60))
    batch = batch_of(optimizer, batch=SumRule(30.0))
    while not batch.complete:
        picks = list(batch.picks)
        if picks:
            C = cov[picks][:, picks] + NOISE * torch.eye(len(picks), dtype=torch.float64)
            var = (cov - cov[:, picks] @ torch.linalg.inv(C) @ cov[picks]).diagonal()
            upper = optimizer.table.mean() + optimizer.width_now * var.sqrt()
            assert upper[batch.pick()] == pytest.approx(float(upper.max()), abs=1e-9)
        else:
            batch.pick()
    assert len(batch.picks) > 3


@pytest.mark.parametrize("algorithm", [BKB, BBKB, EpsilonGreedy])
def test_the_named_algorithms_take_features(algorithm):
    problem = Problem()
    optimizer = algorithm(
        problem.arms, covar_module=kernel(), noise_var=NOISE, dictionary=RFF, seed=0
    )
    for _ in play(optimizer, problem, 40):
        pass
    assert_current(optimizer)
    assert optimizer.oversampling is None


@pytest.mark.parametrize("algorithm", [AdaBKB, AdaBBKB])
@pytest.mark.parametrize("rule", [QFF, RFF], ids=["qff", "rff"])
def test_trees_take_features(algorithm, rule):
    optimizer = algorithm(
        bounds=BOUNDS, covar_module=ard(), noise_var=NOISE, dictionary=rule, seed=0
    )
    played(optimizer)
    assert_current(optimizer)
    assert len(optimizer.tree.leaves) > 5


# ---------------------------------------------------------------------- saving


@pytest.mark.parametrize("rule", [QFF, RFF], ids=["qff", "rff"])
@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: type(domain).__name__)
@pytest.mark.parametrize("given", [None, ard], ids=["fitted", "given"])
def test_a_run_saved_and_resumed_goes_on_bit_for_bit(rule, domain, given):
    def make():
        model = None if given is None else Surrogate(given(), NOISE)
        return Optimizer(domain, model=model, dictionary=rule, batch=SumRule(4.0), seed=0)

    whole, second = make(), make()
    for _ in range(8):
        suggestion = whole.ask(at_most=2)
        whole.tell(suggestion, f(suggestion.X))
        second.load_state_dict(through_a_file(whole.state_dict()))
        a, b = (torch.stack(optimizer.table.moments()) for optimizer in (whole, second))
        assert torch.equal(a, b)
        a, b = (optimizer.ask(at_most=1).X for optimizer in (whole, second))
        assert torch.equal(a, b)
        whole.tell(whole.pending, f(whole.pending.X))
    assert not any("frequencies" in name for name in whole.state_dict()["model"]["kernel"])


def test_a_state_belongs_to_its_features():
    arms = Problem().arms
    saved = played(BKB(arms, dictionary=RFF, seed=0)).state_dict()
    for other in (RandomFeatures(60, seed=1), RandomFeatures(62), QFF, None):
        with pytest.raises(InputDataError, match="believes should be"):
            BKB(arms, dictionary=other, seed=0).load_state_dict(saved)
    plain = played(BKB(arms, seed=0)).state_dict()
    with pytest.raises(InputDataError, match="believes should be"):
        BKB(arms, dictionary=RFF, seed=0).load_state_dict(plain)


def test_a_journal_rebuilds_the_optimizer(tmp_path):
    arms = Problem().arms
    path = tmp_path / "journal.sqlite"

    def objective(x):
        return float(f(x))

    def make():
        return BKB(arms, dictionary=RandomFeatures(30, seed=3), seed=0)

    run_optimizer(make(), objective, 6, journal=path)
    result = resume(path, objective, budget=12)
    assert result.optimizer.parts.dictionary == RandomFeatures(30, seed=3)
    straight = run_optimizer(make(), objective, 12)
    assert torch.equal(
        torch.stack(result.optimizer.table.moments()),
        torch.stack(straight.optimizer.table.moments()),
    )


def test_other_arms():
    problem = Problem()
    optimizer = played(BKB(problem.arms, dictionary=RFF, **problem.options(width=2.0)))
    arms = torch.cat([problem.arms[::2], problem.arms[:5] + 0.1])
    before = optimizer.model.posterior(arms).mean.detach().squeeze(-1)
    optimizer.set_arms(arms)
    torch.testing.assert_close(optimizer.table.mean()[: len(arms)], before, atol=1e-9, rtol=0)
    played(optimizer, 3)
    assert_current(optimizer)


def test_long_runs_have_short_logs():
    arms = Problem().arms
    optimizer = BKB(
        arms, covar_module=kernel(), noise_var=NOISE, dictionary=RandomFeatures(8), seed=0
    )
    played(optimizer, 600)
    assert len(optimizer.table.log.changes) <= 520
    assert_current(optimizer)


# ---------------------------------------------------------------------- hostile inputs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", [QFF, RFF], ids=["qff", "rff"])
def test_single_precision(rule):
    for domain in (Arms(Problem().arms.float()), Box(BOUNDS.float()), Tree(BOUNDS.float())):
        model = Surrogate(ard().float(), NOISE)
        optimizer = played(Optimizer(domain, model=model, dictionary=rule, seed=0), 10)
        assert optimizer.ask().X.dtype == torch.float32
        assert_current(optimizer, 1e-4)
        assert optimizer.table.mean().dtype == torch.float64


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", [QFF, RFF], ids=["qff", "rff"])
def test_one_arm_and_equal_arms(rule):
    one = torch.full((1, 2), 0.5, dtype=torch.float64)
    for arms in (one, one.expand(5, 2), torch.cat([one, one, one + 1])):
        optimizer = played(Optimizer(Arms(arms), dictionary=rule, seed=0), 10)
        assert optimizer.best().X in arms
        assert_current(optimizer)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_rewards_of_any_scale(scale):
    arms = Problem().arms
    optimizer = BKB(arms, dictionary=QuadratureFeatures(24), seed=0)
    plain = BKB(arms, dictionary=QuadratureFeatures(24), seed=0)
    for _ in range(12):
        a, b = optimizer.ask(), plain.ask()
        assert torch.equal(a.X, b.X)
        optimizer.tell(a, scale * f(a.X))
        plain.tell(b, f(b.X))
    assert optimizer.best().mean == pytest.approx(scale * plain.best().mean, rel=1e-5)


def test_little_noise_and_many_pulls():
    problem = Problem(num_arms=20)
    optimizer = BKB(
        problem.arms, covar_module=kernel(), noise_var=1e-7, dictionary=RFF, width=2.0, seed=0
    )
    rows = torch.arange(20).repeat(30)
    optimizer.tell(rows, problem.f[rows])
    played_rows = optimizer.ask()
    optimizer.tell(played_rows, problem.f[played_rows.indices])
    # Conditions of 1e10: half of the digits.
    torch.testing.assert_close(optimizer.table.mean(), problem.f, atol=1e-5, rtol=0)
    assert (optimizer.table.variance() >= 0).all()


def test_results_with_noise_of_their_own():
    arms = Problem().arms
    optimizer = BKB(arms, covar_module=kernel(), noise_var=NOISE, dictionary=RFF, seed=0)
    optimizer.tell([0, 1, 1, 5], [1.0, 2.0, 2.5, 0.0], [0.01, 1.0, 0.1, 0.5])
    assert_current(optimizer)


# ---------------------------------------------------------------------- errors


def test_no_theorem_covers_features():
    for rule in (QFF, RFF):
        assert theory_for(rule, OneAtATime(), has_norm=True) is None
        assert paper_for(rule, OneAtATime()) is None
        with pytest.raises(InputDataError, match="no theorem covers this dictionary"):
            BKB(Problem().arms, dictionary=rule, width="theory", norm_bound=1.0)


def test_what_has_no_features_is_refused_at_once():
    arms = Problem().arms
    with pytest.raises(UnsupportedError, match="QuadratureFeatures needs an RBFKernel"):
        BKB(arms, covar_module=MaternKernel(), dictionary=QFF)
    with pytest.raises(UnsupportedError, match="16\\^8 = 4,294,967,296 features in 8 dimensions"):
        BKB(torch.rand(9, 8, dtype=torch.float64), dictionary=QFF)
    with pytest.raises(InputDataError, match="oversampling has no effect"):
        BKB(arms, dictionary=QFF, oversampling=3.0)
    optimizer = BKB(arms, covar_module=MaternKernel(nu=1.5), dictionary=RFF, seed=0)
    played(optimizer)
    assert_current(optimizer)


def test_too_few_nodes_warn():
    with pytest.warns(Warning, match="too few nodes for inputs that extend over"):
        BKB(Problem().arms, covar_module=kernel(0.1), noise_var=NOISE, dictionary=QFF)
