r"""The acquisition part of an optimizer: what is maximised to pick the next point."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import (
    LogProbabilityOfImprovement,
    PosteriorMean,
    PosteriorStandardDeviation,
)
from botorch.exceptions.errors import InputDataError
from botorch.models.model import Model
from torch import Tensor

from botorch_bkb.acquisition.noisy import LogNoisyImprovement
from botorch_bkb.acquisition.scores import LogImprovement, UpperBound
from botorch_bkb.validation import check_between, check_positive_integer

Factory = Callable[[Model], AcquisitionFunction]


class AcquisitionContext(ABC):
    r"""What an acquisition function can be made of: the belief when a point is picked.

    Picks without a result are hallucinated: variances have fallen as if they had been observed.

    Attributes:
        width: The width of the confidence bounds, in posterior standard deviations.
        seed: The seed of the pick.
    """

    width: float
    seed: int

    @property
    @abstractmethod
    def marginals(self) -> Model:
        r"""A model of single points, in units of the prior standard deviation."""

    @property
    @abstractmethod
    def best_reward(self) -> float:
        r"""The best reward in the belief, in the units of :attr:`marginals`."""

    @property
    @abstractmethod
    def best_mean(self) -> float:
        r"""The highest posterior mean, in the units of :attr:`marginals`."""

    @property
    @abstractmethod
    def model(self) -> Any:
        r"""The model in units of the rewards. Over arms it knows single points only."""

    @property
    @abstractmethod
    def observed(self) -> Tensor:
        r"""The observed points of highest posterior mean, ``n x d`` (over a box)."""

    @abstractmethod
    def sample_path(self) -> Model:
        r"""Draw a function from the posterior, as a deterministic model (over a box)."""


class Acquisition(ABC):
    r"""An acquisition rule: it makes the function that is maximised to pick the next point.

    Example:
        A custom rule, which picks where the bound of half the usual width is highest:

        >>> import torch
        >>> from botorch_bkb.acquisition import Acquisition, BudgetedUCB
        >>> from botorch_bkb.domains import Arms
        >>> from botorch_bkb.optimizers import Optimizer
        >>> class Cautious(Acquisition):
        ...     def function(self, context):
        ...         return BudgetedUCB(context.marginals, context.width / 2)
        >>> arms = Arms(torch.eye(5, dtype=torch.float64), num_initial=1)
        >>> optimizer = Optimizer(arms, acquisition=Cautious(), seed=0)
        >>> optimizer.tell([1, 3], [0.0, 1.0])
        >>> int(optimizer.ask().indices)
        3
    """

    @abstractmethod
    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return the acquisition function for the next pick.

        Args:
            context: The belief.
        """

    @property
    def rules(self) -> tuple[Acquisition, ...]:
        r"""The rules that take turns; only this one by default."""
        return (self,)

    def turn(self, number: int) -> Acquisition:
        r"""Return the rule of a pick, after so many observations and picks of its batch."""
        return self.rules[number % len(self.rules)]

    def check_arms(self) -> None:
        r"""Raise where the rule cannot rank arms, of which only means and variances are known."""
        return


@dataclass(frozen=True)
class UCB(Acquisition):
    r"""Upper confidence bounds, ``mean + share width sd``.

    Args:
        share: The factor of the width for picks. Below one nothing is proved about the regret.

    Reference:
        Srinivas et al., ICML 2010. (GP-UCB.)
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        check_between("share", self.share, 0, math.inf, ends=True)

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return the bound of a share of the context's width."""
        return UpperBound(context.marginals, self.share * context.width)


@dataclass(frozen=True)
class EI(Acquisition):
    r"""Expected improvement over the best reward in the belief (BoTorch's logarithm of it)."""

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return its logarithm, with BoTorch's numerics."""
        return LogImprovement(context.marginals, best_f=context.best_reward)


@dataclass(frozen=True)
class MPI(Acquisition):
    r"""Expected improvement over the highest posterior mean.

    The compressed GP paper calls it most probable improvement.
    """

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return its logarithm, with BoTorch's numerics."""
        return LogImprovement(context.marginals, best_f=context.best_mean)


@dataclass(frozen=True)
class PI(Acquisition):
    r"""Probability of improving on the best reward in the belief."""

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return BoTorch's ``LogProbabilityOfImprovement``."""
        # BoTorch would store a number in float32.
        best = torch.tensor(context.best_reward, dtype=torch.float64, device="cpu")
        return LogProbabilityOfImprovement(context.marginals, best_f=best)


