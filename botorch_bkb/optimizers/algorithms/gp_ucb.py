r"""``GPUCB``: the exact posterior, one point at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.acquisition import Acquisition
from botorch_bkb.acquisition.acquisitions import Factory
from botorch_bkb.batches import BatchRule
from botorch_bkb.batches.rules import as_batch_rule
from botorch_bkb.confidence import Confidence, Width
from botorch_bkb.dictionaries import AllPoints
from botorch_bkb.domains import TrustRegion
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.algorithms.flat import as_domain
from botorch_bkb.optimizers.optimizer import Optimizer


class GPUCB(Optimizer):
    r"""GP-UCB: the exact posterior, one point at a time.

    A step costs ``O(A m)`` where ``m`` is the number of *distinct* arms pulled so far. Rewards are
    maximised.

    Args:
        arms: An ``A x d`` tensor of candidates. Its dtype and device are used throughout.
        bounds: A ``2 x d`` tensor, the corners of a box, in place of ``arms``.
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward, or None to have it fitted.
        refit: Whether hyperparameters are fitted. By default those that are not given are.
        half_life: The number of observations after which a result counts half, where rewards
            drift (:class:`~botorch_bkb.models.Surrogate`). None forgets nothing.
        max_dictionary: The largest dictionary, with a warning where it binds. Over arms the highest
            scores are kept, over a box a random part.
        width: Width of the bounds: ``"heuristic"``, ``"information"``, ``"theory"``, ``"paper"``, a
            number of posterior standard deviations, or a function
            (:class:`~botorch_bkb.confidence.Confidence`).
        norm_bound: Bound ``F`` on the norm of the function, or ``"double"`` to learn it.
        noise_bound: Bound on the noise standard deviation; ``sqrt(noise_var)`` by default.
        delta: Failure probability of the bounds.
        batch_rule: ``"one"``, ``"sum"``, ``"local"``, ``"product"``, ``"hold"``, or a
            :class:`~botorch_bkb.batches.BatchRule`.
        acquisition: ``"ucb"``, ``"ei"``, ``"mpi"``, ``"nei"``, ``"pi"``, ``"thompson"``,
            ``"greedy"``, ``"explore"``, a function that makes a BoTorch acquisition function of a
            model, over a box also a class of BoTorch's, or an
            :class:`~botorch_bkb.acquisition.Acquisition`. By default upper bounds; over a box with
            the heuristic width, wide and narrow ones in turn
            (:class:`~botorch_bkb.acquisition.InTurn`).
        max_replicates: How often an arm may be evaluated in all; None for any number.
        num_initial: Size of the initial design, ``2 d + 2`` by default, but at most 30. Over arms
            there is one by default only where hyperparameters are fitted.
        discrete_dims: Coordinates of a box that take only some values, ``{i: values}``.
        acquisition_options: Arguments of BoTorch's ``optimize_acqf`` over a box, constraints and
            fixed features included (:class:`~botorch_bkb.domains.Box`).
        trust_region: How the search of a box is confined to regions around good points
            (:class:`~botorch_bkb.domains.TrustRegion`). None searches the whole box.
        keep_coordinates: Whether the ``A x m`` coordinates of all arms are kept in memory.
        seed: Seed of all randomness.

    Example:
        >>> import torch
        >>> from botorch_bkb import GPUCB
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = GPUCB(arms, seed=0)
        >>> for _ in range(20):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> abs(optimizer.best().X.item() - 0.3) < 0.05
        True

    Reference:
        Srinivas, Krause, Kakade, Seeger: Gaussian process optimization in the bandit setting: no
        regret and experimental design. ICML 2010. Width ``"theory"``: Flynn, Reeb,
        2024; ``"paper"``: Abbasi-Yadkori, 2012, and Chowdhury, Gopalan, ICML 2017.
    """

    def __init__(
        self,
        arms: Tensor | None = None,
        *,
        bounds: Tensor | None = None,
        covar_module: Kernel | None = None,
        noise_var: float | None = None,
        refit: bool | None = None,
        half_life: float | None = None,
        max_dictionary: int | None = None,
        width: str | float | Width | None = None,
        norm_bound: float | str | None = None,
        noise_bound: float | None = None,
        delta: float = 0.1,
        batch_rule: str | BatchRule = "one",
        acquisition: str | Acquisition | Factory | None = None,
        max_replicates: int | None = None,
        num_initial: int | None = None,
        discrete_dims: Mapping[int, Sequence[float]] | None = None,
        acquisition_options: Mapping[str, Any] | None = None,
        trust_region: TrustRegion | None = None,
        keep_coordinates: bool = True,
        seed: int | None = None,
    ) -> None:
        domain = as_domain(
            arms,
            bounds,
            max_replicates=max_replicates,
            num_initial=num_initial,
            discrete_dims=discrete_dims,
            acquisition_options=acquisition_options,
            trust_region=trust_region,
            keep_coordinates=keep_coordinates,
        )
        super().__init__(
            domain,
            model=Surrogate(covar_module, noise_var, refit, half_life),
            dictionary=AllPoints(max_dictionary),
            confidence=Confidence(width, delta, norm_bound, noise_bound),
            batch=as_batch_rule(batch_rule),
            acquisition=acquisition,
            seed=seed,
        )
