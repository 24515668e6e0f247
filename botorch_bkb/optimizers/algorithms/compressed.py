r"""Compressed GP bandits: what teaches nothing is not believed, and need not be paid for."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from botorch_bkb.optimizers.compression import Compression
from botorch_bkb.optimizers.optimizer import Optimizer


class CompressedUCB(Optimizer):
    r"""Compressed GP-UCB: the exact posterior of those results that taught something.

    A result enters the belief if, when it came, its entropy exceeded that of noise by ``epsilon``
    nats. The belief stops growing by itself; a candidate that would teach less is known before it
    is paid for:

    .. code-block:: text

        1/2 log(lambda + var(x)) > 1/2 log(lambda) + epsilon   <=>   tau(x) > e^{2 epsilon} - 1

    What is proved, for given kernel and noise and a function drawn from the prior: with
    ``width="theory"`` and ``epsilon`` from :func:`~botorch_bkb.epsilon_for_horizon` regret and
    model order are both sublinear; with constant epsilon the model order is bounded for all times
    (Theorems 3.1 and 3.2). The paper's regret counts a skipped candidate as played.

    Args:
        arms: An ``A x d`` tensor.
        epsilon: The threshold in nats.
        discard: Whether results below it are left out of the belief, as in the paper. With False
            they inform it through the points kept (DTC).
        on_uninformative: What becomes of a candidate below it: ``"skip"`` (the paper: it counts
            as a step and no result is expected; ``suggestion.informative`` marks it),
            ``"evaluate"``, or ``"stop"`` (:class:`~botorch_bkb.ConvergedError`).
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`; ``bounds`` in place of ``arms``
            for a box.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import CompressedUCB
        >>> arms = torch.linspace(0, 10, 200, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = CompressedUCB(
        ...     arms, covar_module=RBFKernel(), noise_var=0.01, width="theory", epsilon=0.1, seed=0
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

    exact = True
    theorem = "compressed"

    def __init__(
        self,
        arms: Tensor | None = None,
        *,
        epsilon: float = 1e-4,
        discard: bool = True,
        on_uninformative: str = "skip",
        **kwargs: Any,
    ) -> None:
        compression = Compression(epsilon, discard, on_uninformative)
        super().__init__(arms, compression=compression, **kwargs)


class CompressedEI(CompressedUCB):
    r"""Compressed GP-EI: expected improvement over the best result in the belief.

    By BoTorch's logarithm of it, which has gradients where the improvement itself is zero.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: See :class:`CompressedUCB`.

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

    default_acquisition = "ei"


class CompressedMPI(CompressedUCB):
    r"""Compressed GP with "most probable improvement": improvement over the highest mean.

    The paper's formula is that of expected improvement with the highest posterior mean in the
    place of the best result. ``acquisition="pi"`` is the plain probability of improving on the
    best result. No regret bound is claimed for either.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: See :class:`CompressedUCB`.

    Example:
        >>> import torch
        >>> from botorch_bkb import CompressedMPI
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = CompressedMPI(arms, acquisition="pi", seed=0)
        >>> optimizer.tell([3, 40], [0.0, 1.0])
        >>> len(optimizer.ask())
        1

    Reference:
        Bedi et al., 2020. (Section 4.)
    """

    default_acquisition = "mpi"
