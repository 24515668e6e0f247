r"""Objects that remember what they were constructed with."""

from __future__ import annotations

import inspect
from typing import Any, Self


class RemembersArguments:
    r"""Derive from it to have ``arguments``, with which the same object can be constructed again.

    Attributes:
        arguments: By name, those left out omitted.

    Example:
        >>> class Box(RemembersArguments):
        ...     def __init__(self, width, height=1, **options): ...
        >>> Box(3, depth=2).arguments
        {'width': 3, 'depth': 2}
    """

    arguments: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        r"""Looks at the arguments before ``__init__`` does, in whichever class that is."""
        self = super().__new__(cls)
        signature = inspect.signature(cls.__init__)
        self.arguments = {}
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError:  # __init__ says it better
            return self
        for name, value in list(bound.arguments.items())[1:]:
            is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            self.arguments |= value if is_rest else {name: value}
        return self
