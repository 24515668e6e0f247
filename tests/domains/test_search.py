r"""Searches of boxes with discrete coordinates and constraints."""

from __future__ import annotations

import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from botorch.exceptions.errors import InputDataError

from botorch_bkb import BBKB, BKB, DTCGP, GPUCB, BudgetedUCB
from botorch_bkb.domains.search import Search
from tests.domains.support import BOUNDS, FAST, f, play

D3 = torch.tensor([[0.0, -5.0, 0.0], [1.0, 10.0, 100.0]], dtype=torch.float64)


def g(X):
    r"""Best at (0.3, 2, 40)."""
    return f(X[:, :2]) - ((X[:, 2] - 40) / 50).square()


@pytest.mark.parametrize("num_values", [3, 40], ids=["enumerated", "alternating"])
def test_discrete_coordinates_take_their_values(num_values):
    values = torch.linspace(3, 100, num_values, dtype=torch.float64).tolist()
    optimizer = BKB(bounds=D3, discrete_dims={2: values}, seed=0, acquisition_options=FAST)
    for _ in range(8):
        suggestion = optimizer.ask()
        assert torch.isin(suggestion.X[:, 2], torch.tensor(values, dtype=torch.float64)).all()
        optimizer.tell(suggestion, g(suggestion.X))
    assert optimizer.num_observations > 8


VALUES = {1: [-5.0, 0.0, 1.0, 2.0, 10.0], 2: [float(v) for v in range(3, 101)]}


