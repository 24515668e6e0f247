from __future__ import annotations

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize

from botorch_bkb import CompressedGP
from tests.models.support import D, build
from tests.problems import regression


@pytest.fixture(params=[True, False], ids=["discard", "no-discard"])
def pair(request, batch, outputs, kind):
    r"""``SingleTaskGP`` and ``CompressedGP`` without a threshold on the same data."""
    X, Y = regression(20, D, outputs, batch)
    X = torch.cat([X, X[..., :3, :]], -2)  # repetitions are data like others
    Y = torch.cat([Y, Y[..., :3, :] + 0.1], -2)
    options = {"epsilon": 0.0, "discard": request.param}
    return build(SingleTaskGP, X, Y, **kind), build(CompressedGP, X, Y, **kind, **options)


@pytest.fixture(params=["inferred", "fixed-noise", "input-transform"])
def kind(request):
    return {
        "fixed_noise": request.param == "fixed-noise",
        "transformed": request.param == "input-transform",
    }


@pytest.fixture(params=[True, False], ids=["discard", "no-discard"])
def model(request):
    X, Y = regression(60)
    return CompressedGP(
        10 * X, Y, input_transform=Normalize(D), epsilon=0.3, discard=request.param
    ).eval()
