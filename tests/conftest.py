from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("repo", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("repo")

if "PYTEST_XDIST_WORKER" in os.environ:  # as many workers as cores: a thread each
    torch.set_num_threads(1)

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=DEVICES)
def device(request) -> torch.device:
    return torch.device(request.param)
