from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from gpytorch.kernels import ConstantKernel, Kernel, LinearKernel, RBFKernel, ScaleKernel

from botorch_bkb import BBKB, BKB, GPBUCB, GPUCB, CompressedUCB, EpsilonGreedy, MiniGPUCB, rows
from botorch_bkb.models.history import History
from botorch_bkb.rows import RowIndex
from botorch_bkb.units import RewardUnits
from tests.optimizers.support import Problem, kernel, takes

ALL = [GPUCB, MiniGPUCB, BKB, GPBUCB, BBKB, EpsilonGreedy]
GIVEN = {"covar_module": kernel(), "noise_var": 0.1}


def at_most(size, algorithm):
    r"""The argument that bounds batches, where a class has batches."""
    return {"max_batch_size": size} if takes(algorithm, "max_batch_size") else {}


def run(algorithm, arms, reward, steps=12, **options):
    optimizer = algorithm(arms, seed=0, **at_most(50, algorithm), **options)
    for _ in range(steps):
        suggestion = optimizer.ask()
        assert suggestion.X.dtype == arms.dtype
        optimizer.tell(suggestion, reward(suggestion.X))
        best = optimizer.best()
        for value in (best.mean, best.lower, best.upper, optimizer.effective_dimension):
            assert math.isfinite(value)
        assert best.lower <= best.mean <= best.upper
        assert optimizer.table.variance().isfinite().all()
    return optimizer


def constant(X):
    return torch.ones(len(X))


@pytest.mark.parametrize("options", [{}, GIVEN], ids=["fitted", "given"])
@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.filterwarnings("ignore")
class TestEveryAlgorithm:
    def test_one_arm(self, algorithm, options):
        run(algorithm, torch.ones(1, 2).double(), constant, **options)

    def test_two_arms(self, algorithm, options):
        arms = torch.tensor([[0.0], [1.0]]).double()
        assert run(algorithm, arms, lambda X: X, **options).best().index == 1

    def test_duplicate_arms(self, algorithm, options):
        arms = torch.rand(4, 2).double().repeat(5, 1)
        optimizer = run(algorithm, arms, lambda X: X.sum(-1), **options)
        assert optimizer.history.rows.max() < 4

    def test_constant_rewards(self, algorithm, options):
        run(algorithm, torch.rand(30, 2).double(), constant, **options)

    def test_huge_rewards(self, algorithm, options):
        arms = torch.rand(30, 2).double()
        optimizer = run(algorithm, arms, lambda X: 1e12 * X.sum(-1), **options)
        if not options:
            assert 1e10 < optimizer.best().mean < 1e13

    @pytest.mark.parametrize("scale", [1e-8, 1e8])
    def test_scales_of_arms(self, algorithm, options, scale):
        run(algorithm, scale * torch.rand(30, 2).double(), lambda X: X.sum(-1) / scale, **options)

    def test_float32(self, algorithm, options):
        arms = torch.rand(40, 3)
        optimizer = run(algorithm, arms, lambda X: X.sum(-1), steps=20, **options)
        assert optimizer.dictionary.dtype == torch.float32

    def test_one_initial_point(self, algorithm, options):
        optimizer = algorithm(torch.rand(20, 2).double(), seed=0, **options)
        optimizer.tell([7], [1.0])
        optimizer.tell(optimizer.ask(at_most=1), [2.0])
        assert optimizer.num_observations == 2


