r"""``Arms``: a finite set of candidates, searched exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.designs import size_of_design
from botorch_bkb.domains.domain import Domain
from botorch_bkb.domains.reading import Points, check_arms, read_points
from botorch_bkb.domains.suggestion import Suggestion
from botorch_bkb.rows import RowIndex, hashes
from botorch_bkb.validation import check_positive_integer


@dataclass(frozen=True, eq=False)
class Arms(Domain):
    r"""A finite set of candidates, one row of a tensor each.

    Args:
        arms: An ``A x d`` tensor. Its dtype and device are used throughout.
        keep_coordinates: Whether the ``A x m`` coordinates of all arms are kept. Without them the
            memory is ``O(A)``, and a change of the dictionary costs ``O(A m^2)``.
        num_initial: The number of arms of the initial design, which fill the space. By default
            there is a design where hyperparameters are fitted, of ``2 d + 2`` arms, but at most 30.
            Where they are given, the algorithms of the papers begin with a single arm.
        max_replicates: How often an arm may be evaluated in all; None for any number.
        known: Hashes of all arms that have a number, in the order of their numbers, where these are
            other arms than the first of a run. By default each arm has the number of its row.

    Example:
        >>> import torch
        >>> from botorch_bkb.domains import Arms
        >>> from botorch_bkb.optimizers import Optimizer
        >>> optimizer = Optimizer(Arms(torch.eye(9, dtype=torch.float64)), seed=0)
        >>> len(optimizer.ask())  # before anything is known, a design
        9
    """

    arms: Tensor
    _: KW_ONLY
    keep_coordinates: bool = True
    num_initial: int | None = None
    max_replicates: int | None = None
    known: Tensor | None = None

    def __post_init__(self) -> None:
        check_arms(self.arms)
        check_positive_integer("num_initial", self.num_initial)
        check_positive_integer("max_replicates", self.max_replicates)
        # A copy: later changes of the user's tensor must not change the domain.
        object.__setattr__(self, "arms", self.arms.detach().clone())

    @property
    def extent(self) -> Tensor:
        r"""The arms, whose ranges are those of the domain."""
        return self.arms

    @cached_property
    def index(self) -> RowIndex:
        r"""The arms, and what finds rows among them."""
        return RowIndex(self.arms)

    def size_of_design(self, fits: bool) -> int:
        r"""Return the number of arms of the initial design."""
        size = self.num_initial or (size_of_design(self.dim) if fits else 0)
        return min(size, len(self.arms))

    @property
    def default_oversampling(self) -> float:
        r"""Eight: an arm that was pulled often and is left out looks as if it never had been."""
        return 8.0

    @property
    def recurs(self) -> bool:
        r"""True: an arm is pulled many times."""
        return True

    @property
    def checksum(self) -> int:
        r"""A checksum of the arms."""
        return self.index.checksum

    def read(
        self, points: Suggestion | Tensor | Sequence, added: Tensor, pending: Mapping[int, int]
    ) -> Points:
        r"""Read a suggestion, numbers of arms, or inputs, which need not be arms."""
        if self.known is not None and not isinstance(points, Suggestion):
            points = self._as_rows(points)
        return read_points(points, self.index, added, pending)

    def _as_rows(self, points: Tensor | Sequence) -> Tensor | Sequence:
        r"""Return numbers of arms as rows, and anything else as it is."""
        try:
            numbers = torch.as_tensor(points, device=self.device)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return points  # explained by those who read them
        if numbers.is_floating_point() or numbers.dtype == torch.bool or numbers.dim() != 1:
            return points
        found = (self.numbers == numbers.unsqueeze(-1)).int().max(-1)
        if not found.values.all():
            absent = numbers[found.values == 0].tolist()
            raise InputDataError(
                f"Indices must be those of the present arms, got {absent}: other arms have left "
                "the table with set_arms. Tell results of such points as X."
            )
        return found.indices

    @cached_property
    def numbers(self) -> Tensor:
        r"""What the user calls the arms, ``A`` numbers: the rows of equal arms that came first."""
        if self.known is None:
            return torch.arange(len(self.arms), device=self.device)
        return numbers_of(hashes(self.arms), self.known)

    def exchanged(self, arms: Tensor) -> Arms:
        r"""Return other arms; those that were among the arms before keep their numbers.

        Args:
            arms: ``A' x d`` other arms.
        """
        known = hashes(self.arms) if self.known is None else self.known
        new = hashes(arms)
        new = new[numbers_of(new, known) < 0]
        return replace(self, arms=arms, known=torch.cat([known, new]))

    def first_equal(self, rows: Tensor) -> Tensor:
        r"""Return the first of equal arms."""
        return self.index.first[rows]

    def indices(self, rows: Tensor) -> Tensor | None:
        r"""Return the numbers of arms, and -1 for rows that are no arms."""
        among = rows < len(self.arms)
        return torch.where(among, self.numbers[torch.where(among, rows, 0)], -1)

    def candidates(self, observed: Tensor) -> Tensor | slice:
        r"""Return all arms: the best is recommended among them."""
        return slice(len(self.arms))


def numbers_of(some: Tensor, known: Tensor) -> Tensor:
    r"""Return the first place of each hash among known ones, or -1.

    Args:
        some: ``q`` hashes.
        known: ``n`` hashes, at least one.
    """
    ordered, order = known.sort(stable=True)
    place = torch.searchsorted(ordered, some).clamp_max(len(known) - 1)
    return torch.where(ordered[place] == some, order[place], -1)
