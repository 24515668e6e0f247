r"""``AdaBBKB``: a box cut into cells, in batches."""

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


class AdaBBKB(Optimizer):
    r"""Ada-BKB in batches: BBKB's rule inside the tree.

    Means are fixed within a batch, and variances fall with every pick as if it had been observed.
    Cells are split while picking, and pruned when a batch begins. The batch is complete when
    ``1 + sum tau > batch_threshold``.

    What is proved: by BBKB's Lemma 4 no variance falls by more than ``batch_threshold`` within a
    batch. So with ``width="theory"`` all indices are bounds at every pick, and :meth:`gap` holds as
    for :class:`AdaBKB`. The regret bound of the combination is not proved. With
    ``batch_threshold=1`` it is Ada-BKB.

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
        batch_threshold: ``C~``: the factor by which variances may fall before feedback is needed.
        max_batch_size: The largest number of points in a batch; 10,000 by default.
        keep_coordinates: Whether the ``A x m`` coordinates of all arms are kept in memory.
        seed: Seed of all randomness.

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
        batch_rule: str | BatchRule = "sum",
        batch_threshold: float = 2.0,
        max_batch_size: int | None = None,
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
            batch=as_batch_rule(batch_rule, batch_threshold, max_batch_size),
            acquisition=UCB(),
            seed=seed,
        )
