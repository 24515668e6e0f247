r"""Encoding values as bytes: JSON, followed by tensors as raw bytes. Decoding executes nothing.

An encoded value may contain None, booleans, numbers, strings, lists, tuples, dicts, tensors,
gpytorch's own kernels, and the parts of optimizers. Everything is rebuilt from names in fixed
tables; anything else is refused.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import gpytorch
import torch
from botorch.exceptions.errors import BotorchError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.acquisition import (
    EI,
    MPI,
    PI,
    UCB,
    FromBoTorch,
    Greedy,
    InTurn,
    NoisyEI,
    PureExploration,
    Thompson,
)
from botorch_bkb.batches import (
    Elimination,
    HoldingRule,
    LocalRule,
    OneAtATime,
    ProductRule,
    SumRule,
)
from botorch_bkb.confidence import Confidence, Fixed
from botorch_bkb.dictionaries import (
    AllPoints,
    Automatic,
    InformationThreshold,
    QuadratureFeatures,
    RandomFeatures,
    RandomlyPivotedCholesky,
    RidgeLeverageSampling,
)
from botorch_bkb.domains import Arms, Box, Tree, TrustRegion
from botorch_bkb.models import Surrogate

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    )
}  # fmt: skip
#: Kernels that can be written down, with their constructor arguments besides common ones.
KERNELS: dict[str, tuple[str, ...]] = {
    "RBFKernel": (),
    "MaternKernel": ("nu",),
    "RQKernel": (),
    "PeriodicKernel": (),
    "CosineKernel": (),
    "LinearKernel": (),
    "PolynomialKernel": ("power",),
    "ConstantKernel": (),
    "ScaleKernel": ("base_kernel",),
    "AdditiveKernel": ("kernels",),
    "ProductKernel": ("kernels",),
}
#: The parts of optimizers that can be written down, by name.
VALUES = {
    kind.__name__: kind
    for kind in (
        Arms, Box, Tree, TrustRegion, Surrogate, AllPoints, Automatic, InformationThreshold,
        RidgeLeverageSampling, RandomlyPivotedCholesky, QuadratureFeatures, RandomFeatures,
        Confidence, Fixed, OneAtATime, SumRule, LocalRule, ProductRule, HoldingRule,
        Elimination, UCB, EI, MPI, PI, NoisyEI, InTurn, PureExploration, Thompson,
        Greedy, FromBoTorch,
    )
}  # fmt: skip
LENGTH = struct.Struct("<Q")


class NotWritable(TypeError):
    r"""Raised for a value that cannot be written down, such as a function."""


def encode(value: Any) -> bytes:
    r"""Encode a value as bytes.

    Raises:
        NotWritable: Something in it cannot be written down.

    Example:
        >>> import torch
        >>> decode(encode({"a": [1, None, 0.1], 3: torch.arange(2)}))
        {'a': [1, None, 0.1], 3: tensor([0, 1])}
    """
    blobs: list[bytes] = []
    text = json.dumps(_plain(value, blobs)).encode()
    return b"".join([LENGTH.pack(len(text)), text, *blobs])


def decode(data: bytes) -> Any:
    r"""Decode what :func:`encode` returned.

    Raises:
        ValueError: These are not the bytes of an encoded value.
    """
    try:
        (length,) = LENGTH.unpack_from(data)
        start = LENGTH.size + length
        return _restored(json.loads(data[LENGTH.size : start]), memoryview(data)[start:])
    except (
        struct.error, ValueError, LookupError, TypeError, AttributeError, RuntimeError,
        OverflowError, BotorchError,
    ) as error:  # fmt: skip
        raise ValueError(f"not an encoded value: {error}") from error


def to_text(value: Any) -> str:
    r"""Encode a value as ASCII text."""
    return base64.b64encode(encode(value)).decode("ascii")


def from_text(text: str) -> Any:
    r"""Decode what :func:`to_text` returned."""
    return decode(base64.b64decode(text))


def _plain(value: Any, blobs: list[bytes]) -> Any:
    r"""Return a value that JSON can express; tensors are appended to ``blobs``."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        offset, tensor = sum(map(len, blobs)), value.detach().cpu().contiguous()
        blobs.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise NotWritable(f"a tensor of {tensor.dtype}")
        return {"tensor": [name, list(tensor.shape), offset, len(blobs[-1])]}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"tuple": [_plain(item, blobs) for item in value]}
    if isinstance(value, list):
        return [_plain(item, blobs) for item in value]
    if isinstance(value, Mapping):
        return {"dict": [[_plain(k, blobs), _plain(v, blobs)] for k, v in value.items()]}
    if isinstance(value, Kernel):
        return {"kernel": _plain(_described(value), blobs)}
    if type(value) in VALUES.values():
        saved = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return {"value": [type(value).__name__, _plain(saved, blobs)]}
    raise NotWritable(f"{type(value).__name__} {value!r}")


