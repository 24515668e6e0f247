r"""Dictionary rules: from leverage scores to indices. No models.

A rule looks at inputs, a kernel and noise variances, and says which of the inputs become
the dictionary. Rules are also BoTorch ``InducingPointAllocator`` objects, and any BoTorch
allocator becomes a rule with :class:`FromAllocator`.

The score of an input is its posterior variance in units of the noise,
``tau(x) = var(x) / lambda`` (the papers' ``sigma~^2``, a ridge leverage score). In batch mode
one set of indices serves all the batches, chosen by the largest score over them, so that
what a rule guarantees holds in each.

References:
    Calandriello, Carratino, Lazaric, Valko, Rosasco: Gaussian process optimization with
    adaptive sketching: scalable and no regret. COLT 2019. (BKB, Algorithm 1, Theorem 1.)

    Musco, Musco: Recursive sampling for the Nyström method. NeurIPS 2017.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from dataclasses import dataclass, field, replace

import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import BotorchWarning, InputDataWarning
from botorch.models.utils.inducing_point_allocators import (
    InducingPointAllocator,
    QualityFunction,
    UnitQualityFunction,
)
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.belief import chunks, dictionary_root, kernel_diagonal, kernel_matrix
from botorch_bkb.linalg import DTCFactor, Embedding, information, solve_rows
from botorch_bkb.validation import check_indices, check_max_size


def largest_over_batch(scores: Tensor) -> Tensor:
    r"""``batch x n -> n``: the score that makes one dictionary serve every batch."""
    return scores.flatten(end_dim=-2).amax(0) if scores.dim() > 1 else scores


def first_occurrences(X: Tensor) -> Tensor:
    r"""Sorted indices of the first of each group of equal rows.

    Args:
        X: ``batch x n x d``; rows are equal if they are in every batch.
    """
    flat = X.movedim(-2, 0).flatten(1) if X.dim() > 2 else X
    _, group = torch.unique(flat, dim=0, return_inverse=True)
    n = flat.shape[0]
    first = torch.full((int(group.max()) + 1,), n, dtype=torch.long, device=X.device)
    first = first.scatter_reduce(0, group, torch.arange(n, device=X.device), "amin")
    return first.sort().values


@torch.no_grad()
def data_leverage(
    kernel: Kernel, points: Tensor, X: Tensor, noise: Tensor, counts: Tensor | None = None
) -> Tensor:
    r"""Leverage scores of the data themselves, ``tau(x_i) = var(x_i) / noise_i``.

    ``O(n m^2)`` time, ``O(n m)`` memory.

    Args:
        kernel: The covariance module.
        points: Dictionary inputs, ``batch x m x d``.
        X: Inputs, ``batch x n x d``.
        noise: Noise variances of single observations, ``batch x n``.
        counts: Numbers of pulls, ``n``.
    """
    root = dictionary_root(kernel, points)
    noise = noise.double()
    gram = torch.zeros_like(root)
    blocks = []
    for rows in chunks(X.shape[-2]):
        Z = solve_rows(root, kernel_matrix(kernel, X[..., rows, :], points))
        lam = noise[..., rows]
        weight = None if counts is None else counts[rows]
        gram = gram + information(Z, torch.zeros_like(lam), lam, weight)[0]
        blocks.append((rows, Z))
    factor = DTCFactor.from_information(root, gram, torch.zeros_like(gram[..., 0]))
    scores = [
        Embedding(Z, solve_rows(factor.info_root, Z)).variance(
            kernel_diagonal(kernel, X[..., rows, :])
        )
        / noise[..., rows]
        for rows, Z in blocks
    ]
    return torch.cat(scores, -1)


def _device(generator: torch.Generator | None) -> torch.device:
    r"""Where to draw: on the generator's device, so that a seed means one thing."""
    return torch.device("cpu") if generator is None else generator.device


