r"""Leaves that cannot have the maximum are pruned for good, until bounds of another kind hold."""

from __future__ import annotations

import math

import pytest
import torch

from botorch_bkb import AdaBBKB, AdaBKB, AdaGPUCB, AllPoints
from botorch_bkb.encoding import encode
from tests.optimizers.inside import batch_of, state_of
from tests.optimizers.tree.support import BOX, UNIT, given, in_batches, sines
from tests.optimizers.tree.test_papers import Known

ALL = [AdaBKB, AdaBBKB, AdaGPUCB]


def volume(tree, ids):
    return float((tree.upper - tree.lower)[ids].prod(-1).sum())


@pytest.mark.parametrize("algorithm", ALL)
def test_leaves_are_pruned_for_good(algorithm):
    batches = in_batches(algorithm, 6.0) if algorithm is AdaBBKB else {}
    optimizer, before = algorithm(bounds=BOX, **given(width=1.0, **batches)), set()
    while optimizer.num_observations < 60:
        suggestion = optimizer.ask()
        tree = optimizer.tree
        pruned = set(tree.pruned.tolist())
        assert before <= pruned
        assert volume(tree, tree.leaves) + volume(tree, tree.pruned) == pytest.approx(3.0)
        for x in suggestion.X:
            inside = ((tree.lower < x) & (x < tree.upper)).all(-1)
            assert not inside[tree.pruned].any()
        optimizer.tell(suggestion, sines(suggestion.X))
        before = pruned
    assert len(tree.pruned) > 20


@pytest.mark.parametrize("algorithm", ALL)
def test_the_cell_of_the_maximum_is_kept_by_widths_with_a_guarantee(algorithm):
    failures, pruned, runs = 0, 0, 8
    for seed in range(runs):
        problem = Known(1, 1.0, seed)
        line = torch.linspace(0, 1.5, 1501, dtype=torch.float64).unsqueeze(-1)
        top = line[problem(line).argmax()]
        options = given(norm_bound=1.0, width="theory", delta=0.1, noise=1e-3)
        if algorithm is AdaBKB:
            options |= {"oversampling": "theory", "horizon": 60, "coupled": False}
        if algorithm is AdaBBKB:
            options["dictionary"] = AllPoints()
        optimizer = algorithm(bounds=problem.bounds, **options)
        while optimizer.num_observations < 60:
            suggestion = optimizer.ask()
            noise = torch.randn(len(suggestion), generator=problem.generator, dtype=torch.float64)
            optimizer.tell(suggestion, problem(suggestion.X) + 1e-3**0.5 * noise)
        optimizer.ask()
        tree = optimizer.tree
        holds = (tree.lower <= top).all(-1) & (top <= tree.upper).all(-1)
        failures += not bool(holds[tree.leaves].any())
        pruned += len(tree.pruned)
    assert failures <= 0.1 * runs and pruned > 0


def model_of(optimizer):
    r"""Kernel, noise and units."""
    saved = optimizer.state_dict()["model"]
    return encode([saved["kernel"], saved["noise_var"], saved["units"]])


def test_a_fit_restores_all_leaves():
    optimizer, restored, kept = AdaBKB(bounds=BOX, seed=0), 0, 0
    for _ in range(40):
        before, suggestion = model_of(optimizer), optimizer.ask()
        pruned = len(optimizer.tree.pruned)
        optimizer.tell(suggestion, sines(suggestion.X))
        if model_of(optimizer) != before:
            assert not len(optimizer.tree.pruned) and state_of(optimizer).tree.radii is None
            restored += pruned
        else:
            assert len(optimizer.tree.pruned) == pruned
            kept += pruned
    assert restored > 0 and kept > 0


def test_radii_are_those_of_the_present_kernel():
    optimizer = AdaBKB(bounds=BOX, seed=0)
    for _ in range(30):
        suggestion = optimizer.ask()
        state = state_of(optimizer)
        batch = batch_of(optimizer)
        every = torch.arange(len(state.tree.tree))
        expected = batch.variation.radii(state.tree.tree, every)
        torch.testing.assert_close(state.tree.radii, expected, atol=1e-9, rtol=1e-6)
        optimizer.tell(suggestion, sines(suggestion.X))


def test_a_doubled_norm_restores_all_leaves():
    options = given(lengthscale=0.2, norm_bound="double", noise=1e-3, width="information")
    optimizer, doubled = AdaBKB(bounds=UNIT, **options), 0
    for i in range(60):
        before, suggestion = optimizer.norm_bound, optimizer.ask()
        pruned = len(optimizer.tree.pruned)
        # Half-way the function turns out to be much larger than it seemed.
        scale = 1.0 if i < 30 else 400.0
        optimizer.tell(suggestion, scale * sines(suggestion.X))
        if optimizer.norm_bound > before:
            doubled += pruned > 0
            assert not len(optimizer.tree.pruned)
    assert doubled > 0


@pytest.mark.parametrize("algorithm", ALL)
def test_bounds_that_prune_every_leaf_prune_none(algorithm):
    # A function far larger than its norm bound, and a radius that vanishes.
    options = given(width=0.01, norm_bound=1e-6, noise=1e-4, max_depth=3)
    optimizer = algorithm(bounds=UNIT, **options)
    optimizer.tell(torch.tensor([[0.5], [0.1]], dtype=torch.float64), [50.0, -50.0])
    for _ in range(6):
        suggestion = optimizer.ask()
        assert len(optimizer.tree.leaves) > 0
        optimizer.tell(suggestion, -50.0 * torch.ones(len(suggestion)))
        assert math.isfinite(optimizer.gap())
