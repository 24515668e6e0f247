r"""``BudgetedUCB``: upper confidence bounds that know of pending points."""

from __future__ import annotations

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import InputDataError
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Tensor

from botorch_bkb.acquisition.closed import Partials
from botorch_bkb.acquisition.scores import MarginalScore


class BudgetedUCB(MarginalScore):
    r"""The upper confidence bound of the papers, conditioned on pending points.

    .. code-block:: text

        u(x) = mean(x) + width sd(x | pending)

    Pending points are hallucinated: variances fall as if they had been observed, means stay (as in
    BBKB and GP-BUCB). So ``optimize_acqf(sequential=True)`` and ``optimize_acqf_discrete`` work for
    ``q > 1``, which BoTorch's ``UpperConfidenceBound`` refuses.

    Args:
        model: A single-outcome model; any BoTorch model that can be conditioned.
        width: The width in posterior standard deviations, ``sqrt(beta)`` of BoTorch's
            ``UpperConfidenceBound``; :mod:`botorch_bkb.confidence` has the theorems' widths.
        posterior_transform: Reduces several outcomes to one.
        maximize: Whether the outcome is maximised; otherwise the value is ``-mean + width sd``.
        X_pending: ``p x d`` points asked and not yet observed.

    Example:
        >>> import torch
        >>> from botorch.optim import optimize_acqf
        >>> from botorch_bkb import DTCGP, BudgetedUCB
        >>> X = torch.rand(20, 1, dtype=torch.float64)
        >>> ucb = BudgetedUCB(DTCGP(X, torch.sin(6 * X)), width=2.0)
        >>> cube = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> candidates, _ = optimize_acqf(
        ...     ucb, cube, q=3, num_restarts=2, raw_samples=16, sequential=True
        ... )
        >>> candidates.shape
        torch.Size([3, 1])

    Reference:
        Calandriello et al., ICML 2020 (BBKB, Algorithm 1); Desautels, Krause, Burdick, JMLR 2014.
    """

    def __init__(
        self,
        model: Model,
        width: float,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model, posterior_transform=posterior_transform)
        if not 0 <= width < float("inf"):
            raise InputDataError(f"width must be finite and not negative, got {width}.")
        self.width, self.maximize = width, maximize
        self._unconditioned = [model]  # in a list: not a submodule a second time
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        r"""Set the points asked and not yet observed, ``p x d``."""
        (model,) = self._unconditioned
        self.X_pending = X_pending  # type: ignore[assignment]
        self.model = model
        if X_pending is None or len(X_pending) == 0:
            return
        with torch.no_grad():
            mean = model.posterior(X_pending).mean  # type: ignore[attr-defined]
            noise = {}
            if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
                noise["noise"] = torch.full_like(mean, float(model.likelihood.noise.mean()))
            self.model = model.condition_on_observations(X_pending, mean, **noise)

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        r"""Return ``b`` bounds at ``b x 1 x d`` points."""
        return super().forward(X)

    def score(self, mean: Tensor, sd: Tensor) -> Partials:
        r"""Return the bounds and their derivatives."""
        sign = 1.0 if self.maximize else -1.0
        return Partials(sign * mean + self.width * sd, sign, self.width)