class DictionaryRule(InducingPointAllocator):
    r"""Chooses the dictionary among the inputs."""

    #: Noise variance assumed where there is no likelihood to ask: as a BoTorch allocator.
    noise_var: float = 0.01

    @abstractmethod
    def select(
        self,
        X: Tensor,
        kernel: Kernel,
        noise: Tensor,
        *,
        scores: Tensor | None = None,
        counts: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Choose the dictionary.

        Args:
            X: ``batch x n x d`` inputs, already transformed.
            kernel: The covariance module.
            noise: ``batch x n`` noise variances of single observations.
            scores: ``batch x n`` leverage scores under the current belief. Without them a
                rule that needs scores finds its own.
            counts: ``n`` numbers of pulls of each input.
            generator: Source of randomness; torch's global one by default.

        Returns:
            Sorted ``m`` indices into the rows of ``X``, no two of them of equal rows.
        """

    def allocate_inducing_points(
        self, inputs: Tensor, covar_module: Kernel, num_inducing: int, input_batch_shape: torch.Size
    ) -> Tensor:
        r"""BoTorch's interface: at most ``num_inducing`` of the inputs, ``batch x m x d``."""
        noise = torch.full_like(inputs[..., 0], self.noise_var)
        with torch.no_grad():
            indices = self._capped(num_inducing).select(inputs, covar_module, noise)
        return inputs[..., indices, :]

    @abstractmethod
    def _capped(self, size: int) -> DictionaryRule:
        r"""The same rule with a dictionary of at most ``size``."""

    def _get_quality_function(self) -> QualityFunction:
        return UnitQualityFunction()


@dataclass(frozen=True)
class AllPoints(DictionaryRule):
    r"""Every distinct input: the exact Gaussian process.

    Args:
        max_size: Take an evenly spaced subset of this size where there are more.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import AllPoints
        >>> X = torch.tensor([[0.0], [1.0], [0.0]], dtype=torch.float64)
        >>> AllPoints().select(X, RBFKernel(), torch.ones(3))
        tensor([0, 1])
    """

    max_size: int | None = None

    def select(self, X, kernel, noise, *, scores=None, counts=None, generator=None):
        indices = first_occurrences(X)
        if self.max_size is not None and len(indices) > self.max_size:
            steps = torch.arange(self.max_size, device=X.device)
            indices = indices[(steps * len(indices)) // self.max_size]
        return indices

    def _capped(self, size):
        return AllPoints(max_size=size)


@dataclass(frozen=True)
class RidgeLeverageSampling(DictionaryRule):
    r"""Each pull enters independently with probability ``min(1, oversampling * tau)``.

    With counts an input is in with probability ``1 - (1 - p)^c``, exactly the law of ``c``
    separate coins. BKB Theorem 1: with ``oversampling >= 6 alpha log(4T/delta) / eps^2`` all
    variances are within a factor ``alpha = (1+eps)/(1-eps)`` of the exact ones, and the
    dictionary has ``O(d_eff)`` points; in practice 1 to 10 does.

    Without scores they are found by doubling: the exact scores of a random block of the data
    give a dictionary, with which twice as many inputs are scored, and so on. ``n`` inputs
    cost ``O(n m^2)``; nothing is ever ``n x n``.

    Args:
        oversampling: The papers' ``q̄``.
        max_size: Keep the highest scores where more points were drawn, with a warning. The
            accuracy theorem no longer applies then.
        noise_var: Noise variance assumed when used as a BoTorch allocator.
        generator: Source of randomness where a call gives none.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import RidgeLeverageSampling
        >>> X = torch.linspace(0, 1, 2000, dtype=torch.float64).unsqueeze(-1)
        >>> rule = RidgeLeverageSampling(oversampling=2.0)
        >>> indices = rule.select(X, RBFKernel().double(), torch.full((2000,), 0.1).double())
        >>> len(indices) < 50
        True
    """

    oversampling: float = 4.0
    max_size: int | None = None
    noise_var: float = 0.01
    generator: torch.Generator | None = field(default=None, compare=False, repr=False)

    #: The first block, whose scores are exact.
    first_block = 512

    def __post_init__(self) -> None:
        if not self.oversampling > 0:
            raise InputDataError(
                f"oversampling must be positive, got {self.oversampling}: 1 to 10 is usual."
            )
        check_max_size(self.max_size)

    def select(self, X, kernel, noise, *, scores=None, counts=None, generator=None):
        generator = generator or self.generator
        n = X.shape[-2]
        everything = torch.arange(n, device=X.device)
        if scores is not None:
            return self._draw(X, everything, scores, counts, generator)
        order = torch.randperm(n, generator=generator, device=_device(generator)).to(X.device)
        size = min(self.first_block, n)
        chosen = order[:size]
        while True:
            seen = everything if size == n else order[:size]
            weight = None if counts is None else counts[seen]
            scores = data_leverage(
                kernel, X[..., chosen, :], X[..., seen, :], noise[..., seen], weight
            )
            chosen = self._draw(X, seen, scores, weight, generator, last=size == n)
            if size == n:
                return chosen
            size = min(2 * size, n)

    def _draw(self, X, candidates, scores, counts, generator, last=True):
        scores = largest_over_batch(scores)
        inclusion = self.inclusion_probability(scores, counts)
        coins = torch.rand(len(scores), generator=generator, device=_device(generator))
        drawn = torch.nonzero(coins.to(inclusion) < inclusion).squeeze(-1)
        if len(drawn) == 0:  # an empty dictionary explains nothing: keep the newest input
            drawn = torch.tensor([len(scores) - 1], device=scores.device)
        drawn = drawn[first_occurrences(X[..., candidates[drawn], :])]
        if self.max_size is not None and len(drawn) > self.max_size:
            if last:
                warnings.warn(
                    f"{len(drawn)} dictionary points were drawn and the {self.max_size} of highest "
                    "score kept: accuracy is no longer guaranteed. Little noise or a short "
                    "lengthscale makes the effective dimension this large; raise max_size if the "
                    "time (it grows with its square) allows, or lower oversampling.",
                    BotorchWarning,
                    stacklevel=2,
                )
            drawn = drawn[inclusion[drawn].topk(self.max_size).indices]
        return candidates[drawn].sort().values

    def inclusion_probability(self, scores: Tensor, counts: Tensor | None = None) -> Tensor:
        r"""``1 - (1 - min(1, q̄ tau))^c`` for each input (``c = 1`` without counts)."""
        p = (self.oversampling * scores).clamp(max=1.0)
        if counts is None:
            return p
        return -torch.expm1(counts * torch.log1p(-p))

    def _capped(self, size):
        return replace(self, max_size=min(size, self.max_size or size))


@dataclass(frozen=True)
class InformationThreshold(DictionaryRule):
    r"""Keep an input if it would teach more than ``epsilon`` nats, in the order given.

    The conditional entropy of an observation at ``x``, given the inputs kept so far, must
    exceed that of pure noise by ``epsilon``:

    .. code-block:: text

        1/2 log(lambda + var_D(x)) > 1/2 log(lambda) + epsilon   <=>   tau_D(x) > e^{2 epsilon} - 1

    The test needs no outcome. ``n`` inputs cost ``O(n M^2)`` for ``M`` kept ones.
    (Compressed GP bandits, eq. 2.11-2.12.)

    Args:
        epsilon: The threshold; 0 keeps every distinct input that is not numerically
            determined by the others.
        max_size: Stop after this many, with a warning.
        noise_var: Noise variance assumed when used as a BoTorch allocator.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import InformationThreshold
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)
        >>> rule = InformationThreshold(epsilon=0.1)
        >>> len(rule.select(X, RBFKernel().double(), torch.full((100,), 0.1).double())) < 20
        True
    """

    epsilon: float = 1e-4
    max_size: int | None = None
    noise_var: float = 0.01

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise InputDataError(f"epsilon must not be negative, got {self.epsilon}.")
        check_max_size(self.max_size)

    @property
    def score_threshold(self) -> float:
        r"""The least leverage score that is kept, ``e^{2 epsilon} - 1``."""
        return math.expm1(2 * self.epsilon)

    def select(self, X, kernel, noise, *, scores=None, counts=None, generator=None):
        distinct = first_occurrences(X)
        X, noise = X[..., distinct, :], noise[..., distinct].double()
        kept = torch.empty(0, dtype=torch.long, device=X.device)
        root = None
        for rows in chunks(X.shape[-2], 1024):
            root, new = self._scan(kernel, X, noise, rows, kept, root)
            kept = torch.cat([kept, new])
            if self.max_size is not None and len(kept) >= self.max_size:
                if rows.stop < X.shape[-2] or len(kept) > self.max_size:
                    warnings.warn(
                        f"The information threshold stopped at max_size = {self.max_size} points "
                        "with inputs left: raise max_size or epsilon.",
                        BotorchWarning,
                        stacklevel=2,
                    )
                kept = kept[: self.max_size]
                break
        return distinct[kept].sort().values

    def _scan(self, kernel, X, noise, rows, kept, root):
        r"""Test a block of inputs in order, given the Cholesky factor of the kept ones.

        ``V`` holds the whitened kernel values of the block against the kept points; keeping
        one more adds a column, and row ``i`` of ``V`` is then the next row of the factor.
        """
        x, lam = X[..., rows, :], noise[..., rows]
        within = kernel_matrix(kernel, x)
        var = within.diagonal(dim1=-2, dim2=-1).clone()
        V = within[..., :0]
        if root is not None:
            V = solve_rows(root, kernel_matrix(kernel, x, X[..., kept, :]))
            var = var - V.square().sum(-1)
        new: list[int] = []
        start = 0
        room = math.inf if self.max_size is None else self.max_size - len(kept)
        while len(new) <= room:
            gain = largest_over_batch(var / lam)[start:]
            passing = torch.nonzero(gain > self.score_threshold)
            if len(passing) == 0:
                break
            i = start + int(passing[0])
            pivot = (var[..., i].clamp_min(0) + lam[..., i]).sqrt().unsqueeze(-1)
            column = within[..., i] - (V @ V[..., i, :].unsqueeze(-1)).squeeze(-1)
            column = column / pivot
            V = torch.cat([V, column.unsqueeze(-1)], -1)
            var = var - column.square()
            new.append(i)
            start = i + 1
        return _grow(root, V[..., new, :], lam[..., new]), torch.arange(
            rows.start, rows.stop, device=X.device
        )[new]

    def _capped(self, size):
        return replace(self, max_size=min(size, self.max_size or size))


def _grow(root: Tensor | None, V: Tensor, noise: Tensor) -> Tensor:
    r"""Append to ``root`` the rows of the kept points' whitened kernel values.

    Column ``j`` of the new part is ``cov(., x_j) / pivot_j``, so its diagonal holds
    ``var_j / pivot_j``; the factor of ``K + Lam`` has ``pivot_j`` there.
    """
    m = 0 if root is None else root.shape[-1]
    tail = V[..., m:].tril()
    diagonal = tail.diagonal(dim1=-2, dim2=-1)
    # pivot^2 = var + lambda and diagonal = var / pivot  =>  pivot from the two
    pivot = 0.5 * (diagonal + (diagonal.square() + 4 * noise).sqrt())
    tail = tail - torch.diag_embed(diagonal) + torch.diag_embed(pivot)
    if root is None:
        return tail
    top = torch.nn.functional.pad(root, (0, tail.shape[-1]))
    return torch.cat([top, torch.cat([V[..., :m], tail], -1)], -2)


@dataclass(frozen=True)
class FromAllocator(DictionaryRule):
    r"""Any BoTorch ``InducingPointAllocator`` as a rule.

    The allocator must return a subset of the inputs, as BoTorch's do. BoTorch's build the
    ``n x n`` kernel matrix: mind the memory beyond some ten thousand points.

    Args:
        allocator: The allocator.
        size: How many points to ask for.

    Example:
        >>> import torch
        >>> from botorch.models.utils.inducing_point_allocators import GreedyVarianceReduction
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import FromAllocator
        >>> X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
        >>> FromAllocator(GreedyVarianceReduction(), 2).select(X, RBFKernel(), torch.ones(9))
        tensor([0, 8])
    """

    allocator: InducingPointAllocator
    size: int = 200

    def __post_init__(self) -> None:
        check_max_size(self.size)

    def select(self, X, kernel, noise, *, scores=None, counts=None, generator=None):
        flat = X.reshape(-1, *X.shape[-2:])[0] if X.dim() > 2 else X
        with torch.no_grad():
            points = self.allocator.allocate_inducing_points(
                flat, kernel, min(self.size, flat.shape[-2]), torch.Size()
            )
        equal = (points.unsqueeze(-2) == flat.unsqueeze(-3)).all(-1)
        if not equal.any(-1).all():
            raise InputDataError(
                f"{type(self.allocator).__name__} must choose its inducing points among the "
                "inputs to serve as a dictionary rule; it returned points that are not."
            )
        indices = equal.to(torch.uint8).argmax(-1).unique()
        return indices[first_occurrences(X[..., indices, :])]

    def _capped(self, size):
        return replace(self, size=min(size, self.size))


@dataclass(frozen=True)
class Automatic(DictionaryRule):
    r"""All points while there are few, ridge leverage sampling beyond: the default.

    Args:
        exact_up_to: Up to this many inputs the dictionary is all of them.
        sampling: The rule used beyond.
    """

    exact_up_to: int = 500
    sampling: RidgeLeverageSampling = RidgeLeverageSampling(max_size=1000)

    def select(self, X, kernel, noise, **kwargs):
        rule = AllPoints() if X.shape[-2] <= self.exact_up_to else self.sampling
        return rule.select(X, kernel, noise, **kwargs)

    def _capped(self, size):
        return replace(self, exact_up_to=min(size, self.exact_up_to), sampling=self.sampling._capped(size))


def given_dictionary(indices: Tensor, X: Tensor) -> Tensor:
    r"""A dictionary the user names: checked, sorted, and without points that repeat others.

    Args:
        indices: A LongTensor of row indices of ``X``.
        X: ``batch x n x d`` inputs.
    """
    indices = check_indices(indices, X.shape[-2])
    distinct = first_occurrences(X[..., indices, :])
    if len(distinct) < len(indices):
        warnings.warn(
            f"{len(indices) - len(distinct)} of the {len(indices)} dictionary points equal others "
            "and were left out: they add nothing, and make the kernel matrix singular.",
            InputDataWarning,
            stacklevel=3,
        )
    return indices[distinct]


def as_rule(dictionary: DictionaryRule | InducingPointAllocator | None) -> DictionaryRule:
    r"""The rule a user meant: None is :class:`Automatic`, an allocator is wrapped."""
    if dictionary is None:
        return Automatic()
    if isinstance(dictionary, DictionaryRule):
        return dictionary
    if isinstance(dictionary, InducingPointAllocator):
        return FromAllocator(dictionary)
    raise InputDataError(
        "dictionary must be None, a LongTensor of indices, a rule such as "
        f"RidgeLeverageSampling(), or a BoTorch InducingPointAllocator, got {dictionary!r}."
    )
