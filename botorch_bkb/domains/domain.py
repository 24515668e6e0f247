r"""What an optimizer needs to know of the set it searches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from botorch_bkb.domains.reading import Points
from botorch_bkb.domains.suggestion import Suggestion
from botorch_bkb.rows import RowIndex


class Domain(ABC):
    r"""A set to be searched: its geometry, and how its points are read.

    The three domains are :class:`Arms`, :class:`Box` and :class:`Tree`. A custom domain
    derives from one of them: what an optimizer picks from it is then picked as from the base.

    Attributes:
        keep_coordinates: Whether the table of the run keeps the ``A x m`` coordinates of all rows.

    Example:
        A disc, which is searched by the best of many random points:

        >>> import torch
        >>> from botorch_bkb.domains import Box
        >>> from botorch_bkb.optimizers import Optimizer
        >>> class Disc(Box):
        ...     def points(self, n, seed):
        ...         generator = torch.Generator().manual_seed(seed)
        ...         X = 2 * torch.rand(2 * n + 20, 2, generator=generator, dtype=self.dtype) - 1
        ...         return X[X.norm(dim=-1) <= 1][:n]
        ...     def design(self, start, n, seed):
        ...         return self.points(start + n, seed)[start:]
        ...     def maximise(self, acquisition, starts, seed):
        ...         X = self.cube.to_unit(self.points(500, seed))
        ...         return X[acquisition(X.unsqueeze(-2)).argmax()].unsqueeze(0)
        >>> corners = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
        >>> optimizer = Optimizer(Disc(corners), seed=0)
        >>> for _ in range(12):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, suggestion.X.sum(-1))
        >>> bool((optimizer.dictionary.norm(dim=-1) <= 1).all())
        True
    """

    keep_coordinates: bool

    @property
    @abstractmethod
    def extent(self) -> Tensor:
        r"""Inputs whose ranges are those of the domain, ``r x d``."""

    @property
    @abstractmethod
    def index(self) -> RowIndex:
        r"""The inputs with which the table of a run starts, and what finds rows among them."""

    @property
    @abstractmethod
    def default_oversampling(self) -> float:
        r"""The oversampling of a sampled dictionary where the user gives none."""

    @property
    def default_max_dictionary(self) -> int | None:
        r"""The largest size of a sampled dictionary where the user gives none; None for any."""
        return None

    @property
    def default_max_batch_size(self) -> int:
        r"""The largest batch that a rule decides where the user gives none."""
        return 10_000

    @property
    def recurs(self) -> bool:
        r"""Whether the same points are chosen again and again. Over a box they are not."""
        return False

    def size_of_design(self, fits: bool) -> int:
        r"""Return the number of points asked before the first fit; none by default.

        Args:
            fits: Whether hyperparameters are fitted.
        """
        return 0

    @property
    @abstractmethod
    def checksum(self) -> int:
        r"""A number that tells domains apart, to recognise the domain of a saved state."""

    @abstractmethod
    def read(
        self,
        points: Suggestion | Tensor | Sequence,
        added: Tensor,
        pending: Mapping[int, int],
    ) -> Points:
        r"""Return the points that a user told as rows of the table.

        Args:
            points: What the user told.
            added: ``h x d`` inputs behind those of :attr:`index`.
            pending: The rows of the pending points, by id.
        """

    @abstractmethod
    def first_equal(self, rows: Tensor) -> Tensor:
        r"""Return for each row the first row of the table with equal inputs."""

    @abstractmethod
    def indices(self, rows: Tensor) -> Tensor | None:
        r"""Return what the user calls these rows of the table; None where they have no numbers."""

    @abstractmethod
    def candidates(self, observed: Tensor) -> Tensor | slice:
        r"""Return the rows among which the best is recommended.

        Args:
            observed: The rows that were observed.
        """

    @property
    def dim(self) -> int:
        r"""The number of dimensions."""
        return self.extent.shape[-1]

    @property
    def device(self) -> torch.device:
        r"""The device of the domain."""
        return self.extent.device

    @property
    def dtype(self) -> torch.dtype:
        r"""The dtype of the domain."""
        return self.extent.dtype
