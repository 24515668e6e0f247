r"""``BBKB``: a sampled dictionary, in batches."""

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
from botorch_bkb.dictionaries import DictionaryRule
from botorch_bkb.domains import TrustRegion
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.algorithms.flat import as_dictionary, as_domain
from botorch_bkb.optimizers.optimizer import Optimizer


class BBKB(Optimizer):
    r"""BBKB: batches that grow as less is left to learn, and one new dictionary per batch.

    A batch is complete when the variance of some arm may have fallen by ``batch_threshold``. Means
    stay fixed within a batch, and variances fall with every pick as if it had been observed.
    Rewards are maximised.

    ``batch_rule="local"``, the default, bounds the fall of each variance by itself
    (:class:`~botorch_bkb.batches.LocalRule`), as the authors' code can. ``"sum"`` is the rule of
    the paper's Algorithm 1, ``1 + sum tau > batch_threshold``. Its batches are shorter. Only with
    this rule is the regret bound over arms proved.

    Args:
        arms: An ``A x d`` tensor of candidates. Its dtype and device are used throughout.
        bounds: A ``2 x d`` tensor, the corners of a box, in place of ``arms``.
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward, or None to have it fitted.
        refit: Whether hyperparameters are fitted. By default those that are not given are.
        half_life: The number of observations after which a result counts half, where rewards
            drift (:class:`~botorch_bkb.models.Surrogate`). None forgets nothing.
        dictionary: A dictionary rule, in place of the four arguments below.
        oversampling: ``q̄``: a pull enters the dictionary with probability ``min(1, q̄ tau)``; by
            default 8 over arms and 2 over a box. ``"theory"`` takes the theorem's value.
        coupled: Whether each pull keeps its coin from one draw of the dictionary to the next.
        horizon: Expected number of observations; doubled whenever a run outlasts it.
        max_dictionary: The largest dictionary, with a warning where it binds. Over arms there is no
            limit by default, and the highest scores are kept. Over a box it is 1,000 unless the
            oversampling is ``"theory"``, and a random part is kept.
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
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import BBKB
        >>> arms = torch.linspace(0, 10, 200, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = BBKB(arms, covar_module=RBFKernel(), noise_var=0.1, seed=0)
        >>> while optimizer.num_observations < 100:
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, torch.sin(suggestion.X))
        >>> abs(optimizer.best().mean - 1) < 0.1
        True

    Reference:
        Calandriello, Carratino, Lazaric, Valko, Rosasco: Near-linear time Gaussian process
        optimization with adaptive batching and resparsification. ICML 2020. (Algorithm 1;
        Theorem 2.)
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
        batch_rule: str | BatchRule = "local",
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
            dictionary=as_dictionary(
                domain,
                dictionary,
                oversampling=oversampling,
                coupled=coupled,
                horizon=horizon,
                max_dictionary=max_dictionary,
            ),
            confidence=Confidence(width, delta, norm_bound, noise_bound, accuracy),
            batch=as_batch_rule(
                batch_rule, batch_threshold, max_batch_size, domain.default_max_batch_size
            ),
            acquisition=acquisition,
            seed=seed,
        )
