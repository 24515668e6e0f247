from __future__ import annotations

import os
import signal

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


@pytest.fixture(autouse=True)
def _interrupts():
    r"""Processes in the background ignore Ctrl-C; what is tested must not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=DEVICES)
def device(request) -> torch.device:
    return torch.device(request.param)