@pytest.mark.filterwarnings("ignore")
class TestKernels:
    def test_a_kernel_of_low_rank(self):
        arms = torch.rand(40, 2).double()
        linear = LinearKernel().double()
        optimizer = run(BBKB, arms, lambda X: X @ torch.ones(2).double(), 30,
                        covar_module=linear, noise_var=0.01)  # fmt: skip
        assert optimizer.best().index == int(arms.sum(-1).argmax())

    @pytest.mark.parametrize("lengthscale", [1e-3, 1e3])
    def test_extreme_lengthscales(self, lengthscale):
        run(BBKB, torch.rand(60, 2).double(), lambda X: X.sum(-1), 30,
            covar_module=kernel(lengthscale), noise_var=1e-4)  # fmt: skip

    @pytest.mark.parametrize("outputscale", [1e-8, 1e8])
    @pytest.mark.parametrize("noise", [1e-10, 1e6])
    def test_extreme_scales(self, outputscale, noise):
        scaled = ScaleKernel(RBFKernel()).double()
        scaled.outputscale = outputscale
        run(BBKB, torch.rand(40, 2).double(), lambda X: X.sum(-1), covar_module=scaled,
            noise_var=noise)  # fmt: skip


def test_an_empty_draw_keeps_the_newest_point():
    problem = Problem()
    optimizer = BKB(problem.arms, **problem.options(oversampling=1e-9))
    optimizer.tell([5, 3], [1.0, 2.0])
    assert torch.equal(optimizer.dictionary, problem.arms[[3]])


def test_a_kernel_that_returns_nan_is_refused_and_nothing_happens():
    class Broken(RBFKernel):
        def forward(self, x1, x2, **params):
            return super().forward(x1, x2, **params) * float("nan")

    optimizer = BBKB(torch.rand(9, 1).double(), covar_module=Broken().double(), noise_var=0.1)
    with pytest.raises(Exception, match="kernel"):
        optimizer.tell([0], [1.0])
    assert optimizer.num_observations == 0


class TestRefusals:
    def test_rewards_that_cannot_be_squared(self):
        optimizer = BBKB(torch.rand(9, 1).double(), seed=0)
        with pytest.raises(InputDataError, match="rescale"):
            optimizer.tell([1, 2], [1e200, -1e200])
        assert optimizer.num_observations == 0

    def test_inputs_that_overflow_the_dtype_of_the_arms(self):
        optimizer = GPUCB(torch.rand(9, 1), **GIVEN)
        with pytest.raises(InputDataError, match="finite"):
            optimizer.tell(torch.tensor([[1e39]]).double(), [1.0])

    @pytest.mark.parametrize("size", [float("inf"), 2.5, 0, True])
    def test_sizes_that_are_no_numbers(self, size):
        with pytest.raises(InputDataError, match="max_batch_size"):
            MiniGPUCB(torch.zeros(1, 1).double(), max_batch_size=size)

    def test_a_suggestion_of_another_optimizer(self):
        arms = torch.rand(9, 1).double()
        ours, other = GPUCB(arms, seed=0), GPUCB(arms.flip(0), seed=0)
        ours.ask()
        with pytest.raises(InputDataError, match="that suggested it"):
            ours.tell(other.ask(), [1.0])
        assert ours.num_observations == 0


def test_nothing_to_tell_is_told():
    optimizer = BBKB(torch.rand(9, 1).double(), seed=0)
    for nothing in ([], torch.empty(0, 1).double(), torch.empty(0).long()):
        optimizer.tell(nothing, [])
    assert optimizer.num_observations == 0


def test_a_kernel_that_is_zero_has_a_width():
    zero = torch.zeros(1, 1).double()
    for algorithm in ALL:
        optimizer = algorithm(
            zero, covar_module=LinearKernel().double(), noise_var=0.1, width="theory",
            **at_most(20, algorithm),
        )  # fmt: skip
        assert len(optimizer.ask()) <= 20


