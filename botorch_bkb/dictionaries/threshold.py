r"""Keep what would teach something."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import BotorchWarning
from torch import Tensor

from botorch_bkb.belief import chunks, kernel_matrix
from botorch_bkb.dictionaries.rule import (
    Candidates,
    DictionaryRule,
    first_occurrences,
    largest_over_batch,
)
from botorch_bkb.linalg import solve_rows
from botorch_bkb.validation import check_max_size


@dataclass(frozen=True)
class InformationThreshold(DictionaryRule):
    r"""Keep an input if it would teach more than ``epsilon`` nats, in the order given.

    The conditional entropy of an observation at ``x``, given the inputs kept so far, must
    exceed that of pure noise by ``epsilon``:

    .. code-block:: text

        1/2 log(lambda + var_D(x)) > 1/2 log(lambda) + epsilon   <=>   tau_D(x) > e^{2 epsilon} - 1

    The test needs no outcome. ``n`` inputs cost ``O(n M^2)`` for ``M`` kept ones.
    (Compressed GP bandits, eq. 2.11-2.12.)

    Args:
        epsilon: The threshold; 0 keeps every distinct input that is not numerically
            determined by the others.
        max_size: Stop after this many, with a warning.
        noise_var: Noise variance assumed when used as a BoTorch allocator.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import InformationThreshold
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)
        >>> rule = InformationThreshold(epsilon=0.3)
        >>> len(rule.select(X, RBFKernel().double(), torch.full((100,), 0.1).double()))
        10
    """

    epsilon: float = 1e-4
    max_size: int | None = None
    noise_var: float = 0.01

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise InputDataError(f"epsilon must not be negative, got {self.epsilon}.")
        check_max_size(self.max_size)

    @property
    def score_threshold(self) -> float:
        r"""The least leverage score that is kept, ``e^{2 epsilon} - 1``."""
        return math.expm1(2 * self.epsilon)

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        X, kernel, noise, *_ = inputs
        distinct = first_occurrences(X)
        X, noise = X[..., distinct, :], noise[..., distinct].double()
        kept = torch.empty(0, dtype=torch.long, device=X.device)
        root = None
        for rows in chunks(X.shape[-2], 1024):
            root, new = self._scan(kernel, X, noise, rows, kept, root)
            kept = torch.cat([kept, new])
            if self.max_size is not None and len(kept) >= self.max_size:
                if rows.stop < X.shape[-2] or len(kept) > self.max_size:
                    warnings.warn(
                        f"The information threshold stopped at max_size = {self.max_size} points "
                        "with inputs left: raise max_size or epsilon.",
                        BotorchWarning,
                        stacklevel=2,
                    )
                kept = kept[: self.max_size]
                break
        return distinct[kept].sort().values

    def _scan(self, kernel, X, noise, rows, kept, root):
        r"""Test a block of inputs in order, given the Cholesky factor of the kept ones.

        ``V`` holds the whitened kernel values of the block against the kept points; keeping
        one more adds a column, and row ``i`` of ``V`` is then the next row of the factor.
        """
        x, lam = X[..., rows, :], noise[..., rows]
        within = kernel_matrix(kernel, x)
        var = within.diagonal(dim1=-2, dim2=-1).clone()
        V = within[..., :0]
        if root is not None:
            V = solve_rows(root, kernel_matrix(kernel, x, X[..., kept, :]))
            var = var - V.square().sum(-1)
        new: list[int] = []
        start = 0
        room = math.inf if self.max_size is None else self.max_size - len(kept)
        while len(new) <= room:
            gain = largest_over_batch(var / lam)[start:]
            passing = torch.nonzero(gain > self.score_threshold)
            if len(passing) == 0:
                break
            i = start + int(passing[0])
            pivot = (var[..., i].clamp_min(0) + lam[..., i]).sqrt().unsqueeze(-1)
            column = within[..., i] - (V @ V[..., i, :].unsqueeze(-1)).squeeze(-1)
            column = column / pivot
            V = torch.cat([V, column.unsqueeze(-1)], -1)
            var = var - column.square()
            new.append(i)
            start = i + 1
        return _grow(root, V[..., new, :], lam[..., new]), torch.arange(
            rows.start, rows.stop, device=X.device
        )[new]

    def _capped(self, size: int) -> DictionaryRule:
        return replace(self, max_size=min(size, self.max_size or size))


def _grow(root: Tensor | None, V: Tensor, noise: Tensor) -> Tensor:
    r"""Append to ``root`` the rows of the kept points' whitened kernel values.

    Column ``j`` of the new part is ``cov(., x_j) / pivot_j``, so its diagonal holds
    ``var_j / pivot_j``; the factor of ``K + Lam`` has ``pivot_j`` there.
    """
    m = 0 if root is None else root.shape[-1]
    tail = V[..., m:].tril()
    diagonal = tail.diagonal(dim1=-2, dim2=-1)
    # pivot^2 = var + lambda and diagonal = var / pivot  =>  pivot from the two
    pivot = 0.5 * (diagonal + (diagonal.square() + 4 * noise).sqrt())
    tail = tail - torch.diag_embed(diagonal) + torch.diag_embed(pivot)
    if root is None:
        return tail
    top = torch.nn.functional.pad(root, (0, tail.shape[-1]))
    return torch.cat([top, torch.cat([V[..., :m], tail], -1)], -2)
