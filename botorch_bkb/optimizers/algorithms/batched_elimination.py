r"""``BatchedElimination``: pure exploration in a few fixed batches, and elimination after each."""

from __future__ import annotations

from collections.abc import Sequence

from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel, MaternKernel
from torch import Tensor

from botorch_bkb.acquisition import PureExploration
from botorch_bkb.batches import Elimination, equal_sizes, growing_sizes
from botorch_bkb.confidence import Confidence, Width
from botorch_bkb.dictionaries import AllPoints
from botorch_bkb.domains import Arms
from botorch_bkb.models import Surrogate
from botorch_bkb.optimizers.optimizer import Optimizer
from botorch_bkb.validation import check_positive_integer

#: The number of equal batches where the user gives none.
NUM_BATCHES = 3


class BatchedElimination(Optimizer):
    r"""Elimination in a few fixed batches, for results that can be collected only a few times.

    Every batch is pure exploration among the arms that are left: each pick is the arm of highest
    variance, given the earlier picks of the batch. Then arms are eliminated whose upper bound is
    below the best lower bound. Bounds are by the results of one batch alone,

    .. code-block:: text

        mean_i(x) +- sqrt( F^2 + 2 (xi^2 / lambda) log(2 A_i B / delta) ) sd_i(x)

    for ``A_i`` arms before batch ``i`` of ``B``. They need no information gain, because points of
    a batch do not depend on its noise. :meth:`ask` gives a whole batch. :attr:`survivors` are the
    arms that are left. :meth:`best` takes the survivor of highest mean given the results of *all*
    batches, and ``best(by="lower")`` that of highest lower bound. Their intervals and :meth:`gap`
    are by the best bounds of all batches.

    What is proved: with probability ``1 - delta`` all bounds hold, and the best arm is never
    eliminated. No arm is then better than the recommended one by more than the highest upper bound
    of a survivor minus ``best().lower``; for ``best(by="lower")`` this is :meth:`gap`. This needs
    given kernel and noise, ``width="theory"``, ``norm_bound`` a bound on the norm of the function,
    ``noise_bound`` the sub-Gaussian constant of the noise, and results that are lost independently
    of their values. With ``batch_sizes="growing"`` and ``distinct=False`` the regret is of the
    order ``sqrt(T gamma_T)`` in ``O(log log T)`` batches, up to logarithms.
    Everything else is heuristic: with fitted hyperparameters the bounds have two standard
    deviations.

    Unsolicited results inform fits and recommendations, but no bounds.

    Args:
        arms: An ``A x d`` tensor of candidates. Its dtype and device are used throughout.
        budget: ``T``, the number of evaluations in all batches.
        num_batches: ``B``. By default 3 equal batches, or as many growing ones as are needed.
        batch_sizes: ``"equal"``, ``"growing"`` (:func:`~botorch_bkb.batches.growing_sizes`), or a
            list of sizes, in place of the two arguments above.
        distinct: Whether the points of a batch are distinct, as far as there are enough arms.
            Otherwise a point is repeated where that teaches most.
        covar_module: A gpytorch kernel, or None for BoTorch's default, fitted.
        noise_var: Noise variance of a reward, or None to have it fitted.
        refit: Whether hyperparameters are fitted. By default those that are not given are.
        width: Width of the bounds: ``"heuristic"``, ``"information"``, ``"theory"``, a number of
            posterior standard deviations, or a function
            (:class:`~botorch_bkb.confidence.Confidence`). By default ``"theory"`` where kernel,
            noise and ``norm_bound`` are given, and heuristic otherwise.
        norm_bound: Bound ``F`` on the norm of the function, or ``"double"`` to learn it.
        noise_bound: Bound on the noise standard deviation; ``sqrt(noise_var)`` by default.
        delta: Failure probability of the bounds.
        keep_coordinates: Whether the ``A x m`` coordinates of all arms are kept in memory.
        seed: Seed of all randomness.

    Example:
        >>> import torch
        >>> from botorch_bkb import BatchedElimination
        >>> arms = torch.linspace(0, 1, 500, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = BatchedElimination(arms, budget=60, num_batches=3, seed=0)
        >>> for _ in range(3):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> abs(optimizer.best().X.item() - 0.3) < 0.01, len(optimizer.survivors) < 100
        (True, True)

    Reference:
        Li, Scarlett: Gaussian process bandit optimization with few batches. AISTATS 2022. Bounds:
        Vakili et al., NeurIPS 2021, Theorem 1, with a smaller constant
        (:func:`botorch_bkb.confidence.non_adaptive`). The paper eliminates by the bounds of the
        last batch only; here the best bounds of all batches count, which hold together.
    """

    def __init__(
        self,
        arms: Tensor,
        *,
        budget: int | None = None,
        num_batches: int | None = None,
        batch_sizes: str | Sequence[int] = "equal",
        distinct: bool = True,
        covar_module: Kernel | None = None,
        noise_var: float | None = None,
        refit: bool | None = None,
        width: str | float | Width | None = None,
        norm_bound: float | str | None = None,
        noise_bound: float | None = None,
        delta: float = 0.1,
        keep_coordinates: bool = True,
        seed: int | None = None,
    ) -> None:
        domain = Arms(arms, keep_coordinates=keep_coordinates)
        model = Surrogate(covar_module, noise_var, refit)
        if width is None and not model.fits and norm_bound is not None:
            width = "theory"
        rate = standard_deviation_rate(covar_module, domain.dim)
        super().__init__(
            domain,
            model=model,
            dictionary=AllPoints(),
            confidence=Confidence(width, delta, norm_bound, noise_bound),
            batch=Elimination(sizes_of(batch_sizes, budget, num_batches, rate), distinct=distinct),
            acquisition=PureExploration(),
            seed=seed,
        )


def sizes_of(
    batch_sizes: str | Sequence[int], budget: int | None, num_batches: int | None, rate: float
) -> tuple[int, ...]:
    r"""Return the sizes of batches that a user meant.

    Args:
        batch_sizes: ``"equal"``, ``"growing"`` or the sizes.
        budget: The number of evaluations.
        num_batches: The number of batches.
        rate: The rate at which posterior standard deviations fall.
    """
    check_positive_integer("budget", budget)
    check_positive_integer("num_batches", num_batches)
    if not isinstance(batch_sizes, str):
        if budget is not None or num_batches is not None:
            raise InputDataError(
                f"budget and num_batches have no effect beside batch_sizes={batch_sizes!r}: leave "
                "them out."
            )
        return Elimination(batch_sizes).sizes  # type: ignore[arg-type]  # checked there
    if batch_sizes not in ("equal", "growing"):
        raise InputDataError(
            'batch_sizes must be "equal", "growing" or a list of positive integers, got '
            f"{batch_sizes!r}."
        )
    if budget is None:
        raise InputDataError(
            "budget must be given, got None: pass the number of evaluations in all batches, as in "
            "BatchedElimination(arms, budget=288, num_batches=3), or batch_sizes=(96, 96, 96)."
        )
    if batch_sizes == "equal":
        return equal_sizes(budget, num_batches or NUM_BATCHES)
    return growing_sizes(budget, num_batches, rate)


def standard_deviation_rate(kernel: Kernel | None, dim: int) -> float:
    r"""Return the rate at which the largest standard deviation of a kernel falls.

    Args:
        kernel: The kernel; a Matern kernel may be scaled. All others count as smooth.
        dim: The number of dimensions.
    """
    kernel = getattr(kernel, "base_kernel", kernel)
    if not isinstance(kernel, MaternKernel):
        return 0.5
    return kernel.nu / (2 * kernel.nu + dim)
