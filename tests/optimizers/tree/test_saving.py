from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb import AdaBBKB, AdaBKB, AllPoints, BatchCompleteError
from tests.optimizers.tree.support import (
    BOX,
    UNIT,
    given,
    sines,
    through_a_file,
    uniform,
)

SAVED = [
    (AdaBKB, {}),
    (AdaBKB, given(num_children=2)),
    (AdaBBKB, {"batch_threshold": 30.0, "max_batch_size": 6}),
    (AdaBBKB, given(batch_threshold=30.0)),
    (AdaBBKB, given(batch_threshold=8.0, batch_rule="local")),
    (AdaBBKB, given(batch_threshold=30.0, radius=(0.5, 0.7), coupled=False)),
    (AdaBBKB, given(batch_threshold=30.0, keep_coordinates=False)),
    (AdaBBKB, given(batch_threshold=1e4, norm_bound=0.1, width=0.2, max_batch_size=30)),
]


def steps(optimizer, n, start):
    r"""Points in twos, with partial results, and points nobody asked for."""
    out = []
    for i in range(start, start + n):
        try:
            suggestion = optimizer.ask(at_most=2)
        except BatchCompleteError:
            optimizer.tell(optimizer.pending, sines(optimizer.pending.X))
            suggestion = optimizer.ask(at_most=2)
        out.append(suggestion.X)
        if i % 3 == 1:
            optimizer.tell(suggestion[:1], sines(suggestion[:1].X) + 0.01 * i)
        if i % 4 == 2:
            optimizer.tell(uniform(BOX, 1, seed=i), [0.5])
        if i % 3 == 0:
            optimizer.tell(optimizer.pending, sines(optimizer.pending.X))
    return torch.cat(out) if out else None


@pytest.mark.parametrize(("algorithm", "options"), SAVED, ids=str)
@pytest.mark.parametrize("when", [0, 6, 11])  # 6 is in the middle of a batch
@pytest.mark.filterwarnings("ignore")
def test_a_run_saved_and_resumed_goes_on_bit_for_bit(algorithm, options, when):
    options = {"seed": 0, **options}
    whole, first, second = (algorithm(bounds=BOX, **options) for _ in range(3))
    steps(whole, when, 0)
    steps(first, when, 0)
    second.load_state_dict(through_a_file(first.state_dict()))
    assert torch.equal(whole.tree.lower, second.tree.lower)
    assert torch.equal(steps(whole, 4, when), steps(second, 4, when))
    for ours, theirs in zip(whole.table.moments(), second.table.moments(), strict=True):
        assert torch.equal(ours, theirs)
    for name, value in whole.tree.to_dict().items():
        assert torch.equal(value, getattr(second.tree, name))
    assert whole.gap() == second.gap() and whole.best().mean == second.best().mean


def test_a_batch_saved_at_every_pick():
    options = given(batch_threshold=1e4, max_batch_size=70)  # beyond where picks are folded
    whole = AdaBBKB(bounds=BOX, **options)
    whole.tell(uniform(BOX, 5), sines(uniform(BOX, 5)))
    for _ in range(7):
        second = AdaBBKB(bounds=BOX, **options)
        second.load_state_dict(through_a_file(whole.state_dict()))
        assert torch.equal(whole.ask(at_most=10).X, second.ask(at_most=10).X)
        assert torch.equal(whole.tree.lower, second.tree.lower)


def test_ties_do_not_depend_on_how_a_batch_is_asked_for():
    # A cube, a kernel and results without any preference: indices differ by rounding alone.
    cube = torch.stack([torch.zeros(3), torch.ones(3)]).double()
    steps = 0.25 * torch.eye(3, dtype=torch.float64)
    told = torch.cat([cube.mean(0) + steps, cube.mean(0) - steps])
    options = given(1.0, noise=0.1, width=0.5, norm_bound=0.3, dictionary=AllPoints())
    options |= {"batch_threshold": 1e4, "max_batch_size": 24}
    whole, parts, saved = (AdaBBKB(bounds=cube, **options) for _ in range(3))
    for optimizer in (whole, parts, saved):
        optimizer.tell(told, [0.0] * len(told))
    X, cells = whole.ask().X, []
    for start in range(0, 24, 2):
        again = AdaBBKB(bounds=cube, **options)
        again.load_state_dict(through_a_file(saved.state_dict()))
        for optimizer in (parts, again):
            assert torch.equal(X[start : start + 2], optimizer.ask(at_most=2).X)
        saved = again
        cells.append(len(saved.tree))
    assert len(set(cells)) > 3  # it matters when they are split
    for optimizer in (parts, saved):
        assert torch.equal(whole.tree.lower, optimizer.tree.lower)
        assert torch.equal(whole.table.X, optimizer.table.X)


def test_a_pick_that_is_held_is_held_as_often_after_loading():
    options = given(noise=10.0, batch_rule="hold")
    whole, second = (AdaBKB(bounds=UNIT, **options) for _ in range(2))
    first = whole.ask()
    whole.tell(first, sines(first.X))
    whole.ask(at_most=2), whole.ask(at_most=2)
    second.load_state_dict(through_a_file(whole.state_dict()))
    assert len(whole.ask()) == len(second.ask())


def test_a_batch_resumed_leaves_out_the_same_cells():
    # The best lower bound is that of a centre which the batch itself has made, and all bounds
    # fall below it later in the batch: the norm is too small for this function.
    varies = {0.5: 5.0, 0.25: 0.9, 0.75: 2.22, 0.125: 0.0, 0.375: 2.3, 0.625: 2.21, 0.875: 2.2}

    def radius(tree, ids, metric):
        return torch.tensor([varies[x] for x in tree.centres(ids).squeeze(-1).tolist()])

    def make():
        return AdaBBKB(
            bounds=UNIT,
            **given(lengthscale=0.1, noise=0.02, dictionary=AllPoints(), width=1.0),
            radius=radius, num_children=2, max_depth=2, batch_threshold=1e7, max_batch_size=8,
        )  # fmt: skip

    whole, second = make(), make()
    X = torch.tensor([[0.125]] * 30 + [[0.375]], dtype=torch.float64)
    whole.tell(X, [3.3] * 30 + [0.0], [0.02] * 30 + [1e4])
    assert whole.ask(at_most=1).X.item() == 0.375
    second.load_state_dict(through_a_file(whole.state_dict()))
    assert torch.equal(whole.ask(at_most=1).X, second.ask(at_most=1).X)
    assert torch.equal(whole.tree.lower, second.tree.lower)


def test_a_state_of_something_else_is_refused():
    a = AdaBKB(bounds=BOX, seed=0)
    a.tell(a.ask(), [1.0])
    for other in (AdaBBKB(bounds=BOX, seed=0), AdaBKB(bounds=BOX + 1, seed=0)):
        with pytest.raises(InputDataError, match="another optimizer"):
            other.load_state_dict(a.state_dict())
        assert other.num_observations == 0 and len(other.tree) == 1
