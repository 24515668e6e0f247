r"""``CompressedUCB``: results that teach nothing are not believed, and need not be paid for."""

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


class CompressedUCB(Optimizer):
    r"""Compressed GP-UCB: the exact posterior of those results that taught something.

    A result enters the belief if its entropy exceeded that of noise by ``epsilon`` nats when it
    came. The belief stops growing by itself. A candidate that would teach less is known before it
    is paid for:

    .. code-block:: text

        1/2 log(lambda + var(x)) > 1/2 log(lambda) + epsilon   <=>   tau(x) > e^{2 epsilon} - 1

    What is proved, for given kernel and noise and a function drawn from the prior: with
    ``width="paper"`` and ``epsilon`` from :func:`~botorch_bkb.epsilon_for_horizon` regret and
    model order are both sublinear. With a constant epsilon the model order is bounded for all times
    (Theorems 3.1 and 3.2). The paper's regret counts a skipped candidate as played.

    With ``width="theory"`` and ``norm_bound`` all bounds hold for every function of that norm: what
    is kept depends on variances alone, so that the belief is an exact posterior of points chosen
    without their rewards (:func:`botorch_bkb.confidence.anytime_exact`). Without ``norm_bound``
    ``"theory"`` is ``"paper"``, with a warning.

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
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import CompressedUCB
        >>> arms = torch.linspace(0, 10, 200, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = CompressedUCB(
        ...     arms, covar_module=RBFKernel(), noise_var=0.01, width="paper", epsilon=0.1, seed=0
        ... )
        >>> while optimizer.num_steps < 100:
        ...     suggestion = optimizer.ask()
        ...     to_do = suggestion[suggestion.informative]
        ...     optimizer.tell(to_do, torch.sin(to_do.X))
        >>> optimizer.model_order < 100, abs(optimizer.best().mean - 1) < 0.05
        (True, True)

    Reference:
        Bedi, Peddireddy, Aggarwal, Sadler, Koppel: Regret and belief complexity trade-off in
        Gaussian process bandits via information thresholding. 2020. (Algorithm 1.)
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
            dictionary=InformationThreshold(
                epsilon, max_dictionary, discard=discard, on_uninformative=on_uninformative
            ),
            confidence=Confidence(width, delta, norm_bound, noise_bound),
            batch=as_batch_rule(batch_rule),
            acquisition=acquisition,
            seed=seed,
        )