class TestRows:
    def test_a_collision_of_hashes_leaves_rows_where_they_are(self, monkeypatch):
        monkeypatch.setattr(rows, "hashes", lambda X: torch.zeros(len(X), dtype=torch.long))
        index = RowIndex(torch.tensor([[1.0], [2.0], [1.0]]))
        assert index.first.tolist() == [0, 1, 0]

    def test_complements_do_not_collide(self):
        X = torch.tensor([[1.0], [-3.9999999999999996], [5.0]]).double()
        assert RowIndex(X).first.tolist() == [0, 1, 2]

    def test_equal_rows_are_found(self):
        for dtype in (torch.float32, torch.float64):
            X = torch.randint(-3, 4, (500, 3)).to(dtype)
            index = RowIndex(X)
            for i in range(500):
                first = int((X[i] == X).all(-1).nonzero()[0])
                assert int(index.first[i]) == first
            assert (index.find(X + 0.5) == -1).all()

    def test_zero_has_one_sign(self):
        assert RowIndex(torch.tensor([[0.0]])).find(torch.tensor([[-0.0]])).tolist() == [0]

    def test_checksums_tell_tables_apart(self):
        X = torch.rand(100, 3).double()
        changed = X.clone()
        changed[50, 1] += 1e-15
        sums = {RowIndex(t).checksum for t in (X, X.flip(0), X[:99], changed)}
        assert len(sums) == 4 and RowIndex(X.clone()).checksum in sums


class TestHistory:
    def test_moments_of_pulls(self):
        history = History.empty(torch.device("cpu"))
        rows, rewards = torch.randint(5, (60,)), 1e12 + torch.randn(60).double()
        for part in torch.arange(60).split(7):
            history = history.with_pulls(rows[part], rewards[part], torch.ones(len(part)).double())
        assert history.num_observations == 60
        for i, row in enumerate(history.rows):
            own = rewards[rows == row]
            assert history.counts[i] == len(own)
            assert history.means[i] - 1e12 == pytest.approx(float(own.mean() - 1e12), abs=1e-3)
            expected = float((own - own.mean()).square().sum())
            assert float(history.deviations[i]) == pytest.approx(expected, rel=1e-3)
        units = history.standardisation()
        assert units.offset == pytest.approx(float(rewards.mean()), rel=1e-15)
        assert units.scale == pytest.approx(float(rewards.std(correction=0)), rel=1e-3)
        assert History.empty(torch.device("cpu")).standardisation() == RewardUnits(0.0, 1.0)


UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
EXTREME = [(1e20, torch.float32), (1e155, torch.float64), (1e300, torch.float64)]


@pytest.mark.parametrize("algorithm", [BBKB, BKB, CompressedUCB, GPUCB])
class TestExtremes:
    @pytest.mark.parametrize(("scale", "dtype"), EXTREME)
    def test_arms_whose_squares_overflow_are_scaled_or_refused(self, algorithm, scale, dtype):
        arms = (scale * torch.rand(20, 2, dtype=torch.float64)).to(dtype)
        optimizer = run(algorithm, arms, lambda X: (X.double() / scale).sum(-1), steps=4)
        assert math.isfinite(optimizer.best().mean)
        kernel = RBFKernel().to(dtype)
        with pytest.raises(InputDataError, match=r"must be below.*squares fit.*rescale"):
            algorithm(arms, covar_module=kernel, noise_var=0.1)

    def test_a_range_that_overflows_is_refused(self, algorithm):
        arms = torch.tensor([[-1.7e308], [1.7e308]], dtype=torch.float64)
        with pytest.raises(InputDataError, match=r"range of inputs must be finite.*rescale"):
            algorithm(arms)

    @pytest.mark.parametrize("scale", [1e-160, 1e140])
    def test_rewards_of_extreme_scales(self, algorithm, scale):
        arms = torch.rand(20, 2, dtype=torch.float64)
        optimizer = run(algorithm, arms, lambda X: scale * torch.sin(5 * X).sum(-1), steps=6)
        best = optimizer.best()
        assert all(map(math.isfinite, (best.mean, best.lower, best.upper)))
        with pytest.raises(InputDataError, match=r"standard deviation between .* rescale"):
            _ = optimizer.model

    def test_a_constant_kernel(self, algorithm):
        arms = torch.rand(20, 2, dtype=torch.float64)
        kernel = ConstantKernel().double()
        optimizer = run(algorithm, arms, constant, steps=4, covar_module=kernel, noise_var=0.1)
        assert math.isfinite(optimizer.best().mean)

    def test_a_variance_that_hides_all_other_results_is_refused(self, algorithm):
        arms = torch.rand(20, 2, dtype=torch.float64)
        optimizer = algorithm(arms, covar_module=RBFKernel().double(), noise_var=0.1, seed=0)
        optimizer.tell([0], [1.0])
        before = optimizer.best()
        with pytest.raises(InputDataError, match="Yvar must be at least 1e-18 of the noise"):
            optimizer.tell([1], [2.0], Yvar=[1e-300])
        assert optimizer.num_observations == 1 and optimizer.best().mean == before.mean


