r"""Ada-BKB: a box cut into cells where that is worthwhile."""

from __future__ import annotations

from typing import Any

from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.optimizers.algorithms.bandits import BKB
from botorch_bkb.optimizers.domains import Domain, Tree
from botorch_bkb.optimizers.domains.tree import Radius
from botorch_bkb.partition import PartitionTree


class AdaBKB(BKB):
    r"""Ada-BKB: BKB over a box that is cut into ever smaller cells where that is worthwhile.

    The index of a cell bounds the function over all of it:

    .. code-block:: text

        I(cell) = min( u(x), u(x_parent) + V(parent) ) + V(cell),     u(x) = mean(x) + width sd(x)

    with ``x`` the cell's centre and ``V = norm_bound * radius`` how much a function of norm
    ``norm_bound`` varies within it. The cell of highest index is split if ``width sd(x) <= V`` and
    evaluated at its centre otherwise. An evaluation costs ``O(cells m)``, splitting a cell
    ``O(num_children m^2)``, and no acquisition function is maximised.

    What is proved: with ``width="theory"``, ``oversampling="theory"``, ``coupled=False``, given
    kernel and noise and ``norm_bound`` a bound on the norm, all indices are bounds with
    probability ``1 - delta``, the regret is sublinear, and :meth:`gap` bounds the regret of
    :meth:`best`. With the kernel's own radius this holds for every function of that norm; the
    radius shrinks slowly in many dimensions, since a split shortens one side only. The paper's
    ``(v1, rho)`` shrinks as fast as you say and is valid if you are right.

    Args:
        bounds: A ``2 x d`` tensor.
        num_children: ``N``, into how many a cell is split; with an odd number the cell in the
            middle keeps its parent's centre.
        max_depth: Cells of this depth are not split; by default ``8 d``.
        radius: ``"kernel"`` (``d_k`` from the centre to the farthest corner), ``(v1, rho)`` for
            the paper's ``g(v1 rho^h)``, or a function ``(tree, ids, metric)`` of the corners and
            depths of cells.
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`. With the kernel's own radius the
            kernel must fall with the distance in each coordinate, as RBF and Matern kernels do.

    Example:
        >>> import torch
        >>> from botorch_bkb import AdaBKB
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> optimizer = AdaBKB(bounds=bounds, seed=0)
        >>> for _ in range(25):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> abs(optimizer.best().X.item() - 0.3) < 0.05
        True

    Reference:
        Rando, Carratino, Villa, Rosasco: Ada-BKB: scalable Gaussian process optimization on
        continuous domains by adaptive discretization. AISTATS 2022.
    """

    def __init__(
        self,
        bounds: Tensor,
        *,
        num_children: int = 3,
        max_depth: int | None = None,
        radius: str | tuple[float, float] | Radius = "kernel",
        **kwargs: Any,
    ) -> None:
        if kwargs.get("acquisition") not in (None, "ucb"):
            raise InputDataError(
                f"The tree is searched by upper bounds, got acquisition={kwargs['acquisition']!r}: "
                "use BKB(bounds=...) for others."
            )
        self._partition = (num_children, max_depth, radius)
        super().__init__(bounds=bounds, **kwargs)

    def _make_domain(
        self, arms: Tensor | None, bounds: Tensor | None, box: dict[str, Any]
    ) -> Domain:
        if bounds is None or any(value is not None for value in (arms, *box.values())):
            raise InputDataError(
                f"{type(self).__name__} takes bounds, without arms, num_initial, discrete_dims or "
                "acquisition_options: it maximises nothing but its indices."
            )
        return Tree(bounds, *self._partition)

    @property
    def tree(self) -> PartitionTree:
        r"""The cells."""
        assert isinstance(self.domain, Tree)
        return self.domain.tree(self._state)[0]


class AdaBBKB(AdaBKB):
    r"""Ada-BKB in batches: BBKB's rule inside the tree.

    Means are fixed within a batch and variances fall with every pick, as if it had been observed;
    cells are split while picking. The batch is complete when ``1 + sum tau > batch_threshold``.

    What is proved: by BBKB's Lemma 4 no variance falls by more than ``batch_threshold`` within a
    batch, so with BBKB's width (``width="theory"``) all indices are bounds at every pick, and
    :meth:`gap` holds as for :class:`AdaBKB`. The regret bound of the combination is not proved.
    With ``batch_threshold=1`` it is Ada-BKB, with BBKB's width where that is asked for.

    Args:
        bounds: A ``2 x d`` tensor.
        kwargs: See :class:`AdaBKB`.

    Example:
        >>> import torch
        >>> from botorch_bkb import AdaBBKB
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> optimizer = AdaBBKB(bounds=bounds, batch_threshold=50.0, seed=0)
        >>> while optimizer.num_observations < 25:
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> abs(optimizer.best().X.item() - 0.3) < 0.05
        True

    Reference:
        The tree: Rando et al., AISTATS 2022 (Ada-BKB). The batches: Calandriello et al., ICML 2020
        (BBKB, Algorithm 1, Lemma 4, Theorem 2). The combination is in neither.
    """

    default_batch_rule = "sum"
    theorem = "bbkb"
