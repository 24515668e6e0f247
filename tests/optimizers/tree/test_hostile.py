from __future__ import annotations

import math

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from gpytorch.kernels import RBFKernel

from botorch_bkb import AdaBBKB, AdaBKB, AllPoints, InformationThreshold
from botorch_bkb.batches import SumRule
from botorch_bkb.domains import PartitionTree, Tree
from botorch_bkb.encoding import encode
from botorch_bkb.optimizers import Optimizer
from tests import naive
from tests.optimizers.inside import batch_of, inputs_of, state_of
from tests.optimizers.tree.support import (
    BOTH,
    BOX,
    NOISE,
    UNIT,
    consistent,
    f,
    given,
    in_batches,
    sines,
    through_a_file,
    uniform,
)
from tests.problems import rbf


@pytest.mark.parametrize("algorithm", BOTH)
class TestBothAlgorithms:
    @pytest.mark.parametrize("options", [{}, given()], ids=["fitted", "given"])
    @pytest.mark.parametrize(("dim", "dtype"), [(1, torch.float32), (6, torch.float32),
                                                (6, torch.float64)])  # fmt: skip
    def test_dimensions_and_dtypes(self, algorithm, options, dim, dtype):
        bounds = torch.tensor([[-1.0], [1.0]], dtype=dtype).expand(2, dim)
        optimizer = algorithm(
            bounds=bounds, **{"seed": 0, **in_batches(algorithm, size=8), **options}
        )
        for _ in range(6):
            suggestion = optimizer.ask()
            assert suggestion.X.dtype == dtype and suggestion.X.isfinite().all()
            optimizer.tell(suggestion, f(suggestion.X))
        assert math.isfinite(optimizer.best().mean) and math.isfinite(optimizer.gap())
        assert optimizer.table.variance().isfinite().all()
        consistent(optimizer)

    @pytest.mark.parametrize("options", [{}, given()], ids=["fitted", "given"])
    @pytest.mark.parametrize("reward", [0.0, 7.0, 1e12, -1e12])
    @pytest.mark.filterwarnings("ignore")
    def test_constant_rewards(self, algorithm, options, reward):
        optimizer = algorithm(bounds=BOX, **{"seed": 0, **in_batches(algorithm, size=8), **options})
        for _ in range(6):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, torch.full((len(suggestion),), reward))
        assert math.isfinite(optimizer.best().mean) and math.isfinite(optimizer.gap())
        if not options:
            assert optimizer.best().mean == pytest.approx(reward, rel=1e-6, abs=1e-6)

    @pytest.mark.parametrize("options", [{}, given()], ids=["fitted", "given"])
    @pytest.mark.filterwarnings("ignore")
    def test_huge_rewards(self, algorithm, options):
        optimizer = algorithm(bounds=BOX, **{"seed": 0, **in_batches(algorithm, size=8), **options})
        for _ in range(8):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, 1e12 * sines(suggestion.X))
        assert math.isfinite(optimizer.best().mean) and math.isfinite(optimizer.gap())
        assert len(optimizer.tree) < 5000

    @pytest.mark.parametrize("scale", [1e-8, 1e8])
    @pytest.mark.parametrize("options", [{}, given()], ids=["fitted", "given"])
    def test_boxes_of_any_size(self, algorithm, options, scale):
        options = {"seed": 0, "max_depth": 5, **in_batches(algorithm, size=8), **options}
        optimizer = algorithm(bounds=scale * BOX, **options)
        for _ in range(6):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, sines(suggestion.X / scale))
        assert math.isfinite(optimizer.gap())
        consistent(optimizer)

    def test_points_nobody_asked_for(self, algorithm):
        optimizer = algorithm(bounds=BOX, **given())
        for i in range(4):
            X = uniform(BOX, 3, seed=i)
            optimizer.tell(X, sines(X))
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, sines(suggestion.X))
            consistent(optimizer)
        observed = inputs_of(optimizer, optimizer.history.rows)
        assert (observed == uniform(BOX, 1, seed=0)).all(-1).any()

    def test_points_that_equal_a_centre_share_its_row(self, algorithm):
        plain = algorithm(bounds=BOX, **given(num_children=2, width=0.5))
        plain.ask()
        cells = plain.tree.centres()
        assert len(cells) > 5
        # Told before there are cells, and told when they are there.
        for optimizer in (algorithm(bounds=BOX, **given(num_children=2, width=0.5)), plain):
            optimizer.tell(cells, sines(cells))
            rows = len(optimizer.table.X)
            assert optimizer.num_observations == len(cells)
            for _ in range(10):
                suggestion = optimizer.ask()
                optimizer.tell(suggestion, sines(suggestion.X))
            X = inputs_of(optimizer, torch.arange(len(optimizer.table.X)))
            assert len(X.unique(dim=0)) == len(X) >= rows
            consistent(optimizer)

    def test_an_interrupt_leaves_everything_as_it_was(self, algorithm, monkeypatch):
        options = given(width=0.7, **in_batches(algorithm, 40.0))
        ours, theirs = (algorithm(bounds=BOX, **options) for _ in range(2))
        whole, calls = PartitionTree.with_children, []

        def interrupted(tree, ids, lower, upper, growing=None):
            split = whole(tree, ids, lower, upper, growing)
            if growing is not None:  # the cells are split, and their rows are in the table by now
                calls.append(ids)
                if len(calls) % 3 == 1:
                    raise KeyboardInterrupt
            return split

        happened = 0
        for i in range(12):
            with monkeypatch.context() as patch:
                patch.setattr(PartitionTree, "with_children", interrupted)
                before, cells = optimizer_view(ours), len(calls)
                try:
                    a = ours.ask(at_most=2)
                except KeyboardInterrupt:
                    happened += 1
                    assert optimizer_view(ours) == before
                    consistent(ours)
                    a = None
            if a is None:
                a = ours.ask(at_most=2)
            assert torch.equal(a.X, theirs.ask(at_most=2).X)
            assert torch.equal(ours.tree.lower, theirs.tree.lower)
            if i % 3 == 2 or batch_of(ours).complete:  # otherwise the batch goes on
                for o in (ours, theirs):
                    o.tell(o.pending, sines(o.pending.X))
        assert happened > 1 and cells > 0
        assert ours.best().mean == theirs.best().mean

    @pytest.mark.parametrize(
        ("options", "error", "match"),
        [
            ({"num_children": 1}, InputDataError, "at least 2"),
            ({"num_children": 0}, InputDataError, "num_children"),
            ({"num_children": 2.5}, InputDataError, "num_children"),
            ({"num_children": None}, InputDataError, "num_children"),
            ({"max_depth": 0}, InputDataError, "max_depth"),
            ({"max_depth": 1.5}, InputDataError, "max_depth"),
            ({"radius": "x"}, InputDataError, "radius"),
            ({"radius": (1, 2)}, InputDataError, "radius"),
            ({"radius": (0.0, 0.5)}, InputDataError, "radius"),
            ({"radius": (math.nan, 0.5)}, InputDataError, "radius"),
            ({"radius": (1.0,)}, InputDataError, "radius"),
            ({"radius": None}, InputDataError, "radius"),
            ({"radius": ("a", "b")}, InputDataError, "radius"),
            ({"arms": BOX}, TypeError, "cuts a box into cells"),
            ({"num_initial": 3}, TypeError, "num_initial"),
            ({"acquisition_options": {}}, TypeError, "acquisition_options"),
            ({"norm_bound": -1.0}, InputDataError, "norm_bound"),
            ({"norm_bound": math.inf}, InputDataError, "norm_bound"),
            ({"bounds": torch.zeros(2, 3)}, InputDataError, "below upper"),
            ({"bounds": torch.tensor([[0.0], [math.nan]])}, InputDataError, "finite"),
            ({"bounds": torch.tensor([[1.0], [0.0]])}, InputDataError, "below upper"),
            ({"bounds": torch.zeros(3, 2)}, BotorchTensorDimensionError, "2 x d"),
            ({"bounds": None}, BotorchTensorDimensionError, "2 x d"),
        ],
        ids=str,
    )
    def test_bad_arguments(self, algorithm, options, error, match):
        with pytest.raises(error, match=match):
            algorithm(**{"bounds": BOX, **options})

    def test_other_acquisitions_are_refused(self, algorithm):
        with pytest.raises(TypeError, match="picks are defined by the algorithm"):
            algorithm(bounds=BOX, acquisition="ei")
        with pytest.raises(InputDataError, match="upper bounds"):
            Optimizer(Tree(BOX), acquisition="ei", batch=algorithm(bounds=BOX).parts.batch)

    @pytest.mark.parametrize("points", [[[0.5, 11.0]], [[0.5]], [[math.nan, 3.0]], "no"])
    def test_bad_points_leave_everything_as_it_was(self, algorithm, points):
        optimizer = algorithm(bounds=BOX, **given())
        optimizer.ask()
        before = encode(optimizer.state_dict())
        with pytest.raises((InputDataError, BotorchTensorDimensionError)):
            optimizer.tell(points, [1.0])
        assert encode(optimizer.state_dict()) == before

    def test_a_huge_norm_splits_a_bounded_number_of_cells(self, algorithm, monkeypatch):
        monkeypatch.setattr("botorch_bkb.batches.tree.MOST_SPLITS", 50)
        options = given(norm_bound=1e12, width=2.0, **in_batches(algorithm, size=3))
        optimizer = algorithm(bounds=BOX, **options)
        for _ in range(3):
            cells = len(optimizer.tree)
            suggestion = optimizer.ask()
            assert len(optimizer.tree) <= cells + 3 * 50 * len(suggestion)
            optimizer.tell(suggestion, sines(suggestion.X))
        assert len(optimizer.tree) > 150 and math.isfinite(optimizer.gap())

    def test_a_norm_of_zero_splits_nothing(self, algorithm):
        options = given(norm_bound=0.0, width=2.0, **in_batches(algorithm, size=5))
        optimizer = algorithm(bounds=BOX, **options)
        for _ in range(5):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, sines(suggestion.X))
        assert len(optimizer.tree) == 1

    def test_a_norm_that_doubles(self, algorithm):
        options = given(norm_bound="double", noise=0.01, **in_batches(algorithm, size=5))
        optimizer = algorithm(bounds=BOX, **options)
        for _ in range(12):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, 40 * sines(suggestion.X))
        assert optimizer.norm_bound > 1
        resumed = algorithm(bounds=BOX, **options)
        resumed.load_state_dict(through_a_file(optimizer.state_dict()))
        assert torch.equal(optimizer.ask().X, resumed.ask().X)

    def test_a_width_of_zero(self, algorithm):
        options = given(width=0.0, max_depth=4, **in_batches(algorithm, size=4))
        optimizer = algorithm(bounds=UNIT, **options)
        for _ in range(4):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, sines(suggestion.X))
        assert int(optimizer.tree.depth.max()) == 4

    @pytest.mark.parametrize("discard", [True, False])
    def test_with_an_information_threshold(self, algorithm, discard):
        threshold = InformationThreshold(0.3, discard=discard, on_uninformative="skip")
        options = given(dictionary=threshold, **in_batches(algorithm, size=5))
        optimizer = algorithm(bounds=BOX, **options)
        for _ in range(20):
            suggestion = optimizer.ask()
            to_do = suggestion[suggestion.informative]
            optimizer.tell(to_do, sines(to_do.X))
        assert optimizer.num_steps >= 20
        consistent(optimizer)

    def test_a_depth_of_one(self, algorithm):
        options = given(max_depth=1, norm_bound=5.0, **in_batches(algorithm, size=5))
        optimizer = algorithm(bounds=BOX, **options)
        for _ in range(10):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, sines(suggestion.X))
        assert len(optimizer.tree) == 4

    def test_results_without_noise(self, algorithm):
        optimizer = algorithm(bounds=UNIT, **given(noise=1e-8, **in_batches(algorithm, size=5)))
        for _ in range(20):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, f(suggestion.X))
        assert abs(float(optimizer.best().X) - 0.3) < 0.02


