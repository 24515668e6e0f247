r"""How many threads torch uses for small work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    r"""Let torch use one thread, for many small calls in turn with SciPy's.

    Both have threads of their own, which wait for work at full speed and slow each other down: on
    two cores a search took twenty times as long.

    Args:
        wanted: Whether to do so; False changes nothing.

    Example:
        >>> import torch
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    if before == 1 or not wanted:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