def mixed(dtype=torch.float64, acquisition=lambda model: BudgetedUCB(model, 2.0), **options):
    r"""A search over a box with discrete coordinates, and a function over its unit cube."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(12, 3, generator=generator, dtype=torch.float64)
    Y = g(D3[0] + X * (D3[1] - D3[0])).unsqueeze(-1)
    return Search(D3.to(dtype), VALUES, options), acquisition(DTCGP(X.to(dtype), Y.to(dtype)))


def value(acquisition, X):
    with torch.no_grad():
        return acquisition(X.unsqueeze(-2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("fixed", [{}, {0: 0.25}, {0: 0.25, 2: 17.0}, {0: 0.25, 1: 2.0, 2: 17.0}])
def test_a_mixed_maximiser_is_allowed_and_no_worse_than_the_starts(dtype, fixed):
    search, acquisition = mixed(dtype, fixed_features=fixed)
    starts = search.cube.to_unit(search.design(0, 5, 1))
    for seed in range(3):
        X = search.maximise(acquisition, starts, seed)
        assert X.shape == (1, 3) and X.dtype == dtype and not X.requires_grad
        assert torch.equal(X, search.maximise(acquisition, starts, seed))
        assert value(acquisition, X) >= value(acquisition, starts).max() - 1e-6
        (point,) = search.from_unit(X)
        torch.testing.assert_close(search.cube.to_unit(point), X[0])
        assert all(float(point[i]) == v for i, v in fixed.items())
        assert all(float(point[i]) in v for i, v in VALUES.items() if i not in fixed)


def test_a_mixed_maximiser_is_the_best_of_a_grid():
    search, acquisition = mixed()
    grid = torch.cartesian_prod(
        torch.linspace(0, 1, 51, dtype=torch.float64), search.discrete[1], search.discrete[2]
    )
    highest = float(value(acquisition, search.cube.to_unit(grid)).max())
    for seed in range(5):
        X = search.maximise(acquisition, search.cube.to_unit(grid[:1]), seed)
        assert float(value(acquisition, X)) > highest - 1e-3


#: x0 + x2 / 100 <= 0.5, so that the optimum (0.3, 2, 40) is out of reach.
LINEAR = (torch.tensor([0, 2]), torch.tensor([-1.0, -0.01]).double(), -0.5)


@pytest.mark.parametrize(
    "options",
    [
        {"inequality_constraints": [LINEAR]},
        {"acquisition": lambda model: qUpperConfidenceBound(model, beta=4.0)},
        {"options": {"maxiter_alternating": 4, "maxiter_discrete": 2}},
    ],
    ids=["constrained", "sampled", "asked for"],
)
def test_what_botorch_maximises_over_mixed_coordinates(options):
    search, acquisition = mixed(**options, raw_samples=16, num_restarts=2)
    X = search.from_unit(
        search.maximise(acquisition, search.cube.to_unit(search.design(0, 1, 0)), 0)
    )
    if "inequality_constraints" in options:
        assert float(X[0, 0] + 0.01 * X[0, 2]) < 0.5 + 1e-6
    assert all(float(X[0, i]) in v for i, v in VALUES.items())


def test_nonlinear_constraints_do_not_go_with_discrete_coordinates():
    with pytest.raises(InputDataError, match="cannot go with discrete_dims"):
        mixed(nonlinear_inequality_constraints=[(lambda x: x.sum(), True)])


def test_everything_discrete():
    values = {0: [0.0, 0.5, 1.0], 1: [-5.0, 0.0, 2.0, 10.0]}
    optimizer = GPUCB(bounds=BOUNDS, discrete_dims=values, seed=0, acquisition_options=FAST)
    for _ in play(optimizer, 15):
        pass
    assert optimizer.best().X.tolist() == [0.5, 2.0]


def test_linear_constraints_in_units_of_the_box():
    # x0 + x1 / 10 <= 0.4, so that the optimum (0.3, 2) is out of reach.
    constraint = (torch.tensor([0, 1]), torch.tensor([-1.0, -0.1]).double(), -0.4)
    options = {**FAST, "options": {"n_burnin": 100}, "inequality_constraints": [constraint]}
    optimizer = BKB(bounds=BOUNDS, seed=0, acquisition_options=options)
    for suggestion in play(optimizer, 8):
        assert (suggestion.X[:, 0] + 0.1 * suggestion.X[:, 1] <= 0.4 + 1e-6).all()


@pytest.mark.parametrize(("width", "seed"), [(1.5, 0), (2.0, 2), (1.0, 0), (1.0, 1)])
def test_nonlinear_constraints_in_units_of_the_box(width, seed):
    # SLSQP's last iterates are beside the constraint by 1e-7 in all of these.
    def inside(x):
        return 9 - (x[..., 1] - 2).square()

    options = {**FAST, "nonlinear_inequality_constraints": [(inside, True)]}
    optimizer = GPUCB(bounds=BOUNDS, seed=seed, acquisition_options=options, width=width)
    for suggestion in play(optimizer, 12):
        assert (inside(suggestion.X) >= 0).all()


def test_fixed_features():
    options = {**FAST, "fixed_features": {1: 7.0}}
    optimizer = BBKB(bounds=BOUNDS, seed=0, acquisition_options=options)
    for suggestion in play(optimizer, 12):
        assert (suggestion.X[:, 1] == 7.0).all()


@pytest.mark.parametrize(
    ("discrete", "options", "match"),
    [
        ({5: [0.0]}, None, "coordinates"),
        ({0: []}, None, "list of values"),
        ({0: [0.0, 2.0]}, None, "within the bounds"),
        (None, {"fixed_features": {1: 11.0}}, "within the bounds"),
        (None, {"nonlinear_inequality_constraints": [(lambda x: -x[0] - 1, True)]}, "feasible"),
    ],
)
def test_bad_spaces(discrete, options, match):
    with pytest.raises(InputDataError, match=match):
        BKB(bounds=BOUNDS, discrete_dims=discrete, acquisition_options=options, seed=0).ask()


def test_the_unit_cube_and_back():
    search = Search(D3, {2: [0.0, 10.0, 100.0]}, None)
    X = D3[0] + (D3[1] - D3[0]) * torch.rand(20, 3, dtype=torch.float64)
    back = search.from_unit(search.cube.to_unit(X))
    torch.testing.assert_close(back[:, :2], X[:, :2])
    assert torch.isin(back[:, 2], search.discrete[2]).all()
    ends = search.from_unit(torch.tensor([[0.0] * 3, [1.0] * 3]).double())
    assert torch.equal(ends, D3)
