r"""Functions on nested containers of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from torch import Tensor


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    r"""Copy a (nested) dataclass or tuple with ``function`` applied to each tensor."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple):
        items = (map_tensors(item, function) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if value is None:
        return None
    changes = {f.name: map_tensors(getattr(value, f.name), function) for f in fields(value)}
    return replace(value, **changes)
