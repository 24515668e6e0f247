r"""``MiniGPUCB``: the exact posterior, with each choice held."""

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
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.algorithms.flat import as_domain
from botorch_bkb.optimizers.optimizer import Optimizer


class MiniGPUCB(Optimizer):
    r"""mini-GP-UCB: the exact posterior, with each choice held while little else could be learnt.

    A chosen arm is pulled ``B = max(1, floor((C^2 - 1) / tau))`` times before the next choice. So
    few distinct arms are ever pulled, and switching is rare. The rule composes with a sampled
    dictionary: ``BKB(arms, batch_rule="hold")``. Rewards are maximised.

    Args:
        arms: An ``A x d`` tensor of candidates. Its dtype and device are used throughout.
        bounds: A ``2 x d`` tensor, the corners of a box, in place of ``arms``.
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward, or None to have it fitted.
        refit: Whether hyperparameters are fitted. By default those that are not given are.
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
        batch_threshold: ``C``: a choice is held while standard deviations fall by no more than
            this.
        max_batch_size: The largest number of points in a batch; 10,000 by default.
        acquisition: ``"ucb"``, ``"ei"``, ``"mpi"``, ``"pi"``, ``"thompson"``, ``"greedy"``,
            ``"explore"``, a function that makes a BoTorch acquisition function of a model, over a
            box also a class of BoTorch's, or an :class:`~botorch_bkb.acquisition.Acquisition`.
        num_initial: Size of the initial design, ``2 d + 2`` by default, but at most 30. Over arms
            there is one by default only where hyperparameters are fitted.
        discrete_dims: Coordinates of a box that take only some values, ``{i: values}``.
        acquisition_options: Arguments of BoTorch's ``optimize_acqf`` over a box, constraints and
            fixed features included (:class:`~botorch_bkb.domains.Box`).
        keep_coordinates: Whether the ``A x m`` coordinates of all arms are kept in memory.
        seed: Seed of all randomness.

    Example:
        >>> import torch
        >>> from botorch_bkb import MiniGPUCB
        >>> optimizer = MiniGPUCB(torch.rand(50, 2, dtype=torch.float64), num_initial=1, seed=0)
        >>> optimizer.ask().indices.unique().numel()
        1

    Reference:
        Calandriello et al.: Scaling Gaussian process optimization by evaluating a few unique
        candidates multiple times. ICML 2022.
    """

    def __init__(
        self,
        arms: Tensor | None = None,
        *,
        bounds: Tensor | None = None,
        covar_module: Kernel | None = None,
        noise_var: float | None = None,
        refit: bool | None = None,
        max_dictionary: int | None = None,
        width: str | float | Width | None = None,
        norm_bound: float | str | None = None,
        noise_bound: float | None = None,
        delta: float = 0.1,
        batch_rule: str | BatchRule = "hold",
        batch_threshold: float = 2.0,
        max_batch_size: int | None = None,
        acquisition: str | Acquisition | Factory = "ucb",
        num_initial: int | None = None,
        discrete_dims: Mapping[int, Sequence[float]] | None = None,
        acquisition_options: Mapping[str, Any] | None = None,
        keep_coordinates: bool = True,
        seed: int | None = None,
    ) -> None:
        domain = as_domain(
            arms,
            bounds,
            num_initial=num_initial,
            discrete_dims=discrete_dims,
            acquisition_options=acquisition_options,
            keep_coordinates=keep_coordinates,
        )
        super().__init__(
            domain,
            model=Surrogate(covar_module, noise_var, refit),
            dictionary=AllPoints(max_dictionary),
            confidence=Confidence(width, delta, norm_bound, noise_bound),
            batch=as_batch_rule(batch_rule, batch_threshold, max_batch_size),
            acquisition=acquisition,
            seed=seed,
        )
