r"""Keep what would teach something."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from numbers import Real

import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import BotorchWarning
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.belief import chunks, kernel_matrix
from botorch_bkb.dictionaries.rule import Candidates, DictionaryRule, first_occurrences
from botorch_bkb.linalg import grow_root, scan_informative, solve_rows
from botorch_bkb.validation import check_between, check_max_size, check_positive_integer

#: Inputs tested at a time.
BLOCK = 1024


def score_threshold(epsilon: float) -> float:
    r"""The leverage score an input must exceed to teach more than ``epsilon`` nats.

    .. code-block:: text

        1/2 log(lambda + var(x)) > 1/2 log(lambda) + epsilon   <=>   tau(x) > e^{2 epsilon} - 1

    Args:
        epsilon: The threshold in nats, not negative.

    Returns:
        ``e^{2 epsilon} - 1``.

    Example:
        >>> score_threshold(0.5 * math.log(3))
        2.0

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, eq. 2.11-2.12.)
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, Real) or not epsilon >= 0:
        raise InputDataError(
            f"epsilon must be a number that is not negative, got {epsilon!r}: 1e-4 is usual."
        )
    try:
        return math.expm1(2 * epsilon)
    except OverflowError:
        return math.inf


def epsilon_for_horizon(horizon: int, dim: int, alpha: float | None = None) -> float:
    r"""The threshold with which regret and model order are both sublinear.

    .. code-block:: text

        epsilon = 1/2 log(1 + T^{-alpha}),     0 < alpha < 1 / d

    gives ``O(T^{alpha d})`` points and regret ``O(T^{1 - alpha/2})`` beside that of the dense GP.
    (Compressed GP bandits, Theorems 3.1 and 3.2; a constant epsilon bounds the model order for
    all times, at a regret that is linear with a small factor.)

    Args:
        horizon: ``T``.
        dim: ``d``.
        alpha: The exponent; ``1 / (2 d)`` by default, for ``O(sqrt(T))`` points.

    Example:
        >>> round(epsilon_for_horizon(10_000, dim=2), 4)
        0.0477
    """
    check_positive_integer("horizon", horizon)
    check_positive_integer("dim", dim)
    check_between("alpha", alpha, 0, 1 / dim)
    return 0.5 * math.log1p(horizon ** -(1 / (2 * dim) if alpha is None else alpha))


@dataclass(frozen=True)
class InformationThreshold(DictionaryRule):
    r"""Keep an input if it would teach more than ``epsilon`` nats, in the order given.

    The conditional entropy of an observation at ``x``, given the inputs kept so far, must
    exceed that of pure noise by ``epsilon`` (:func:`score_threshold`). The test needs no outcome.
    ``n`` inputs cost ``O(n M^2)`` for ``M`` kept ones.

    Args:
        epsilon: The threshold; 0 keeps everything.
        max_size: Stop after this many, with a warning.
        noise_var: Noise variance assumed when used as a BoTorch allocator.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import InformationThreshold
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)
        >>> rule = InformationThreshold(epsilon=0.3)
        >>> len(rule.select(X, RBFKernel().double(), torch.full((100,), 0.1).double()))
        10

    As inducing points of BoTorch's variational GP:

    Example:
        >>> from botorch.models import SingleTaskVariationalGP
        >>> rule = InformationThreshold(epsilon=0.3, noise_var=0.1)
        >>> model = SingleTaskVariationalGP(
        ...     X, X.sin(), inducing_points=50, inducing_point_allocator=rule
        ... )
        >>> len(model.model.variational_strategy.inducing_points) < 50
        True

    Reference:
        Bedi, Peddireddy, Aggarwal, Sadler, Koppel: Regret and belief complexity trade-off in
        Gaussian process bandits via information thresholding. 2020. (Eq. 2.11-2.12; Theorem 3.1
        bounds how many are kept.)
    """

    epsilon: float = 1e-4
    max_size: int | None = None
    noise_var: float = 0.01

    def __post_init__(self) -> None:
        score_threshold(self.epsilon)
        check_max_size(self.max_size)

    @property
    def score_threshold(self) -> float:
        r"""The leverage score that must be exceeded, ``e^{2 epsilon} - 1``."""
        return score_threshold(self.epsilon)

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        kept = self.kept(inputs.X, inputs.kernel, inputs.noise)
        if len(kept) == 0:  # a dictionary needs a point
            kept = torch.zeros(1, dtype=torch.long, device=inputs.X.device)
        return kept[first_occurrences(inputs.X[..., kept, :])]

    @torch.no_grad()
    def kept(self, X: Tensor, kernel: Kernel, noise: Tensor) -> Tensor:
        r"""Rows that pass the test, repetitions of an input included if they do.

        Args:
            X: ``batch x n x d`` inputs, already transformed.
            kernel: The covariance module.
            noise: ``batch x n`` noise variances of single observations.

        Returns:
            Sorted row numbers; none where even the first input teaches too little.
        """
        n, noise = X.shape[-2], noise.double()
        kept = torch.empty(0, dtype=torch.long, device=X.device)
        if self.epsilon == 0 and (self.max_size is None or n <= self.max_size):
            return torch.arange(n, device=X.device)
        root = noise.new_empty(*X.shape[:-2], 0, 0)
        for rows in chunks(n, BLOCK):
            room = None if self.max_size is None else self.max_size - len(kept)
            x = X[..., rows, :]
            covariance = kernel_matrix(kernel, x)
            left = covariance[..., :0]
            if len(kept):
                left = solve_rows(root, kernel_matrix(kernel, x, X[..., kept, :]))
                covariance = covariance - left @ left.mT
            # One more than there is room for: then the limit binds.
            limit = None if room is None else room + 1
            new, W = scan_informative(covariance, noise[..., rows], self.score_threshold, limit)
            if room is not None and len(new) > room:
                self._warn()
                return torch.cat([kept, rows.start + new[:room]])
            root = grow_root(root, left[..., new, :], W[..., new, :], noise[..., rows.start + new])
            kept = torch.cat([kept, rows.start + new])
        return kept

    def _warn(self) -> None:
        warnings.warn(
            f"The information threshold stopped at max_size = {self.max_size} points with "
            "informative inputs left: raise max_size or epsilon.",
            BotorchWarning,
            stacklevel=2,
        )

    def _capped(self, size: int) -> DictionaryRule:
        return replace(self, max_size=min(size, self.max_size or size))
