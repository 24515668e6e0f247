r"""``MultiFidelityDTCGP``: the sparse counterpart of BoTorch's ``SingleTaskMultiFidelityGP``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botorch.models.gp_regression_fidelity import SingleTaskMultiFidelityGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.inducing_point_allocators import InducingPointAllocator
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.likelihoods import Likelihood
from gpytorch.module import Module
from torch import Tensor

from botorch_bkb.dictionaries import DictionaryRule
from botorch_bkb.models.dtc import DTCGP
from botorch_bkb.validation import check_kernel, check_training_data


class MultiFidelityDTCGP(SingleTaskMultiFidelityGP, DTCGP):  # type: ignore[misc]
    r"""A sparse GP with fidelities, a drop-in replacement for ``SingleTaskMultiFidelityGP``.

    A fidelity is a column in [0, 1] that says how good an approximation of the function was
    evaluated; 1 is the function itself. The kernels are BoTorch's, and the posterior is that of
    :class:`DTCGP` with them.

    Args:
        train_X: A ``batch_shape x n x (d + s)`` tensor of training features, where ``s`` is the
            number of fidelities.
        train_Y: A ``batch_shape x n x m`` tensor of training observations.
        train_Yvar: An optional ``batch_shape x n x m`` tensor of observed measurement noise.
        iteration_fidelity: The column of the fidelity of training iterations, if there is one.
        data_fidelities: The columns of the fidelities of data, if there are any.
        linear_truncated: Whether to use a ``LinearTruncatedFidelityKernel`` for each fidelity of
            data. Otherwise the kernel is the product of a data kernel, an
            ``ExponentialDecayKernel`` for iterations and a ``DownsamplingKernel`` for each fidelity
            of data.
        nu: The smoothness of the Matérn kernels: 1/2, 3/2 or 5/2. It needs ``linear_truncated``.
        covar_module: The data kernel, for ``linear_truncated=False``; BoTorch's default if omitted.
        likelihood: A Gaussian likelihood; BoTorch's default if omitted.
        outcome_transform: As in ``SingleTaskGP``: ``Standardize`` by default, None for none.
        input_transform: As in ``SingleTaskGP``.
        dictionary: As in :class:`DTCGP`.
        trace_term: As in :class:`DTCGP`.

    Example:
        >>> import torch
        >>> from botorch_bkb import MultiFidelityDTCGP
        >>> _ = torch.manual_seed(0)
        >>> train_X = torch.rand(600, 3, dtype=torch.float64)  # two inputs and a fidelity
        >>> bias = 1 - train_X[:, 2:]
        >>> train_Y = torch.sin(5 * train_X[:, :2]).sum(-1, keepdim=True) + 0.3 * bias
        >>> options = {"data_fidelities": [2], "linear_truncated": False}
        >>> model = MultiFidelityDTCGP(train_X, train_Y, **options)
        >>> full = torch.tensor([[0.5, 0.5, 1.0]], dtype=torch.float64)
        >>> model.posterior(full).mean.shape
        torch.Size([1, 1])

    Reference:
        Wu, Toscano-Palmerin, Frazier, Wilson: Practical multi-fidelity Bayesian optimization for
        hyperparameter tuning. UAI 2019.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        iteration_fidelity: int | None = None,
        data_fidelities: Sequence[int] | None = None,
        linear_truncated: bool = True,
        nu: float = 2.5,
        covar_module: Module | None = None,
        likelihood: Likelihood | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
    ) -> None:
        check_training_data(train_X, train_Y, train_Yvar)
        check_kernel(covar_module)
        # BoTorch's constructor makes the kernel and calls that of DTCGP.
        super().__init__(
            train_X,
            train_Y,
            train_Yvar=train_Yvar,
            iteration_fidelity=iteration_fidelity,
            data_fidelities=data_fidelities,
            linear_truncated=linear_truncated,
            nu=nu,
            covar_module=covar_module,
            likelihood=likelihood,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )
        self._make_sparse(dictionary, trace_term, train_X)

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        fidelity_features: list[int],
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
    ) -> dict[str, Any]:
        r"""Return constructor arguments for a dataset and the model's options, as Ax needs them.

        Args:
            training_data: The data.
            fidelity_features: The columns of the fidelities of data.
            dictionary: As in :class:`DTCGP`.
            trace_term: As in :class:`DTCGP`.
        """
        inputs = super().construct_inputs(training_data, fidelity_features)
        return {**inputs, "dictionary": dictionary, "trace_term": trace_term}
