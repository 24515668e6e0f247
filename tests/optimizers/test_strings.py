r"""Any kernel will do: similarities of strings, looked up by number."""

from __future__ import annotations

import itertools

import torch
from gpytorch.kernels import Kernel

from botorch_bkb import BBKB


class Spectrum(Kernel):
    r"""Similarities of strings by the pieces they share, looked up by the number of a string."""

    def __init__(self, strings, length=2):
        super().__init__()
        pieces = sorted({s[i : i + length] for s in strings for i in range(len(s) - length + 1)})
        counts = [[s.count(piece) for piece in pieces] for s in strings]
        features = torch.tensor(counts, dtype=torch.float64)
        features = features / features.norm(dim=-1, keepdim=True)
        self.register_buffer("similarity", features @ features.mT)

    def forward(self, x1, x2, diag=False, **params):
        rows, columns = x1[..., 0].long(), x2[..., 0].long()
        if diag:
            return self.similarity[rows, columns]
        return self.similarity[rows.unsqueeze(-1), columns.unsqueeze(-2)]


def test_strings():
    strings = ["".join(letters) for letters in itertools.product("ACGT", repeat=4)]
    value = torch.tensor([s.count("GC") + 0.5 * s.count("CA") for s in strings]).double()
    numbers = torch.arange(len(strings), dtype=torch.float64).unsqueeze(-1)
    optimizer = BBKB(
        numbers, covar_module=Spectrum(strings), noise_var=0.01, width="heuristic", seed=0
    )
    while optimizer.num_observations < 100:
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, value[suggestion.indices])
    assert value[optimizer.best().index] == value.max()
    assert optimizer.model.posterior(numbers[:5]).mean.shape == (5, 1)
