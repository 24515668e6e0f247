r"""Device discipline without a GPU, and dtype discipline.

Two proofs that nothing silently lands on the CPU: tensor factories without an explicit
device are refused while our own code runs, and the tensor core runs on fake tensors of
another device, which raise where two devices meet. That device is "cuda" where torch was
built with it; the CPU build cannot index such tensors, and "meta" stands in.
"""

from __future__ import annotations

import sys

import gpytorch
import linear_operator
import pytest
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from botorch_bkb import (
    BBKB,
    DTCGP,
    AdaBBKB,
    AdaBKB,
    AllPoints,
    BudgetedUCB,
    CompressedEI,
    CompressedGP,
    CompressedMPI,
    CompressedUCB,
    InformationThreshold,
    QuadratureFeatures,
    RandomFeatures,
    RandomlyPivotedCholesky,
    RidgeLeverageSampling,
    resume,
    run,
    select_baseline,
)
from botorch_bkb.acquisition import Greedy
from botorch_bkb.acquisition.constructors import construct
from botorch_bkb.acquisition.moments import Marginals
from botorch_bkb.arms import ArmTable
from botorch_bkb.batches import (
    ExactBatch,
    GreedyBatch,
    LazyBatch,
    LocalRule,
    ProductRule,
    SumRule,
    ThompsonBatch,
    UpperBound,
)
from botorch_bkb.dictionaries import first_occurrences
from botorch_bkb.domains import Arms, Box, Tree, TrustRegion
from botorch_bkb.linalg import Conditional, DTCFactor, information, log_evidence, solve_rows
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import Optimizer
from tests.problems import rbf, regression

FACTORIES = {
    torch.arange, torch.empty, torch.eye, torch.full, torch.linspace, torch.logspace, torch.normal,
    torch.ones, torch.rand, torch.randint, torch.randn, torch.randperm, torch.tensor, torch.zeros,
}  # fmt: skip


