r"""``MultiTaskDTCGP``: the sparse counterpart of BoTorch's ``MultiTaskGP``."""

from __future__ import annotations

from typing import Any, Self

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.models.gpytorch import MultiTaskGPyTorchModel
from botorch.models.multitask import MultiTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.gpytorch_modules import (
    MIN_INFERRED_NOISE_LEVEL,
    get_covar_module_with_dim_scaled_prior,
)
from botorch.models.utils.inducing_point_allocators import InducingPointAllocator
from botorch.models.utils.priors import BetaPrior
from botorch.utils.datasets import MultiTaskDataset, SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean, MultitaskMean
from gpytorch.module import Module
from gpytorch.priors import LogNormalPrior, Prior
from torch import Tensor

from botorch_bkb.dictionaries import DictionaryRule
from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.models.tasks import (
    MeanOfPositions,
    TaskGaussianLikelihood,
    TaskKernel,
    TaskMean,
    Tasks,
)
from botorch_bkb.validation import check_kernel, check_training_data


class MultiTaskDTCGP(MultiTaskGPyTorchModel, DTCGP):  # type: ignore[misc]
    r"""A sparse GP of correlated tasks, a drop-in replacement for ``MultiTaskGP``.

    One column of the inputs names the task of a row. The kernel is a kernel of the other columns
    times a covariance of the tasks, ``k((x,i), (x',j)) = k(x,x') B_ij``. The posterior is that of
    :class:`DTCGP` with this kernel. The dictionary consists of rows, each with its task.

    ``posterior(X)`` takes ``X`` with the column of tasks, and has one output, or without it, and
    has an output for each of ``output_tasks``.

    Args:
        train_X: An ``n x (d + 1)`` tensor of training features, one column of which holds tasks.
        train_Y: An ``n x 1`` tensor of training observations.
        task_feature: The column of tasks.
        train_Yvar: An optional ``n x 1`` tensor of observed measurement noise.
        mean_module: A mean of inputs with the task's position; by default a constant for each
            task.
        covar_module: The kernel of the columns other than the task; BoTorch's default if omitted.
        likelihood: A Gaussian likelihood. By default each task has its own noise variance.
        task_covar_prior: The prior of the correlations of tasks: BoTorch's ``BetaPrior(2.5, 1.5)``
            by default, None for none.
        output_tasks: The tasks that are the outputs; all by default.
        rank: The rank of the covariance of tasks; the number of tasks by default.
        all_tasks: All tasks, also those without data. By default those in ``train_X``.
        outcome_transform: As in ``SingleTaskGP``: ``Standardize`` by default, None for none.
        input_transform: As in ``SingleTaskGP``. It must leave the column of tasks as it is.
        validate_task_values: Whether to refuse tasks that are not in ``all_tasks``. Otherwise they
            stand for the first of ``output_tasks``.
        dictionary: As in :class:`DTCGP`.
        trace_term: As in :class:`DTCGP`.

    Example:
        >>> import torch
        >>> from botorch_bkb import MultiTaskDTCGP
        >>> _ = torch.manual_seed(0)
        >>> X = torch.rand(600, 2, dtype=torch.float64)
        >>> task = torch.randint(2, (600, 1)).double()
        >>> Y = torch.sin(5 * X).sum(-1, keepdim=True) + 0.3 * task
        >>> model = MultiTaskDTCGP(torch.cat([X, task], -1), Y, task_feature=-1, output_tasks=[1])
        >>> model.posterior(torch.rand(4, 2, dtype=torch.float64)).mean.shape
        torch.Size([4, 1])

    Reference:
        Bonilla, Chai, Williams: Multi-task Gaussian process prediction. NeurIPS 2007.
    """

    # Plain attributes, written through ``__dict__``: neither parameters nor buffers.
    _tasks: Tasks
    _task_feature: int
    _output_tasks: list[int]
    _rank: int
    _unobserved: list[int]  # positions of tasks without data
    num_tasks: int
    num_non_task_features: int

    _supports_batched_models = False
    _supports_cache_root = False
    get_all_tasks = MultiTaskGP.get_all_tasks

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        task_feature: int,
        train_Yvar: Tensor | None = None,
        mean_module: Module | None = None,
        covar_module: Module | None = None,
        likelihood: Likelihood | None = None,
        task_covar_prior: Prior | _DefaultType | None = DEFAULT,
        output_tasks: list[int] | None = None,
        rank: int | None = None,
        all_tasks: list[int] | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        validate_task_values: bool = True,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
    ) -> None:
        check_training_data(train_X, train_Y, train_Yvar)
        check_kernel(covar_module)
        check_one_output(train_X, train_Y)
        observed, column, dim = self.get_all_tasks(train_X, task_feature)
        values = check_tasks(observed, all_tasks, output_tasks)
        outputs = list(values) if output_tasks is None else list(output_tasks)
        tasks = Tasks(column, values, None if validate_task_values else outputs[0])
        if likelihood is None and train_Yvar is None:
            likelihood = task_likelihood(tasks)
        self.__dict__.update(
            _tasks=tasks,
            _task_feature=column,
            _output_tasks=outputs,
            _rank=len(values) if rank is None else rank,
            _unobserved=[i for i, value in enumerate(values) if value not in observed],
            num_tasks=len(values),
            num_non_task_features=dim,
            _ignore_X_dims_scaling_check=[column],
        )
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=likelihood,
            covar_module=data_kernel(covar_module, tasks, dim)
            * TaskKernel(tasks, rank=self._rank, task_prior=task_prior(task_covar_prior)),
            mean_module=task_mean(mean_module, tasks),
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            dictionary=dictionary,
            trace_term=trace_term,
        )

    @property
    def num_outputs(self) -> int:
        r"""The number of output tasks."""
        return len(self._output_tasks)

    def without_tasks(self, X: Tensor) -> Tensor:
        r"""Return ``... x (d + 1)`` inputs without their column of tasks."""
        return self._tasks.without(X)

    def _map_tasks(self, task_values: Tensor) -> Tensor:
        r"""Return the positions of tasks among all tasks."""
        return self._tasks.positions(task_values)

    def train(self, mode: bool = True) -> Self:
        r"""Set training or evaluation mode.

        In evaluation mode a task without data has the mean covariances of those with data, as in
        BoTorch.
        """
        if not mode and self._unobserved and self.training:
            self._share_covariances()
        return super().train(mode)

    def _share_covariances(self) -> None:
        kernel = self.covar_module.kernels[1]
        observed = [i for i in range(self.num_tasks) if i not in self._unobserved]
        with torch.no_grad():
            mean = kernel.covar_factor[observed].mean(0)
            raw = kernel.raw_covar_factor_constraint.inverse_transform(mean)
            kernel.raw_covar_factor[self._unobserved] = raw
        self._forget_belief()

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> Self:
        r"""Condition the DTC process exactly on new observations of any tasks.

        Args:
            X: A ``batch_shape x q x (d + 1)`` tensor with the column of tasks.
            Y: A ``batch_shape' x q x 1`` tensor.
            noise: Noise variances, as in :class:`DTCGP`.
            kwargs: Ignored.
        """
        if X.shape[-1] != self.num_non_task_features + 1:
            raise BotorchTensorDimensionError(
                f"X must have {self.num_non_task_features + 1} columns, that of the tasks "
                f"included, got shape {tuple(X.shape)}: name the task of each new observation in "
                f"column {self._task_feature}."
            )
        return super().condition_on_observations(X, Y, noise, **kwargs)

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset | MultiTaskDataset,
        task_feature: int,
        *,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        r"""Return constructor arguments for a dataset and the model's options, as Ax needs them.

        Args:
            training_data: The data.
            task_feature: The column of tasks.
            dictionary: As in :class:`DTCGP`.
            trace_term: As in :class:`DTCGP`.
            options: Further arguments of ``MultiTaskGP.construct_inputs``.
        """
        inputs = MultiTaskGP.construct_inputs(training_data, task_feature, **options)
        return {**inputs, "dictionary": dictionary, "trace_term": trace_term}


