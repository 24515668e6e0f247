r"""The algorithms: named configurations of one optimizer."""

from __future__ import annotations

from typing import Any

from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.optimizers.compression import Compression
from botorch_bkb.optimizers.domains import Domain, Tree
from botorch_bkb.optimizers.domains.tree import Radius
from botorch_bkb.optimizers.optimizer import Optimizer
from botorch_bkb.partition import PartitionTree


class GPUCB(Optimizer):
    r"""GP-UCB with the exact posterior: ask one, tell one.

    A step costs ``O(A m)`` where ``m`` is the number of *distinct* arms pulled so far.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`.

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
        regret and experimental design. ICML 2010. Width ``"theory"``: Abbasi-Yadkori, 2012;
        Chowdhury, Gopalan, ICML 2017.
    """

    exact = True
    theorem = "exact"


class MiniGPUCB(GPUCB):
    r"""mini-GP-UCB: the exact posterior, each choice held while little else could be learnt.

    A chosen arm is pulled ``B = max(1, floor((C^2 - 1) / tau))`` times before the next choice, so
    that few distinct arms are ever pulled and switching is rare. The rule composes with a sampled
    dictionary: ``BKB(arms, batch_rule="hold")``.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`.

    Example:
        >>> import torch
        >>> from botorch_bkb import MiniGPUCB
        >>> optimizer = MiniGPUCB(torch.rand(50, 2, dtype=torch.float64), seed=0)
        >>> optimizer.ask().indices.unique().numel()
        1

    Reference:
        Calandriello et al.: Scaling Gaussian process optimization by evaluating a few unique
        candidates multiple times. ICML 2022.
    """

    default_batch_rule = "hold"


class GPBUCB(GPUCB):
    r"""GP-BUCB: the exact posterior, batches closed by ``prod (1 + tau) > C``.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`.

    Example:
        >>> import torch
        >>> from botorch_bkb import GPBUCB
        >>> arms = torch.rand(50, 2, dtype=torch.float64)
        >>> len(GPBUCB(arms, batch_threshold=1e9, seed=0).ask()) > 1
        True

    Reference:
        Desautels, Krause, Burdick: Parallelizing exploration-exploitation tradeoffs in Gaussian
        process bandit optimization. JMLR 2014. The width differs from the paper's: the
        self-normalised bound times ``sqrt(C)``, which holds for the same reason.
    """

    default_batch_rule = "product"


class BKB(Optimizer):
    r"""BKB: ask one, tell one, draw a new dictionary by posterior variance.

    A step costs ``O(A m)`` for each point that joins or leaves the dictionary, whatever the number
    of observations; ``m`` is of the order of the effective dimension.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = BKB(arms, seed=0)
        >>> for _ in range(20):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> len(optimizer.dictionary) <= 20
        True

    Reference:
        Calandriello, Carratino, Lazaric, Valko, Rosasco: Gaussian process optimization with
        adaptive sketching: scalable and no regret. COLT 2019. (Algorithm 1; Theorem 2.)
    """


