r"""Search spaces of named parameters as boxes, shared by the Ax and Optuna integrations."""

from __future__ import annotations

import bisect
import inspect
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

from botorch_bkb.dictionaries import InformationThreshold
from botorch_bkb.optimizers import ALGORITHMS, Optimizer

#: Largest number of grid values that are suggested. Finer grids are thinned out.
MOST_VALUES = 1000
#: Optimizer arguments that the search space determines.
TAKEN = {"arms", "bounds", "discrete_dims"}


@dataclass(frozen=True)
class Dimension:
    r"""One named parameter as one coordinate of a box.

    A choice is encoded as the position of its value in the list, ``0, 1, ...``. The kernel treats
    values at close positions as similar, whether or not their order means anything.

    Args:
        name: Name of the parameter.
        lower: Lowest value; 0 for choices.
        upper: Highest value; the position of the last value for choices.
        log: Whether the coordinate is the logarithm of the value.
        values: All values that may be suggested, in ascending order unless they are choices; None
            for an interval.
        is_choice: Whether the coordinate is the position of the value in ``values``.

    Example:
        >>> rate = Dimension("rate", 1e-4, 1.0, log=True)
        >>> round(rate.decode(rate.encode(0.01)), 10)
        0.01
        >>> kind = Dimension.choices("kind", ["a", "b"])
        >>> kind.encode("b"), kind.decode(0.2)
        (1.0, 'a')
    """

    name: str
    lower: float
    upper: float
    log: bool = False
    values: tuple[Any, ...] | None = None
    is_choice: bool = False

    @classmethod
    def choices(cls, name: str, values: Sequence[Any]) -> Dimension:
        r"""Return a dimension for a choice among values, encoded by their positions."""
        return cls(name, 0, len(values) - 1, values=tuple(values), is_choice=True)

    @classmethod
    def grid(
        cls, name: str, lower: float, upper: float, step: float = 1, log: bool = False
    ) -> Dimension:
        r"""Return a dimension for the values ``lower, lower + step, ...`` up to ``upper``.

        The values are integers if ``lower`` and ``step`` are. Of more than a thousand values, only
        a thousand are suggested. They are equally spaced, on the logarithmic scale if ``log``.
        Results at the other values can still be told.
        """
        last = math.floor((upper - lower) / step + 1e-9)
        places: Sequence[int] = range(last + 1)
        if last >= MOST_VALUES:
            top, parts = lower + last * step, torch.linspace(0, 1, MOST_VALUES).double()
            spread = lower * (top / lower) ** parts if log else lower + parts * (top - lower)
            places = sorted({min(round((v - lower) / step), last) for v in spread.tolist()})
        return cls(name, lower, upper, log, tuple(min(lower + i * step, upper) for i in places))

    @property
    def codes(self) -> list[float] | None:
        r"""The coordinates of all values, or None for an interval."""
        if self.values is None:
            return None
        if self.is_choice:
            return [float(i) for i in range(len(self.values))]
        return [self._scaled(value) for value in self.values]

    @property
    def ends(self) -> tuple[float, float]:
        r"""The lower and upper bound of the coordinate."""
        return self._scaled(self.lower), self._scaled(self.upper)

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.log else float(value)

    def encode(self, value: Any) -> float:
        r"""Return the coordinate of a value.

        Raises:
            ValueError: If the value is not in the dimension.
        """
        if self.is_choice:
            assert self.values is not None
            for i, choice in enumerate(self.values):
                if type(choice) is type(value) and choice == value:
                    return float(i)
            return float(self.values.index(value))
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_number or not self.lower <= value <= self.upper:
            raise ValueError(f"{value!r} is not in [{self.lower}, {self.upper}]")
        return self._scaled(value)

    def decode(self, x: float) -> Any:
        r"""Return the value at a coordinate, or the nearest value if the dimension is discrete."""
        if self.values is None:
            return min(max(math.exp(x) if self.log else x, self.lower), self.upper)
        codes = self.codes
        assert codes is not None
        right = min(bisect.bisect(codes, x), len(codes) - 1)
        left = max(right - 1, 0)
        return self.values[left if x - codes[left] < codes[right] - x else right]


