r"""GP-UCB, BKB, their batches and a baseline: named configurations of one optimizer."""

from __future__ import annotations

from botorch_bkb.optimizers.optimizer import Optimizer


class GPUCB(Optimizer):
    r"""GP-UCB with the exact posterior: ask one, tell one.

    A step costs ``O(A m)`` where ``m`` is the number of *distinct* arms pulled so far.

    Args:
        arms: An ``A x d`` tensor.
        kwargs: ``bounds`` in place of ``arms``, ``covar_module``, ``noise_var``, ``seed`` and all
            else: see ``help(botorch_bkb.optimizers.Optimizer)``. Rewards are maximised.

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
        kwargs: ``bounds`` in place of ``arms``, ``covar_module``, ``noise_var``, ``seed`` and all
            else: see ``help(botorch_bkb.optimizers.Optimizer)``. Rewards are maximised.

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
        kwargs: ``bounds`` in place of ``arms``, ``covar_module``, ``noise_var``, ``seed`` and all
            else: see ``help(botorch_bkb.optimizers.Optimizer)``. Rewards are maximised.

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
        kwargs: ``bounds`` in place of ``arms``, ``covar_module``, ``noise_var``, ``seed`` and all
            else: see ``help(botorch_bkb.optimizers.Optimizer)``. Rewards are maximised.

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
        kwargs: ``bounds`` in place of ``arms``, ``covar_module``, ``noise_var``, ``seed`` and all
            else: see ``help(botorch_bkb.optimizers.Optimizer)``. Rewards are maximised.

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
        kwargs: As for :class:`BBKB`; ``epsilon`` is 0.1 by default.

    Example:
        >>> import torch
        >>> from botorch_bkb import EpsilonGreedy
        >>> optimizer = EpsilonGreedy(torch.eye(5, dtype=torch.float64), epsilon=0.0, seed=0)
        >>> optimizer.tell([1, 3], [0.0, 1.0])
        >>> int(optimizer.ask(1).indices)
        3

    Reference:
        The baseline of the experiments of Calandriello et al., ICML 2020 (BBKB). No theorem is
        claimed.
    """

    default_acquisition = "greedy"
