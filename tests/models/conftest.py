from __future__ import annotations

import pytest
from botorch.models import SingleTaskGP

from botorch_bkb import DTCGP
from tests.models.support import build
from tests.problems import regression


@pytest.fixture(params=[(), (3,)], ids=["plain", "batched"])
def batch(request):
    return request.param


@pytest.fixture(params=[1, 2], ids=["one-output", "two-outputs"])
def outputs(request):
    return request.param


@pytest.fixture(
    params=[(False, False), (True, False), (False, True), (True, True)],
    ids=["inferred", "fixed-noise", "input-transform", "fixed-noise-input-transform"],
)
def pair(request, batch, outputs):
    r"""``SingleTaskGP`` and ``DTCGP`` with a full dictionary on the same data."""
    fixed, transformed = request.param
    X, Y = regression(20, 2, outputs, batch)
    return tuple(
        build(c, X, Y, fixed_noise=fixed, transformed=transformed) for c in (SingleTaskGP, DTCGP)
    )