def optimizer_view(optimizer):
    r"""What a user sees of an optimizer."""
    return (
        len(optimizer.tree),
        len(optimizer.pending),
        optimizer.num_observations,
        len(optimizer.table.X),
        optimizer.best().mean if optimizer.num_observations else None,
    )


def test_stragglers_count_as_picked():
    options = given(width=2.0, dictionary=AllPoints(), batch_threshold=60.0)
    optimizer = AdaBBKB(bounds=BOX, **options)
    run = naive.AdaRun(rbf, BOX, NOISE, 1.0, 3, None)
    X = uniform(BOX, 4)
    optimizer.tell(X, sines(X))
    first = optimizer.ask()
    assert len(first) > 3
    optimizer.tell(first[:2], sines(first[:2].X))
    second = optimizer.ask(at_most=1)
    run.observe(torch.cat([X, first[:2].X]), sines(torch.cat([X, first[:2].X])))
    S, late = run.X, list(first[2:].X.split(1))
    tree = optimizer.tree
    run.lower, run.upper = tree.lower.tolist(), tree.upper.tolist()
    run.parent, run.depth = tree.parent.tolist(), tree.depth.tolist()
    run.leaf = tree.is_leaf.tolist()
    top = max(tree.leaves.tolist(), key=run.indices(S, 2.0, late).__getitem__)
    torch.testing.assert_close(second.X, run.centre(top), atol=1e-6, rtol=0)
    spent = sum(rule_score(run, x, S) for x in late)
    pending = state_of(optimizer).in_flight.pending
    spent += pending[max(pending)].score
    for threshold, is_complete in ((1 + spent - 1e-6, True), (1 + spent + 1e-6, False)):
        assert batch_of(optimizer, batch=SumRule(threshold)).complete == is_complete
    optimizer.tell(optimizer.pending, sines(optimizer.pending.X))
    consistent(optimizer)


