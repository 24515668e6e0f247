r"""``Search``: maximises acquisition functions over a box with BoTorch, in the unit cube."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, OneShotAcquisitionFunction
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.optim import optimize_acqf, optimize_acqf_mixed
from botorch.optim.optimize_mixed import (
    SUPPORTED_OPTIONS,
    get_nearest_neighbors,
    optimize_acqf_mixed_alternating,
    should_use_mixed_alternating_optimizer,
)
from botorch.utils.sampling import draw_sobol_samples, get_polytope_samples, manual_seed
from torch import Tensor

from botorch_bkb.domains.climbing import (
    HasGradient,
    candidates,
    climb,
    evaluated,
    starting_points,
)
from botorch_bkb.domains.evolution import climb_steps, evolve
from botorch_bkb.units import UnitCube
from botorch_bkb.validation import check_positive_integer

#: Default arguments of ``optimize_acqf``.
OPTIONS: dict[str, Any] = {"num_restarts": 4, "raw_samples": 128}
#: Default number of raw samples where they cost next to nothing: with analytic gradients.
RAW_SAMPLES = 512
#: Number of raw samples that are near an incumbent, as a share of the others.
NEAR = 0.125
#: Options of ``optimize_acqf`` with which the search may be made without it.
PLAIN = frozenset({"num_restarts", "raw_samples", "options"})
#: Arguments of ``optimize_acqf`` that users cannot set.
RESERVED = {"acq_function", "acq_function_sequence", "bounds", "q", "sequential",
            "return_best_only", "batch_initial_conditions", "ic_generator",
            "return_full_tree"}  # fmt: skip
#: Population size per restart, and gradient steps from the best point of the last generation.
MEMBERS, POLISHING = 3, 20
#: Points drawn per point of a design under constraints that are not linear.
TRIES = 1000
#: The largest number of points of a box that are listed.
MOST_POINTS = 2**16

Linear = tuple[Tensor, Tensor, float]


class Search:
    r"""A search for maximisers over a box, some of whose coordinates may be discrete.

    Args:
        bounds: The ``2 x d`` corners of the box.
        discrete_dims: The allowed values of the discrete coordinates.
        options: Arguments of ``optimize_acqf``, with constraints and ``fixed_features`` in units of
            the box.
    """

    def __init__(
        self,
        bounds: Tensor,
        discrete_dims: Mapping[int, Sequence[float]] | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.bounds, self.cube = bounds, UnitCube(bounds)
        self.options = {**OPTIONS, **(options or {})}
        self._raw_samples = (options or {}).get("raw_samples", RAW_SAMPLES)
        self._check_options()
        self.fixed: dict[int, float] = dict(self.options.pop("fixed_features", None) or {})
        self.nonlinear = self.options.pop("nonlinear_inequality_constraints", None)
        self.linear: dict[str, list[Linear]] = {
            key: [(i, c.to(bounds), float(b)) for i, c, b in self.options.pop(key)]
            for key in ("inequality_constraints", "equality_constraints")
            if self.options.get(key)
        }
        if not isinstance(discrete_dims or {}, Mapping):
            raise InputDataError(
                "discrete_dims must map coordinates to their values, such as {2: [16, 32, 64]}, "
                f"got {discrete_dims!r}."
            )
        if not isinstance(discrete_dims or {}, Mapping):
            raise InputDataError(
                "discrete_dims must map coordinates to lists of values, as in {0: [0.0, 1.0]}, got "
                f"{discrete_dims!r}."
            )
        self.discrete = {i: self._values(i, v) for i, v in (discrete_dims or {}).items()}
        if self.discrete and self.nonlinear:
            raise InputDataError(
                "nonlinear_inequality_constraints cannot go with discrete_dims, where BoTorch "
                "supports linear constraints only: enumerate the feasible points as arms, or lower "
                "the rewards of infeasible ones."
            )
        for i, value in self.fixed.items():
            self._check_inside(i, bounds.new_tensor([value]), "fixed_features")

    def _check_options(self) -> None:
        known = set(inspect.signature(optimize_acqf).parameters) - RESERVED
        unknown = set(self.options) - known
        if unknown:
            raise InputDataError(
                "acquisition_options must be arguments of optimize_acqf other than "
                f"{', '.join(sorted(RESERVED))}, got {', '.join(sorted(unknown))}."
            )
        check_positive_integer("num_restarts", self.options["num_restarts"])
        check_positive_integer("raw_samples", self.options["raw_samples"])
        if self.options["raw_samples"] < self.options["num_restarts"]:
            raise InputDataError(
                f"raw_samples must be at least num_restarts, got {self.options['raw_samples']} and "
                f"{self.options['num_restarts']}."
            )

    def _values(self, i: int, values: Sequence[float]) -> Tensor:
        try:
            out = torch.as_tensor(values, dtype=self.bounds.dtype, device=self.bounds.device)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            out = self.bounds.new_empty(0)  # explained below
        if out.dim() != 1 or len(out) == 0:
            raise InputDataError(
                f"discrete_dims must give each coordinate a list of values, got {values!r} for {i}."
            )
        self._check_inside(i, out, "discrete_dims")
        return out.unique()

    def _check_inside(self, i: int, values: Tensor, name: str) -> None:
        d = self.bounds.shape[-1]
        if not (isinstance(i, int) and 0 <= i < d):
            raise InputDataError(f"{name} must name coordinates 0..{d - 1}, got {i!r}.")
        low, high = self.bounds[:, i].tolist()
        if not low <= float(values.min()) <= float(values.max()) <= high:
            raise InputDataError(
                f"{name} must lie within the bounds, [{low}, {high}] in coordinate {i}, got "
                f"{values.tolist()}."
            )

    # ------------------------------------------------------------------ the unit cube

    def from_unit(self, X: Tensor) -> Tensor:
        r"""Map points of the unit cube to the box, with discrete values exact to the last bit."""
        return self.snapped(self.cube.from_unit(X))

    def _allowed(self, X: Tensor) -> Tensor:
        r"""Move points of the unit cube to the nearest ones that are exactly allowed in the box."""
        return self.cube.to_unit(self.from_unit(X))

    def snapped(self, X: Tensor) -> Tensor:
        r"""Move discrete coordinates to the nearest allowed values and set the fixed ones."""
        X = X.clone()
        for i, values in self.discrete.items():
            X[..., i] = values[(X[..., i, None] - values).abs().argmin(-1)]
        for i, value in self.fixed.items():
            X[..., i] = value
        return X

    # ------------------------------------------------------------------ searching

    @torch.enable_grad()
    def maximise(
        self,
        acquisition: AcquisitionFunction,
        starts: Tensor,
        seed: int,
        within: Tensor | None = None,
    ) -> Tensor:
        r"""Return the best point found, ``1 x d`` in the unit cube.

        Args:
            acquisition: An acquisition function over the unit cube.
            starts: ``k x d`` points of the unit cube, near which some of the candidates are. Under
                constraints and with discrete coordinates they are starting points themselves.
            seed: The seed of the candidates.
            within: ``2 x d`` corners of the part of the unit cube to search; all of it by default.
        """
        cube = self._unit_cube() if within is None else within.clone()
        options: dict[str, Any] = {"q": 1, **self.options}
        for key, constraints in self.linear.items():
            options[key] = [self.cube.constraint_to_unit(*c) for c in constraints]
        fixed = {i: self.cube.value_to_unit(i, value) for i, value in self.fixed.items()}
        generator = torch.Generator().manual_seed(seed)
        try:
            if self.is_plain and isinstance(acquisition, HasGradient):
                return self._climb(acquisition, starts, self._held(cube, fixed), generator)
            with manual_seed(seed):
                if self.discrete:
                    return self._maximise_mixed(acquisition, starts, cube, fixed, options)
                if self.nonlinear:
                    options |= self._nonlinear_options(starts)
                elif self.linear:
                    starts = starts[: options["num_restarts"] - 1]
                    options["batch_initial_conditions"] = (
                        starts.unsqueeze(-2) if len(starts) else None
                    )
                elif not isinstance(acquisition, OneShotAcquisitionFunction):
                    held, n = self._held(cube.clone(), fixed), options["raw_samples"]
                    _, starts = self._starts(acquisition, starts, held, n, generator)
                    options["batch_initial_conditions"] = starts.unsqueeze(-2)
                X, _ = optimize_acqf(acquisition, cube, fixed_features=fixed or None, **options)
        except RuntimeError as error:
            check_dependence(acquisition, cube, error)
            raise
        return X.detach()

    def pool(
        self,
        acquisition: AcquisitionFunction,
        incumbents: Tensor,
        n: int,
        seed: int,
        within: Tensor | None = None,
    ) -> Tensor:
        r"""Return candidates for a large batch: local maximisers, and points without a search.

        Args:
            acquisition: An acquisition function over the unit cube, with an analytic gradient.
            incumbents: ``k x d`` points of the unit cube. Some candidates are near them.
            n: The number of candidates that fill the cube.
            seed: The seed of the candidates.
            within: ``2 x d`` corners of the part of the unit cube to search; all of it by default.
        """
        assert isinstance(acquisition, HasGradient)
        fixed = {i: self.cube.value_to_unit(i, value) for i, value in self.fixed.items()}
        cube = self._held(self._unit_cube() if within is None else within.clone(), fixed)
        generator = torch.Generator().manual_seed(seed)
        X, starts = self._starts(acquisition, incumbents, cube, n, generator)
        best, _ = climb(acquisition, starts, cube, self.options.get("options") or {})
        return torch.cat([best, X])

    @property
    def is_plain(self) -> bool:
        r"""Whether there is nothing but a box to search."""
        inner = self.options.get("options") or {}
        is_plain = self.options.keys() <= PLAIN and inner.keys() <= {"maxiter"}
        return is_plain and not self.is_restricted

    @property
    def is_restricted(self) -> bool:
        r"""Whether coordinates are discrete, or there are constraints."""
        return bool(self.discrete or self.linear or self.nonlinear)

    def _unit_cube(self) -> Tensor:
        cube = torch.zeros_like(self.bounds)
        cube[1] = 1
        return cube

    def _held(self, cube: Tensor, fixed: Mapping[int, float]) -> Tensor:
        r"""Return the cube with fixed coordinates."""
        for i, value in fixed.items():
            cube[:, i] = value
        return cube

    def _starts(
        self, acquisition: Any, incumbents: Tensor, cube: Tensor, n: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        r"""Return candidates, most of them spread over the box, and those to start from."""
        near = math.ceil(NEAR * n / max(1, len(incumbents)))
        X = candidates(n, cube, incumbents, near, generator)
        values, restarts = evaluated(acquisition, X), self.options["num_restarts"]
        return X, starting_points(X, values, restarts, generator)

    def _climb(
        self, acquisition: Any, incumbents: Tensor, cube: Tensor, generator: torch.Generator
    ) -> Tensor:
        r"""Climb without autograd."""
        _, starts = self._starts(acquisition, incumbents, cube, self._raw_samples, generator)
        X, values = climb(acquisition, starts, cube, self.options.get("options") or {})
        return X[values.argmax()].unsqueeze(0)

    def _maximise_mixed(
        self,
        acquisition: AcquisitionFunction,
        starts: Tensor,
        cube: Tensor,
        fixed: dict[int, float],
        options: Any,
    ) -> Tensor:
        values = {
            i: self.cube.values_to_unit(i, v)
            for i, v in self.discrete.items()
            if i not in self.fixed
        }
        if should_use_mixed_alternating_optimizer(values):
            inner = dict(options.get("options") or {})
            is_cheap = isinstance(acquisition, AnalyticAcquisitionFunction)
            # Setting options of the alternating optimizer selects it.
            is_asked_for = inner.keys() & SUPPORTED_OPTIONS or "post_processing_func" in options
            if is_cheap and not self.linear and not is_asked_for:
                return self._evolve(acquisition, starts, cube, fixed, values)
            for i, v in values.items():  # they must begin and end with the bounds
                cube[:, i] = cube.new_tensor([v[0], v[-1]])
            if "maxiter" in inner:
                inner["maxiter_continuous"] = inner.pop("maxiter")
            options = {**options, "options": inner}
            X, _ = optimize_acqf_mixed_alternating(
                acquisition, cube, discrete_dims=values, fixed_features=fixed or None, **options
            )
            return X.detach()
        combinations = [
            {**fixed, **dict(zip(values, combination, strict=True))}
            for combination in itertools.product(*values.values())
        ]
        X, _ = optimize_acqf_mixed(acquisition, cube, fixed_features_list=combinations, **options)
        return X.detach()

    def _evolve(
        self,
        acquisition: AcquisitionFunction,
        starts: Tensor,
        cube: Tensor,
        fixed: dict[int, float],
        values: dict[int, list[float]],
    ) -> Tensor:
        r"""Evolve all coordinates, then improve the continuous ones by gradients.

        Evaluating batches of points is cheaper than BoTorch's alternating optimizer. That optimizer
        computes one gradient after another and accepts no starting points.
        """
        options = dict(self.options)
        restarts, samples = options.pop("num_restarts"), options.pop("raw_samples")
        X = torch.cat([starts, draw_sobol_samples(cube, n=samples, q=1).squeeze(-2)])
        X = evolve(acquisition, self._allowed(X), MEMBERS * restarts, self._allowed)
        X = climb_steps(acquisition, X, lambda X: get_nearest_neighbors(X[0], cube, values))
        fixed = {**fixed, **{i: float(X[0, i]) for i in values}}
        if len(fixed) == X.shape[-1]:
            return X
        options["options"] = {"maxiter": POLISHING, **(options.get("options") or {})}
        options.setdefault("retry_on_optimization_warning", False)
        polished, _ = optimize_acqf(
            acquisition,
            cube,
            q=1,
            num_restarts=1,
            batch_initial_conditions=X.unsqueeze(0),
            fixed_features=fixed,
            **options,
        )
        X = torch.cat([X, polished.detach()])
        with torch.no_grad():
            return X[acquisition(X.unsqueeze(-2)).argmax()].unsqueeze(0)

    def _nonlinear_options(self, starts: Tensor) -> dict[str, Any]:
        r"""Return the arguments of ``optimize_acqf`` for constraints that are not linear."""
        used_starts = starts

        def on_unit_cube(constraint):
            return lambda X: constraint(self.from_unit(X))

        def initial_conditions(acq_function, bounds, q, num_restarts, *args, **kwargs) -> Tensor:
            nonlocal used_starts
            used_starts = self._feasible_starts(starts, num_restarts)
            return used_starts

        return {
            "nonlinear_inequality_constraints": [
                (on_unit_cube(c), within) for c, within in self.nonlinear
            ],
            "ic_generator": initial_conditions,
            "post_processing_func": self.options.get("post_processing_func")
            or (lambda X: torch.stack(list(map(self._made_feasible, X, used_starts)))),
        }

    def _made_feasible(self, x: Tensor, start: Tensor) -> Tensor:
        r"""Return a ``1 x d`` candidate, moved towards its starting point until it is feasible.

        SLSQP may violate constraints slightly by rounding, and BoTorch does not tolerate that.
        """
        shares = [0.0, *(2.0**-k for k in range(30, 0, -1))]
        between = (x + share * (start - x) for share in shares)
        return next(
            (point for point in between if len(self._feasible(self.from_unit(point)))), start
        )

    def _feasible_starts(self, starts: Tensor, num_restarts: int) -> Tensor:
        r"""Return ``num_restarts x 1 x d`` feasible starting points of the unit cube."""
        X = self._feasible(self.from_unit(starts))[:num_restarts]
        if len(X) < num_restarts:
            try:
                seed = int(torch.randint(2**31, (), device="cpu"))
                more = self.design(0, num_restarts - len(X), seed)
            except InputDataError:
                if len(X) == 0:
                    raise
                more = X[torch.arange(num_restarts - len(X), device=X.device) % len(X)]
            X = torch.cat([X, more])
        return self.cube.to_unit(X).unsqueeze(-2)

    def _feasible(self, X: Tensor) -> Tensor:
        r"""Return the rows that satisfy all constraints."""
        for constraint, _ in self.nonlinear or ():
            X = X[torch.stack([constraint(x) for x in X]) >= 0] if len(X) else X
        for key, constraints in self.linear.items():
            for indices, coefficients, bound in constraints:
                slack = X[:, indices.to(X.device)] @ coefficients - bound
                X = X[slack.abs() < 1e-6 if key.startswith("eq") else slack > -1e-6]
        return X

    # ------------------------------------------------------------------ designs

    def design(self, start: int, n: int, seed: int) -> Tensor:
        r"""Return points ``start .. start + n`` of a space-filling design, ``n x d`` in the box."""
        wanted = start + n
        if self.linear:
            X = self._polytope(wanted if not self.discrete else 20 * wanted, seed)
        else:
            tries = TRIES if self.nonlinear else 1
            X = draw_sobol_samples(self.bounds, n=tries * wanted, q=1, seed=seed).squeeze(-2)
        drawn, X = len(X), self._feasible(self.snapped(X))
        if len(X) < wanted:
            raise InputDataError(
                f"Only {len(X)} of {drawn} points of a design satisfy the constraints, but "
                f"{wanted} are needed: tell results of feasible points first, or relax the "
                "constraints."
            )
        return X[start:wanted]

    def grid(self) -> Tensor | None:
        r"""Return all allowed points, ``g x d`` in the box; None where they are too many."""
        d = self.bounds.shape[-1]
        values = {
            **self.discrete,
            **{i: self.bounds.new_tensor([v]) for i, v in self.fixed.items()},
        }
        if len(values) < d or math.prod(map(len, values.values())) > MOST_POINTS:
            return None
        return self._feasible(torch.cartesian_prod(*(values[i] for i in range(d))).reshape(-1, d))

    def _polytope(self, n: int, seed: int) -> Tensor:
        fixed = [
            (torch.tensor([i], device=self.bounds.device), self.bounds.new_ones(1), value)
            for i, value in self.fixed.items()
        ]
        options: dict[str, Any] = {"seed": seed, "n_burnin": 1000, **self.linear}
        if fixed:
            options["equality_constraints"] = [*options.get("equality_constraints", []), *fixed]
        with manual_seed(seed):
            return get_polytope_samples(n, self.bounds, **options).to(self.bounds)


def check_dependence(acquisition: AcquisitionFunction, cube: Tensor, error: Exception) -> None:
    r"""Raise a clear error if the acquisition function does not depend on its inputs.

    Args:
        acquisition: An acquisition function whose maximisation failed.
        cube: The corners of the box, ``2 x d``.
        error: How it failed.
    """
    x = cube.mean(0, keepdim=True).unsqueeze(0).requires_grad_()
    value = acquisition(x).sum()
    if value.requires_grad and torch.autograd.grad(value, x, allow_unused=True)[0] is not None:
        return
    raise UnsupportedError(
        "A search over a box needs a belief that depends on the inputs, got one that does not, "
        "such as that of a ConstantKernel: add a kernel of the inputs, for instance RBFKernel()."
    ) from error