def _restored(value: Any, blobs: memoryview) -> Any:
    if isinstance(value, list):
        return [_restored(item, blobs) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    return RESTORED[kind](content, blobs)


def _tensor(content: Any, blobs: memoryview) -> Tensor:
    name, shape, offset, size = content
    if size == 0:
        return torch.empty(shape, dtype=DTYPES[name], device="cpu")
    raw = bytearray(blobs[offset : offset + size])
    return torch.frombuffer(raw, dtype=DTYPES[name]).reshape(shape)


def _dict(content: Any, blobs: memoryview) -> dict:
    return {_restored(key, blobs): _restored(item, blobs) for key, item in content}


def _value(content: Any, blobs: memoryview) -> Any:
    name, saved = content
    return VALUES[name](**_restored(saved, blobs))


RESTORED: dict[str, Callable[[Any, memoryview], Any]] = {
    "tensor": _tensor,
    "tuple": lambda content, blobs: tuple(_restored(item, blobs) for item in content),
    "dict": _dict,
    "kernel": lambda content, blobs: _kernel(_restored(content, blobs)),
    "value": _value,
}


def _described(kernel: Kernel) -> dict[str, Any]:
    r"""Return how to construct an equal kernel; checked by constructing it."""
    if next(kernel.named_priors(), None) is not None:
        raise NotWritable(f"a {type(kernel).__name__} with priors")
    described = {"structure": _structure(kernel), "state": dict(kernel.state_dict())}
    try:
        same = _traits(_kernel(described)) == _traits(kernel)
    except (RuntimeError, TypeError):
        same = False
    if not same:
        raise NotWritable(f"a {type(kernel).__name__} with options of its own")
    return described


def _traits(kernel: Kernel) -> list[Any]:
    r"""Return what two kernels with the same state must share to be equal."""
    constraints = [(name, _transform_of(c), str(c)) for name, c in kernel.named_constraints()]
    return [str(kernel), kernel.batch_shape, len(list(kernel.parameters())), *constraints]


def _transform_of(constraint: Any) -> Any:
    r"""Return a constraint's transform such that copies of a module compare equal."""
    transform = constraint._transform
    is_module = isinstance(transform, torch.nn.Module)
    return (type(transform), str(transform)) if is_module else transform


def _structure(kernel: Kernel) -> dict[str, Any]:
    name = type(kernel).__name__
    if name not in KERNELS or type(kernel) is not getattr(gpytorch.kernels, name):
        raise NotWritable(f"a kernel of type {name}")
    options: dict[str, Any] = {}
    if kernel.ard_num_dims is not None:
        options["ard_num_dims"] = kernel.ard_num_dims
    if kernel.active_dims is not None:
        options["active_dims"] = kernel.active_dims.tolist()
    inner = []
    for argument in KERNELS[name]:
        if argument == "base_kernel":
            inner = [_structure(kernel.base_kernel)]
        elif argument == "kernels":
            inner = [_structure(k) for k in kernel.kernels]
        else:
            options[argument] = getattr(kernel, argument)
    return {"class": name, "inner": inner, "options": options}


def _kernel(described: dict[str, Any]) -> Kernel:
    kernel, state = _built(described["structure"]), described["state"]
    for value in state.values():
        if value.is_floating_point():
            kernel = kernel.to(value.dtype)
    kernel.load_state_dict(state)
    return kernel


def _built(structure: dict[str, Any]) -> Kernel:
    name = structure["class"]
    if name not in KERNELS:
        raise KeyError(name)
    inner = [_built(part) for part in structure["inner"]]
    return getattr(gpytorch.kernels, name)(*inner, **structure["options"])
