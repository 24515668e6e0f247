from __future__ import annotations

import pytest
import torch

from botorch_bkb import BKB
from botorch_bkb.threads import one_thread


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_threads_come_back_after_an_error():
    def fail():
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 2
    with one_thread(wanted=False):
        assert torch.get_num_threads() == 2


def test_an_optimizer_leaves_the_number_of_threads_alone():
    optimizer = BKB(bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(), seed=0)
    for _ in range(9):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, suggestion.X.sum(-1))
    assert torch.get_num_threads() == 2
