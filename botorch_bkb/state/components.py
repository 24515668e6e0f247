r"""The states of the model, the dictionary, the confidence bounds and the tree."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from botorch_bkb.domains.partition import PartitionTree
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.units import UnitCube


@dataclass(frozen=True, eq=False)
class ModelState:
    r"""The hyperparameters, and when they are fitted next.

    Attributes:
        hyper: The hyperparameters.
        scale: How inputs are scaled for the kernel; None where it takes them as they are.
        next_fit: The number of observations at which hyperparameters are fitted next.
        noise_known: Noise variance in units of the rewards, where it is not fitted.
        fitted_at: The number of observations at the last fit; zero before the first.
    """

    hyper: Hyperparameters
    scale: UnitCube | None
    next_fit: int
    noise_known: float | None
    fitted_at: int = 0

    def inputs(self, X: Tensor) -> Tensor:
        r"""Return the user's inputs as the model sees them."""
        return X if self.scale is None else self.scale.to_unit(X)

    def with_hyperparameters(self, hyper: Hyperparameters) -> ModelState:
        r"""Return other hyperparameters that were not fitted."""
        return replace(self, hyper=hyper)

    def with_fit(self, hyper: Hyperparameters, fitted_at: int, next_fit: int) -> ModelState:
        r"""Return the hyperparameters of a fit to so many observations, and when to fit next."""
        return replace(self, hyper=hyper, fitted_at=fitted_at, next_fit=next_fit)

    def with_known_noise(self, noise_var: float) -> ModelState:
        r"""Return hyperparameters with a known noise variance, in units of the rewards."""
        hyper = replace(self.hyper, noise_var=self.hyper.units.variance_to_model(noise_var))
        return replace(self, hyper=hyper, noise_known=noise_var)


@dataclass(frozen=True, eq=False)
class DictionaryState:
    r"""What draws of the dictionary depend on, besides the belief.

    Attributes:
        coins: For each row of the history the smallest coin of its pulls.
        is_current: Whether the dictionary was drawn after the last observation.
        num_unsolicited: Unsolicited results since the dictionary was drawn.
    """

    coins: Tensor
    is_current: bool = True
    num_unsolicited: int = 0

    def with_pulls(self, coins: Tensor, num_unsolicited: int) -> DictionaryState:
        r"""Return the state after more pulls, with their coins, before the next draw."""
        return DictionaryState(coins, False, self.num_unsolicited + num_unsolicited)

    def drawn(self) -> DictionaryState:
        r"""Return the state after a draw."""
        return DictionaryState(self.coins)

    def reordered(self, order: Tensor) -> DictionaryState:
        r"""Return the state for a history whose rows have another order, or for some of them."""
        return replace(self, coins=self.coins[order] if len(self.coins) else self.coins)


@dataclass(frozen=True, eq=False)
class ConfidenceState:
    r"""What the width of the bounds depends on, besides the belief.

    Attributes:
        norm_bound: ``F``, as doubled so far.
        log_sum: ``sum_s log(1 + tau)``, with the scores logged when points were chosen.
        log_sum_alpha: ``sum_s log(1 + alpha tau)``, with ``alpha`` of the papers' theorems.
    """

    norm_bound: float
    log_sum: float = 0.0
    log_sum_alpha: float = 0.0

    def with_scores(self, scores: Tensor, alpha: float) -> ConfidenceState:
        r"""Return the sums with the scores of more results."""
        return replace(
            self,
            log_sum=self.log_sum + float(scores.log1p().sum()),
            log_sum_alpha=self.log_sum_alpha + float((alpha * scores).log1p().sum()),
        )

    def with_norm_doubled(self) -> ConfidenceState:
        r"""Return the state with twice the norm bound."""
        return replace(self, norm_bound=2 * self.norm_bound)

    def rescored(self, log_determinant: float, alpha: float) -> ConfidenceState:
        r"""Return the sums where one model scores all points at once."""
        return replace(self, log_sum=log_determinant, log_sum_alpha=alpha * log_determinant)


@dataclass(frozen=True, eq=False)
class TreeState:
    r"""The cells of a box that is searched through a tree.

    Attributes:
        tree: The cells.
        rows: The row of each cell's centre in the table.
        radii: How far a function of norm one varies within each cell; None where the present
            hyperparameters have not been asked.
    """

    tree: PartitionTree
    rows: Tensor
    radii: Tensor | None = None

    @classmethod
    def over(cls, bounds: Tensor) -> TreeState:
        r"""Return the tree of one cell: the box with ``2 x d`` bounds."""
        root = PartitionTree.over(bounds)
        return cls(root, torch.zeros_like(root.parent))

    def unpruned(self) -> TreeState:
        r"""Return the same cells for another belief, whose bounds prune none of them."""
        return replace(self, tree=self.tree.restored())

    def restored(self) -> TreeState:
        r"""Return the same cells for other hyperparameters: unpruned, and with unknown radii."""
        return replace(self.unpruned(), radii=None)
