r"""Noisy expected improvement on the sparse belief, in closed form but for a few draws.

Under noise nobody knows the best value that was observed. So ``S`` joint draws of the latent values
at a baseline of observed points are made. Each draw conditions the belief, without noise, and the
improvement over its largest value has a closed form:

.. code-block:: text

    EI(x) = 1/S sum_s sd(x) h((mean_s(x) - best_s) / sd(x)),    h(u) = phi(u) + u Phi(u)

All draws have one variance. So value and gradient cost ``O((m + b)^2 + (m + b) S)`` per point with
a baseline of ``b`` points, whatever the number of results.

Reference:
    Letham, Karrer, Ottoni, Bakshy: Constrained Bayesian optimization with noisy experiments.
    Bayesian Analysis 2019.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor

from botorch_bkb.acquisition.closed import ClosedMarginals, Partials
from botorch_bkb.acquisition.moments import ClosedModel
from botorch_bkb.acquisition.scores import LogImprovement
from botorch_bkb.domains.climbing import sobol_points
from botorch_bkb.linalg import safe_cholesky

#: Number of observed points, those of highest posterior mean, among which the baseline is drawn.
OBSERVED = 200
#: How close to zero and one quasi-random numbers may be.
ENDS = 1e-9
#: Variance at the baseline that is left, relative to the prior's: some points are nearly equal.
LEFT = 1e-6


class LogNoisyImprovement(LogImprovement):
    r"""The logarithm of noisy expected improvement, averaged over draws of the latent values.

    Args:
        drawn: The marginals given each of ``S`` draws, see :meth:`ClosedMarginals.drawn`.
        best_f: ``S`` largest values of the draws.

    Example:
        >>> import torch
        >>> from botorch_bkb import DTCGP
        >>> from botorch_bkb.acquisition.closed import ClosedMarginals
        >>> X = torch.rand(50, 2, dtype=torch.float64)
        >>> closed = ClosedMarginals.of(DTCGP(X, X.sum(-1, keepdim=True), outcome_transform=None))
        >>> improvement = LogNoisyImprovement.given(closed, X, num_samples=16, seed=0)
        >>> improvement(torch.rand(7, 1, 2, dtype=torch.float64)).shape
        torch.Size([7])
    """

    def __init__(self, drawn: ClosedMarginals, best_f: Tensor) -> None:
        super().__init__(ClosedModel(drawn), best_f)

    @classmethod
    @torch.no_grad()
    def given(cls, marginals: ClosedMarginals, X: Tensor, num_samples: int, seed: int) -> Self:
        r"""Return the improvement over observed points.

        The baseline consists of the points that are best in some draw.

        Args:
            marginals: The belief.
            X: ``n x d`` observed points.
            num_samples: The number of draws.
            seed: The seed of the draws.
        """
        at, covariance = marginals.covariance(X)
        root = _root(covariance, marginals.prior)
        values = root @ normal_samples(len(X), num_samples, seed).to(root)  # minus the means
        best_f, best = (values + at.mean.unsqueeze(-1)).max(0)
        best = best.unique()
        root = _root(covariance[best][:, best], marginals.prior)
        base = torch.linalg.solve_triangular(root, values[best], upper=False)
        return cls(marginals.drawn(at.at(best), root, base), best_f)

    def score(self, mean: Tensor, sd: Tensor) -> Partials:
        r"""Return the logarithms at ``q`` points.

        Args:
            mean: ``q x S`` means.
            sd: ``q`` standard deviations.
        """
        each = super().score(mean, sd.unsqueeze(-1))
        value = each.value.logsumexp(-1)
        share = (each.value - value.unsqueeze(-1)).exp()
        by_deviation = (share * each.by_deviation).sum(-1)
        return Partials(value - math.log(mean.shape[-1]), share * each.by_mean, by_deviation)


def normal_samples(n: int, num_samples: int, seed: int) -> Tensor:
    r"""Return quasi-random draws of ``n`` standard normal numbers, ``n x S`` in float64.

    A Sobol sequence, which takes a millisecond to make, is kept. It is shifted at random.

    Args:
        n: The number of dimensions.
        num_samples: The number of draws.
        seed: The seed of the shift.

    Example:
        >>> normal_samples(3, 64, seed=0).shape
        torch.Size([3, 64])
    """
    points = sobol_points(num_samples, max(n, OBSERVED))[:, :n]
    generator = torch.Generator().manual_seed(seed)
    shift = torch.rand(n, generator=generator, dtype=torch.float64, device=generator.device)
    inside = (points + shift).remainder(1).clamp(ENDS, 1 - ENDS)
    return torch.special.ndtri(inside).mT


def _root(covariance: Tensor, prior: Tensor) -> Tensor:
    r"""Return the factor of a posterior covariance whose points may be nearly equal."""
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return safe_cholesky(covariance + LEFT * prior * eye)
