r"""``Box``: a box that is searched by BoTorch's optimizers.

The table of a run over a box has a row for each input ever asked or observed. Picks are found by
maximising an acquisition function of the model, and then become rows of the table. So scores, means
and dictionaries are kept current for a box as they are for arms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

from botorch.acquisition import AcquisitionFunction
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.designs import size_of_design
from botorch_bkb.domains.bounded import BoundedDomain
from botorch_bkb.domains.search import Search
from botorch_bkb.domains.trust_region import TrustRegion
from botorch_bkb.validation import check_positive_integer


@dataclass(frozen=True, eq=False)
class Box(BoundedDomain):
    r"""A box, some of whose coordinates may be discrete.

    Args:
        bounds: A ``2 x d`` tensor: the lower and the upper corner. Its dtype and device are used
            throughout.
        num_initial: The number of points of the initial design, scrambled Sobol; ``2 d + 2`` by
            default, but at most 30.
        discrete_dims: Coordinates that take only some values, ``{i: values}``: whole numbers, or
            the codes of categories.
        acquisition_options: Arguments of BoTorch's ``optimize_acqf``: ``num_restarts``,
            ``raw_samples``, ``options``; ``inequality_constraints`` and ``equality_constraints``
            (linear), ``nonlinear_inequality_constraints`` and ``fixed_features``, in units of the
            box.
        trust_region: How the search is confined to regions around good points
            (:class:`TrustRegion`). None searches the whole box. It does not go with discrete
            coordinates and constraints.
        keep_coordinates: Whether the coordinates of all observed points are kept. Without them a
            change of the dictionary costs ``O(t m^2)``.

    Example:
        >>> import torch
        >>> from botorch_bkb.domains import Box
        >>> from botorch_bkb.optimizers import Optimizer
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> optimizer = Optimizer(Box(bounds, num_initial=4), seed=0)
        >>> len(optimizer.ask())
        4
    """

    _: KW_ONLY
    num_initial: int | None = None
    discrete_dims: Mapping[int, Sequence[float]] | None = None
    acquisition_options: Mapping[str, Any] | None = None
    trust_region: TrustRegion | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive_integer("num_initial", self.num_initial)
        self.search  # noqa: B018  checks its arguments
        if self.trust_region is not None:
            self._check_trust_region()

    def _check_trust_region(self) -> None:
        if not isinstance(self.trust_region, TrustRegion):
            raise InputDataError(
                "trust_region must be a TrustRegion, such as TrustRegion() or TrustRegion(3), got "
                f"{self.trust_region!r}."
            )
        if self.search.is_restricted:
            raise InputDataError(
                "A trust region does not go with discrete_dims and constraints, got some: leave "
                "trust_region out, so that the whole box is searched."
            )

    @cached_property
    def search(self) -> Search:
        r"""What maximises acquisition functions over the box."""
        return Search(self.bounds, self.discrete_dims, self.acquisition_options)

    def size_of_design(self, fits: bool) -> int:
        r"""Return the number of points of the initial design, fitted or not."""
        return self.num_initial or size_of_design(self.dim)

    def check_context(self, context: Mapping[int, float]) -> None:
        r"""Raise if coordinates cannot have these values, for one ask."""
        for i, value in context.items():
            values = self.search.discrete.get(i)
            if values is not None and not (values == value).any():
                raise InputDataError(
                    f"context must give coordinate {i} one of its values, {values.tolist()}, got "
                    f"{value}."
                )
            if self.search.fixed.get(i, value) != value:
                raise InputDataError(
                    f"context must agree with fixed_features, {self.search.fixed[i]} in coordinate "
                    f"{i}, got {value}: leave it out of one of them."
                )

    def with_fixed(self, fixed: Mapping[int, float]) -> Box:
        r"""Return the box with some coordinates fixed at values in units of the box.

        Args:
            fixed: Values by coordinate.
        """
        options = dict(self.acquisition_options or {})
        options["fixed_features"] = {**(options.get("fixed_features") or {}), **fixed}
        return replace(self, acquisition_options=options)

    @cached_property
    def grid(self) -> Tensor | None:
        r"""All points of the box, ``g x d``; None where they are too many to list."""
        return self.search.grid()

    @property
    def default_max_batch_size(self) -> int:
        r"""Two hundred: each point is searched for. Larger batches are asked for by ``ask(n)``."""
        return 200

    @property
    def default_max_dictionary(self) -> int:
        r"""A thousand, as for models: a step costs the square of it, and a new belief the cube."""
        return 1000

    def design(self, start: int, n: int, seed: int) -> Tensor:
        r"""Return points ``start .. start + n`` of a space-filling design, ``n x d``."""
        return self.search.design(start, n, seed)

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
            starts: ``k x d`` points of the unit cube, near which to look, too.
            seed: Seed of the candidates from which searches start.
            within: ``2 x d`` corners of the part of the unit cube to search; all of it by default.
        """
        return self.search.maximise(acquisition, starts, seed, within)

    def from_unit(self, X: Tensor) -> Tensor:
        r"""Map points of the unit cube to the box, with discrete values exact to the last bit."""
        return self.search.from_unit(X)
