r"""``AdaGPUCB``: a box cut into cells, with the exact posterior."""

from __future__ import annotations

from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.acquisition import UCB
from botorch_bkb.batches import BatchRule
from botorch_bkb.batches.rules import as_batch_rule
from botorch_bkb.confidence import Confidence, Width
from botorch_bkb.dictionaries import AllPoints
from botorch_bkb.domains import Tree
from botorch_bkb.domains.tree import Radius
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.optimizer import Optimizer


class AdaGPUCB(Optimizer):
    r"""AdaGP-UCB: GP-UCB over a box that is cut into cells, with the exact posterior.

    Cells, their indices and the rules by which they are split and pruned are those of
    :class:`AdaBKB`. The posterior is the one of all results, so that nothing is random in it. An
    evaluation costs ``O(cells m)`` where ``m`` is the number of *distinct* points observed,
    splitting a cell ``O(num_children m^2)``. Up to a few hundred distinct points this is no more
    expensive than :class:`AdaBKB`, and it is what Ada-BKB approximates.

    What is proved: with ``width="theory"``, given kernel and noise and ``norm_bound`` a bound on
    the norm, all indices are bounds with probability ``1 - delta``, and :meth:`gap` bounds the
    regret of ``best(by="lower")``. A dictionary of all points is exact, so that Ada-BKB's regret
    bound covers it. Radius and depth limit are as for :class:`AdaBKB`.

    Args:
        bounds: A ``2 x d`` tensor, the corners of the box.
        num_children: ``N``, the number of cells into which a cell is split.
        max_depth: ``h_max``: cells of this depth are not split; ``8 d`` by default.
        radius: How far a function of norm one varies within a cell: ``"kernel"``, ``(v1, rho)``, or
            a function (:class:`~botorch_bkb.domains.Tree`).
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward, or None to have it fitted.
        refit: Whether hyperparameters are fitted. By default those that are not given are.
        max_dictionary: The largest dictionary. It is thinned at random, with a warning.
        width: Width of the bounds: ``"heuristic"``, ``"information"``, ``"theory"``, ``"paper"``, a
            number of posterior standard deviations, or a function
            (:class:`~botorch_bkb.confidence.Confidence`).
        norm_bound: Bound ``F`` on the norm of the function, or ``"double"`` to learn it.
        noise_bound: Bound on the noise standard deviation; ``sqrt(noise_var)`` by default.
        delta: Failure probability of the bounds.
        batch_rule: ``"one"``, ``"sum"``, ``"local"``, ``"product"``, ``"hold"``, or a
            :class:`~botorch_bkb.batches.BatchRule`.
        keep_coordinates: Whether the ``A x m`` coordinates of all arms are kept in memory.
        seed: Seed of all randomness, which is that of fits: picks are not random.

    Example:
        >>> import torch
        >>> from botorch_bkb import AdaGPUCB
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> optimizer = AdaGPUCB(bounds=bounds, seed=0)
        >>> for _ in range(25):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> abs(optimizer.best().X.item() - 0.3) < 0.05
        True

    Reference:
        Shekhar, Javidi: Gaussian process bandits with adaptive discretization. Electronic Journal
        of Statistics, 2018. (Adaptive cells with the exact posterior.) The index is that of Rando
        et al., AISTATS 2022 (Ada-BKB), who compare with it under this name. Width ``"theory"``:
        Flynn, Reeb, 2024.
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
        max_dictionary: int | None = None,
        width: str | float | Width | None = None,
        norm_bound: float | str | None = None,
        noise_bound: float | None = None,
        delta: float = 0.1,
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
            model=Surrogate(covar_module, noise_var, refit),
            dictionary=AllPoints(max_dictionary),
            confidence=Confidence(width, delta, norm_bound, noise_bound),
            batch=as_batch_rule(batch_rule),
            acquisition=UCB(),
            seed=seed,
        )
