r"""Kernel, mean and likelihood of several tasks, by a column of inputs that names the task.

They are BoTorch's and gpytorch's own, with the same parameters. Each also takes the inputs as they
are: it finds the position of a row's task among all tasks by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from botorch.models.kernels.positive_index import PositiveIndexKernel
from gpytorch.likelihoods import HadamardGaussianLikelihood
from gpytorch.means import Mean, MultitaskMean
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Size, Tensor


@dataclass(frozen=True)
class Tasks:
    r"""The tasks of a model, and the column of the inputs that names them.

    Args:
        column: The column, not negative.
        values: The values of all tasks, sorted.
        default: The task that other values mean. None refuses other values.
    """

    column: int
    values: tuple[int, ...]
    default: int | None = None

    def positions(self, named: Tensor) -> Tensor:
        r"""Return the positions of tasks among all tasks, a LongTensor.

        Args:
            named: A tensor of task values, of any shape.
        """
        values = torch.tensor(self.values, device=named.device)
        found = named.long().unsqueeze(-1) == values
        known = found.any(-1)
        if self.default is None and not known.all():
            unknown = sorted(set(named[~known].long().tolist()))
            raise InputDataError(
                f"The tasks in column {self.column} must be among {list(self.values)}, got "
                f"{unknown}: name them in all_tasks, or pass validate_task_values=False."
            )
        first = 0 if self.default is None else self.values.index(self.default)
        return torch.where(known, found.long().argmax(-1), first)

    def of(self, X: Tensor) -> Tensor:
        r"""Return the positions of the tasks of ``batch x n x d`` inputs, ``batch x n``."""
        return self.positions(X[..., self.column])

    def without(self, X: Tensor) -> Tensor:
        r"""Return the inputs without the column of tasks."""
        return torch.cat([X[..., : self.column], X[..., self.column + 1 :]], -1)


class TaskKernel(PositiveIndexKernel):
    r"""BoTorch's kernel of tasks on task values instead of positions.

    Args:
        tasks: The tasks.
        kwargs: Further arguments of ``PositiveIndexKernel``.
    """

    def __init__(self, tasks: Tasks, **kwargs: Any) -> None:
        super().__init__(num_tasks=len(tasks.values), active_dims=[tasks.column], **kwargs)
        self.tasks = tasks

    def forward(self, i1: Tensor, i2: Tensor, **params: Any) -> LinearOperator:
        r"""Compute the covariances of the tasks in two ``batch x n x 1`` tensors."""
        return super().forward(self.tasks.positions(i1), self.tasks.positions(i2), **params)


class TaskMean(Mean):
    r"""The mean of each row's own task.

    Args:
        tasks: The tasks.
        base_means: One mean for all tasks, of which each task has a copy, or a list of means.
    """

    def __init__(self, tasks: Tasks, base_means: Mean | list[Mean]) -> None:
        super().__init__()
        self.tasks = tasks
        self.base_means = MultitaskMean(base_means, len(tasks.values)).base_means

    def forward(self, x: Tensor) -> Tensor:
        r"""Compute the means of ``batch x n x d`` inputs, ``batch x n``."""
        X = self.tasks.without(x)
        means = torch.stack([mean(X) for mean in self.base_means], -1)
        return means.gather(-1, self.tasks.of(x).unsqueeze(-1)).squeeze(-1)


class MeanOfPositions(Mean):
    r"""A user's mean, which takes inputs with positions of tasks instead of their values.

    Args:
        tasks: The tasks.
        mean: The mean.
    """

    def __init__(self, tasks: Tasks, mean: Mean) -> None:
        super().__init__()
        self.tasks, self.mean = tasks, mean

    def forward(self, x: Tensor) -> Tensor:
        r"""Compute the means of ``batch x n x d`` inputs, ``batch x n``."""
        position = self.tasks.of(x).unsqueeze(-1).to(x)
        column = self.tasks.column
        return self.mean(torch.cat([x[..., :column], position, x[..., column + 1 :]], -1))


class TaskGaussianLikelihood(HadamardGaussianLikelihood):
    r"""gpytorch's Gaussian likelihood with a noise variance for each task.

    The noise of ``n`` observations is a diagonal, without ``n x n`` matrices.

    Args:
        tasks: The tasks.
        kwargs: Further arguments of ``HadamardGaussianLikelihood``.
    """

    def __init__(self, tasks: Tasks, **kwargs: Any) -> None:
        super().__init__(len(tasks.values), task_feature_index=tasks.column, **kwargs)
        self.tasks = tasks

    def _shaped_noise_covar(self, base_shape: Size, *params: Any, **kwargs: Any) -> LinearOperator:
        X = params[0] if isinstance(params[0], Tensor) else params[0][0]
        noise = self.noise[self.tasks.of(X)]
        return DiagLinearOperator(noise.expand(torch.broadcast_shapes(base_shape, noise.shape)))