@dataclass(frozen=True)
class Space:
    r"""A search space of named parameters as a box.

    Args:
        dimensions: The parameters that vary, one coordinate each.
        constraints: ``(weights by name, bound, is_equality)`` for ``sum_i w_i x_i <= bound`` or
            ``== bound``.

    Example:
        >>> space = Space((Dimension("x", -1.0, 1.0), Dimension.grid("k", 1, 9)))
        >>> space.bounds.tolist()
        [[-1.0, 1.0], [1.0, 9.0]]
        >>> space.decode(space.encode({"x": 0.5, "k": 3}))
        {'x': 0.5, 'k': 3}
    """

    dimensions: tuple[Dimension, ...]
    constraints: tuple[tuple[tuple[tuple[str, float], ...], float, bool], ...] = ()

    @property
    def bounds(self) -> Tensor:
        r"""The bounds of the box, ``2 x d``."""
        ends = [dimension.ends for dimension in self.dimensions]
        return torch.tensor(ends, dtype=torch.float64).mT.contiguous()

    @property
    def discrete_dims(self) -> dict[int, list[float]]:
        r"""The allowed coordinates of each discrete dimension, by index of the dimension."""
        codes = {i: dimension.codes for i, dimension in enumerate(self.dimensions)}
        return {i: values for i, values in codes.items() if values is not None}

    def encode(self, parameters: Mapping[str, Any]) -> Tensor:
        r"""Return the ``d`` coordinates of a point.

        Raises:
            KeyError: If a parameter is missing.
            ValueError: If a value is not in the space.
        """
        x = [dimension.encode(parameters[dimension.name]) for dimension in self.dimensions]
        return torch.tensor(x, dtype=torch.float64)

    def decode(self, x: Tensor) -> dict[str, Any]:
        r"""Return the parameters at ``d`` coordinates."""
        return {d.name: d.decode(c) for d, c in zip(self.dimensions, x.tolist(), strict=True)}

    def make_optimizer(
        self, algorithm: str, seed: int | None, options: Mapping[str, Any]
    ) -> Optimizer:
        r"""Return an optimizer over the box.

        Args:
            algorithm: Name of the optimizer's class.
            seed: Seed of all randomness.
            options: Further arguments of the class.
        """
        made = check_algorithm(algorithm, options)
        arguments: dict[str, Any] = {"bounds": self.bounds, "seed": seed, **options}
        if takes(made, "num_children") and (self.discrete_dims or self.constraints):
            raise UnsupportedError(
                f"{algorithm} splits the box into cells and takes neither discrete parameters nor "
                'constraints, but the space has some: use "BKB" or "BBKB".'
            )
        if self.discrete_dims:
            arguments["discrete_dims"] = self.discrete_dims
        if self.constraints:
            linear = self._linear_constraints()
            arguments["acquisition_options"] = {**options.get("acquisition_options", {}), **linear}
        return made(**arguments)

    def _linear_constraints(self) -> dict[str, list[tuple[Tensor, Tensor, float]]]:
        r"""Return the constraints in BoTorch's form, ``sum_i w_i x_i >= bound``."""
        names = [dimension.name for dimension in self.dimensions]
        out: dict[str, list[tuple[Tensor, Tensor, float]]] = {}
        for weights, bound, is_equality in self.constraints:
            indices = torch.tensor([names.index(name) for name, _ in weights])
            coefficients = torch.tensor([-weight for _, weight in weights], dtype=torch.float64)
            key = "equality_constraints" if is_equality else "inequality_constraints"
            out.setdefault(key, []).append((indices, coefficients, -bound))
        return out


def check_algorithm(algorithm: str, options: Mapping[str, Any]) -> type[Optimizer]:
    r"""Return the class of an algorithm after checking its name and options."""
    if algorithm not in ALGORITHMS:
        raise InputDataError(
            f"algorithm must be one of {', '.join(sorted(ALGORITHMS))}, got {algorithm!r}."
        )
    if not takes(ALGORITHMS[algorithm], "bounds"):
        raise InputDataError(
            f"The algorithm must search a box, got {algorithm}, which chooses among arms: take for "
            "example BBKB."
        )
    if taken := TAKEN & set(options):
        raise InputDataError(
            f"Options must not contain {', '.join(sorted(taken))}, which the search space "
            "determines: leave them out."
        )
    return ALGORITHMS[algorithm]


def on_uninformative(made: type[Optimizer], options: dict[str, Any]) -> str:
    r"""Return what an optimizer does with uninformative points, which the services evaluate.

    Args:
        made: Class of the optimizer.
        options: Further arguments of the class. If it takes ``on_uninformative``, that becomes
            ``"evaluate"`` where it is not given.

    Returns:
        ``"evaluate"``, ``"skip"`` or ``"stop"``.
    """
    if takes(made, "on_uninformative"):
        return options.setdefault("on_uninformative", "evaluate")
    rule = options.get("dictionary")
    return rule.on_uninformative if isinstance(rule, InformationThreshold) else "evaluate"


def takes(algorithm: type[Optimizer], argument: str) -> bool:
    r"""Return whether the constructor of an algorithm has an argument."""
    return argument in inspect.signature(algorithm).parameters
