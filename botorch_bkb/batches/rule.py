r"""``BatchRule``: the base class of rules that decide when a batch is complete."""

from __future__ import annotations

from dataclasses import dataclass, field

from botorch.exceptions.errors import InputDataError

from botorch_bkb.batches.picks import Picks
from botorch_bkb.validation import check_positive_integer, is_between

#: The default threshold and the default largest batch size.
THRESHOLD, MAX_SIZE = 2.0, 10_000
#: The largest threshold, of which rules take the square.
LARGEST_THRESHOLD = 1e100


@dataclass(frozen=True, kw_only=True)
class BatchRule:
    r"""A rule that completes a batch once its picks have spent more than the limit.

    This base class asks for feedback after every pick. The other rules derive from it.

    Args:
        max_size: The largest number of points in a batch.

    Example:
        A custom rule that completes a batch after four picks. A theorem's width also needs the
        right ``inflation``, and a warning says so where a rule leaves it at 1.

        >>> import torch
        >>> from botorch_bkb import BBKB
        >>> from botorch_bkb.batches import BatchRule
        >>> class InFours(BatchRule):
        ...     @property
        ...     def limit(self):
        ...         return 3.0
        >>> arms = torch.eye(9, dtype=torch.float64)
        >>> len(BBKB(arms, batch_rule=InFours(), num_initial=1, seed=0).ask())
        1
        >>> optimizer = BBKB(arms, batch_rule=InFours(), seed=0)
        >>> optimizer.tell(torch.arange(9), torch.zeros(9))
        >>> len(optimizer.ask())
        4

        A custom rule that sees covariances. With ``C`` the covariances of the picks over
        ``lambda``, it completes a batch when ``det(I + C)`` exceeds the threshold, so when the
        picks have given a certain information. No variance has then fallen by more than the
        threshold when the last pick is made. The determinant is at most ``prod (1 + tau)``, so
        batches are never shorter than by the product rule.

        >>> from botorch_bkb.batches import ProductRule
        >>> from gpytorch.kernels import RBFKernel
        >>> class InformationRule(ProductRule):
        ...     def total(self, picks):
        ...         root = picks.counts.sqrt()
        ...         C = root.unsqueeze(-1) * picks.covariance() * root
        ...         return float(torch.logdet(C + torch.eye(len(C)).to(C)))
        >>> arms = torch.linspace(0, 3, 50, dtype=torch.float64).unsqueeze(-1)
        >>> for rule in (ProductRule(9.0), InformationRule(9.0)):
        ...     optimizer = BBKB(
        ...         arms, covar_module=RBFKernel(), noise_var=1.0, batch_rule=rule, seed=0
        ...     )
        ...     optimizer.tell([0, 25, 49], [0.0, 1.0, 2.0])
        ...     print(len(optimizer.ask()))
        5
        7
    """

    max_size: int = MAX_SIZE

    def __post_init__(self) -> None:
        check_positive_integer("max_batch_size", self.max_size)

    @property
    def limit(self) -> float:
        r"""The amount that the picks of a batch may spend."""
        return 0.0

    @property
    def inflation(self) -> float:
        r"""``C~``, the factor by which variances may have fallen at the last pick.

        It is 1 where the next pick waits for feedback. Bounds with a guarantee are wider by its
        root.
        """
        return 1.0

    @property
    def delay(self) -> float:
        r"""The factor by which variances may have fallen when the dictionary is drawn again."""
        return self.inflation

    def spent(self, score: float) -> float:
        r"""Return how much of the limit a pick with this score spends."""
        return 1.0

    def total(self, picks: Picks) -> float:
        r"""Return how much of the limit all picks of a batch have spent together.

        By default that is the sum of :meth:`spent` over the picks. A rule that overrides this
        method sees the covariances of the picks.

        Args:
            picks: The picks that count, at least one, with the belief at the start of the batch.
        """
        return picks.spent

    def repeats(self, score: float) -> float:
        r"""Return how many times in a row a pick with this score is pulled."""
        return 1.0


@dataclass(frozen=True)
class ThresholdRule(BatchRule):
    r"""Base class of batch rules with a threshold.

    Args:
        threshold: The threshold, at least 1; larger values give longer batches.
        max_size: The largest number of points in a batch.
    """

    threshold: float = field(default=THRESHOLD, kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_between(self.threshold, 1, LARGEST_THRESHOLD, ends=True):
            raise InputDataError(
                "batch_threshold must be finite and at least 1, and at most "
                f"{LARGEST_THRESHOLD:g}, got {self.threshold!r}: 2 is usual, larger values give "
                "longer batches and wider bounds."
            )
