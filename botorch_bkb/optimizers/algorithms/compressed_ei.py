r"""``CompressedEI``: expected improvement on a compressed belief."""

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
from botorch_bkb.dictionaries import InformationThreshold
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.algorithms.flat import as_domain
from botorch_bkb.optimizers.optimizer import Optimizer


class CompressedEI(Optimizer):
    r"""Compressed GP-EI: expected improvement over the best result in the belief.

    BoTorch's logarithm of it is maximised, which has gradients where the improvement is zero.

    Args:
        arms: An ``A x d`` tensor of candidates. Its dtype and device are used throughout.
        bounds: A ``2 x d`` tensor, the corners of a box, in place of ``arms``.
        epsilon: The information threshold in nats.
        discard: Whether results below it are left out of the belief, as in the paper. With False
            they inform it through the kept points (DTC).
        on_uninformative: What happens to a candidate below it: ``"skip"`` (the paper: it counts as
            a step and no result is expected; ``suggestion.informative`` marks it), ``"evaluate"``,
            or ``"stop"`` (:class:`~botorch_bkb.ConvergedError`).
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward, or None to have it fitted.
        refit: Whether hyperparameters are fitted. By default those that are not given are.
        max_dictionary: The largest dictionary, with a warning where it binds. Over arms the highest
            scores are kept, over a box a random part.
        width: Width of the bounds: ``"heuristic"``, ``"information"``, ``"theory"``, ``"paper"``, a
            number of posterior standard deviations, or a function
            (:class:`~botorch_bkb.confidence.Confidence`).
        norm_bound: Bound ``F`` on the norm of the function, or ``"double"`` to learn it. Not with
            ``width="paper"``, whose draws from the prior have no norm.
        noise_bound: Bound on the noise standard deviation; ``sqrt(noise_var)`` by default.
        delta: Failure probability of the bounds.
        batch_rule: ``"one"``, ``"sum"``, ``"local"``, ``"product"``, ``"hold"``, or a
            :class:`~botorch_bkb.batches.BatchRule`.
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
        >>> from botorch_bkb import CompressedEI
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = CompressedEI(arms, seed=0)
        >>> for _ in range(20):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> abs(optimizer.best().X.item() - 0.3) < 0.05
        True

    Reference:
        Bedi et al., 2020. (Algorithm 1 with eq. 2.6; Theorem 3.4.)
    """

    def __init__(
        self,
        arms: Tensor | None = None,
        *,
        bounds: Tensor | None = None,
        epsilon: float = 1e-4,
        discard: bool = True,
        on_uninformative: str = "skip",
        covar_module: Kernel | None = None,
        noise_var: float | None = None,
        refit: bool | None = None,
        max_dictionary: int | None = None,
        width: str | float | Width | None = None,
        norm_bound: float | str | None = None,
        noise_bound: float | None = None,
        delta: float = 0.1,
        batch_rule: str | BatchRule = "one",
        acquisition: str | Acquisition | Factory = "ei",
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
            dictionary=InformationThreshold(
                epsilon, max_dictionary, discard=discard, on_uninformative=on_uninformative
            ),
            confidence=Confidence(width, delta, norm_bound, noise_bound),
            batch=as_batch_rule(batch_rule),
            acquisition=acquisition,
            seed=seed,
        )