class NoImplicitDevice(TorchFunctionMode):
    r"""Refuse factories called by the package without a device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if func in FACTORIES and caller.startswith("botorch_bkb") and "device" not in kwargs:
            raise AssertionError(f"{func.__name__} without a device in {caller}")
        return func(*args, **kwargs)


def test_the_guard_catches_a_factory_without_device():
    code = compile("import torch\ntorch.zeros(2)", "guarded", "exec")
    with NoImplicitDevice(), pytest.raises(AssertionError, match="zeros without a device"):
        exec(code, {"__name__": "botorch_bkb.guarded"})


@pytest.mark.parametrize(
    "rule",
    [None, RidgeLeverageSampling(2.0), InformationThreshold(1e-2), RandomFeatures(20)],
)
def test_no_factory_without_device(rule, device):
    X, Y = regression(600, m=2, device=device)
    with NoImplicitDevice():
        model = DTCGP(X, Y, dictionary=rule, trace_term=rule is not None)
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model).train()
        mll(model(*model.train_inputs), model.train_targets).sum().backward()
        posterior = model.posterior(X[:4])
        assert posterior.mean.device == X.device
        conditioned = model.condition_on_observations(X[:2] + 0.1, Y[:2])
        assert conditioned.posterior(X[:4]).variance.device == X.device
        model.resparsify(torch.Generator().manual_seed(0))
        assert model.leverage_scores(X[:3]).device == X.device
        assert model.dictionary_indices.device == X.device


def test_no_factory_without_device_in_the_arm_table(device):
    X, Y = regression(60, device=device)
    kernel = gpytorch.kernels.RBFKernel().to(X).requires_grad_(False)
    with NoImplicitDevice():
        table = ArmTable(X, kernel, 0.1, first_occurrences(X[:8]))
        table.observe(table.dictionary, Y[:8, 0])
        table.set_dictionary(first_occurrences(X[:12])[2:])
        table.extend(X[:2] + 0.5)
        table.slide(table.dictionary[1:])
        seeded = torch.Generator().manual_seed(0)
        options = {"num_arms": 60, "stragglers": (3, 4), "given_up": (5, 61)}
        for batch in (
            LazyBatch(table, SumRule(50.0), 2.0, **options),
            LazyBatch(table, LocalRule(50.0), 2.0, **options),
            ExactBatch(table, LocalRule(50.0), UpperBound(2.0), **options),
            ExactBatch(table, ProductRule(1e5), UpperBound(2.0), **options),
            ThompsonBatch(table, SumRule(50.0), seeded, **options),
            GreedyBatch(table, SumRule(50.0), 0.5, seeded, **options),
        ):
            while not batch.complete:
                batch.pick()
            assert len(batch.picks) > 1
        other = ArmTable.from_log(X, kernel, 0.1, table.log)
        assert other.mean().device == table.variance().device == X.device


def test_no_factory_without_device_in_acquisition_functions(device):
    X, Y = regression(150, device=device)
    with NoImplicitDevice():
        model = DTCGP(X, Y, dictionary=torch.arange(30, device=device), outcome_transform=None)
        assert select_baseline(model, 20).device == X.device
        made = construct(qLogNoisyExpectedImprovement, model.eval())
        assert made(X[:3].unsqueeze(-2)).device == X.device
        bound = BudgetedUCB(Marginals(model, 2.0), 2.0)
        assert bound(X[:3].unsqueeze(-2)).device == X.device
        bound = BudgetedUCB(model, 2.0, X_pending=X[:2] + 0.1)
        assert bound(X[:3].unsqueeze(-2)).device == X.device


@pytest.mark.parametrize("rule", [SumRule(4.0), LocalRule(2.0)], ids=str)
@pytest.mark.parametrize("kind", [Arms, Box, Tree])
@pytest.mark.parametrize(
    "dictionary",
    [
        None,
        AllPoints(max_size=5),
        RandomlyPivotedCholesky(5),
        InformationThreshold(0.05, discard=False),
        QuadratureFeatures(6),
        RandomFeatures(20),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_no_factory_without_device_in_any_composition(kind, dictionary, rule, device):
    X = torch.rand(40, 2, dtype=torch.float64, device=device)
    corners = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64, device=device)
    with NoImplicitDevice():
        domain = Arms(X) if kind is Arms else kind(corners)
        optimizer = Optimizer(
            domain,
            model=Surrogate(gpytorch.kernels.RBFKernel(), 0.1),
            dictionary=dictionary,
            batch=rule,
            seed=0,
        )
        optimizer.give_up(optimizer.ask(at_most=1))
        for _ in range(4):
            suggestion = optimizer.ask(at_most=2)
            assert suggestion.X.device == X.device
            optimizer.tell(suggestion, suggestion.X.sum(-1))
            optimizer.tell(optimizer.pending, [0.5] * len(optimizer.pending))
        assert optimizer.gap() >= 0
        assert optimizer.table.mean().device == optimizer.history.means.device == X.device


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"acquisition": "thompson", "coupled": False},
        {"acquisition": "greedy", "batch_rule": "hold"},
        {"acquisition": "ei", "dictionary": AllPoints()},
        {"norm_bound": "double", "width": "information", "keep_coordinates": False},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_no_factory_without_device_in_the_optimizer(options, device):
    X, Y = regression(60, device=device)
    with NoImplicitDevice():
        optimizer = BBKB(X, seed=0, **options)
        optimizer.tell(torch.arange(8, device=device), Y[:8])
        optimizer.tell(X[:1] + 3, Y[:1])
        for _ in range(5):
            suggestion = optimizer.ask(at_most=3)
            assert suggestion.X.device == suggestion.indices.device == X.device
            optimizer.tell(suggestion, Y[suggestion.indices])
        optimizer.set_arms(X[5:])
        optimizer.load_state_dict(optimizer.state_dict())
        assert optimizer.best().X.device == optimizer.dictionary.device == X.device
        assert optimizer.model.posterior(X[:3]).mean.device == X.device


@pytest.mark.parametrize("domain", ["arms", "bounds"])
def test_no_factory_without_device_in_a_run(domain, device, tmp_path):
    X = torch.rand(30, 2, dtype=torch.float64, device=device)
    X = X if domain == "arms" else torch.tensor([[0.0, 0.0], [1.0, 1.0]], device=device).double()

    def objective(X):
        return torch.where(X[:, 0] > 0.8, torch.nan, X.sum(-1))

    with NoImplicitDevice():
        run(BBKB(**{domain: X}, seed=0), objective, 12, journal=tmp_path / "run.sqlite")
        resume(tmp_path / "run.sqlite", objective, budget=14)


@pytest.mark.parametrize("discard", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_no_factory_without_device_in_compressed_beliefs(discard, device):
    X, Y = regression(60, device=device)
    with NoImplicitDevice():
        model = CompressedGP(X, Y, epsilon=0.1, discard=discard)
        assert model.is_informative(X[:3]).device == X.device
        conditioned = model.condition_on_observations(X[:4] + 0.1, Y[:4])
        assert conditioned.posterior(X[:4]).variance.device == X.device
        assert conditioned.kept_indices.device == X.device
        for algorithm in (CompressedUCB, CompressedEI, CompressedMPI):
            optimizer = algorithm(X, epsilon=0.1, discard=discard, seed=0)
            optimizer.tell(torch.arange(8, device=device), Y[:8])
            for _ in range(4):
                suggestion = optimizer.ask()
                assert suggestion.informative.device == X.device
                optimizer.tell(suggestion, Y[suggestion.indices])
            assert optimizer.gap() >= 0
            optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("radius", ["kernel", (1.0, 0.5)])
@pytest.mark.filterwarnings("ignore")
def test_no_factory_without_device_in_the_tree(radius, device):
    bounds = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64, device=device)
    kernel = gpytorch.kernels.RBFKernel().to(bounds)
    with NoImplicitDevice():
        for algorithm in (AdaBKB, AdaBBKB):
            optimizer = algorithm(
                bounds=bounds, covar_module=kernel, noise_var=0.1, radius=radius, seed=0
            )
            for _ in range(6):
                suggestion = optimizer.ask()
                assert suggestion.X.device == bounds.device
                optimizer.tell(suggestion, -suggestion.X.square().sum(-1))
            assert optimizer.gap() >= 0
            optimizer.load_state_dict(optimizer.state_dict())
            assert optimizer.best().X.device == bounds.device


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"acquisition": "mpi", "discrete_dims": {0: [0.0, 1.0, 2.0]}},
        {"acquisition": "thompson"},
        {"acquisition": Greedy(0.5)},
        {"acquisition": qLogNoisyExpectedImprovement},
        {"acquisition_options": {"fixed_features": {1: 0.5}}},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_no_factory_without_device_in_the_box(options, device):
    bounds = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64, device=device)
    with NoImplicitDevice():
        optimizer = BBKB(bounds=bounds, num_initial=3, seed=0, **options)
        for _ in range(4):
            suggestion = optimizer.ask(at_most=2)
            assert suggestion.X.device == bounds.device
            optimizer.tell(suggestion, -suggestion.X.square().sum(-1))
            optimizer.tell(optimizer.pending, [0.0] * len(optimizer.pending))
        assert optimizer.gap() >= 0
        optimizer.load_state_dict(optimizer.state_dict())
        assert optimizer.model.posterior(bounds).mean.device == bounds.device


@pytest.mark.filterwarnings("ignore")
def test_no_factory_without_device_in_trust_regions(device):
    bounds = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64, device=device)
    region = TrustRegion(2, min_length=0.3, failure_tolerance=1, num_initial=2)
    with NoImplicitDevice():
        optimizer = BBKB(bounds=bounds, num_initial=3, trust_region=region, seed=0)
        for n in (None, 2, 2, 40, 2, None):
            suggestion = optimizer.ask(n)
            assert suggestion.X.device == bounds.device
            optimizer.tell(suggestion, -suggestion.X.square().sum(-1))
            optimizer.tell(bounds[:1] + 0.5, [0.0])
        optimizer.load_state_dict(optimizer.state_dict())
        assert len(optimizer.ask(2)) == 2


OTHER = "cuda" if torch.backends.cuda.is_built() else "meta"


def test_fake_tensors_of_two_devices_do_not_mix():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="same device"):
        torch.rand(3, 3, device=OTHER) @ torch.rand(3, 3)


def test_the_tensor_core_runs_on_fake_tensors_of_another_device():
    with FakeTensorMode(), linear_operator.settings.trace_mode(True):
        X = torch.rand(3, 20, 2, device=OTHER, dtype=torch.float64)
        y, noise = X[..., 0], X[..., 1]
        S, T = X[..., :5, :], X[..., :4, :]
        factor = DTCFactor.build(rbf(S, S), rbf(X, S), y, noise)
        e = factor.embed(rbf(T, S))
        Z = solve_rows(factor.root, rbf(X, S))
        outputs = [
            factor.mean(e),
            e.covariance(rbf(T, T)),
            e.variance(y[..., :4]),
            log_evidence(*information(Z, y, noise), y, noise),
            factor.observe(Z[..., 0, :], y[..., 0], noise[..., 0]).coef,
            factor.drop(Z, 2)[1],
        ]
        s = X[..., 6:8, :]
        outputs.append(factor.append(Z, rbf(s, S), rbf(s, s), rbf(X, s), y, noise)[0].coef)
        conditional = Conditional.build(e, rbf(T, T), y[..., :4], noise[..., :4])
        conditional = conditional.extend(
            factor.embed(rbf(s, S)), rbf(s, s), rbf(s, T), y[..., :2], noise[..., :2]
        )
        outputs.append(conditional.project(e, rbf(T, torch.cat([T, s], -2))))
        assert {out.device.type for out in outputs} == {OTHER}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore")
def test_posteriors_have_the_dtype_of_the_data(dtype, device):
    X, Y = regression(600, dtype=dtype, device=device)
    model = DTCGP(X, Y, dictionary=RidgeLeverageSampling(2.0))
    posterior = model.posterior(X[:4])
    assert posterior.mean.dtype == posterior.variance.dtype == dtype
    assert {moment.dtype for moment in model.marginals(X[:4])} == {torch.float64}
    conditioned = model.condition_on_observations(X[:2] + 0.1, Y[:2])
    assert conditioned.posterior(X[:4]).distribution.covariance_matrix.dtype == dtype
