r"""How a run begins, what it asks first, and what its results and errors say."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from gpytorch.kernels import RBFKernel

from botorch_bkb import BBKB, BKB, AdaBKB, ConvergedError, Optimizer
from botorch_bkb.batches import SumRule
from botorch_bkb.domains import Arms, Box
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers import ALGORITHMS
from botorch_bkb.optimizers.asking import suggest, with_new_rows
from botorch_bkb.optimizers.results import Convergence
from botorch_bkb.optimizers.start import initial_state, seeded_generator
from tests.optimizers.inside import batch_of, state_of

ARMS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [4.0, 2.0]], dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)


def test_a_seed_is_a_whole_number_or_none():
    same = [seeded_generator(3).get_state() for _ in range(2)]
    assert torch.equal(*same)
    assert not torch.equal(seeded_generator(None).get_state(), seeded_generator(None).get_state())
    with pytest.raises(InputDataError, match="seed must be"):
        seeded_generator(0.5)


@pytest.mark.parametrize("domain", [Arms(ARMS), Box(BOUNDS)], ids=["arms", "box"])
def test_nothing_is_known_at_the_start(domain):
    parts = Optimizer(domain).parts
    state = initial_state(parts, seeded_generator(0))
    assert state.observations.num_steps == 0 and not state.in_flight.pending
    assert state.table.num_rows == len(domain.index.X) and state.tree is None
    assert state.model.scale is not None and state.confidence.norm_bound == 1.0
    assert state.model.inputs(domain.extent).amax() == 1.0


def test_a_given_kernel_takes_inputs_as_they_are():
    parts = Optimizer(Arms(ARMS), model=Surrogate(RBFKernel(), 0.1)).parts
    state = initial_state(parts, seeded_generator(0))
    assert state.model.scale is None and state.model.noise_known == 0.1
    assert torch.equal(state.model.inputs(ARMS), ARMS)


def test_equal_arms_are_suggested_by_the_first_of_them():
    optimizer = BKB(ARMS, covar_module=RBFKernel(), noise_var=0.1, seed=0)
    batch = batch_of(optimizer)
    state = state_of(optimizer)
    state = replace(state, in_flight=state.in_flight.begun(2.0, 0, 0))
    batch.pick()
    after, suggestion = suggest(
        optimizer.domain, state, batch, 0, [2], [False], skips=False, ends_batch=False
    )
    assert suggestion.indices.tolist() == [0] and suggestion.ids == (0,)
    assert after.in_flight.rows == {0: 0} and not state.in_flight.pending


def test_rows_that_picks_have_added_are_part_of_the_state():
    optimizer = BKB(bounds=BOUNDS, num_initial=3, seed=0)
    batch, state = batch_of(optimizer), state_of(optimizer)
    while not batch.complete:
        batch.pick()
    after = with_new_rows(state, batch, 1)
    assert len(after.observations.added) == 2 and len(state.observations.added) == 0
    assert torch.equal(after.observations.added, torch.cat(batch.added[1:]))


def test_what_an_optimizer_is_over_can_be_read():
    over_arms, over_box = BBKB(ARMS, seed=0), BBKB(bounds=BOUNDS, seed=0)
    assert "4 arms in 2 dimensions" in repr(over_arms) and "a box of 2" in repr(over_box)
    assert torch.equal(over_arms.arms, ARMS)
    assert over_arms.device.type == "cpu" and over_arms.dtype == torch.float64
    with pytest.raises(UnsupportedError, match="no arms"):
        over_box.arms  # noqa: B018
    with pytest.raises(UnsupportedError, match="has no tree"):
        over_box.tree  # noqa: B018
    assert len(AdaBKB(BOUNDS).tree) == 1


def test_convergence_survives_pickling():
    error = ConvergedError(Convergence(0.1, 0.5, 2.0))
    again = pickle.loads(pickle.dumps(error))
    assert again.convergence == error.convergence and str(again) == str(error)
    assert "0.5" in str(error) and "lower epsilon" in str(error)


# ---------------------------------------------------------------------- the first arm

MANY = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if not name.startswith("Ada")])
def test_the_first_arm_is_drawn_uniformly(name):
    given = {"covar_module": RBFKernel(), "noise_var": 0.1}
    if name == "BatchedElimination":
        pytest.skip("its first batch is chosen by variance")
    counts = torch.zeros(len(MANY))
    for seed in range(240):
        counts[int(ALGORITHMS[name](MANY, **given, seed=seed).ask(at_most=1).indices)] += 1
    # Each arm has 20 draws in the mean, with a standard deviation of 4.3.
    assert counts.min() >= 4 and counts.max() <= 40


def test_the_first_arm_is_in_the_dictionary_of_the_first_batch():
    # As in Algorithm 1, where S_1 = {x_1}: its own variance falls within the batch.
    rule = SumRule(100.0, max_size=4)
    for seed in range(5):
        optimizer = BBKB(MANY, covar_module=RBFKernel(), noise_var=0.1, batch_rule=rule, seed=seed)
        first = int(optimizer.table.dictionary)
        picks = optimizer.ask().indices.tolist()
        assert picks[0] == first and picks[1] != first


def test_a_first_arm_that_is_given_up_is_not_asked_again_at_once():
    optimizer = BKB(MANY, covar_module=RBFKernel(), noise_var=0.1, seed=0)
    suggestion = optimizer.ask()
    optimizer.give_up(suggestion)
    assert optimizer.ask().indices.tolist() != suggestion.indices.tolist()


def test_the_first_arm_of_other_arms_is_one_of_them():
    for seed in range(20):
        optimizer = BKB(MANY, covar_module=RBFKernel(), noise_var=0.1, seed=seed)
        optimizer.set_arms(MANY[:3])
        assert int(optimizer.ask().indices) < 3


def test_the_first_arm_is_the_same_after_saving():
    given = {"covar_module": RBFKernel(), "noise_var": 0.1}
    one, other = BKB(MANY, **given, seed=3), BKB(MANY, **given, seed=4)
    other.load_state_dict(one.state_dict())
    assert other.ask().indices.tolist() == one.ask().indices.tolist()
