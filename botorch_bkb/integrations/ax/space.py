r"""Conversion of Ax search spaces and objectives for an optimizer over a box."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from ax.core.experiment import Experiment
from ax.core.parameter import (
    ChoiceParameter,
    DerivedParameter,
    FixedParameter,
    Parameter,
    ParameterType,
    RangeParameter,
)
from ax.core.parameter_constraint import ParameterConstraint
from ax.core.search_space import SearchSpace
from ax.exceptions.core import OptimizationNotConfiguredError, UnsupportedError
from torch import Tensor

from botorch_bkb.integrations.spaces import Dimension, Space


class Goal(NamedTuple):
    r"""A metric to maximise (``sign = 1``) or minimise (``sign = -1``)."""

    metric: str
    sign: float


def read_goal(experiment: Experiment) -> Goal:
    r"""Return the single metric that an experiment optimises."""
    config = experiment.optimization_config
    if config is None:
        raise OptimizationNotConfiguredError(
            "BKBNode needs an objective, but the experiment has none: call "
            "client.configure_optimization first."
        )
    objective = config.objective
    if not objective.is_single_objective:
        raise UnsupportedError(
            f"BKBNode optimises one metric, got the objective {objective.expression!r}: use "
            "dtcgp_generation_strategy for several, or attach their sum as one metric."
        )
    if config.outcome_constraints:
        raise UnsupportedError(
            f"BKBNode takes no outcome constraints, got {config.outcome_constraints}: use "
            "dtcgp_generation_strategy, which supports them."
        )
    return Goal(objective.metric_names[0], -1.0 if objective.minimize else 1.0)


class AxSpace:
    r"""A converter between an Ax search space and a box.

    Ranges become intervals, of logarithms where Ax's scale is logarithmic. Integers take whole
    values. A choice becomes the position of its value. If the values are ordered and equally
    spaced, it becomes the value itself (see
    :class:`~botorch_bkb.integrations.spaces.Dimension`). Fixed and derived parameters are added to
    each point.

    Args:
        search_space: Ax search space without hierarchy, fidelities and tasks. Its linear
            constraints must not involve logarithmic ranges or choices encoded by position.

    Example:
        >>> from ax.core.parameter import FixedParameter, ParameterType, RangeParameter
        >>> from ax.core.search_space import SearchSpace
        >>> rate = RangeParameter("rate", ParameterType.FLOAT, 0.01, 1.0, log_scale=True)
        >>> fixed = FixedParameter("depth", ParameterType.INT, 3)
        >>> space = AxSpace(SearchSpace([rate, fixed]))
        >>> space.decode(space.box.bounds[1])
        {'rate': 1.0, 'depth': 3}
    """

    def __init__(self, search_space: SearchSpace) -> None:
        self.fixed: dict[str, Any] = {}
        self.derived: dict[str, DerivedParameter] = {}
        self.digits: dict[str, RangeParameter] = {}
        dimensions = []
        for parameter in search_space.parameters.values():
            _check(parameter)
            if parameter.is_disabled:
                self.fixed[parameter.name] = parameter.default_value
            elif isinstance(parameter, FixedParameter):
                self.fixed[parameter.name] = parameter.value
            elif isinstance(parameter, DerivedParameter):
                self.derived[parameter.name] = parameter
            elif isinstance(parameter, ChoiceParameter) and len(parameter.values) == 1:
                self.fixed[parameter.name] = parameter.values[0]
            else:
                dimensions.append(_dimension(parameter))
                if isinstance(parameter, RangeParameter) and parameter.digits is not None:
                    self.digits[parameter.name] = parameter
        if not dimensions:
            raise UnsupportedError("BKBNode needs a parameter that varies, got only fixed ones.")
        by_name = {dimension.name: dimension for dimension in dimensions}
        constraints = (self._constraint(c, by_name) for c in search_space.parameter_constraints)
        self.box = Space(tuple(dimensions), tuple(c for c in constraints if c[0]))

    def _constraint(
        self, constraint: ParameterConstraint, by_name: dict[str, Dimension]
    ) -> tuple[tuple[tuple[str, float], ...], float, bool]:
        weights, bound = [], float(constraint.bound)
        for name, weight in constraint.constraint_dict.items():
            if name in self.fixed:
                bound -= float(weight) * self.fixed[name]
                continue
            dimension = by_name.get(name)
            if dimension is None or dimension.log or dimension.is_choice:
                raise UnsupportedError(
                    "BKBNode takes linear constraints on parameters with a linear scale, got "
                    f"{constraint}, in which {name} is logarithmic, derived or a choice: set its "
                    'scaling to "linear", or remove the constraint.'
                )
            weights.append((name, float(weight)))
        return tuple(weights), bound, constraint.is_equality

    def encode(self, parameters: dict[str, Any]) -> Tensor:
        r"""Return the ``d`` coordinates of a point.

        Raises:
            KeyError: If a parameter is missing.
            ValueError: If a value is not in the space.
        """
        for name, value in self.fixed.items():
            if parameters.get(name, value) != value:
                raise ValueError(f"{name} is fixed at {value!r}, got {parameters[name]!r}")
        return self.box.encode(parameters)

    def decode(self, x: Tensor) -> dict[str, Any]:
        r"""Return the parameters at ``d`` coordinates, in Ax's types."""
        parameters = self.box.decode(x)
        for name, parameter in self.digits.items():
            parameters[name] = parameter.cast(parameters[name])
        parameters |= self.fixed
        for name, derived in self.derived.items():
            parameters[name] = derived.compute(parameters)
        return parameters


def _check(parameter: Parameter) -> None:
    kinds = {
        "is hierarchical": parameter.is_hierarchical,
        "is a fidelity": parameter.is_fidelity,
        "is a task": isinstance(parameter, ChoiceParameter) and parameter.is_task,
        "has a logit scale": isinstance(parameter, RangeParameter) and parameter.logit_scale,
    }
    for kind, applies in kinds.items():
        if applies:
            raise UnsupportedError(
                "BKBNode takes ranges (linear or logarithmic), choices and fixed parameters, got "
                f"{parameter.name}, which {kind}: use one of Ax's own generators."
            )


def _dimension(parameter: Parameter) -> Dimension:
    if isinstance(parameter, ChoiceParameter):
        values: list[Any] = parameter.values
        if parameter.is_ordered and parameter.is_numeric and _is_even(values):
            return Dimension(parameter.name, values[0], values[-1], values=tuple(values))
        return Dimension.choices(parameter.name, values)
    assert isinstance(parameter, RangeParameter)
    name, lower, upper = parameter.name, parameter.lower, parameter.upper
    if parameter.parameter_type is ParameterType.INT:
        return Dimension.grid(name, int(lower), int(upper), log=parameter.log_scale)
    return Dimension(name, float(lower), float(upper), log=parameter.log_scale)


def _is_even(values: list[Any]) -> bool:
    r"""Return whether numbers ascend in equal steps, and so can serve as coordinates."""
    steps = [after - before for before, after in itertools.pairwise(values)]
    return min(steps) > 0 and max(steps) - min(steps) < 1e-9 * (values[-1] - values[0])
