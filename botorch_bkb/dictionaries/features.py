r"""Fourier features in place of a dictionary: random ones, and those of a quadrature."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bkb.dictionaries.rule import Candidates, DictionaryRule
from botorch_bkb.features import FeatureKernel, gauss_hermite, stretched
from botorch_bkb.validation import check_positive_integer, level_of_user

#: The largest number of features: a belief has several matrices with as many rows and columns.
MOST_FEATURES = 10_000
#: An error of the correlation from which on a quadrature has too few nodes.
VISIBLE = 0.05
#: Weights below this share of the largest one are lost to rounding.
NEGLIGIBLE = 2.0**-52


class FourierFeatures(DictionaryRule):
    r"""Base class of feature maps that take the place of a dictionary.

    The belief is the exact GP with the kernel ``k'(x,x') = phi(x)'phi(x')`` of ``D`` features. No
    inputs are chosen, so the dictionary of an optimizer or model is empty. With ``Phi`` the
    features of the observations and ``V = Phi'Phi + lambda I``,

    .. code-block:: text

        mean(x) = phi(x)' V^{-1} Phi' y,     var(x) = lambda phi(x)' V^{-1} phi(x)

    There is no residual term. So the variance far from the data falls as data arrive elsewhere,
    unless the features approximate the kernel uniformly (variance starvation).
    """

    @property
    def keeps_coins(self) -> bool:
        r"""False: there is nothing to draw."""
        return False

    def belief_kernel(self, kernel: Kernel, X: Tensor) -> Kernel:
        r"""Return the kernel of the features, which follow the hyperparameters of ``kernel``.

        Args:
            kernel: An RBF or Matérn kernel, possibly in a ``ScaleKernel``.
            X: ``batch x n x d`` inputs, whose ranges are those over which the kernel is used.

        Raises:
            UnsupportedError: There are no such features of this kernel.
        """
        stationary = kernel
        while type(stationary) is ScaleKernel:
            stationary = stationary.base_kernel
        self._check_kernel(stationary)
        with torch.no_grad():
            _, scaled = stretched(kernel, X.double())
            frequencies, weights = self._spectrum(stationary, scaled)
        return FeatureKernel(kernel, frequencies, weights)

    @abstractmethod
    def _check_kernel(self, kernel: Kernel) -> None:
        r"""Raise where a kernel without its ``ScaleKernel`` has no such features."""

    @abstractmethod
    def _spectrum(self, kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return ``F x d`` frequencies and ``F`` weights, for inputs in length-scales."""

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        return torch.empty(0, dtype=torch.long, device=inputs.X.device)

    def _capped(self, size: int) -> DictionaryRule:
        raise UnsupportedError(
            f"{type(self).__name__} chooses no inducing points, got a request for {size}: pass it "
            "as `dictionary` of an optimizer or of DTCGP, or use RidgeLeverageSampling() here."
        )


@dataclass(frozen=True)
class RandomFeatures(FourierFeatures):
    r"""Random Fourier features of an RBF or Matérn kernel, in any number of dimensions.

    Half as many frequencies are drawn from the spectral density: normal for the RBF kernel, and
    Student's t with ``2 nu`` degrees of freedom for the Matérn kernel. Each has a cosine and a
    sine. The kernel's error is of order ``1 / sqrt(num_features)``, and its expectation is zero.

    No theorem here covers the belief. Its variance starves far from the data once there are about
    as many observations as features. A dictionary has no such problem.

    Args:
        num_features: The number of features ``D``, an even number.
        seed: Seed of the frequencies. They stay the same for a whole run, and are rescaled when
            length-scales are fitted. An optimizer's own seed does not change them.

    Example:
        >>> import torch
        >>> from botorch_bkb import BKB, DTCGP, RandomFeatures
        >>> X = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> optimizer = BKB(X, dictionary=RandomFeatures(100), seed=0)
        >>> for _ in range(10):
        ...     suggestion = optimizer.ask()
        ...     optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        >>> len(optimizer.dictionary), optimizer.model.covar_module.num_features
        (0, 100)
        >>> model = DTCGP(X, X.sin(), dictionary=RandomFeatures(100))
        >>> model.posterior(X).mean.shape
        torch.Size([50, 1])

    Reference:
        Rahimi, Recht: Random features for large-scale kernel machines. NeurIPS 2007.
    """

    num_features: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        D = self.num_features
        if not isinstance(D, int) or isinstance(D, bool) or not 2 <= D <= MOST_FEATURES or D % 2:
            raise InputDataError(
                f"num_features must be an even number from 2 to {MOST_FEATURES:,}, since each "
                f"frequency has a cosine and a sine, got {D!r}: 100 to 2,000 are usual."
            )
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise InputDataError(f"seed must be a whole number, got {self.seed!r}.")

    def _check_kernel(self, kernel: Kernel) -> None:
        if type(kernel) not in (RBFKernel, MaternKernel):
            raise UnsupportedError(
                "RandomFeatures needs an RBFKernel or a MaternKernel, possibly in a ScaleKernel, "
                f"got {type(kernel).__name__}: use RidgeLeverageSampling(), which takes any kernel."
            )

    def _spectrum(self, kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor]:
        num, generator = self.num_features // 2, torch.Generator().manual_seed(self.seed)

        def normal(columns: int) -> Tensor:
            shape = (num, columns)
            return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")

        frequencies = normal(X.shape[-1])
        if isinstance(kernel, MaternKernel):  # 2 nu is whole: a chi-squared is a sum of squares
            chi_squared = normal(round(2 * kernel.nu)).square().sum(-1, keepdim=True)
            frequencies = frequencies * (2 * kernel.nu / chi_squared).sqrt()
        return frequencies, torch.full_like(frequencies[:, 0], 1 / num)