@pytest.mark.parametrize("scale", [1e-160, 1e140])
def test_extreme_rewards_over_a_box(scale):
    optimizer = BKB(bounds=UNIT, seed=0, num_initial=3)
    for _ in range(5):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, scale * suggestion.X.sum(-1))
    assert math.isfinite(optimizer.best().mean)


def test_a_box_with_a_constant_kernel_is_refused():
    optimizer = BKB(bounds=UNIT, seed=0, covar_module=ConstantKernel().double(), noise_var=0.1)
    optimizer.tell(torch.rand(9, 2, dtype=torch.float64), torch.rand(9))
    with pytest.raises(UnsupportedError, match=r"depends on the inputs.*ConstantKernel"):
        optimizer.ask()
    assert not optimizer.pending


def test_told_points_whose_squares_overflow_are_refused():
    optimizer = BBKB(torch.rand(20, 2, dtype=torch.float64), seed=0)
    with pytest.raises(InputDataError, match="X must be below"):
        optimizer.tell(torch.full((1, 2), 1e200, dtype=torch.float64), [1.0])
    assert optimizer.num_observations == 0


class TestWhatIsNoRealNumber:
    @pytest.mark.parametrize(
        "values",
        [torch.tensor([1 + 2j]), [1 + 2j], torch.tensor([1 + 2j]).numpy()],
        ids=["tensor", "list", "array"],
    )
    def test_complex_results_are_refused(self, values):
        optimizer = BBKB(torch.rand(9, 1).double(), seed=0)
        with pytest.raises(InputDataError, match=r"Y must be.*complex"):
            optimizer.tell([1], values)
        with pytest.raises(InputDataError, match=r"Yvar must be.*complex"):
            optimizer.tell([1], [1.0], Yvar=values)
        assert optimizer.num_observations == 0

    @pytest.mark.parametrize("name", ["arms", "bounds"])
    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (lambda X: X + 1j, "real"),
            (torch.Tensor.half, "float32 or float64"),
            (torch.Tensor.long, "float32 or float64"),
            (torch.Tensor.to_sparse, "dense.*to_dense"),
            (lambda X: X.to("meta"), "with values, got a meta tensor"),
        ],
        ids=["complex", "half", "integers", "sparse", "meta"],
    )
    def test_inputs_are_refused_at_once(self, name, change, match):
        with pytest.raises(InputDataError, match=f"{name} must be.*{match}"):
            BBKB(**{name: change(UNIT)})

    def test_complex_points_of_a_box_are_refused(self):
        optimizer = BBKB(bounds=UNIT, seed=0)
        with pytest.raises(InputDataError, match="Points must be real"):
            optimizer.tell(UNIT + 1j, [1.0, 2.0])

    @pytest.mark.parametrize("values", [UNIT[0].to_sparse(), UNIT[0].to("meta")])
    def test_results_that_are_not_in_memory_are_refused(self, values):
        with pytest.raises(InputDataError, match="Y must be a dense tensor"):
            BBKB(torch.rand(9, 1).double(), seed=0).tell([1, 2], values)


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel(ard_num_dims=3),
        RBFKernel(active_dims=[7]),
        RBFKernel(batch_shape=torch.Size([2])),
    ],
    ids=["ard", "active", "batch"],
)
@pytest.mark.parametrize("domain", ["arms", "bounds"])
def test_a_kernel_for_other_inputs_is_refused_at_once(domain, kernel):
    with pytest.raises(InputDataError, match=r"covar_module must return a 2 x 2 matrix.*2 columns"):
        BBKB(**{domain: UNIT}, covar_module=kernel, noise_var=0.1)


