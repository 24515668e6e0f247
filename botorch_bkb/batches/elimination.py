r"""Elimination in a few fixed batches: the sizes of the batches, and how one is picked.

Within a batch each pick is the arm of highest posterior variance, given the picks of the *same*
batch and nothing else. Variances need no results. So the points of a batch are independent of its
noise, and confidence bounds for fixed points hold (:func:`botorch_bkb.confidence.non_adaptive`).

Reference:
    Li, Scarlett: Gaussian process bandit optimization with few batches. AISTATS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.rules import MAX_SIZE, BatchRule
from botorch_bkb.belief import kernel_diagonal, kernel_matrix
from botorch_bkb.domains import Arms
from botorch_bkb.validation import check_positive_integer

#: Relative difference below which prior variances are equal, up to rounding.
TIED = 1e-6


def equal_sizes(budget: int, num_batches: int) -> tuple[int, ...]:
    r"""Return the sizes of equal batches, which differ by one at most.

    Args:
        budget: ``T``, the number of evaluations.
        num_batches: ``B``. There are fewer batches where the budget is smaller.

    Example:
        >>> equal_sizes(288, 3), equal_sizes(10, 3), equal_sizes(2, 3)
        ((96, 96, 96), (4, 3, 3), (1, 1))
    """
    num_batches = min(budget, num_batches)
    share, rest = divmod(budget, num_batches)
    return tuple(share + (i < rest) for i in range(num_batches))


def growing_sizes(
    budget: int, num_batches: int | None = None, rate: float = 0.5
) -> tuple[int, ...]:
    r"""Return the batch sizes of Li and Scarlett, which keep the *cumulative* regret low.

    After ``N`` points the posterior standard deviation of all survivors is of the order
    ``N^-rate``. So batch ``i + 1`` has a regret of the order ``N_{i+1} N_i^-rate``. It is the same
    for all of ``B`` batches if

    .. code-block:: text

        N_i = ceil( T^((1 - rate^i) / (1 - rate^B)) ),    i < B

    and the last batch has what is left. Without a number of batches the sizes are
    ``N_i = ceil( sqrt(T N_{i-1}) )`` with ``N_0 = 1``, in ``O(log log T)`` batches.

    Args:
        budget: ``T``, the number of evaluations.
        num_batches: ``B``, or None.
        rate: ``1/2`` for squared exponential kernels, up to logarithms, and ``nu / (2 nu + d)``
            for Matern kernels.

    Example:
        >>> growing_sizes(288, 3), growing_sizes(288)
        ((26, 129, 133), (17, 70, 142, 59))

    Reference:
        Li, Scarlett, AISTATS 2022. (Algorithm 1; Section 4 for a constant number of batches.)
    """
    sizes: list[int] = []
    while (left := budget - sum(sizes)) > 0:
        i = len(sizes) + 1
        if num_batches is None:
            size = math.ceil(math.sqrt(budget * (sizes[-1] if sizes else 1)))
        elif i == num_batches:
            size = left
        else:
            size = math.ceil(budget ** ((1 - rate**i) / (1 - rate**num_batches)))
        sizes.append(min(size, left))
    return tuple(sizes)


@dataclass(frozen=True)
class Elimination(BatchRule):
    r"""A rule of a few batches of fixed sizes, after each of which arms are eliminated.

    An arm is eliminated when its upper confidence bound is below the best lower bound. Bounds are
    those by the results of one batch alone. Those of several batches hold together, so the best of
    them counts.

    Args:
        sizes: The number of points of each batch.
        distinct: Whether the points of a batch are distinct, as far as there are enough arms.
            Otherwise a point is repeated where that has the highest variance of all, and only then
            the paper's regret bound holds. The confidence bounds hold in both cases.

    Example:
        >>> import torch
        >>> from botorch_bkb.acquisition import PureExploration
        >>> from botorch_bkb.batches import Elimination
        >>> from botorch_bkb.domains import Arms
        >>> from botorch_bkb.optimizers import Optimizer
        >>> arms = Arms(torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1))
        >>> rule = Elimination((8, 4))
        >>> optimizer = Optimizer(arms, batch=rule, acquisition=PureExploration(), seed=0)
        >>> len(optimizer.ask()), len(optimizer.survivors)
        (8, 50)

    Reference:
        Li, Scarlett, AISTATS 2022. (Batched pure exploration.)
    """

    sizes: tuple[int, ...] = field(kw_only=False)
    distinct: bool = True
    max_size: int = field(default=MAX_SIZE, init=False)

    def __post_init__(self) -> None:
        sizes = self.sizes
        if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
            raise InputDataError(
                f"The sizes of batches must be a list of positive integers, got {sizes!r}: pass "
                "for example (96, 96, 96)."
            )
        for size in sizes:
            check_positive_integer("The size of a batch", size if size is not None else 0)
        object.__setattr__(self, "sizes", tuple(sizes))
        object.__setattr__(self, "max_size", max(sizes))

    @property
    def limit(self) -> float:
        r"""The limit, which is infinite: only the size ends a batch."""
        return math.inf


class EliminationBatch(Batch):
    r"""A batch of pure exploration among the arms that are left.

    With ``b`` picks so far, for all survivors ``x`` and the next pick ``s``,

    .. code-block:: text

        g(x) = (k(x, s) - sum_{r <= b} g_r(x) g_r(s)) / sqrt(lambda + var_b(s)),
        var_{b+1}(x) = var_b(x) - g(x)^2

    The cost is ``O(A b)`` per pick, and the memory ``O(A n)`` for a batch of ``n`` points. The
    first pick is drawn from the arms of highest prior variance.

    Args:
        domain: The arms.
        context: What the batch is picked from.

    Reference:
        Li, Scarlett, AISTATS 2022. (Batched pure exploration, Algorithm 1.)
    """

    @torch.no_grad()
    def __init__(self, domain: Arms, context: BatchContext) -> None:
        super().__init__(context.table, context.rule, num_arms=len(domain.arms))
        stage, hyper = context.state.in_flight.stage, context.state.hyper
        assert stage is not None and isinstance(context.rule, Elimination)
        # The record's picks are among those asked; they will be repeated one by one.
        earlier = stage.asked[: len(stage.asked) - len(context.record.picks)]
        size = context.rule.sizes[stage.index]
        self._left = size - len(earlier)
        first = domain.index.first == torch.arange(len(domain.arms), device=domain.device)
        self._rows = torch.nonzero(stage.alive & first).squeeze(-1)
        self._X, self._kernel = context.state.model.inputs(domain.arms[self._rows]), hyper.kernel
        self._noise_var = hyper.noise_var
        self._var = kernel_diagonal(hyper.kernel, self._X).clone()
        self._G = self._var.new_empty(len(self._rows), size)
        self._distinct, self._pulls = context.rule.distinct, torch.zeros_like(self._rows)
        self._seen = 0
        # One seed per batch, however its points are asked and told.
        seed = context.state.in_flight.design_seed + stage.index
        self._generator = torch.Generator().manual_seed(seed)
        for row in earlier:
            self._hallucinate(row)

    @property
    def complete(self) -> bool:
        r"""Whether all points of the batch were asked."""
        return len(self.picks) >= self._left

    @property
    def exhausted(self) -> bool:
        r"""Whether all points of the batch were asked."""
        return self.complete

    def _choose(self) -> int:
        if self._seen:
            var = self._var
            if self._distinct:
                var = torch.where(self._pulls == self._pulls.min(), var, -torch.inf)
            return int(self._rows[var.argmax()])
        # Under a stationary kernel all arms are equal before the first pick.
        highest = torch.nonzero(self._var >= (1 - TIED) * self._var.max()).squeeze(-1)
        generator = self._generator
        i = torch.randint(len(highest), (), generator=generator, device=generator.device)
        return int(self._rows[highest[int(i)]])

    def _hallucinate(self, row: int) -> None:
        i, b = int(torch.searchsorted(self._rows, row)), self._seen
        column = kernel_matrix(self._kernel, self._X, self._X[i : i + 1]).squeeze(-1)
        g = (column - self._G[:, :b] @ self._G[i, :b]) / (self._noise_var + self._var[i]).sqrt()
        self._var = (self._var - g.square()).clamp_min(0)
        self._G[:, b] = g
        self._pulls[i] += 1
        self._seen += 1
