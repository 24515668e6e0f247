r"""``GPBUCB``: the exact posterior, in batches."""

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


class GPBUCB(Optimizer):
    r"""GP-BUCB: the exact posterior, with batches that are complete when ``prod (1 + tau) > C``.

    Rewards are maximised.

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
        batch_threshold: ``C~``: the factor by which variances may fall before feedback is needed.
        max_batch_size: The largest number of points in a batch that the rule decides; by default
            10,000 over arms and 200 over a box, where each point is searched for.
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
        >>> from botorch_bkb import GPBUCB
        >>> arms = torch.rand(50, 2, dtype=torch.float64)
        >>> len(GPBUCB(arms, batch_threshold=1e9, seed=0).ask()) > 1
        True

    Reference:
        Desautels, Krause, Burdick: Parallelizing exploration-exploitation tradeoffs in Gaussian
        process bandit optimization. JMLR 2014. The widths differ from the paper's: the
        bounds of the exact posterior times ``sqrt(C)``, which hold for the same reason.
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
        batch_rule: str | BatchRule = "product",
        batch_threshold: float = 2.0,
        max_batch_size: int | None = None,
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
            batch=as_batch_rule(
                batch_rule, batch_threshold, max_batch_size, domain.default_max_batch_size
            ),
            acquisition=acquisition,
            seed=seed,
        )
