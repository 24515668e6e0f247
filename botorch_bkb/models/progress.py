r"""A progress bar for long fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def fit_progress() -> dict[str, Callable[..., None]]:
    r"""Return ``optimizer_kwargs`` that show the progress of a fit.

    A tqdm bar counts the steps of the optimizer and shows the loss, which is the negative log
    marginal likelihood per observation. It is shown only if standard error is a terminal. Each step
    then evaluates the likelihood once more. With several outputs or batches BoTorch passes on no
    loss, and the bar counts the steps of all.

    Returns:
        A dict with BoTorch's ``callback``, to which other ``optimizer_kwargs`` can be added.

    Example:
        >>> import torch
        >>> from botorch.fit import fit_gpytorch_mll
        >>> from gpytorch.mlls import ExactMarginalLogLikelihood
        >>> from botorch_bkb import DTCGP, fit_progress
        >>> X = torch.rand(20, 2, dtype=torch.float64)
        >>> model = DTCGP(X, X.sum(-1, keepdim=True))
        >>> mll = ExactMarginalLogLikelihood(model.likelihood, model)
        >>> mll = fit_gpytorch_mll(mll, optimizer_kwargs=fit_progress())
    """
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "fit_progress needs tqdm, which is not installed: pip install 'botorch-bkb[progress]'."
        ) from error
    bar = tqdm(disable=None, unit="step", desc="fit")

    def advance(*arguments: Any) -> None:
        bar.update()
        if (loss := getattr(arguments[-1], "fval", None)) is not None:
            bar.set_postfix(loss=f"{float(loss):.6g}")

    return {"callback": advance}
