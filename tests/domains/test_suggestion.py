from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb.domains import Suggestion

X = torch.arange(10, dtype=torch.float64).reshape(5, 2)
WHOLE = Suggestion(
    X,
    torch.tensor([4, 7, 4, 9, 0]),
    (10, 11, -1, 13, 14),
    torch.tensor([True, True, False, True, True]),
)


def assert_part(part, places):
    r"""The part has the points at these places of the whole, and all that belongs to them."""
    assert isinstance(part, Suggestion) and len(part) == len(places)
    assert part.X.tolist() == [X[i].tolist() for i in places]
    assert part.indices.tolist() == [WHOLE.indices[i].item() for i in places]
    assert part.ids == tuple(WHOLE.ids[i] for i in places)
    assert part.informative.tolist() == [WHOLE.informative[i].item() for i in places]


@given(st.slices(5).filter(lambda part: (part.step or 1) > 0))
def test_slices(part):
    assert_part(WHOLE[part], list(range(5))[part])


@given(st.slices(5).filter(lambda part: (part.step or 1) > 0), st.integers(-2, 1))
def test_a_part_of_a_part(part, place):
    places = list(range(5))[part]
    if len(places) > 1:
        assert_part(WHOLE[part][place], [places[place]])


@pytest.mark.parametrize("place", range(-5, 5))
@pytest.mark.parametrize("kind", [int, np.int64, torch.tensor], ids=["int", "numpy", "torch"])
def test_single_points_have_a_first_dimension(place, kind):
    assert_part(WHOLE[kind(place)], [range(5)[place]])


@pytest.mark.parametrize("place", [5, -6, 100])
@pytest.mark.parametrize("kind", [int, np.int64, torch.tensor], ids=["int", "numpy", "torch"])
def test_places_that_do_not_exist(place, kind):
    with pytest.raises(IndexError):
        WHOLE[kind(place)]


@given(st.lists(st.integers(-5, 4), max_size=8))
def test_places_in_any_order_and_more_than_once(places):
    part = WHOLE[torch.tensor(places, dtype=torch.long)]
    assert_part(part, [range(5)[i] for i in places])


@given(st.lists(st.booleans(), min_size=5, max_size=5))
def test_masks(mask):
    assert_part(WHOLE[torch.tensor(mask)], [i for i in range(5) if mask[i]])


def test_what_is_informative():
    assert_part(WHOLE[WHOLE.informative], [0, 1, 3, 4])


@pytest.mark.parametrize("part", [1.5, "1", None, (0,), [0, 1], torch.tensor(1.5), True])
def test_what_is_no_part(part):
    with pytest.raises(TypeError):
        WHOLE[part]


def test_a_mask_of_another_size():
    with pytest.raises(IndexError):
        WHOLE[torch.tensor([True, False])]


def test_points_can_be_taken_one_by_one():
    parts = list(WHOLE)
    assert [part.ids for part in parts] == [(id_,) for id_ in WHOLE.ids]
    assert torch.equal(torch.cat([part.X for part in parts]), X)


def test_over_a_box_there_are_no_indices_and_by_default_all_is_informative():
    suggestion = Suggestion(X, None, tuple(range(5)))
    assert suggestion[1:].indices is None
    assert suggestion.informative.tolist() == [True] * 5
    assert suggestion[3].informative.tolist() == [True]


def test_a_suggestion_is_a_value():
    with pytest.raises(AttributeError):
        WHOLE.ids = ()
    part = WHOLE[1:3]
    part.X.zero_()
    assert torch.equal(WHOLE.X, torch.arange(10).double().reshape(5, 2))
