r"""What ``ask`` and ``best`` hand out."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import SupportsIndex

import torch
from botorch.exceptions.errors import BotorchError
from torch import Tensor


class BatchCompleteError(BotorchError):
    r"""Feedback is needed before the next suggestion.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB, BatchCompleteError
        >>> optimizer = BKB(torch.eye(3, dtype=torch.float64), seed=0)
        >>> suggestion = optimizer.ask()
        >>> try:
        ...     optimizer.ask()
        ... except BatchCompleteError:
        ...     optimizer.tell(suggestion, [0.5])
        >>> len(optimizer.ask())
        1
    """


@dataclass(frozen=True)
class Convergence:
    r"""Nothing that could be asked would teach more than ``epsilon`` nats.

    If the best upper confidence bound is at such a point ``x``, no point is better than it by more
    than the width of its interval: ``f(x') <= u(x') <= u(x) <= f(x) + 2 width sd(x)``, and
    ``sd(x)^2 <= (e^{2 epsilon} - 1) lambda``.

    Attributes:
        epsilon: The threshold in nats.
        gap: The highest upper bound less the best lower bound, in units of the rewards: no arm
            is better than the one with that lower bound by more. Holds when all intervals do,
            with probability ``1 - delta`` for a width with a guarantee; over a box the highest
            upper bound is the highest one that was found.
        width: Width of the bounds in posterior standard deviations.

    Example:
        >>> import math
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import CompressedUCB, ConvergedError
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> given = {"covar_module": RBFKernel(), "noise_var": 0.1, "seed": 0}
        >>> optimizer = CompressedUCB(arms, epsilon=0.1, on_uninformative="stop", **given)
        >>> try:
        ...     while True:
        ...         suggestion = optimizer.ask()
        ...         optimizer.tell(suggestion, torch.sin(suggestion.X))
        ... except ConvergedError as error:
        ...     c = error.convergence
        >>> c.epsilon, c.gap <= 2 * c.width * math.sqrt(math.expm1(2 * c.epsilon) * 0.1)
        (0.1, True)

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, eq. 2.11-2.12, for the test. That a run may end
        there, and how good it is then, is the inequality above, not a theorem of the paper.)
    """

    epsilon: float
    gap: float
    width: float


class ConvergedError(BotorchError):
    r"""The next suggestion would teach too little, and the optimizer was told to stop then.

    Attributes:
        convergence: At which level, and the bound that justifies it.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import CompressedUCB, ConvergedError
        >>> given = {"covar_module": RBFKernel(), "noise_var": 1.0, "seed": 0}
        >>> arms = torch.eye(3, dtype=torch.float64)
        >>> optimizer = CompressedUCB(arms, epsilon=10.0, on_uninformative="stop", **given)
        >>> try:
        ...     optimizer.ask()
        ... except ConvergedError as error:
        ...     print(error.convergence.epsilon)
        10.0
    """

    def __init__(self, convergence: Convergence) -> None:
        self.convergence = convergence
        super().__init__(
            f"Converged: the next point would teach no more than epsilon = {convergence.epsilon:g} "
            f"nats, and by bounds of {convergence.width:.3g} standard deviations nothing is better "
            f"than what is known by more than {convergence.gap:.4g}. To go on, lower epsilon or "
            'pass on_uninformative="evaluate".'
        )

    def __reduce__(self) -> tuple[type, tuple[Convergence]]:
        return ConvergedError, (self.convergence,)


@dataclass(frozen=True, eq=False)
class Suggestion:
    r"""Points to be evaluated.

    Attributes:
        X: ``q x d`` inputs.
        indices: ``q`` rows of ``arms``; None over a box.
        ids: One number for each point, by which its result is recognised; -1 where none is
            expected, since the point would teach too little (``on_uninformative="skip"``).
        informative: ``q`` booleans: whether a result would teach more than the information
            threshold. Without a threshold all would.

    A part of it is one too, for results that arrive one by one:

    Example:
        >>> import torch
        >>> s = Suggestion(torch.rand(3, 2), torch.tensor([4, 7, 4]), (0, 1, 2))
        >>> len(s), s[1].indices, s[1:].ids, s[s.informative].ids
        (3, tensor([7]), (1, 2), (0, 1, 2))
    """

    X: Tensor
    indices: Tensor | None
    ids: tuple[int, ...]
    informative: Tensor = field(default=None)  # type: ignore[assignment]  # set below

    def __post_init__(self) -> None:
        if self.informative is None:
            every = torch.ones(len(self.ids), dtype=torch.bool, device=self.X.device)
            object.__setattr__(self, "informative", every)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: SupportsIndex | slice | Tensor) -> Suggestion:
        if not isinstance(part, (slice, bool)) and (not isinstance(part, Tensor) or not part.dim()):
            place = range(len(self))[operator.index(part)]  # IndexError where there is none
            part = slice(place, place + 1)
        rows = torch.arange(len(self), device=self.X.device)[part]
        indices = None if self.indices is None else self.indices[rows]
        ids = tuple(self.ids[i] for i in rows.tolist())
        return Suggestion(self.X[rows], indices, ids, self.informative[rows])


@dataclass(frozen=True, eq=False)
class Best:
    r"""The point of highest posterior mean: among the arms, or among what was observed in a box.

    Attributes:
        index: Its row in ``arms``; None over a box.
        X: Its ``d`` features.
        mean: Posterior mean of its expected reward.
        lower: Lower end of its confidence interval, ``mean - width sd``.
        upper: Upper end, ``mean + width sd``.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import GPUCB
        >>> arms = torch.tensor([[0.0], [10.0], [20.0]], dtype=torch.float64)
        >>> optimizer = GPUCB(arms, covar_module=RBFKernel(), noise_var=1.0, width=2.0, seed=0)
        >>> optimizer.tell([1, 1, 1], [1.0, 2.0, 3.0])
        >>> best = optimizer.best()
        >>> best.index, round(best.mean, 6), round(best.lower, 6), round(best.upper, 6)
        (1, 1.5, 0.5, 2.5)
    """

    index: int | None
    X: Tensor
    mean: float
    lower: float
    upper: float
