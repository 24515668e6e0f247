r"""States of optimizers as plain JSON, to the last bit."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import torch
from ax.exceptions.storage import JSONEncodeError
from torch import Tensor

TENSOR, FLOAT = "tensor_base64", "float_name"


def pack(value: Any, name: str = "state") -> Any:
    r"""Numbers, strings, lists and dictionaries for what may hold tensors and infinities.

    A tensor becomes the base64 of its bytes with dtype and shape.

    Args:
        value: Nested dictionaries, lists and tuples of numbers, strings, None and tensors.
        name: What it is, for the message where it is something else.

    Example:
        >>> import torch
        >>> pack({"best": -float("inf"), "rows": torch.arange(2)})["best"]
        {'float_name': '-inf'}
        >>> unpack(pack([torch.tensor([0.1], dtype=torch.float64)]))
        [tensor([0.1000], dtype=torch.float64)]
    """
    if isinstance(value, Tensor):
        array = value.detach().cpu().contiguous().numpy()
        little = array.astype(array.dtype.newbyteorder("<"))
        data = base64.b64encode(little.tobytes()).decode("ascii")
        return {TENSOR: data, "dtype": str(array.dtype), "shape": list(value.shape)}
    if isinstance(value, float) and not math.isfinite(value):
        return {FLOAT: repr(value)}
    if isinstance(value, dict):
        return {key: pack(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [pack(item, name) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise JSONEncodeError(
        f"{name} must be made of numbers, strings, lists, dictionaries and tensors to be saved, "
        f"got {type(value).__name__}: pass something that is (kernels as dictionaries, see "
        "botorch_bkb.kernels), or do not save."
    )


def unpack(value: Any) -> Any:
    r"""The inverse; tuples come back as lists."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if FLOAT in value:
        return float(value[FLOAT])
    if TENSOR not in value:
        return {key: unpack(item) for key, item in value.items()}
    dtype = np.dtype(value["dtype"])
    array = np.frombuffer(base64.b64decode(value[TENSOR]), dtype.newbyteorder("<"))
    return torch.from_numpy(array.astype(dtype).reshape(value["shape"])).clone()
