r"""Rules for a dictionary of limited size that are compared with the package's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bkb import RandomlyPivotedCholesky, RidgeLeverageSampling
from botorch_bkb.belief import kernel_diagonal, kernel_matrix
from botorch_bkb.dictionaries import Candidates, DictionaryRule, Draw, ObservedInputs

HIGHEST, LOWERED, THINNED = "highest scores", "lower oversampling", "thinned"
RANDOM, PIVOTED, GREEDY = "random rows", "pivoted Cholesky", "greedy"


@dataclass(frozen=True)
class Capped(RidgeLeverageSampling):
    r"""Ridge leverage sampling that keeps the first ``max_size`` points in a given order.

    Args:
        order: ``"highest scores"``: by score. ``"lower oversampling"``: by coin over score, which
            is the draw with a smaller oversampling. ``"thinned"``: by coin over probability.
    """

    order: str = HIGHEST

    def draw(self, inputs: ObservedInputs, generator: torch.Generator) -> Draw:
        r"""Draw by the coins that are kept, and cap the draw."""
        drawn = self.drawn(inputs.scores, inputs.coins, inputs.newest)
        return self._first(drawn, inputs.scores, inputs.coins)

    def _draw(self, X, candidates, scores, counts, generator):
        coins = torch.rand(len(scores), generator=generator, dtype=torch.float64)
        kept, num_drawn = self._first(self.drawn(scores, coins), scores, coins)
        return Draw(candidates[kept].sort().values, num_drawn)

    def _first(self, drawn: Tensor, scores: Tensor, coins: Tensor) -> Draw:
        if self.max_size is None or len(drawn) <= self.max_size:
            return Draw(drawn, len(drawn))
        rank = {
            HIGHEST: -scores,
            LOWERED: coins / scores,
            THINNED: coins / (self.rate * scores).clamp(max=1.0),
        }[self.order]
        kept = drawn[rank[drawn].topk(self.max_size, largest=False).indices]
        return Draw(kept.sort().values, len(drawn))


@dataclass(frozen=True)
class RandomRows(DictionaryRule):
    r"""Rows drawn uniformly."""

    size: int

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        n = inputs.X.shape[-2]
        return torch.randperm(n, generator=generator)[: self.size].sort().values

    def _capped(self, size: int) -> DictionaryRule:
        return RandomRows(min(size, self.size))


@dataclass(frozen=True)
class Greedy(DictionaryRule):
    r"""Pivoted Cholesky: the row of largest residual joins, one by one, without an n x n matrix.

    This is what BoTorch's ``GreedyVarianceReduction`` chooses.
    """

    size: int

    @torch.no_grad()
    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        X, kernel = inputs.X, inputs.kernel
        residual, chosen = kernel_diagonal(kernel, X).clone(), []
        Z = residual.new_zeros(len(X), self.size)
        for j in range(min(self.size, len(X))):
            i = int(residual.argmax())
            column = kernel_matrix(kernel, X, X[i : i + 1]).squeeze(-1) - Z[:, :j] @ Z[i, :j]
            Z[:, j] = column / residual[i].sqrt()
            residual -= Z[:, j].square()
            residual[i] = 0.0
            chosen.append(i)
        return torch.tensor(sorted(chosen))

    def _capped(self, size: int) -> DictionaryRule:
        return Greedy(min(size, self.size))


def rule(name: str, size: int, oversampling: float) -> DictionaryRule:
    r"""Return a rule by name.

    Args:
        name: One of the names above.
        size: The largest number of points.
        oversampling: That of the draw that is capped.
    """
    others = {RANDOM: RandomRows, PIVOTED: RandomlyPivotedCholesky, GREEDY: Greedy}
    if name in others:
        return others[name](size)
    return Capped(oversampling, size, order=name)
