r"""Objects that remember what they were constructed with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Self


class RemembersArguments:
    r"""Derive from it to have ``arguments``, with which the same object can be constructed again.

    Attributes:
        arguments: By name, those left out omitted.

    Example:
        >>> class Sheet(RemembersArguments):
        ...     def __init__(self, width, height=1): ...
        >>> class Box(Sheet):
        ...     def __init__(self, depth, **kwargs): ...
        >>> Box(2, width=3).arguments
        {'depth': 2, 'width': 3}
    """

    arguments: dict[str, Any]
    #: What to say of arguments that somebody may expect and that there are not.
    instead: ClassVar[dict[str, str]] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        r"""Looks at the arguments before ``__init__`` does, in whichever class that is."""
        cls._check_names(kwargs)
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

    @classmethod
    def _check_names(cls, kwargs: Mapping[str, Any]) -> None:
        known = {
            name
            for base in cls.__mro__
            if "__init__" in vars(base)
            for name, parameter in inspect.signature(vars(base)["__init__"]).parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        for name in kwargs.keys() - known:
            close = get_close_matches(name, known, 1)
            listed = f"there are {', '.join(sorted(known - {'self'}))}."
            guess = f"did you mean {close[0]!r}?" if close else listed
            raise TypeError(
                f"{cls.__name__} has no argument {name!r}: {cls.instead.get(name, guess)}"
            )
