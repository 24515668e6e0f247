r"""From scores to the next dictionary, with coins that are fresh or kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb import confidence
from botorch_bkb.dictionaries import RidgeLeverageSampling
from botorch_bkb.dictionaries.leverage import highest, smallest_coins, warn_capped
from botorch_bkb.optimizers.history import History
from botorch_bkb.optimizers.width import Theorem

#: The least oversampling when a dictionary is drawn without scores; 2 was seen to be unstable.
FROM_SCRATCH = 4.0
#: The defaults. Arms are pulled again and again, and one left out of the dictionary looks as
#: if it never had been; points of a box are hardly ever repeated.
OVER_ARMS, OVER_A_BOX = 8.0, 2.0


def as_oversampling(
    oversampling: float | str, theorem: Theorem, delay: float, horizon: int | None, delta: float
) -> float:
    r"""``q̄`` as a number.

    Args:
        oversampling: A number, or ``"theory"``.
        theorem: Which theorem that is.
        delay: By how much variances may have fallen when the dictionary is drawn again.
        horizon: ``T``.
        delta: Failure probability.
    """
    if theorem in ("exact", "compressed"):
        return math.inf
    if oversampling != "theory":
        if isinstance(oversampling, str) or not oversampling > 0:
            raise InputDataError(
                f'oversampling must be positive or "theory", got {oversampling!r}: 1 to 10 is '
                "usual."
            )
        return float(oversampling)
    if horizon is None:
        raise InputDataError('oversampling="theory" needs a horizon: pass horizon=T.')
    if theorem == "bkb":
        # A pick that is held keeps its scores for longer, by the factor its rule allows.
        return delay * confidence.bkb_oversampling(horizon, delta)
    return confidence.bbkb_oversampling(horizon, delta, delay)


@dataclass
class Resampling:
    r"""Draws dictionaries among the rows of a history.

    Args:
        coupled: Keep the coins of earlier pulls.
        max_size: The most points; the highest scores are kept, with one warning.
    """

    coupled: bool
    max_size: int | None
    warned: bool = False

    def coins(
        self, old: History, coins: Tensor, new: History, generator: torch.Generator
    ) -> Tensor:
        r"""The smallest coin of every row of ``new``; nothing unless coupled.

        Args:
            old: The history before some pulls.
            coins: The coins of its rows.
            new: The history after them.
            generator: Source of randomness.
        """
        if not self.coupled:
            return coins
        place = torch.searchsorted(new.rows, old.rows)
        pulls = new.counts.index_add(0, place, old.counts, alpha=-1)
        kept = torch.ones_like(pulls).index_copy(0, place, coins)
        return torch.minimum(kept, smallest_coins(pulls, generator))

    def draw(
        self,
        scores: Tensor,
        history: History,
        coins: Tensor,
        oversampling: float,
        newest: int,
        generator: torch.Generator,
    ) -> Tensor:
        r"""Rows of the next dictionary.

        Args:
            scores: Scores of single pulls of each row, under the model before the update.
            history: What was observed.
            coins: The coins kept so far.
            oversampling: ``q̄``.
            newest: The row to keep if none is drawn.
            generator: Source of randomness.
        """
        if not self.coupled:
            coins = smallest_coins(history.counts, generator)
        newest = int(torch.searchsorted(history.rows, newest))
        drawn = RidgeLeverageSampling(oversampling).drawn(scores, coins, newest)
        return history.rows[self.capped(drawn, scores)]

    def draw_from_scratch(
        self,
        X: Tensor,
        kernel: Kernel,
        noise: Tensor,
        history: History,
        oversampling: float,
        generator: torch.Generator,
    ) -> Tensor:
        r"""The same where the old model's scores say little: many inputs at once, none asked for.

        Args:
            X: ``n x d`` inputs of the history, as the model sees them.
            kernel: The covariance module.
            noise: ``n`` noise variances of single pulls.
            history: What was observed.
            oversampling: ``q̄``.
            generator: Source of randomness.
        """
        rule = RidgeLeverageSampling(max(oversampling, FROM_SCRATCH), self.max_size)
        drawn = rule.select(X, kernel, noise, counts=history.counts, generator=generator)
        return history.rows[drawn]

    def capped(self, drawn: Tensor, scores: Tensor) -> Tensor:
        r"""At most ``max_size`` of the positions ``drawn``, sorted."""
        kept = highest(drawn, scores, self.max_size)
        if len(kept) < len(drawn) and not self.warned:
            warn_capped(len(drawn), len(kept), "max_dictionary")
            self.warned = True
        return kept.sort().values
