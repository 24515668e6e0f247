r"""Which results enter the belief: all, or those that teach something."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_bkb.arms import ArmTable
from botorch_bkb.dictionaries import score_threshold
from botorch_bkb.linalg import scan_informative

MODES = ("skip", "evaluate", "stop")


@dataclass(frozen=True)
class Compression:
    r"""The information threshold of an optimizer.

    A result at ``x`` is informative if ``tau(x) > e^{2 epsilon} - 1`` under the belief at its time
    (:func:`~botorch_bkb.dictionaries.score_threshold`).

    Args:
        epsilon: The threshold in nats; 0 finds everything informative.
        discard: Whether results that are not informative are left out of the belief. Otherwise
            they inform it through the others: DTC with the kept points as dictionary, where an
            optimizer does not draw its own. Results told together are judged by what is kept of
            them, not by what else is told.
        on_uninformative: What becomes of a candidate that is not informative. ``"skip"``: it
            counts as a step and no result is expected; ``"evaluate"``: as any other; ``"stop"``:
            :class:`~botorch_bkb.ConvergedError` is raised.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import GPUCB, Compression
        >>> rule = Compression(epsilon=0.5, on_uninformative="evaluate")
        >>> round(rule.threshold, 3)
        1.718
        >>> arms = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> given = {"covar_module": RBFKernel(), "noise_var": 0.1}
        >>> optimizer = GPUCB(arms, compression=rule, seed=0, **given)
        >>> optimizer.tell(range(50), torch.sin(arms))
        >>> optimizer.num_observations, optimizer.model_order
        (50, 5)

    Reference:
        Bedi et al., 2020. (Compressed GP bandits, Algorithm 1, eq. 2.11-2.12. ``"evaluate"``,
        ``"stop"`` and ``discard=False`` are not in the paper.)
    """

    epsilon: float = 1e-4
    discard: bool = True
    on_uninformative: str = "skip"

    def __post_init__(self) -> None:
        score_threshold(self.epsilon)
        if not isinstance(self.discard, bool):
            raise InputDataError(f"discard must be True or False, got {self.discard!r}.")
        if self.on_uninformative not in MODES:
            raise InputDataError(
                f"on_uninformative must be one of {', '.join(MODES)}, got "
                f"{self.on_uninformative!r}."
            )

    @property
    def threshold(self) -> float | None:
        r"""The score that must be exceeded; None where everything is informative."""
        return score_threshold(self.epsilon) if self.epsilon else None

    @property
    def ends_batch(self) -> bool:
        r"""Whether a candidate that is not informative is the last of its batch."""
        return self.on_uninformative != "evaluate"

    def kept(self, table: ArmTable, rows: Tensor, weights: Tensor) -> Tensor:
        r"""Which of some results, taken in order, are informative: ``q`` booleans.

        Args:
            table: The belief before them.
            rows: ``q`` rows of the table.
            weights: ``q`` numbers ``lambda / v`` for results with noise variance ``v``.
        """
        mask = torch.ones_like(rows, dtype=torch.bool)
        if self.threshold is None:
            return mask
        noise = table.noise_var / weights
        kept, _ = scan_informative(table.covariance(rows), noise, self.threshold)
        return torch.zeros_like(mask).index_fill(0, kept, True)


#: Everything enters the belief.
NO_COMPRESSION = Compression(epsilon=0.0, on_uninformative="evaluate")
