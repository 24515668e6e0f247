r"""``select_baseline``: a small baseline for noisy acquisition functions."""

from __future__ import annotations

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models import ModelListGP
from botorch.sampling.pathwise.utils import get_train_inputs
from torch import Tensor

from botorch_bkb.belief import chunks
from botorch_bkb.dictionaries import first_occurrences
from botorch_bkb.models import DTCGP, MultiTaskDTCGP
from botorch_bkb.models.sparse import SparseGP


@torch.no_grad()
def select_baseline(
    model: DTCGP | ModelListGP,
    max_size: int = 100,
    posterior_transform: PosteriorTransform | None = None,
) -> Tensor:
    r"""Select a small ``X_baseline`` for noisy acquisition functions.

    ``qLogNoisyExpectedImprovement`` and its relatives need a joint posterior over all of
    ``X_baseline``. With 50,000 observations that is impossible, and nearly all of them have no
    chance to be the best. Half of the baseline are the distinct training inputs of highest
    posterior mean. The other half are the dictionary points of highest ``mean + 2 sd``. With
    ``max_size >= n`` the baseline is all inputs. This is a heuristic of this package; nothing is
    proved.

    Args:
        model: A model without batch dimension, or a ``ModelListGP`` of such models. Without a
            ``posterior_transform`` the baseline of a list has an equal share for each model.
        max_size: The largest number of inputs.
        posterior_transform: Reduces several outputs to one (or flips the sign for minimisation).

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
    parts = list(model.models) if isinstance(model, ModelListGP) else [model]
    models = [_checked(part) for part in parts]
    if len(models) > 1 and posterior_transform is None:
        return _shared(models, max_size)
    if model.num_outputs > 1 and posterior_transform is None:
        raise UnsupportedError(
            f"select_baseline ranks one output, the model has {model.num_outputs}: pass a "
            "posterior_transform such as ScalarizedPosteriorTransform."
        )
    X, in_dictionary = (torch.cat(parts) for parts in zip(*map(_inputs, models), strict=True))
    distinct = first_occurrences(X)
    X, in_dictionary = X[distinct], in_dictionary[distinct]
    if len(X) <= max_size:
        return X
    value, sd = _moments(model, X, posterior_transform)
    best = value.topk(max_size - max_size // 2).indices
    in_dictionary[best] = False
    others = torch.nonzero(in_dictionary).squeeze(-1)
    upper = (value + 2 * sd)[others]
    others = others[upper.topk(min(len(others), max_size - len(best))).indices]
    return X[torch.cat([best, others]).sort().values]


def _checked(model: object) -> SparseGP:
    if not isinstance(model, SparseGP):
        raise UnsupportedError(
            f"select_baseline needs a DTCGP, a CompressedGP or a ModelListGP of them, got "
            f"{type(model).__name__}: where all points can be the baseline, pass them."
        )
    if model.batch_shape:
        raise UnsupportedError(
            f"select_baseline needs a model without batch dimension, got {model.batch_shape}."
        )
    return model


def _shared(models: list[SparseGP], max_size: int) -> Tensor:
    r"""Return the union of the models' own baselines, each with an equal share of the size."""
    if max_size < len(models):
        raise InputDataError(
            f"The baseline of {len(models)} models needs at least as many inputs, got "
            f"max_size={max_size}: raise it, or pass a posterior_transform."
        )
    sizes = [max_size // len(models) + (i < max_size % len(models)) for i in range(len(models))]
    X = torch.cat([select_baseline(m, size) for m, size in zip(models, sizes, strict=True)])
    return X[first_occurrences(X)]


def _inputs(model: SparseGP) -> tuple[Tensor, Tensor]:
    r"""Return the inputs of a model, ``n x d``, and which of them are in the dictionary."""
    (X,) = get_train_inputs(model, transformed=False)
    X = X[0] if X.dim() > 2 else X  # one output's copy
    if isinstance(model, MultiTaskDTCGP):  # acquisition functions take inputs without tasks
        X = model.without_tasks(X)
    indices = model.dictionary_indices
    in_dictionary = torch.full(X.shape[:1], not len(indices), device=X.device)
    in_dictionary[indices] = True
    return X, in_dictionary


def _moments(
    model: DTCGP | ModelListGP, X: Tensor, posterior_transform: PosteriorTransform | None
) -> tuple[Tensor, Tensor]:
    r"""Return the posterior means and standard deviations of ``n x d`` inputs, ``n`` each."""
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
    return torch.cat(mean), torch.cat(sd)