class BBKB(Optimizer):
    r"""BBKB: batches as long as little is learnt, and one new dictionary a batch.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`.

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

    default_batch_rule = "sum"
    theorem = "bbkb"


class EpsilonGreedy(BBKB):
    r"""The arm of highest posterior mean or, with probability ``epsilon``, any arm: a baseline.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`; ``epsilon`` is 0.1 by default.

    Example:
        >>> import torch
        >>> from botorch_bkb import EpsilonGreedy
        >>> optimizer = EpsilonGreedy(torch.eye(5, dtype=torch.float64), epsilon=0.0, seed=0)
        >>> optimizer.tell([1, 3], [0.0, 1.0])
        >>> int(optimizer.ask(1).indices)
        3
    """

    default_acquisition = "greedy"


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
        Gaussian process bandits via information thresholding. 2022. (Algorithm 1.)
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
        Bedi et al., 2022. (Algorithm 1 with eq. 2.6; Theorem 3.4.)
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
        Bedi et al., 2022. (Section 4.)
    """

    default_acquisition = "mpi"


class AdaBKB(BKB):
    r"""Ada-BKB: BKB over a box that is cut into ever smaller cells where that is worthwhile.

    The index of a cell bounds the function over all of it:

    .. code-block:: text

        I(cell) = min( u(x), u(x_parent) + V(parent) ) + V(cell),     u(x) = mean(x) + width sd(x)

    with ``x`` the cell's centre and ``V = norm_bound * radius`` how much a function of norm
    ``norm_bound`` varies within it. The cell of highest index is split if ``width sd(x) <= V`` and
    evaluated at its centre otherwise. An evaluation costs ``O(cells m)``, splitting a cell
    ``O(num_children m^2)``, and no acquisition function is maximised.

    What is proved: with ``width="theory"``, ``oversampling="theory"``, ``coupled=False``, given
    kernel and noise and ``norm_bound`` a bound on the norm, all indices are bounds with
    probability ``1 - delta``, the regret is sublinear, and :meth:`gap` bounds the regret of
    :meth:`best`. With the kernel's own radius this holds for every function of that norm; the
    radius shrinks slowly in many dimensions, since a split shortens one side only. The paper's
    ``(v1, rho)`` shrinks as fast as you say and is valid if you are right.

    Args:
        bounds: A ``2 x d`` tensor.
        num_children: ``N``, into how many a cell is split; with an odd number the cell in the
            middle keeps its parent's centre.
        max_depth: Cells of this depth are not split; by default ``8 d``.
        radius: ``"kernel"`` (``d_k`` from the centre to the farthest corner), ``(v1, rho)`` for
            the paper's ``g(v1 rho^h)``, or a function of the tree.
        kwargs: See :class:`~botorch_bkb.optimizers.Optimizer`. Kernels must be stationary.

    Example:
        >>> import torch
        >>> from botorch_bkb import AdaBKB
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> optimizer = AdaBKB(bounds=bounds, seed=0)
        >>> for _ in range(25):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> abs(optimizer.best().X.item() - 0.3) < 0.05
        True

    Reference:
        Rando, Carratino, Villa, Rosasco: Ada-BKB: scalable Gaussian process optimization on
        continuous domains by adaptive discretization. AISTATS 2022.
    """

    def __init__(
        self,
        *,
        bounds: Tensor,
        num_children: int = 3,
        max_depth: int | None = None,
        radius: str | tuple[float, float] | Radius = "kernel",
        **kwargs: Any,
    ) -> None:
        self._partition = (num_children, max_depth, radius)
        super().__init__(bounds=bounds, **kwargs)

    def _make_domain(
        self, arms: Tensor | None, bounds: Tensor | None, box: dict[str, Any]
    ) -> Domain:
        if bounds is None or any(value is not None for value in (arms, *box.values())):
            raise InputDataError(
                f"{type(self).__name__} takes bounds, without arms, num_initial, discrete_dims or "
                "acquisition_options: it maximises nothing but its indices."
            )
        return Tree(bounds, *self._partition)

    @property
    def tree(self) -> PartitionTree:
        r"""The cells."""
        assert isinstance(self.domain, Tree)
        return self.domain.tree(self._state)[0]


class AdaBBKB(AdaBKB):
    r"""Ada-BKB in batches: BBKB's rule inside the tree.

    Means are fixed within a batch and variances fall with every pick, as if it had been observed;
    cells are split while picking. The batch is complete when ``1 + sum tau > batch_threshold``.

    What is proved: by BBKB's Lemma 4 no variance falls by more than ``batch_threshold`` within a
    batch, so with BBKB's width (``width="theory"``) all indices are bounds at every pick, and
    :meth:`gap` holds as for :class:`AdaBKB`. The regret bound of the combination is not proved.
    With ``batch_threshold=1`` it is Ada-BKB with BBKB's width.

    Args:
        bounds: A ``2 x d`` tensor.
        kwargs: See :class:`AdaBKB`.

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
    """

    default_batch_rule = "sum"
    theorem = "bbkb"
