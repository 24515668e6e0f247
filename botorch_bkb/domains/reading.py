r"""Functions that read results: points as rows of the table, rewards and variances as tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_bkb.domains.suggestion import Suggestion
from botorch_bkb.rows import RowIndex, take_rows
from botorch_bkb.validation import (
    check_dense,
    check_finite,
    check_precision,
    check_squares,
    check_variances,
)

#: The largest absolute reward; the squares of much larger ones overflow.
LARGEST = 1e150
#: Smallest noise variance of a result, relative to that of the belief.
SMALLEST_RATIO = 1e-18
#: Largest one, as weights are one over it.
LARGEST_RATIO = 1e200


class Points(NamedTuple):
    r"""Points of told results, as rows of the table."""

    rows: Tensor  #: ``q`` rows; those of ``added`` come after all others
    added: Tensor  #: ``h x d`` distinct inputs that are not in the table yet
    ids: tuple[int | None, ...]  #: ids of the pending points that they answer, else None


def check_arms(arms: Any) -> None:
    r"""Raise unless ``arms`` is a finite, floating ``A x d`` tensor."""
    if not isinstance(arms, Tensor) or arms.dim() != 2 or 0 in arms.shape:
        got = f"shape {tuple(arms.shape)}" if isinstance(arms, Tensor) else type(arms).__name__
        raise BotorchTensorDimensionError(
            f"arms must be an A x d tensor with at least one row and one column, got {got}: "
            "convert with torch.as_tensor(arms), numbers in a row with arms.unsqueeze(-1)."
        )
    check_precision("arms", arms)
    check_finite("arms", arms)


def read_points(
    points: Suggestion | Tensor | Sequence,
    arms: RowIndex,
    added: Tensor,
    pending: Mapping[int, int],
) -> Points:
    r"""Convert the points of told results to rows of the table.

    Args:
        points: A suggestion, ``q`` rows of the arms, or ``q x d`` inputs.
        arms: The arms, with an index of their rows.
        added: Inputs suggested or observed earlier that are not arms.
        pending: The rows of the pending points, by id.
    """
    if isinstance(points, Suggestion):
        return _read_suggestion(points, arms, added, pending)
    try:
        values = as_real("Points", points, device=added.device)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputDataError(
            "Points must be a Suggestion, a list of rows of the arms or a q x d tensor, got "
            f"{type(points).__name__}: {error}"
        ) from None
    if values.shape == (0,):
        return Points(values.long(), added[:0], ())
    if values.is_floating_point():
        rows, new = _read_inputs(values, arms, added)
    else:
        rows, new = _read_indices(values, arms), added[:0]
    return Points(rows, new, _answers(rows.tolist(), pending))


def _read_suggestion(
    points: Suggestion, arms: RowIndex, added: Tensor, pending: Mapping[int, int]
) -> Points:
    expected = [id_ for id_ in points.ids if id_ >= 0]
    unknown = [id_ for id_ in expected if id_ not in pending]
    if unknown or len(set(expected)) < len(expected):
        raise InputDataError(
            f"Points {unknown or list(points.ids)} of the suggestion are not pending: each can be "
            "told once, to the optimizer that suggested it. Tell further results of the same arms "
            "by their indices."
        )
    rows = torch.tensor(
        [pending[id_] if id_ >= 0 else -1 for id_ in points.ids],
        dtype=torch.long,
        device=added.device,
    )
    asked = rows >= 0
    known = take_rows(arms.X, added, rows[asked])
    if points.X.shape != (len(rows), known.shape[-1]) or not torch.equal(
        points.X.to(known)[asked], known
    ):
        raise InputDataError(
            "The suggestion's points are not those asked under its ids: tell it to the optimizer "
            "that suggested it."
        )
    if asked.all():
        return Points(rows, added[:0], points.ids)
    # A user may still evaluate points that were to be skipped. They are found by their inputs.
    rows[~asked], new = _read_inputs(points.X[~asked], arms, added)
    return Points(rows, new, tuple(id_ if id_ >= 0 else None for id_ in points.ids))


def _read_indices(values: Tensor, arms: RowIndex) -> Tensor:
    if values.dtype == torch.bool or values.is_complex() or values.dim() > 1:
        raise BotorchTensorDimensionError(
            "Points must be a Suggestion, q integers (rows of the arms) or a q x d floating point "
            f"tensor, got {values.dtype} of shape {tuple(values.shape)}."
        )
    values, num_arms = values.long().reshape(-1), len(arms.X)
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < num_arms:
        raise InputDataError(
            f"Indices must lie in 0..{num_arms - 1}, the rows of the arms, got "
            f"{int(values.min())}..{int(values.max())}: tell points that are not arms as X."
        )
    return arms.first[values]


def _read_inputs(X: Tensor, arms: RowIndex, added: Tensor) -> tuple[Tensor, Tensor]:
    d = arms.X.shape[-1]
    if X.dim() != 2 or X.shape[-1] != d:
        raise BotorchTensorDimensionError(
            f"X must be q x {d}, as the arms, got shape {tuple(X.shape)}: indices must be "
            "integers, and a single point needs a first dimension of one."
        )
    X = X.to(arms.X)
    check_squares("X", X)
    rows = arms.find(X)
    if len(added):
        earlier = RowIndex(added).find(X)
        rows = torch.where((rows < 0) & (earlier >= 0), earlier + len(arms.X), rows)
    unknown = torch.nonzero(rows < 0).squeeze(-1)
    if len(unknown) == 0:
        return rows, added[:0]
    first = RowIndex(X[unknown]).first
    new, group = first.unique(return_inverse=True)
    rows[unknown] = group + len(arms.X) + len(added)
    return rows, X[unknown[new]]


def _answers(rows: list[int], pending: Mapping[int, int]) -> tuple[int | None, ...]:
    r"""Return the id of the pending point that each row answers, the oldest of several."""
    waiting: dict[int, list[int]] = {row: [] for row in rows}
    for id_, row in pending.items():
        if row in waiting:
            waiting[row].append(id_)
    return tuple(waiting[row].pop(0) if waiting[row] else None for row in rows)


def as_real(name: str, values: Any, **options: Any) -> Tensor:
    r"""Return values as a tensor, as ``torch.as_tensor`` does; raise if they are not real.

    Args:
        name: What the error calls the values.
        values: Anything that ``torch.as_tensor`` takes.
        options: Its arguments, ``dtype`` and ``device``.
    """
    if hasattr(values, "dtype"):  # tensors and arrays; torch refuses complex numbers in lists
        check_dense(name, torch.as_tensor(values))
    return torch.as_tensor(values, **options)


def read_rewards(name: str, values: Any, q: int, device: torch.device) -> Tensor:
    r"""Convert values to ``q`` finite float64 numbers.

    Values are ``q`` or ``q x 1``. For one point they may also be a plain number.
    """
    try:
        values = as_real(name, values, dtype=torch.float64, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputDataError(f"{name} must be {q} numbers, got {values!r:.80}: {error}") from None
    if values.shape not in [(q,), (q, 1)] and not (q == 1 and values.dim() == 0):
        raise BotorchTensorDimensionError(
            f"{name} must have one number for each of the {q} points (shape {q} or {q} x 1), got "
            f"shape {tuple(values.shape)}."
        )
    check_finite(name, values)
    if values.numel() and float(values.abs().max()) > LARGEST:
        raise InputDataError(
            f"{name} must be below {LARGEST:g} in absolute value, got {float(values.abs().max())}: "
            "rescale it."
        )
    return values.detach().reshape(q)


def read_variances(values: Any, q: int, device: torch.device) -> Tensor:
    r"""Convert noise variances to ``q`` positive float64 numbers, NaN where they are not known.

    Args:
        values: ``q`` or ``q x 1`` variances, of which some may be None or NaN; None for none.
        q: The number of results.
        device: The device of the result.
    """
    if values is None:
        return torch.full((q,), torch.nan, dtype=torch.float64, device=device)
    if isinstance(values, Sequence) and not isinstance(values, str):
        values = [_as_number(value) for value in values]
    try:
        numbers = as_real("Yvar", values, dtype=torch.float64, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        numbers = None  # explained below
    is_known = None if numbers is None else ~numbers.isnan()
    filled = values if numbers is None else numbers.nan_to_num(nan=1.0, posinf=math.inf)
    variances = read_rewards("Yvar", filled, q, device)
    assert is_known is not None
    check_variances("Yvar", variances)
    if (variances == 0).any():
        raise InputDataError(
            "Yvar must be positive, got 0: use a small variance such as 1e-6 times that of the "
            "rewards for observations without noise."
        )
    return torch.where(is_known.reshape(q), variances, torch.nan)


def _as_number(value: Any) -> Any:
    r"""Return NaN for None, also inside a list of one, and anything else as it is."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        return [_as_number(value[0])]
    return math.nan if value is None else value


def check_ratio(variances: Tensor, noise_var: float) -> None:
    r"""Raise if some noise variance hides all other results, or hides its own from rounding.

    Args:
        variances: ``q`` noise variances of results.
        noise_var: The noise variance of the belief, in the same units.
    """
    least = float(variances.nan_to_num(nan=math.inf).min()) if len(variances) else math.inf
    if least < SMALLEST_RATIO * noise_var:
        raise InputDataError(
            f"Yvar must be at least {SMALLEST_RATIO:g} of the noise variance of the belief, "
            f"{noise_var:g}, got {least:g}: use a larger variance for results "
            "without noise, such as 1e-6 times that of the rewards."
        )
    most = float(variances.nan_to_num(nan=0.0).max()) if len(variances) else 0.0
    if most > LARGEST_RATIO * noise_var:
        raise InputDataError(
            f"Yvar must be at most {LARGEST_RATIO:g} times the noise variance of the belief, "
            f"{noise_var:g}, got {most:g}: leave out results that teach nothing."
        )
