r"""``AdaBKB``: a box cut into cells where that is worthwhile."""

from __future__ import annotations

from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.acquisition import UCB
from botorch_bkb.batches import BatchRule
from botorch_bkb.batches.rules import as_batch_rule
from botorch_bkb.confidence import Confidence, Width
from botorch_bkb.dictionaries import DictionaryRule
from botorch_bkb.domains import Tree
from botorch_bkb.domains.tree import Radius
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.algorithms.flat import as_dictionary
from botorch_bkb.optimizers.optimizer import Optimizer


class AdaBKB(Optimizer):
    r"""Ada-BKB: BKB over a box that is cut into ever smaller cells where that is worthwhile.

    The index of a cell bounds the function over all of it:

    .. code-block:: text

        I(cell) = min( u(x), u(x_parent) + V(parent) ) + V(cell),     u(x) = mean(x) + width sd(x)

    with ``x`` the cell's centre and ``V = norm_bound * radius`` how much a function of norm
    ``norm_bound`` varies within it. The cell of highest index is split if ``width sd(x) <= V``, and
    evaluated at its centre otherwise. An evaluation costs ``O(cells m)``, splitting a cell
    ``O(num_children m^2)``, and no acquisition function is maximised.

    A cell whose index is below the lower bound of some centre is pruned: while bounds hold, the
    maximum is not in it. It is neither split nor evaluated any more. When hyperparameters are
    fitted anew or the norm is doubled, bounds of earlier beliefs no longer count, and all cells are
    looked at again. With widths that are heuristic a cell may be pruned wrongly until then.

    What is proved: with ``width="theory"``, given kernel and noise and ``norm_bound`` a bound on
    the norm, all indices are bounds with probability ``1 - delta``, no cell with the maximum is
    pruned, and :meth:`gap` bounds the regret of ``best(by="lower")``. The paper also proves that
    the regret is sublinear, with ``oversampling="theory"`` and ``coupled=False``. The regret bound
    is for a horizon and a depth limit fixed beforehand (:class:`~botorch_bkb.domains.Tree`). At the
    limit a cell is evaluated even if its uncertainty is smaller than the cell. So the bound on the
    regret of an evaluation does not fall below ``V`` there, and neither does :meth:`gap`. For one
    pick at most 1,000 cells are split, which the paper does not limit. Indices stay bounds.

    With the kernel's own radius all this holds for every function of that norm. The kernel must
    then fall with the distance in each coordinate, as RBF and Matern kernels do. The radius shrinks
    slowly in many dimensions, since a split shortens one side only. The paper's ``(v1, rho)``
    shrinks as fast as you say, and is valid if you are right; ``"theory"`` says so in a warning.
    It decides the size of the tree, and with it the cost of a step.

    Args:
        bounds: A ``2 x d`` tensor, the corners of the box.
        num_children: ``N``, the number of cells into which a cell is split.
        max_depth: ``h_max``: cells of this depth are not split; ``8 d`` by default.
        radius: How far a function of norm one varies within a cell: ``"kernel"``, ``(v1, rho)``, or
            a function (:class:`~botorch_bkb.domains.Tree`).
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward, or None to have it fitted.
        refit: Whether hyperparameters are fitted. By default those that are not given are.
        half_life: The number of observations after which a result counts half, where rewards
            drift (:class:`~botorch_bkb.models.Surrogate`). None forgets nothing.
        dictionary: A dictionary rule, in place of the four arguments below.
        oversampling: ``q̄``: a pull enters the dictionary with probability ``min(1, q̄ tau)``; 2 by
            default. ``"theory"`` takes the theorem's value.
        coupled: Whether each pull keeps its coin from one draw of the dictionary to the next.
        horizon: Expected number of observations; doubled whenever a run outlasts it.
        max_dictionary: The largest dictionary. It is thinned at random, with a warning.
        width: Width of the bounds: ``"heuristic"``, ``"information"``, ``"theory"``, ``"paper"``, a
            number of posterior standard deviations, or a function
            (:class:`~botorch_bkb.confidence.Confidence`).
        norm_bound: Bound ``F`` on the norm of the function, or ``"double"`` to learn it.
        noise_bound: Bound on the noise standard deviation; ``sqrt(noise_var)`` by default.
        delta: Failure probability of the bounds.
        accuracy: ``eps`` of the papers' theorems, for ``width="paper"`` and
            ``oversampling="theory"``.
        batch_rule: ``"one"``, ``"sum"``, ``"local"``, ``"product"``, ``"hold"``, or a
            :class:`~botorch_bkb.batches.BatchRule`.
        keep_coordinates: Whether the ``A x m`` coordinates of all arms are kept in memory.
        seed: Seed of all randomness.

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
        covar_module: Kernel | None = None,
        noise_var: float | None = None,
        refit: bool | None = None,
        half_life: float | None = None,
        dictionary: DictionaryRule | None = None,
        oversampling: float | str | None = None,
        coupled: bool = True,
        horizon: int | None = None,
        max_dictionary: int | None = None,
        width: str | float | Width | None = None,
        norm_bound: float | str | None = None,
        noise_bound: float | None = None,
        delta: float = 0.1,
        accuracy: float = 0.5,
        batch_rule: str | BatchRule = "one",
        keep_coordinates: bool = True,
        seed: int | None = None,
    ) -> None:
        domain = Tree(
            bounds,
            num_children=num_children,
            max_depth=max_depth,
            radius=radius,
            keep_coordinates=keep_coordinates,
        )
        super().__init__(
            domain,
            model=Surrogate(covar_module, noise_var, refit, half_life),
            dictionary=as_dictionary(
                domain,
                dictionary,
                oversampling=oversampling,
                coupled=coupled,
                horizon=horizon,
                max_dictionary=max_dictionary,
            ),
            confidence=Confidence(width, delta, norm_bound, noise_bound, accuracy),
            batch=as_batch_rule(batch_rule),
            acquisition=UCB(),
            seed=seed,
        )
