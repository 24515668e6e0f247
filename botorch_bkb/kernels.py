r"""Kernels by name, for arguments that are to be saved as text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel

KERNELS: dict[str, Any] = {
    "rbf": RBFKernel,
    "matern12": partial(MaternKernel, nu=0.5),
    "matern32": partial(MaternKernel, nu=1.5),
    "matern52": partial(MaternKernel, nu=2.5),
}
KEYS = {"name", "lengthscale", "outputscale"}


def as_kernel(kernel: Kernel | Mapping[str, Any]) -> Kernel:
    r"""A kernel, or ``{"name": ..., "lengthscale": ..., "outputscale": ...}``.

    Args:
        kernel: The name is ``"rbf"``, ``"matern12"``, ``"matern32"`` or ``"matern52"``; the
            lengthscale, in units of the box, one number or one for each coordinate; the
            outputscale is the prior variance, 1 by default.

    Example:
        >>> import torch
        >>> kernel = as_kernel({"name": "rbf", "lengthscale": [0.1, 0.2], "outputscale": 4.0})
        >>> kernel(torch.zeros(1, 2)).to_dense().item()
        4.0
    """
    if isinstance(kernel, Kernel):
        return kernel
    is_known = isinstance(kernel, Mapping) and kernel.get("name") in KERNELS
    if not is_known or not {"name", "lengthscale"} <= set(kernel) <= KEYS:
        raise InputDataError(
            "covar_module must be a kernel or a dictionary with name (one of "
            f"{', '.join(KERNELS)}), lengthscale and, if you like, outputscale, got {kernel!r}."
        )
    lengthscale = torch.as_tensor(kernel["lengthscale"], dtype=torch.float64)
    made = KERNELS[kernel["name"]](ard_num_dims=lengthscale.numel() if lengthscale.dim() else None)
    made = made.double()
    made.lengthscale = lengthscale
    if "outputscale" not in kernel:
        return made
    scaled = ScaleKernel(made).double()
    scaled.outputscale = float(kernel["outputscale"])
    return scaled
