r"""Acquisition functions for models with many observations."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models.model import Model
from botorch.sampling.pathwise.utils import get_train_inputs
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Tensor

from botorch_bkb.belief import chunks
from botorch_bkb.dictionaries import first_occurrences
from botorch_bkb.models import DTCGP
from botorch_bkb.models.sparse import SparseGP


class BudgetedUCB(AnalyticAcquisitionFunction):
    r"""The upper confidence bound of the papers, aware of pending points.

    .. code-block:: text

        u(x) = mean(x) + width sd(x | pending)

    Pending points are hallucinated: variances fall as if they had been observed, means stay (as in
    BBKB and GP-BUCB). So ``optimize_acqf(sequential=True)`` and ``optimize_acqf_discrete`` work for
    ``q > 1``, which BoTorch's ``UpperConfidenceBound`` refuses.

    Args:
        model: A single-outcome model; any BoTorch model that can be conditioned.
        width: In posterior standard deviations, ``sqrt(beta)`` of BoTorch's
            ``UpperConfidenceBound``; :mod:`botorch_bkb.confidence` has those of the theorems.
        posterior_transform: Makes one outcome of several.
        maximize: Whether the outcome is maximised; otherwise ``-mean + width sd``.
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
        r"""Points asked and not yet observed, ``p x d``."""
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
        r"""The bounds at ``b x 1 x d`` points, ``b``."""
        mean, sigma = self._mean_and_sigma(X)
        assert sigma is not None
        value = (mean if self.maximize else -mean) + self.width * sigma
        return value.squeeze(-1)  # the one outcome


@acqf_input_constructor(BudgetedUCB)
def _construct_budgeted_ucb(
    model: Model,
    posterior_transform: PosteriorTransform | None = None,
    width: float = 2.0,
    maximize: bool = True,
    X_pending: Tensor | None = None,
) -> dict[str, Any]:
    return {
        "model": model,
        "posterior_transform": posterior_transform,
        "width": width,
        "maximize": maximize,
        "X_pending": X_pending,
    }


@torch.no_grad()
def select_baseline(
    model: DTCGP,
    max_size: int = 100,
    posterior_transform: PosteriorTransform | None = None,
) -> Tensor:
    r"""A small ``X_baseline`` for noisy acquisition functions.

    ``qLogNoisyExpectedImprovement`` and its kin take a joint posterior over all of
    ``X_baseline``: with 50,000 observations that is impossible, and nearly all of them have no
    chance to be the best. This picks among the distinct training inputs half of highest
    posterior mean and, from the dictionary, half of highest ``mean + 2 sd``. With
    ``max_size >= n`` it is all inputs. A heuristic of this package; no paper's, and nothing is
    proved.

    Args:
        model: A model without batch dimension.
        max_size: How many inputs at the most.
        posterior_transform: Makes one output of several (or flips its sign for minimisation).

    Returns:
        A ``k x d`` tensor of inputs in the model's raw input space, ``k <= max_size``.

    Example:
        >>> import torch
        >>> from botorch.acquisition.logei import qLogNoisyExpectedImprovement
        >>> from botorch_bkb import DTCGP, select_baseline
        >>> X = torch.rand(1000, 2, dtype=torch.float64)
        >>> model = DTCGP(X, torch.sin(5 * X).sum(-1, keepdim=True))
        >>> acqf = qLogNoisyExpectedImprovement(model, X_baseline=select_baseline(model, 50))
        >>> acqf(torch.rand(4, 2, 2, dtype=torch.float64)).shape
        torch.Size([4])
    """
    if not isinstance(model, SparseGP):
        raise UnsupportedError(
            f"select_baseline needs a DTCGP or a CompressedGP, got {type(model).__name__}: where "
            "all points can be the baseline, pass them."
        )
    if model.batch_shape:
        raise UnsupportedError(
            f"select_baseline needs a model without batch dimension, got {model.batch_shape}."
        )
    if model.num_outputs > 1 and posterior_transform is None:
        raise UnsupportedError(
            f"select_baseline ranks one output, the model has {model.num_outputs}: pass a "
            "posterior_transform such as ScalarizedPosteriorTransform."
        )
    (X,) = get_train_inputs(model, transformed=False)
    X = X[0] if X.dim() > 2 else X  # one output's copy
    distinct = first_occurrences(X)
    X = X[distinct]
    if len(X) <= max_size:
        return X
    mean, sd = [], []
    for rows in chunks(len(X), 1024):
        posterior = model.posterior(X[rows].unsqueeze(-2), posterior_transform=posterior_transform)
        if posterior.mean.numel() != rows.stop - rows.start:
            raise UnsupportedError(
                "select_baseline needs one prediction an input, got an input transform that makes "
                f"{posterior.mean.shape[-2]} of one: choose the baseline yourself."
            )
        mean.append(posterior.mean.flatten())
        sd.append(posterior.variance.clamp_min(0).sqrt().flatten())
    value = torch.cat(mean)
    upper = value + 2 * torch.cat(sd)
    best = value.topk(min(len(X), max_size - max_size // 2)).indices
    in_dictionary = torch.isin(distinct, model.dictionary_indices)
    in_dictionary[best] = False
    others = torch.nonzero(in_dictionary).squeeze(-1)
    others = others[upper[others].topk(min(len(others), max_size - len(best))).indices]
    return X[torch.cat([best, others]).sort().values]