def rule_score(run, x, S):
    r"""``tau`` of an input under the data of a plain run."""
    lam = torch.full((len(run.X),), run.noise, dtype=torch.float64)
    _, cov = naive.dtc(rbf(S, S), rbf(run.X, S), rbf(x, S), rbf(x, x), run.y, lam)
    return float(cov) / run.noise


def test_the_radius_of_the_paper_and_of_a_user():
    geometric = AdaBKB(bounds=BOX, **given(radius=(0.5, 0.5)))
    flat = AdaBKB(bounds=BOX, **given(radius=lambda tree, ids, metric: 0.0 * ids))
    for optimizer in (geometric, flat):
        for _ in range(8):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, sines(suggestion.X))
    assert len(flat.tree) == 1
    geometric.ask()
    batch, tree = batch_of(geometric), geometric.tree
    varies = (2 - 2 * torch.exp(-0.5 * (0.5 * 0.5**tree.depth / 0.4) ** 2)).sqrt().double()
    mean, var = (t[batch.rows] for t in batch.table.moments())
    upper = mean + geometric.width_now * var.sqrt()
    above = (upper + varies)[tree.parent]
    above[0] = math.inf
    expected = torch.minimum(upper, above) + varies
    alive = batch.index > -math.inf
    assert len(tree.depth[alive].unique()) > 1
    torch.testing.assert_close(batch.index[alive], expected[alive], atol=1e-6, rtol=1e-5)


def test_lengthscales_decide_which_side_is_cut():
    ard = RBFKernel(ard_num_dims=2).double()
    ard.lengthscale = torch.tensor([0.2, 50.0], dtype=torch.float64)
    optimizer = AdaBKB(bounds=BOX, covar_module=ard, noise_var=NOISE, seed=0)
    for _ in range(10):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, sines(suggestion.X))
    sides = optimizer.tree.upper - optimizer.tree.lower
    assert float(sides[:, 0].min()) < 0.5 and float(sides[:, 1].min()) == 1.5


def test_the_first_pick_is_the_centre_of_the_box():
    suggestion = AdaBKB(bounds=BOX, **given(width=3.0)).ask()
    assert torch.equal(suggestion.X, BOX.mean(0, keepdim=True))
