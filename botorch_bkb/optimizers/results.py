r"""What ``best`` returns, and the errors that ``ask`` raises."""

from __future__ import annotations

from dataclasses import dataclass

from botorch.exceptions.errors import BotorchError
from torch import Tensor


class BatchCompleteError(BotorchError):
    r"""Raised by ``ask`` when the batch is complete: results are needed first.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB, BatchCompleteError
        >>> optimizer = BKB(torch.eye(3, dtype=torch.float64), seed=0)
        >>> suggestion = optimizer.ask()
        >>> try:
        ...     optimizer.ask()
        ... except BatchCompleteError:
        ...     optimizer.tell(suggestion, [0.5, 1.0, 1.5])
        >>> len(optimizer.ask())
        1
    """


class FinishedError(BotorchError):
    r"""Raised by ``ask`` when all of a fixed number of batches are complete.

    Example:
        >>> import torch
        >>> from botorch_bkb import BatchedElimination, FinishedError
        >>> optimizer = BatchedElimination(torch.eye(5, dtype=torch.float64), batch_sizes=[5])
        >>> suggestion = optimizer.ask()
        >>> optimizer.tell(suggestion, suggestion.X[:, 2])
        >>> try:
        ...     optimizer.ask()
        ... except FinishedError:
        ...     print(optimizer.best().index)
        2
    """


@dataclass(frozen=True)
class Convergence:
    r"""The level at which a run converged, and the bound that justifies it.

    No candidate would teach more than ``epsilon`` nats. If the best upper confidence bound is at
    such a point ``x``, no point is better than it by more than the width of its interval: ``f(x')
    <= u(x') <= u(x) <= f(x) + 2 width sd(x)``, and ``sd(x)^2 <= (e^{2 epsilon} - 1) lambda``.

    Attributes:
        epsilon: The threshold in nats.
        gap: The highest upper bound minus the best lower bound, in units of the rewards. No arm
            is better by more than the one with that lower bound, if all intervals hold. For a width
            with a guarantee they hold with probability ``1 - delta``. Over a box the highest
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
        Bedi et al., 2020. (Compressed GP bandits, eq. 2.11-2.12, for the test. How good a run is
        when it ends there follows from the inequality above; it is not a theorem of the paper.)
    """

    epsilon: float
    gap: float
    width: float


class ConvergedError(BotorchError):
    r"""Raised by ``ask`` when the next point would teach too little (``"stop"``).

    Attributes:
        convergence: The level of convergence, and the bound that justifies it.

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
class Best:
    r"""The recommended point: the arm, or the observed point of a box, of highest posterior mean.

    Attributes:
        index: The point's row in ``arms``; None over a box.
        X: The point's ``d`` coordinates.
        mean: The posterior mean of its expected reward.
        lower: The lower end of its confidence interval, ``mean - width sd``.
        upper: The upper end, ``mean + width sd``.

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