def test_a_kernel_of_more_columns_than_one_is_refused():
    with pytest.raises(InputDataError, match="of 1 columns, got RuntimeError"):
        BBKB(bounds=UNIT[:, :1], covar_module=RBFKernel(ard_num_dims=3))


class Distance(Kernel):
    r"""``|x - x'|``, which is far from positive semi-definite."""

    def forward(self, x1, x2, diag=False, **params):
        return torch.zeros(x1.shape[:-1]).to(x1) if diag else torch.cdist(x1, x2)


@pytest.mark.filterwarnings("ignore:A not p.d.")
def test_a_kernel_that_is_not_positive_definite_is_named():
    optimizer = GPUCB(torch.rand(9, 2).double(), covar_module=Distance(), noise_var=1e-6)
    with pytest.raises(InputDataError, match=r"belief must be finite.*Distance.*semi-definite"):
        optimizer.tell([0, 1], [1.0, 2.0])
    assert optimizer.num_observations == 0


def test_results_that_overflow_the_dtype_of_the_arms_are_refused():
    optimizer = GPUCB(torch.rand(9, 1), **GIVEN, seed=0)
    optimizer.tell([0], [1.0])
    with pytest.raises(InputDataError, match="it has overflowed"):
        optimizer.tell([1], [1e100])
    assert optimizer.num_observations == 1 and math.isfinite(optimizer.best().mean)


def test_a_model_of_single_precision_refuses_rewards_beyond_it():
    optimizer = GPUCB(torch.rand(9, 1), seed=0)
    optimizer.tell([0, 1], [0.0, 1e30])
    assert math.isfinite(optimizer.best().mean)
    with pytest.raises(InputDataError, match=r"between 1e-15 and 1e\+15.*float64"):
        _ = optimizer.model


def test_a_variance_of_which_nothing_is_left_is_refused():
    optimizer = GPUCB(torch.rand(9, 1).double(), covar_module=RBFKernel(), noise_var=1e-100)
    with pytest.raises(InputDataError, match="Yvar must be at most 1e\\+200 times"):
        optimizer.tell([1], [1.0], Yvar=[1e140])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"noise_var": "x"}, "noise_var must be positive"),
        ({"seed": 2**64}, "seed must be a whole number from"),
        ({"max_dictionary": 1.5}, "at least one point, got a size of 1.5"),
        ({"max_dictionary": "x"}, "at least one point, got a size of 'x'"),
        ({"delta": "x", "width": "theory"}, "delta must be strictly between"),
        ({"batch_threshold": "x"}, "batch_threshold must be finite"),
        ({"batch_threshold": 1e200}, "at most 1e\\+100"),
        ({"discrete_dims": 3}, "discrete_dims must map coordinates"),
        ({"discrete_dims": {0: "x"}}, "discrete_dims must give each coordinate a list"),
    ],
    ids=str,
)
def test_arguments_that_are_no_numbers_are_refused(options, match):
    with pytest.raises(InputDataError, match=match):
        BBKB(bounds=UNIT, **options)


@pytest.mark.parametrize("exclude", [3, None])
def test_what_is_no_list_cannot_be_excluded(exclude):
    with pytest.raises(InputDataError, match="exclude must be a list"):
        BBKB(torch.rand(9, 1).double(), seed=0).ask(exclude=exclude)
