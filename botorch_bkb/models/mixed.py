r"""``MixedDTCGP``: the sparse counterpart of BoTorch's ``MixedSingleTaskGP``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from botorch.models.gp_regression_mixed import MixedSingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.inducing_point_allocators import InducingPointAllocator
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from torch import Tensor

from botorch_bkb.dictionaries import DictionaryRule
from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.validation import check_training_data


class MixedDTCGP(MixedSingleTaskGP, DTCGP):  # type: ignore[misc]
    r"""A sparse GP over numbers and categories, a drop-in replacement for ``MixedSingleTaskGP``.

    The kernel is BoTorch's, for numbers ``x`` and categories ``c``:

    .. code-block:: text

        k((x,c), (x',c')) = k_num(x,x') + k_cat(c,c') + k_num'(x,x') k_cat'(c,c')

    The posterior is that of :class:`DTCGP` with this kernel. Acquisition functions have no
    gradient in categories: maximise them with ``optimize_acqf_mixed``.

    Args:
        train_X: A ``batch_shape x n x d`` tensor of training features.
        train_Y: A ``batch_shape x n x m`` tensor of training observations.
        cat_dims: The columns of ``train_X`` that hold categories, as numbers.
        train_Yvar: An optional ``batch_shape x n x m`` tensor of observed measurement noise.
        cont_kernel_factory: A function of ``batch_shape``, ``ard_num_dims`` and ``active_dims``
            that returns the kernel of the numbers; BoTorch's default RBF kernel if omitted.
        likelihood: A Gaussian likelihood; BoTorch's default if omitted.
        outcome_transform: As in ``SingleTaskGP``: ``Standardize`` by default, None for none.
        input_transform: As in ``SingleTaskGP``. It must leave the categories as they are.
        dictionary: As in :class:`DTCGP`.
        trace_term: As in :class:`DTCGP`.

    Example:
        >>> import torch
        >>> from botorch_bkb import MixedDTCGP
        >>> _ = torch.manual_seed(0)
        >>> numbers = torch.rand(600, 2, dtype=torch.float64)
        >>> categories = torch.randint(3, (600, 1)).double()
        >>> train_Y = numbers.sum(-1, keepdim=True) + categories
        >>> model = MixedDTCGP(torch.cat([numbers, categories], -1), train_Y, cat_dims=[2])
        >>> X = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 2.0]], dtype=torch.float64)
        >>> model.posterior(X).mean.shape
        torch.Size([2, 1])
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        cat_dims: list[int],
        train_Yvar: Tensor | None = None,
        cont_kernel_factory: Callable[[torch.Size, int, list[int]], Kernel] | None = None,
        likelihood: Likelihood | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
    ) -> None:
        check_training_data(train_X, train_Y, train_Yvar)
        if not cat_dims:
            raise InputDataError(
                "cat_dims must name at least one column of categories, got none: use DTCGP where "
                "all columns are numbers."
            )
        # BoTorch's constructor makes the kernel and calls that of DTCGP.
        super().__init__(
            train_X,
            train_Y,
            cat_dims=cat_dims,
            train_Yvar=train_Yvar,
            cont_kernel_factory=cont_kernel_factory,
            likelihood=likelihood,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )
        self._make_sparse(dictionary, trace_term, train_X)

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        categorical_features: list[int],
        likelihood: Likelihood | None = None,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
    ) -> dict[str, Any]:
        r"""Return constructor arguments for a dataset and the model's options, as Ax needs them.

        Args:
            training_data: The data.
            categorical_features: The columns of categories.
            likelihood: A Gaussian likelihood; BoTorch's default if omitted.
            dictionary: As in :class:`DTCGP`.
            trace_term: As in :class:`DTCGP`.
        """
        inputs = super().construct_inputs(training_data, categorical_features, likelihood)
        return {**inputs, "dictionary": dictionary, "trace_term": trace_term}
