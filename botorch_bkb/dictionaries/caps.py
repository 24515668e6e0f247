r"""What happens where more points are drawn than a dictionary may have."""

from __future__ import annotations

import warnings

import torch
from botorch.exceptions.warnings import BotorchWarning
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.belief import chunks, coordinates, dictionary_root, kernel_diagonal
from botorch_bkb.dictionaries.observed import Draw, ObservedInputs
from botorch_bkb.validation import level_of_user


def thinned(
    drawn: Tensor, coins: Tensor, max_size: int | None, probability: Tensor | None = None
) -> Draw:
    r"""Keep at most ``max_size`` of the inputs that coins have drawn, by the same coins.

    A pull was drawn if its coin ``u`` is below its probability ``p``. Those with the smallest
    ``u / p`` are kept. This lowers all probabilities by the same factor ``s`` until few enough
    are left: the result is ``{i: u_i < s p_i}``. Where no ``p = min(1, q̄ tau)`` is 1, it is the
    draw with the oversampling ``s q̄``. Given that a single pull was drawn, ``u / p`` is uniform.
    So the kept inputs are a uniformly random part of those drawn. A smaller ``max_size`` keeps a
    subset. If an optimizer keeps its coins, consecutive dictionaries differ little.

    In a regression the inputs of highest score are the outlying ones. To keep these was the worst
    of all rules that were measured (study ``caps`` of the benchmarks). ``u / tau``, which lowers
    the oversampling itself, prefers them where many probabilities are 1, and was a little worse.

    Args:
        drawn: ``k`` positions of distinct inputs.
        coins: ``n`` numbers, for each input the smallest of one coin per pull.
        max_size: The largest number of inputs to keep; None for no limit.
        probability: ``n`` probabilities of a single pull to be drawn; 1 by default.

    Example:
        >>> import torch
        >>> coins = torch.tensor([0.1, 0.3, 0.2, 0.9])
        >>> thinned(torch.tensor([0, 1, 2]), coins, 2, torch.tensor([0.2, 1.0, 0.5, 0.5]))
        Draw(positions=tensor([1, 2]), num_drawn=3)
    """
    if max_size is None or len(drawn) <= max_size:
        return Draw(drawn, len(drawn))
    ratio = coins[drawn] if probability is None else coins[drawn] / probability[drawn]
    kept = drawn[ratio.topk(max_size, largest=False).indices]
    return Draw(kept.sort().values, len(drawn))


def capped(
    drawn: Tensor,
    inputs: ObservedInputs,
    coins: Tensor,
    max_size: int | None,
    probability: Tensor | None = None,
) -> Draw:
    r"""Keep at most ``max_size`` of the inputs drawn for an optimizer.

    Over a box and a tree they are thinned at random (:func:`thinned`). Over arms those of highest
    score are kept. An arm that was pulled and is left out has a high bound again, and is pulled
    until it is back. With the highest scores kept, that happens to arms that were pulled most,
    which are good ones. With random thinning it happens to any arm. The regret was then 1.6 and 2.3
    times as large, while over a box the highest scores had 1.7 times the regret of thinning (study
    ``caps`` of the benchmarks).

    Args:
        drawn: ``k`` positions of distinct inputs.
        inputs: The inputs observed so far.
        coins: ``n`` numbers, for each input the smallest of one coin per pull.
        max_size: The largest number of inputs to keep; None for no limit.
        probability: ``n`` probabilities of a single pull to be drawn; 1 by default.
    """
    if max_size is None or len(drawn) <= max_size or not inputs.recur:
        return thinned(drawn, coins, max_size, probability)
    if not isinstance(inputs.scores, Tensor):
        return thinned(drawn, coins, max_size, probability)
    kept = drawn[inputs.scores[drawn].topk(max_size).indices]
    return Draw(kept.sort().values, len(drawn))


@torch.no_grad()
def unexplained(kernel: Kernel, points: Tensor, X: Tensor, counts: Tensor | None = None) -> float:
    r"""Compute the share of the prior variance at the data that a dictionary leaves unexplained.

    .. code-block:: text

        sum_i c_i (k(x_i,x_i) - |z(x_i)|^2) / sum_i c_i k(x_i,x_i)

    It is the trace of the error of the Nyström approximation of the kernel matrix, relative to the
    trace of the matrix. This takes ``O(n m^2)`` time. In batch mode the sums extend over batches.

    Args:
        kernel: The covariance module.
        points: Dictionary inputs, ``batch x m x d``.
        X: Inputs, ``batch x n x d``.
        counts: Numbers of pulls ``c``, ``n``; 1 by default.

    Example:
        Of two points far apart the dictionary has one:

        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> X = torch.tensor([[0.0], [100.0]], dtype=torch.float64)
        >>> round(unexplained(RBFKernel().double(), X[:1], X), 6)
        0.5
    """
    root = dictionary_root(kernel, points)
    residual = prior = 0.0
    for rows in chunks(X.shape[-2]):
        x = X[..., rows, :]
        k = kernel_diagonal(kernel, x)
        explained = coordinates(kernel, x, points, root).square().sum(-1)
        weight = 1.0 if counts is None else counts[rows]
        residual += float((weight * (k - explained).clamp_min(0.0)).sum())
        prior += float((weight * k).sum())
    return residual / prior if prior > 0 else 0.0


def warn_capped(
    draw: Draw, X: Tensor, kernel: Kernel, argument: str, counts: Tensor | None = None
) -> None:
    r"""Warn that a dictionary was capped, and say how much it leaves unexplained.

    Args:
        draw: The dictionary and how many points were drawn. There is no warning if all were kept.
        X: ``batch x n x d`` inputs, among which it was drawn.
        kernel: The covariance module.
        argument: The name of the argument that limits the size.
        counts: ``n`` numbers of pulls; 1 by default.
    """
    if not draw.is_capped:
        return
    share = unexplained(kernel, X[..., draw.positions, :], X, counts)
    warnings.warn(
        f"{draw.num_drawn} dictionary points were drawn and {len(draw.positions)} of them kept. "
        f"They leave {100 * share:.2g} % of the prior variance at the data unexplained, and "
        "accuracy is no longer guaranteed. Little noise or a short lengthscale makes the "
        f"effective dimension this large. Raise {argument} if time permits (it grows with its "
        "square).",
        BotorchWarning,
        stacklevel=level_of_user(),
    )
