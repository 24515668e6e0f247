r"""Named parameters as a box, and back."""

import math
import sys

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.integrations.spaces import MOST_VALUES, Dimension, Space

KINDS = [
    Dimension("x", -1.0, 2.0),
    Dimension("rate", 1e-5, 3.0, log=True),
    Dimension.grid("n", -3, 5),
    Dimension.grid("even", 2, 9, 2),
    Dimension.grid("half", 0.0, 1.0, 0.25),
    Dimension.grid("width", 1, 10**6, log=True),
    Dimension.grid("many", 0, 10**7),
    Dimension.choices("kind", ["a", None, 1, True, 1.5]),
]
each = pytest.mark.parametrize("dimension", KINDS, ids=lambda d: d.name)


@each
@given(part=st.floats(0, 1))
def test_what_is_decoded_encodes_to_the_nearest_coordinate(dimension, part):
    lower, upper = dimension.ends
    x = lower + part * (upper - lower)
    value = dimension.decode(x)
    again = dimension.encode(value)
    assert dimension.decode(again) == value
    if dimension.codes is None:
        assert again == pytest.approx(x, abs=1e-9 * (upper - lower))
    else:
        assert abs(again - x) <= min(abs(code - x) for code in dimension.codes) + 1e-12
        assert type(value) in {type(v) for v in dimension.values}


@each
def test_ends_are_reached_and_never_passed(dimension):
    lower, upper = dimension.ends
    for x in (lower - 1e-9, upper + 1e-9):
        value = dimension.decode(x)
        assert lower <= dimension.encode(value) <= upper
    if not dimension.is_choice:
        assert dimension.decode(lower) == dimension.lower


@each
def test_every_value_of_a_grid_has_its_own_coordinate(dimension):
    for value in dimension.values or ():
        back = dimension.decode(dimension.encode(value))
        assert back == value and type(back) is type(value)


def test_fine_grids_are_thinned_out_on_their_scale():
    width, many = Dimension.grid("w", 1, 10**6, log=True), Dimension.grid("m", 0, 10**7)
    assert len(many.values) == MOST_VALUES and len(width.values) < MOST_VALUES
    assert many.values[-1] == 10**7 and width.values[-1] == 10**6
    assert width.values[:4] == (1, 2, 3, 4)
    steps = torch.tensor(many.values).diff().double()
    assert steps.max() / steps.min() < 1.001
    assert many.encode(12_345) == 12_345.0


@pytest.mark.parametrize("value", [3.0, "text", True, math.nan, None])
def test_what_is_not_in_an_interval_is_refused(value):
    with pytest.raises(ValueError, match="is not in"):
        KINDS[0].encode(value)


def test_what_is_no_choice_is_refused():
    with pytest.raises(ValueError, match="not in"):
        KINDS[-1].encode("z")


def test_constraints_have_the_sign_of_botorch():
    x, y = Dimension("x", 0.0, 1.0), Dimension("y", 0.0, 1.0)
    space = Space((x, y), (((("y", 2.0), ("x", 1.0)), 0.5, False),))
    ((indices, weights, bound),) = space._linear_constraints()["inequality_constraints"]
    point = torch.tensor([0.1, 0.1], dtype=torch.float64)
    assert weights @ point[indices] >= bound
    assert not weights @ torch.ones(2, dtype=torch.float64) >= bound
    optimizer = space.make_optimizer("BKB", 0, {"num_initial": 4})
    assert (optimizer.ask().X @ torch.tensor([1.0, 2.0]).double() <= 0.5 + 1e-9).all()


def test_trees_take_intervals_only():
    with pytest.raises(UnsupportedError, match='use "BKB"'):
        Space((Dimension.grid("n", 1, 3),)).make_optimizer("AdaBKB", 0, {})


@pytest.mark.parametrize(("module", "extra"), [("ax", "ax"), ("optuna", "optuna")])
def test_a_missing_extra_is_named(monkeypatch, module, extra):
    ours = (f"botorch_bkb.{module}", f"botorch_bkb.integrations.{module}")
    for name in [n for n in sys.modules if n.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n == module or n.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"botorch-bkb\[{extra}\]"):
        __import__(f"botorch_bkb.{module}")