@dataclass(frozen=True)
class NoisyEI(Acquisition):
    r"""Noisy expected improvement over a box: EI averaged over draws of what was observed.

    Kernels without a closed form use BoTorch's ``qLogNoisyExpectedImprovement``.

    Args:
        num_samples: The number of draws.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB
        >>> box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> optimizer = BKB(bounds=box, acquisition="nei", seed=0)
        >>> for _ in range(3):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2).sum(-1))

    Reference:
        Letham, Karrer, Ottoni, Bakshy, Bayesian Analysis 2019.
    """

    num_samples: int = 64

    def __post_init__(self) -> None:
        check_positive_integer("num_samples", self.num_samples)

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return its logarithm, in closed form if the kernel has one."""
        closed = getattr(context.marginals, "closed", None)
        if closed is None:
            from botorch.acquisition.logei import qLogNoisyExpectedImprovement

            return FromBoTorch(qLogNoisyExpectedImprovement).function(context)
        return LogNoisyImprovement.given(closed, context.observed, self.num_samples, context.seed)

    def check_arms(self) -> None:
        r"""Raise, since joint draws of arms are not made."""
        raise InputDataError(
            'Noisy expected improvement is for a box, got arms: use "mpi", whose incumbent is the '
            "highest posterior mean, or pass bounds."
        )


@dataclass(frozen=True)
class InTurn(Acquisition):
    r"""Several rules that take turns, one pick after another.

    A batch over arms is picked by one rule. The first one picks large batches over a box, and
    while results of earlier asks are pending: without new results the others might lead to the same
    place again and again.

    Args:
        acquisitions: The rules.

    Example:
        The default over a box. A wide bound leads elsewhere, and a narrow one improves on the best
        point that is known:

        >>> import torch
        >>> from botorch_bkb import BKB
        >>> from botorch_bkb.acquisition import UCB, InTurn
        >>> box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        >>> in_turn = InTurn((UCB(), UCB(share=0.25)))
        >>> BKB(bounds=box, seed=0).parts.acquisition == in_turn
        True
        >>> in_turn.turn(7)
        UCB(share=0.25)
    """

    acquisitions: tuple[Acquisition, ...]

    def __post_init__(self) -> None:
        rules = self.acquisitions
        is_plain = isinstance(rules, tuple) and all(isinstance(r, Acquisition) for r in rules)
        if not is_plain or not rules or any(isinstance(rule, InTurn) for rule in rules):
            raise InputDataError(
                "InTurn takes a tuple of one or more other acquisition rules, such as "
                f"InTurn((UCB(), NoisyEI())), got {rules!r}."
            )

    @property
    def rules(self) -> tuple[Acquisition, ...]:
        r"""The rules that take turns."""
        return self.acquisitions

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return the function of the first rule; batches ask for that of :meth:`turn`."""
        return self.rules[0].function(context)

    def check_arms(self) -> None:
        r"""Raise where one of the rules cannot rank arms."""
        for rule in self.rules:
            rule.check_arms()


@dataclass(frozen=True)
class PureExploration(Acquisition):
    r"""The posterior standard deviation: pick where least is known."""

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return BoTorch's ``PosteriorStandardDeviation``."""
        return PosteriorStandardDeviation(context.marginals)


@dataclass(frozen=True)
class Thompson(Acquisition):
    r"""Thompson sampling: the maximiser of a draw from the posterior."""

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return a draw from the posterior."""
        return PosteriorMean(context.sample_path())


@dataclass(frozen=True)
class Greedy(Acquisition):
    r"""The point of highest posterior mean or, with some probability, a random point.

    Args:
        probability: The probability of a random point.
    """

    probability: float = 0.1

    def __post_init__(self) -> None:
        check_between("probability", self.probability, 0, 1, ends=True)

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return the posterior mean."""
        return PosteriorMean(context.marginals)


@dataclass(frozen=True)
class FromBoTorch(Acquisition):
    r"""A BoTorch acquisition function of the model in units of the rewards.

    Args:
        make: A function that makes an acquisition function of a model (an analytic one, over arms),
            or, over a box, a class for which BoTorch has an input constructor.
    """

    make: Factory | type[AcquisitionFunction]

    def __post_init__(self) -> None:
        if isinstance(self.make, type):
            from botorch_bkb.acquisition.constructors import check_constructor

            check_constructor(self.make)

    def function(self, context: AcquisitionContext) -> AcquisitionFunction:
        r"""Return what the function or the input constructor makes of the model."""
        if not isinstance(self.make, type):
            return self.make(context.model)
        from botorch_bkb.acquisition.constructors import construct

        return construct(self.make, context.model)

    def check_arms(self) -> None:
        r"""Raise for classes, whose constructors need more than means and variances."""
        if isinstance(self.make, type):
            name = self.make.__name__
            raise InputDataError(
                f"Over arms pass a function that makes an analytic {name} of a model, such as "
                f"lambda model: {name}(model, ...), got the class itself."
            )


#: Acquisition rules by their short names.
NAMED: dict[str, Acquisition] = {
    "ucb": UCB(),
    "ei": EI(),
    "mpi": MPI(),
    "nei": NoisyEI(),
    "pi": PI(),
    "thompson": Thompson(),
    "greedy": Greedy(),
    "explore": PureExploration(),
}


def as_acquisition(acquisition: Any) -> Acquisition:
    r"""Return the acquisition rule that a user meant.

    Args:
        acquisition: A rule, a name, a function of a model, or a class of BoTorch's.
    """
    if isinstance(acquisition, Acquisition):
        return acquisition
    if isinstance(acquisition, str) and acquisition in NAMED:
        return NAMED[acquisition]
    if isinstance(acquisition, str) or not callable(acquisition):
        raise InputDataError(
            f"acquisition must be one of {', '.join(NAMED)}, an Acquisition, a function that makes "
            "a BoTorch acquisition function of a model or, over a box, a class of BoTorch's (not "
            f"its name), got {acquisition!r}."
        )
    return FromBoTorch(acquisition)
