r"""Ridge leverage scores, and dictionaries that are sampled by them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.confidence.regret import bkb_oversampling
from botorch_bkb.dictionaries.caps import capped, thinned
from botorch_bkb.dictionaries.observed import Draw, ObservedInputs, ScoreBounds
from botorch_bkb.dictionaries.rule import (
    Candidates,
    DictionaryRule,
    first_occurrences,
    largest_over_batch,
)
from botorch_bkb.dictionaries.scores import data_leverage, device_of, smallest_coins
from botorch_bkb.validation import check_max_size, check_positive_integer

#: The name of the oversampling that the theorems require.
THEORY = "theory"
#: The least oversampling when a dictionary is drawn without scores; 2 has proved unstable.
FROM_SCRATCH = 4.0


@dataclass(frozen=True)
class RidgeLeverageSampling(DictionaryRule):
    r"""A rule that includes each pull with probability ``min(1, oversampling * tau)``.

    Pulls are included independently, so an input with ``c`` pulls is included with probability
    ``1 - (1 - p)^c``. BKB, Theorem 1: with ``oversampling >= 6 alpha log(4T/delta) / eps^2`` all
    variances are within a factor ``alpha = (1+eps)/(1-eps)`` of the exact ones, and the dictionary
    has ``O(d_eff)`` points. In practice 1 to 10 is enough.

    If no scores are given, the rule finds them by doubling. The exact scores of a random block of
    the data give a dictionary. With it twice as many inputs are scored, and so on. ``n`` inputs
    cost ``O(n m^2)``, and no ``n x n`` matrix is built. An optimizer doubles with an oversampling
    of at least 4, and draws its dictionary by the scores of all inputs with its own.

    A draw that misses a direction makes the next scores too large, and with them the next draw. In
    the example below this happened with an oversampling of 2 for one seed in twelve (1,765 points
    instead of about ten). With 4 and 8 it never happened.

    Args:
        oversampling: The papers' ``q̄``. In an optimizer it may be ``"theory"``, the theorem's value
            for the ``horizon``.
        max_size: The largest size. If more points are drawn, a random part of them is kept: all
            probabilities are lowered by the same factor. An optimizer over arms keeps those of
            highest score instead (:func:`~botorch_bkb.dictionaries.capped` says why). One warning
            says how much of the prior variance is unexplained. The accuracy theorem then no longer
            applies.
        noise_var: The noise variance assumed when used as a BoTorch allocator.
        generator: The source of randomness for calls that pass none.
        coupled: In an optimizer, whether the coin of each pull is kept from one draw to the next.
            Each draw then has the same law and fewer points change, but the proofs require fresh
            coins. With fresh coins and little oversampling every arm is left out from time to time.
            Its bound then jumps up however often it was pulled.
        horizon: In an optimizer, the expected number of observations ``T``. If a run outlasts it,
            it is doubled and the oversampling is raised (BKB, Section 3.2).

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import RidgeLeverageSampling
        >>> X = torch.linspace(0, 1, 2000, dtype=torch.float64).unsqueeze(-1)
        >>> rule = RidgeLeverageSampling(oversampling=8.0)
        >>> noise, seeded = torch.full((2000,), 0.1).double(), torch.Generator().manual_seed(0)
        >>> len(rule.select(X, RBFKernel().double(), noise, generator=seeded)) < 100
        True

    Reference:
        Calandriello et al., COLT 2019. (BKB, Algorithm 1, Theorem 1.) The doubling follows Musco,
        Musco: Recursive sampling for the Nyström method. NeurIPS 2017.
    """

    oversampling: float | str = 4.0
    max_size: int | None = None
    noise_var: float = 0.01
    generator: torch.Generator | None = field(default=None, compare=False, repr=False)
    coupled: bool = True
    horizon: int | None = None

    #: The size of the first block, whose scores are exact.
    first_block = 512

    def __post_init__(self) -> None:
        value = self.oversampling
        if value != THEORY and (isinstance(value, str) or not 0 < value < math.inf):
            raise InputDataError(
                f'oversampling must be positive and finite, or "theory", got {value!r}: 1 to 10 '
                "is usual. For all points pass dictionary=AllPoints()."
            )
        if value == THEORY and self.horizon is None:
            raise InputDataError('oversampling="theory" needs a horizon: pass horizon=T.')
        if not isinstance(self.coupled, bool):
            raise InputDataError(f"coupled must be True or False, got {self.coupled!r}.")
        check_max_size(self.max_size)
        check_positive_integer("horizon", self.horizon)

    @property
    def keeps_coins(self) -> bool:
        r"""Whether an optimizer keeps the coins of pulls, so that its draws are coupled."""
        return self.coupled

    @property
    def is_at_theory(self) -> bool:
        r"""Whether the oversampling is that of the theorems."""
        return self.oversampling == THEORY

    @property
    def rate(self) -> float:
        r"""The oversampling as a number.

        Raises:
            InputDataError: If it is ``"theory"``, which only an optimizer can resolve.
        """
        if isinstance(self.oversampling, str):
            raise InputDataError(
                'oversampling="theory" depends on delta and on the batches of an optimizer, got it '
                "in a model: pass a number, such as botorch_bkb.confidence.bkb_oversampling(n, "
                "delta)."
            )
        return self.oversampling

    def at_theory(self, delta: float, delay: float, accuracy: float) -> RidgeLeverageSampling:
        r"""Return the rule with ``"theory"`` replaced by the oversampling of the theorems.

        It is BKB's oversampling times the delay. For ``accuracy=0.5`` this is BBKB's.

        Args:
            delta: Failure probability.
            delay: The factor by which variances may fall before the dictionary is drawn again.
            accuracy: ``eps`` of the theorems.
        """
        if self.oversampling != THEORY:
            return self
        assert self.horizon is not None
        return replace(self, oversampling=delay * bkb_oversampling(self.horizon, delta, accuracy))

    def outlasting(self, num_observations: int, delta: float) -> RidgeLeverageSampling:
        r"""Return the rule with the horizon doubled until it is at least ``num_observations``.

        Both theorems' oversampling grows with ``log(4 T / delta)`` (BKB, Section 3.2).

        Args:
            num_observations: The number of results so far.
            delta: Failure probability.
        """
        rate, horizon = self.rate, self.horizon
        if horizon is None or num_observations <= horizon:
            return self
        while num_observations > horizon:
            now, then = (math.log(4 * T / delta) for T in (2 * horizon, horizon))
            horizon, rate = 2 * horizon, rate * now / then
        return replace(self, oversampling=rate, horizon=horizon)

    def draw(self, inputs: ObservedInputs, generator: torch.Generator) -> Draw:
        r"""Draw a dictionary by the scores before the last results, or by those of doubling."""
        scores = inputs.scores
        if scores is None:
            scout = replace(self, oversampling=max(self.rate, FROM_SCRATCH))
            candidates = Candidates(inputs.X, inputs.kernel, inputs.noise, None, inputs.counts)
            scores = largest_over_batch(scout.scores_by_doubling(candidates, generator))
        coins = inputs.coins if self.coupled else smallest_coins(inputs.counts, generator)
        if isinstance(scores, ScoreBounds):
            scores = scores.where(coins < self._probability(scores.upper))
        drawn = self.drawn(scores, coins, inputs.newest)
        return capped(drawn, inputs, coins, self.max_size, self._probability(scores))

    def _select(self, inputs: Candidates, generator: torch.Generator | None) -> Tensor:
        return self.choose(inputs, generator).positions

    def choose(self, inputs: Candidates, generator: torch.Generator | None = None) -> Draw:
        r"""Draw by the scores that are given or by its own, and return the number drawn."""
        X, scores = inputs.X, inputs.scores
        generator = generator or self.generator
        if scores is None:
            scores = self.scores_by_doubling(inputs, generator)
        everything = torch.arange(X.shape[-2], device=X.device)
        return self._draw(X, everything, scores, inputs.counts, generator)

    def scores_by_doubling(
        self, inputs: Candidates, generator: torch.Generator | None = None
    ) -> Tensor:
        r"""Return leverage scores of all inputs, ``batch x n``, by a dictionary drawn among half.

        Args:
            inputs: The inputs; their scores are not used.
            generator: Source of randomness; torch's global one by default.
        """
        X, kernel, noise, _, counts = inputs
        n = X.shape[-2]
        order = torch.randperm(n, generator=generator, device=device_of(generator)).to(X.device)
        sizes = [n]
        while sizes[0] > self.first_block:
            sizes.insert(0, (sizes[0] + 1) // 2)
        chosen = order[: sizes[0]]
        for size in sizes:
            seen = torch.arange(n, device=X.device) if size == n else order[:size]
            weight = None if counts is None else counts[seen]
            scores = data_leverage(
                kernel, X[..., chosen, :], X[..., seen, :], noise[..., seen], weight
            )
            if size < n:
                chosen = self._draw(X, seen, scores, weight, generator).positions
        return scores

    def _draw(self, X, candidates, scores, counts, generator):
        scores = largest_over_batch(scores)
        coins = smallest_coins(torch.ones_like(scores) if counts is None else counts, generator)
        drawn, probability = self.drawn(scores, coins), self._probability(scores)
        # Of equal rows the one that would stay longest stands for the others.
        drawn = drawn[(coins / probability)[drawn].argsort()]
        drawn = drawn[first_occurrences(X[..., candidates[drawn], :])]
        kept, num_drawn = thinned(drawn, coins, self.max_size, probability)
        return Draw(candidates[kept].sort().values, num_drawn)

    def drawn(self, scores: Tensor, coins: Tensor, newest: int | None = None) -> Tensor:
        r"""Return the positions of the inputs whose smallest coin is below ``min(1, q̄ tau)``.

        Args:
            scores: ``n`` leverage scores of single pulls.
            coins: ``n`` smallest coins of the pulls of each input (:func:`smallest_coins`).
            newest: The input to keep if none is drawn, since an empty dictionary explains nothing.
        """
        drawn = torch.nonzero(coins < self._probability(scores)).squeeze(-1)
        if len(drawn) == 0:
            newest = len(scores) - 1 if newest is None else newest
            drawn = torch.tensor([newest], device=scores.device)
        return drawn

    def _probability(self, scores: Tensor) -> Tensor:
        return (self.rate * scores).clamp(max=1.0)

    def inclusion_probability(self, scores: Tensor, counts: Tensor | None = None) -> Tensor:
        r"""Return ``1 - (1 - min(1, q̄ tau))^c`` for each input (``c = 1`` without counts)."""
        p = self._probability(scores)
        if counts is None:
            return p
        return torch.where(counts > 0, -torch.expm1(counts * torch.log1p(-p)), 0.0)

    def is_random(self, n: int) -> bool:
        r"""Return True, since every selection is random."""
        return True

    def _capped(self, size: int) -> DictionaryRule:
        return replace(self, max_size=min(size, self.max_size or size))
