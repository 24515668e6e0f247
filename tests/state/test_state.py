from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bkb import BBKB, AdaBBKB, CompressedUCB
from botorch_bkb.optimizers import Optimizer
from botorch_bkb.optimizers.start import initial_state, seeded_generator
from botorch_bkb.optimizers.tables import build_table
from botorch_bkb.state.in_flight import BatchRecord, Pending
from botorch_bkb.state.state import (
    ConfidenceState,
    ModelState,
    State,
    TreeState,
    as_list,
    by_name,
    on_device,
)
from botorch_bkb.units import UnitCube
from tests.optimizers.inside import state_of

ARMS = torch.rand(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64)
CPU = torch.device("cpu")


def f(X):
    return 10 - X.square().sum(-1)


def over_arms() -> Optimizer:
    r"""In the middle of a batch, with points pending, given up and not among the arms."""
    optimizer = BBKB(ARMS, batch_threshold=30.0, seed=0)
    optimizer.tell(torch.arange(9), f(ARMS[:9]))
    optimizer.tell(ARMS[:2] + 3, f(ARMS[:2]))
    first = optimizer.ask(at_most=4)
    optimizer.give_up(first[:2])
    optimizer.tell(first[2], f(first[2].X))
    optimizer.ask(at_most=3)
    return optimizer


def compressed() -> Optimizer:
    optimizer = CompressedUCB(ARMS, epsilon=1.0, discard=False, seed=0)
    optimizer.tell(torch.arange(40), f(ARMS))
    return optimizer


def over_box() -> Optimizer:
    optimizer = BBKB(bounds=BOUNDS, num_initial=5, seed=0)
    suggestion = optimizer.ask(at_most=4)
    optimizer.tell(suggestion[:3], f(suggestion.X[:3]))
    return optimizer


def over_tree() -> Optimizer:
    optimizer = AdaBBKB(bounds=BOUNDS, covar_module=RBFKernel(), noise_var=0.1, seed=0)
    for _ in range(4):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, f(suggestion.X))
    optimizer.ask()
    return optimizer


def before_the_first_ask() -> Optimizer:
    return BBKB(ARMS, seed=0)


RUNS = [over_arms, compressed, over_box, over_tree, before_the_first_ask]


def assert_equal(a, b):
    r"""Equal types and equal values to the last bit."""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    elif isinstance(a, torch.nn.Module):
        assert_equal(dict(a.state_dict()), dict(b.state_dict()))
    elif is_dataclass(a):
        for field in fields(a):
            assert_equal(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b


def restored(optimizer, state, path) -> State:
    r"""Write a state to a file and read it without trusting the file."""
    torch.save(state.to_dict(), path)
    saved = torch.load(path, weights_only=True)
    like = optimizer.domain.index.X
    return State.from_dict(saved, optimizer.parts.model.initial(like).kernel, CPU)


@pytest.mark.parametrize("make", RUNS)
@pytest.mark.filterwarnings("ignore")
def test_a_state_comes_back_from_a_file_to_the_last_bit(make, tmp_path):
    optimizer = make()
    state = state_of(optimizer)
    back = restored(optimizer, state, tmp_path / "state.pt")
    assert_equal(back, state)
    assert_equal(back.to_dict(), state.to_dict())
    domain = optimizer.domain
    tables = [build_table(domain, s) for s in (state, back)]
    assert torch.equal(tables[0].mean(), tables[1].mean())
    assert torch.equal(tables[0].variance(), tables[1].variance())


def test_the_runs_have_something_of_everything():
    optimizer = over_arms()
    state = state_of(optimizer)
    in_flight = state.in_flight
    assert all(isinstance(point, Pending) for point in in_flight.pending.values())
    assert len(in_flight.pending) == 4 and in_flight.given_up and in_flight.next_id == 7
    assert isinstance(in_flight.batch, BatchRecord) and len(in_flight.batch.picks) == 3
    assert isinstance(in_flight.batch.stragglers, tuple) and len(in_flight.batch.stragglers) == 1
    assert len(state.observations.added) == 2 and state.table.changes
    assert state.model.scale is not None and state.hyper.units.scale != 1
    assert state.observations.num_observations == optimizer.num_observations == 12
    assert state.observations.num_informative == optimizer.model_order == 12
    assert state.observations.best_reward == float(optimizer.history.means.max())
    assert state.confidence.log_sum == 2 * optimizer.information_gain > 0
    assert state_of(over_box()).in_flight.designed == 4
    assert state_of(over_tree()).num_cells > 1 and state.num_cells == 0
    assert 0 < len(state_of(compressed()).observations.informative) < 40


def test_the_kernel_that_is_handed_in_stays_as_it_was():
    optimizer = over_tree()
    state, kernel = state_of(optimizer), RBFKernel().double()
    kernel.lengthscale = 9.0
    back = State.from_dict(state.to_dict(), kernel, CPU)
    assert kernel.lengthscale.item() == pytest.approx(9.0)
    assert torch.equal(back.hyper.kernel.lengthscale, state.hyper.kernel.lengthscale)


def test_the_state_before_the_first_ask():
    parts = before_the_first_ask().parts
    states = [initial_state(parts, seeded_generator(seed)) for seed in (3, 3, 4)]
    assert_equal(states[0].to_dict(), states[1].to_dict())
    assert states[0].in_flight.design_seed != states[2].in_flight.design_seed
    state = states[0]
    assert state.observations.num_observations == 0 and state.tree is None
    assert state.dictionary.is_current and len(state.table.dictionary) == 1


def test_a_state_is_a_value():
    state = state_of(before_the_first_ask())
    with pytest.raises(FrozenInstanceError):
        state.tree = None


def test_inputs_as_the_model_sees_them():
    hyper = state_of(before_the_first_ask()).hyper
    X = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert torch.equal(ModelState(hyper, None, 6, None).inputs(X), X)
    scaled = ModelState(hyper, UnitCube(BOUNDS), 6, None).inputs(X)
    assert scaled.tolist() == [[0.5, 0.5]]


def test_sums_of_scores():
    start = ConfidenceState(norm_bound=2.0, log_sum=1.0, log_sum_alpha=2.0)
    after = start.with_scores(torch.tensor([1.0, 3.0], dtype=torch.float64), alpha=3.0)
    assert after.log_sum == pytest.approx(1 + math.log(2 * 4))
    assert after.log_sum_alpha == pytest.approx(2 + math.log(4 * 10))
    anew = after.rescored(5.0, alpha=3.0)
    assert (anew.log_sum, anew.log_sum_alpha, anew.norm_bound) == (5.0, 15.0, 2.0)
    assert start.log_sum == 1.0


def test_a_tree_starts_with_one_cell():
    tree = TreeState.over(BOUNDS)
    assert len(tree.tree) == 1 and tree.rows.tolist() == [0]
    assert torch.equal(tree.tree.lower, BOUNDS[:1]) and torch.equal(tree.tree.upper, BOUNDS[1:])


def test_helpers_for_saving():
    assert by_name(ConfidenceState(2.0)) == {
        "norm_bound": 2.0,
        "log_sum": 0.0,
        "log_sum_alpha": 0.0,
    }
    assert as_list((1, 2)) == [1, 2] and as_list(3) == 3
    nested = {"a": [torch.ones(2), 1, "x"], "b": {"c": torch.zeros(1)}}
    moved = on_device(nested, torch.device("meta"))
    assert moved["a"][0].device.type == moved["b"]["c"].device.type == "meta"
    assert moved["a"][1:] == [1, "x"]
