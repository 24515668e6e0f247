r"""How many points an initial design has."""

from __future__ import annotations

#: The largest initial design that is asked by default.
MOST = 30


def size_of_design(dim: int) -> int:
    r"""Return the default size of an initial design: ``2 d + 2``, but at most 30.

    The design precedes the first fit. A fit maximises the posterior density of hyperparameters,
    with priors that account for the dimension, so that it needs no number of points that grows
    with it. In many dimensions a larger design would be most of a budget, spent without learning.

    Args:
        dim: The number of dimensions.

    Example:
        >>> size_of_design(2), size_of_design(14), size_of_design(200)
        (6, 30, 30)
    """
    return min(2 * dim + 2, MOST)