# Both inherit from gpytorch's and BoTorch's base classes, but in another order. So it can only be a
# virtual subclass. Ax and BoTorch ask ``issubclass(..., MultiTaskGP)``.
MultiTaskGP.register(MultiTaskDTCGP)


def check_one_output(train_X: Tensor, train_Y: Tensor) -> None:
    r"""Raise unless the training data have no batch dimension and one output."""
    if train_X.dim() == 2 and train_Y.shape[-1] == 1:
        return
    raise BotorchTensorDimensionError(
        "A model of several tasks needs train_X of shape n x (d + 1) and train_Y of shape n x 1, "
        f"got {tuple(train_X.shape)} and {tuple(train_Y.shape)}: stack the observations of all "
        "tasks as rows, each with its task in a column of train_X."
    )


def check_tasks(
    observed: list[int], all_tasks: list[int] | None, output_tasks: list[int] | None
) -> tuple[int, ...]:
    r"""Return the values of all tasks, sorted; raise if tasks are named that are not among them."""
    values = tuple(sorted(set(observed if all_tasks is None else all_tasks)))
    for name, tasks in (("the tasks in train_X", observed), ("output_tasks", output_tasks or [])):
        if missing := sorted(set(tasks) - set(values)):
            raise InputDataError(
                f"all_tasks must include {name}, got {list(values)} without {missing}: add them."
            )
    return values


def data_kernel(kernel: Module | None, tasks: Tasks, dim: int) -> Kernel:
    r"""Return the kernel of the columns other than the task; BoTorch's by default."""
    columns = [i for i in range(dim + 1) if i != tasks.column]
    if kernel is None:
        return get_covar_module_with_dim_scaled_prior(ard_num_dims=dim, active_dims=columns)
    if kernel.active_dims is None:
        kernel.active_dims = torch.tensor(columns, device="cpu")
    return kernel


def task_prior(prior: Prior | _DefaultType | None) -> Prior | None:
    r"""Return the prior of the correlations of tasks; BoTorch's by default."""
    return BetaPrior(2.5, 1.5) if prior is DEFAULT else prior


def task_mean(mean: Module | None, tasks: Tasks) -> Mean:
    r"""Return the mean as a function of inputs with task values."""
    if mean is None:
        return TaskMean(tasks, ConstantMean())
    if isinstance(mean, MultitaskMean):
        return TaskMean(tasks, list(mean.base_means))
    return MeanOfPositions(tasks, mean)


def task_likelihood(tasks: Tasks) -> TaskGaussianLikelihood:
    r"""Return the default likelihood, with BoTorch's prior of the noise variances."""
    prior = LogNormalPrior(loc=-4.0, scale=1.0)
    bound = GreaterThan(MIN_INFERRED_NOISE_LEVEL, transform=None, initial_value=prior.mode)
    return TaskGaussianLikelihood(tasks, noise_prior=prior, noise_constraint=bound)
