r"""``InformationThreshold``: a dictionary of the inputs that are informative enough."""

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
from botorch_bkb.dictionaries.caps import capped
from botorch_bkb.dictionaries.observed import Draw, ObservedInputs
from botorch_bkb.dictionaries.rule import Candidates, DictionaryRule, first_occurrences
from botorch_bkb.linalg import grow_root, scan_informative, solve_rows
from botorch_bkb.validation import check_between, check_max_size, check_positive_integer

#: Number of inputs tested at a time.
BLOCK = 1024
#: The ways to treat an uninformative candidate.
MODES = ("skip", "evaluate", "stop")


def score_threshold(epsilon: float) -> float:
    r"""Return the leverage score above which an input provides more than ``epsilon`` nats.

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
    r"""Return the threshold with which regret and model order are both sublinear.

    .. code-block:: text

        epsilon = 1/2 log(1 + T^{-alpha}),     0 < alpha < 1 / d

    This gives ``O(T^{alpha d})`` points and adds ``O(T^{1 - alpha/2})`` to the regret of the dense
    GP (Compressed GP bandits, Theorems 3.1 and 3.2). A constant epsilon bounds the model order for
    all times, at a regret that is linear with a small factor.

    Args:
        horizon: ``T``, the number of steps.
        dim: ``d``, the dimension of the inputs.
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
    r"""A rule that keeps the inputs that provide more than ``epsilon`` nats of information.

    Inputs are tested in the order given. The conditional entropy of an observation at ``x``, given
    the inputs kept so far, must exceed that of pure noise by ``epsilon`` (:func:`score_threshold`).
    The test needs no outcome. ``n`` inputs cost ``O(n M^2)`` if ``M`` are kept.

    Args:
        epsilon: The threshold in nats; 0 keeps everything.
        max_size: The largest size. A model stops after this many inputs, with a warning. An
            optimizer over arms keeps those of highest score, any other one a random part.
        noise_var: The noise variance assumed when used as a BoTorch allocator.
        discard: In an optimizer, whether uninformative results are left out of the belief. If
            False, they inform it through the kept points (DTC). Results told together are judged in
            order, each given those kept before it. Among models, ``CompressedGP`` discards and
            ``DTCGP`` does not.
        on_uninformative: In an optimizer, the treatment of an uninformative candidate.
            ``"skip"``: it counts as a step and no result is expected. ``"evaluate"``: it is
            evaluated like any other. ``"stop"``: :class:`~botorch_bkb.ConvergedError` is raised.

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
        bounds the number of kept inputs.)
    """

    epsilon: float = 1e-4
    max_size: int | None = None
    noise_var: float = 0.01
    discard: bool = True
    on_uninformative: str = "skip"

    def __post_init__(self) -> None:
        score_threshold(self.epsilon)
        check_max_size(self.max_size)
        if not isinstance(self.discard, bool):
            raise InputDataError(f"discard must be True or False, got {self.discard!r}.")
        if self.on_uninformative not in MODES:
            raise InputDataError(
                f"on_uninformative must be one of {', '.join(MODES)}, got "
                f"{self.on_uninformative!r}."
            )

    @property
    def joins_at_once(self) -> bool:
        r"""True, since informative points join at once."""
        return True

    @property
    def ends_batch(self) -> bool:
        r"""Whether an uninformative candidate is the last of its batch."""
        return self.on_uninformative != "evaluate"

    @property
    def least_score(self) -> float | None:
        r"""The score that an informative candidate exceeds; None if all are informative."""
        return self.score_threshold if self.epsilon else None

    def draw(self, inputs: ObservedInputs, generator: torch.Generator) -> Draw:
        r"""Take the informative inputs. With ``discard`` these are all the observed inputs."""
        if self.discard:
            chosen = torch.arange(len(inputs.rows), device=inputs.rows.device)
        else:
            chosen = inputs.informative
        if len(chosen) == 0:  # a dictionary needs at least one point
            chosen = torch.tensor([inputs.newest], device=inputs.rows.device)
        return capped(chosen, inputs, inputs.coins, self.max_size)

    @property
    def score_threshold(self) -> float:
        r"""The leverage score that an input must exceed, ``e^{2 epsilon} - 1``."""
        return score_threshold(self.epsilon)

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        kept = self.kept(inputs.X, inputs.kernel, inputs.noise)
        if len(kept) == 0:  # a dictionary needs at least one point
            kept = torch.zeros(1, dtype=torch.long, device=inputs.X.device)
        return kept[first_occurrences(inputs.X[..., kept, :])]

    @torch.no_grad()
    def kept(self, X: Tensor, kernel: Kernel, noise: Tensor) -> Tensor:
        r"""Return the rows that pass the test, including repetitions of an input that pass it.

        Args:
            X: ``batch x n x d`` inputs, already transformed.
            kernel: The covariance module.
            noise: ``batch x n`` noise variances of single observations.

        Returns:
            Sorted row numbers; empty if no input is informative.
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
            # One input more than there is room for shows that the limit binds.
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


#: The threshold with which every result enters the belief.
BELIEVE_EVERYTHING = InformationThreshold(epsilon=0.0, on_uninformative="evaluate")


def threshold_of(rule: DictionaryRule) -> InformationThreshold:
    r"""Return the threshold by which results enter the belief; most rules accept every result."""
    return rule if isinstance(rule, InformationThreshold) else BELIEVE_EVERYTHING
