r"""``RandomlyPivotedCholesky``: a dictionary of given size, drawn by what is left to explain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from botorch_bkb.dictionaries.observed import Draw, ObservedInputs
from botorch_bkb.dictionaries.race import Race
from botorch_bkb.dictionaries.rule import Candidates, DictionaryRule, groups_of_equal_rows
from botorch_bkb.dictionaries.scores import smallest_coins
from botorch_bkb.validation import check_positive_integer


@dataclass(frozen=True)
class RandomlyPivotedCholesky(DictionaryRule):
    r"""A rule that draws a given number of points, one by one, by what is left to explain.

    The next point is ``x_i`` with probability proportional to its share of the residual,

    .. code-block:: text

        w_i (k(x_i,x_i) - |z(x_i)|^2),     w_i = c_i / lambda_i

    where ``z`` is the embedding by the points drawn so far. ``c_i`` is the number of pulls and
    ``lambda_i`` the noise variance of a single one. With equal weights this is the algorithm of the
    paper. The sum of the weighted residuals is twice the trace term of the variational bound on
    the marginal likelihood (Titsias 2009). So the weights are those of the regression. In batch
    mode the largest weighted residual over the batches counts.

    The draws are a race (:class:`~botorch_bkb.dictionaries.race.Race`). Each input has an
    exponential clock, which runs as fast as its weighted residual is large. The input whose clock
    runs out first joins, and the other clocks slow down. This needs one random number per input.
    An optimizer derives it from the coins of the pulls, which it keeps, so that consecutive
    dictionaries differ little. ``n`` distinct inputs cost ``O(n m^2)`` time and ``O(n m)`` memory.
    No ``n x n`` matrix is built.

    The draw ends early if nothing is left to explain up to rounding. The size is yours to choose,
    while :class:`RidgeLeverageSampling` follows the effective dimension.

    Args:
        size: The number of points.
        noise_var: The noise variance assumed when used as a BoTorch allocator. It has no effect.
        generator: The source of randomness for calls that pass none.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import DTCGP, RandomlyPivotedCholesky
        >>> X = torch.linspace(0, 1, 2000, dtype=torch.float64).unsqueeze(-1)
        >>> rule = RandomlyPivotedCholesky(5)
        >>> len(rule.select(X, RBFKernel().double(), torch.full((2000,), 0.1).double()))
        5
        >>> DTCGP(X, X.sin(), dictionary=rule).posterior(X[:3]).mean.shape
        torch.Size([3, 1])

    Reference:
        Chen, Epperly, Tropp, Webber: Randomly pivoted Cholesky: practical approximation of a kernel
        matrix with few entry evaluations. Communications on Pure and Applied Mathematics, 2025.
    """

    size: int = 200
    noise_var: float = 0.01
    generator: torch.Generator | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_positive_integer("size", self.size)

    def draw(self, inputs: ObservedInputs, generator: torch.Generator) -> Draw:
        r"""Draw by the coins that the optimizer keeps, so that few points change."""
        weights = inputs.noise.double().reciprocal()
        drawn = Race(inputs.X, inputs.kernel, weights, exponential(inputs.coins)).run(self.size)
        return Draw(drawn, len(drawn))

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        first, group = groups_of_equal_rows(inputs.X)
        counts = torch.ones_like(group) if inputs.counts is None else inputs.counts
        shape = (*inputs.noise.shape[:-1], len(first))
        weights = inputs.noise.new_zeros(shape, dtype=torch.float64)
        weights = weights.index_add(-1, group, counts / inputs.noise.double())
        coins = smallest_coins(torch.ones_like(first), generator or self.generator)
        X = inputs.X[..., first, :]
        drawn = Race(X, inputs.kernel, weights, exponential(coins)).run(self.size)
        return first[drawn].sort().values

    def is_random(self, n: int) -> bool:
        r"""Return True, since every selection is random."""
        return True

    def _capped(self, size: int) -> DictionaryRule:
        return replace(self, size=min(size, self.size))


def exponential(coins: Tensor) -> Tensor:
    r"""Turn uniform coins into exponential numbers. The smallest of ``c`` coins has rate ``c``."""
    return -torch.log1p(-coins)
