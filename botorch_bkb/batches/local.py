r"""``LocalRule``: BBKB's rule with a bound for each arm in place of one for all of them."""

from __future__ import annotations

from botorch_bkb.batches.picks import Picks
from botorch_bkb.batches.rule import ThresholdRule


class LocalRule(ThresholdRule):
    r"""A rule that completes a batch when the variance of some arm may have fallen by ``C~``.

    With ``c_s(x)`` the covariance of ``x`` and the pick ``x_s`` over ``lambda``, both at the start
    of the batch (:class:`~botorch_bkb.batches.Picks`), after picks ``x_s`` of a batch

    .. code-block:: text

        tau_fb(x) / tau(x) <= 1 + sum_s c_s(x)^2 / tau_fb(x) <= 1 + sum_s tau_fb(x_s)

    The batch is complete when the middle term exceeds ``C~`` at some arm. So no variance has fallen
    by more than ``C~`` when the last pick is made, and batches are never shorter than by the sum
    rule, which takes the last term. Picks that have nothing to do with each other do not add up.

    Proof. Let ``a(x)`` and ``b_s = a(x_s)`` be vectors with ``|a(x)|^2 = tau_fb(x)`` and
    ``a(x)'b_s = c_s(x)``. Then ``tau(x) = a'(I + sum_s b_s b_s')^{-1} a``, and Cauchy-Schwarz gives
    ``|a|^4 <= tau(x) a'(I + sum_s b_s b_s')a = tau(x) (|a|^2 + sum_s c_s(x)^2)``: the first
    inequality. The second is ``c_s(x)^2 <= |a|^2 |b_s|^2``. With a fixed dictionary,
    ``lambda^(1/2) a`` consists of ``Q^(1/2) z(x)`` and, in a coordinate of its own for each ``x``,
    ``residual(x)^(1/2)``. Residuals do not fall then. So ``b_s`` lacks its second part, and
    ``(a'b_s)^2`` is at most ``c_s(x)^2``.

    Cost. As long as ``1 + sum_s tau_fb(x_s)`` is at most ``C~``, nothing else is computed. Then the
    covariances of all arms with the picks so far are computed in one product. From there on a pick
    adds at most its score to the bound of an arm. So only arms whose last bound is that close to
    ``C~`` are examined, and all of them again when these become many.

    Over a box and over a tree, points are picked that do not exist when the check is made. There
    the largest eigenvalue of the matrix ``c_s(x_r)`` of the picks takes the place of the maximum.
    It bounds ``a'(sum_s b_s b_s')a / |a|^2`` for every ``a``, and it is at most the trace
    ``sum_s tau_fb(x_s)``.

    What the theorems of BBKB keep: the confidence bounds hold, since they need the inequality above
    at all arms. The dictionary is as accurate as before: it is drawn by ``tau_fb >= tau``, which is
    at most ``C~ tau`` at all observed points. What is not proved is that the *exact* variances fall
    by no more than ``3 C~`` within a batch (Lemma 5, from which the constant of the regret bound
    and the size of the dictionary follow). It needs the eigenvalue of the whole covariance matrix.

    Args:
        threshold: ``C~``, at least 1; larger values give longer batches.

    Example:
        Each of nine unrelated arms has a score of 0.5. The sum rule ends after three picks.

        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bkb import BBKB
        >>> from botorch_bkb.batches import LocalRule, SumRule
        >>> arms = 100 * torch.arange(9, dtype=torch.float64).unsqueeze(-1)
        >>> for rule in (SumRule(2.2), LocalRule(2.2)):
        ...     optimizer = BBKB(
        ...         arms, covar_module=RBFKernel(), noise_var=1.0, batch_rule=rule, seed=0
        ...     )
        ...     optimizer.tell(torch.arange(9), torch.zeros(9))
        ...     print(len(optimizer.ask()))
        3
        19

    Reference:
        Calandriello et al., ICML 2020. (BBKB, Algorithm 1 with the local bound of the authors'
        code in place of the global one; Lemmas 4 and 7.)
    """

    @property
    def limit(self) -> float:
        r"""The limit ``C~ - 1``."""
        return self.threshold - 1

    @property
    def inflation(self) -> float:
        r"""The inflation, which is the threshold ``C~``."""
        return self.threshold

    def spent(self, score: float) -> float:
        r"""Return ``tau``, which is the most that a pick spends."""
        return score

    def total(self, picks: Picks) -> float:
        r"""Return the largest local bound minus one, or a larger number within the limit."""
        return picks.largest_fall(self.limit)