@dataclass(frozen=True)
class QuadratureFeatures(FourierFeatures):
    r"""Quadrature Fourier features of an RBF kernel, for few dimensions.

    The frequencies are a grid of Gauss-Hermite nodes, ``m`` in each of ``d`` dimensions. Those of
    opposite sign have the same cosine, so ``m^d`` features do (one more if ``m`` is odd). Features
    whose weight is lost to rounding are left out.

    The kernel is accurate up to distances of about ``2 sqrt(m) - 2.5`` length-scales in each
    dimension. There the error falls faster than exponentially with ``m``, and the variance does not
    starve, in contrast to random features. Beyond, the kernel recurs, and there is a warning if the
    domain is that large. No theorem here covers the belief. The paper proves regret bounds for its
    own algorithms with these features.

    Args:
        nodes_per_dim: The number of nodes ``m`` in each dimension.

    Example:
        QFF-UCB and QFF-TS of the paper:

        >>> import torch
        >>> from botorch_bkb import QuadratureFeatures
        >>> from botorch_bkb.acquisition import UCB, Thompson
        >>> from botorch_bkb.domains import Arms
        >>> from botorch_bkb.optimizers import Optimizer
        >>> arms = Arms(torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1))
        >>> features = QuadratureFeatures(24)
        >>> for acquisition in (UCB(), Thompson()):
        ...     optimizer = Optimizer(arms, dictionary=features, acquisition=acquisition, seed=0)
        ...     for _ in range(15):
        ...         suggestion = optimizer.ask()
        ...         optimizer.tell(suggestion, -((suggestion.X - 0.3) ** 2))
        ...     print(abs(optimizer.best().X.item() - 0.3) < 0.05)
        True
        True

    Reference:
        Mutny, Krause: Efficient high dimensional Bayesian optimization with additivity and
        quadrature Fourier features. NeurIPS 2018.
    """

    nodes_per_dim: int = 12

    def __post_init__(self) -> None:
        check_positive_integer("nodes_per_dim", self.nodes_per_dim)
        if not self.nodes_per_dim or self.nodes_per_dim > MOST_FEATURES:
            raise InputDataError(
                f"nodes_per_dim must be a whole number from 1 to {MOST_FEATURES:,}, got "
                f"{self.nodes_per_dim!r}: 8 to 40 are usual."
            )

    def _check_kernel(self, kernel: Kernel) -> None:
        if type(kernel) is not RBFKernel:
            raise UnsupportedError(
                "QuadratureFeatures needs an RBFKernel, possibly in a ScaleKernel, got "
                f"{type(kernel).__name__}: use RandomFeatures() for a MaternKernel, or "
                "RidgeLeverageSampling(), which takes any kernel."
            )

    def _spectrum(self, kernel: Kernel, X: Tensor) -> tuple[Tensor, Tensor]:
        m, d = self.nodes_per_dim, X.shape[-1]
        if m**d > MOST_FEATURES:
            fewer = int(MOST_FEATURES ** (1 / d) + 1e-9)
            raise UnsupportedError(
                f"QuadratureFeatures({m}) needs {m}^{d} = {m**d:,} features in {d} dimensions, "
                f"expected at most {MOST_FEATURES:,}: use nodes_per_dim <= {fewer}, "
                "RandomFeatures(), or RidgeLeverageSampling()."
            )
        nodes, weights = gauss_hermite(m)
        self._warn_of_recurrence(nodes, weights, X)
        grid = torch.cartesian_prod(*[nodes] * d).reshape(-1, d)
        product = torch.cartesian_prod(*[weights] * d).reshape(-1, d).prod(-1)
        # Node i and the i-th from the end are opposite: one of them counts twice.
        half, middle = len(grid) // 2, len(grid) % 2
        grid, product = grid[: half + middle], product[: half + middle]
        product = torch.cat([2 * product[:half], product[half:]])
        seen = product > NEGLIGIBLE * product.max()
        return grid[seen], product[seen]

    def _warn_of_recurrence(self, nodes: Tensor, weights: Tensor, X: Tensor) -> None:
        r"""Warn where the kernel of the features is not that of the user over the ranges of X."""
        X = X.flatten(end_dim=-2)
        sides = (X.amax(0) - X.amin(0)).cpu() if len(X) else X.new_zeros(1).cpu()
        error = sum(quadrature_error(nodes, weights, side) for side in sides.tolist())
        if error > VISIBLE:
            side = float(sides.max())
            warnings.warn(
                f"QuadratureFeatures({self.nodes_per_dim}) has too few nodes for inputs that "
                f"extend over {side:.3g} length-scales: correlations are wrong by up to "
                f"{min(error, 2.0):.2g}. Use at least {sufficient_nodes(side)} nodes_per_dim, or "
                "RandomFeatures() or RidgeLeverageSampling().",
                InputDataWarning,
                stacklevel=level_of_user(),
            )


def quadrature_error(nodes: Tensor, weights: Tensor, side: float) -> float:
    r"""Return the largest error of the RBF correlation in one dimension.

    Args:
        nodes: ``m`` nodes of the quadrature.
        weights: Their weights.
        side: The largest distance, in length-scales.
    """
    r = torch.linspace(0, side, 501, dtype=torch.float64, device="cpu")
    found = torch.outer(r, nodes).cos() @ weights
    return float((found - (-r.square() / 2).exp()).abs().max())


def sufficient_nodes(side: float) -> int:
    r"""Return a number of nodes with an invisible error up to a distance, in length-scales."""
    m = 1
    while m < MOST_FEATURES and quadrature_error(*gauss_hermite(m), side) > VISIBLE / 4:
        m += 1 + m // 8
    return m
