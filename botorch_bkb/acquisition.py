r"""Helpers for acquisition functions on models with many observations."""

from __future__ import annotations

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.utils import get_train_inputs
from torch import Tensor

from botorch_bkb.belief import chunks
from botorch_bkb.dictionaries import first_occurrences
from botorch_bkb.models import DTCGP


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
    posterior mean and, from the dictionary, half of highest ``mean + 2 sd``. A heuristic: with
    ``max_size >= n`` it is all inputs.

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
