r"""A base class of sparse GPs that evaluates single points without joint covariances."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.means import ConstantMean, ZeroMean
from torch import Tensor

from botorch_bkb.belief import Belief
from botorch_bkb.models.sparse import SparseGP
from botorch_bkb.single_points import PreparedPoints, SinglePoints, moments
from botorch_bkb.validation import check_dense, check_query

#: Evaluations of single points after which the factors of a belief are inverted, which takes about
#: as long as building it. Conditioning on further points does not pay for that.
ENOUGH_USES = 10


class SinglePointGP(SparseGP):
    r"""A base class that computes moments of single points with analytic derivatives.

    Analytic acquisition functions need no more than these.
    """

    # The belief and kernel of which single points were evaluated, how often, and the prepared form.
    _singles: tuple[Any, Any, int, PreparedPoints | None] = (None, None, 0, None)

    @abstractmethod
    def _belief_now(self) -> Belief:
        r"""Return the posterior given the training data, in transformed inputs and outcomes."""

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior | TransformedPosterior:
        r"""Compute the posterior at ``batch_shape x q x d`` points; see ``SingleTaskGP``.

        For single points (``q = 1``) and kernels in closed form no joint covariance is formed, and
        derivatives with respect to ``X`` are analytic. Analytic acquisition functions need no more.
        """
        if output_indices is None and observation_noise is False and posterior_transform is None:
            single = self._posterior_of_single_points(X)
            if single is not None:
                return single
        return super().posterior(
            X,
            output_indices=output_indices,
            observation_noise=observation_noise,
            posterior_transform=posterior_transform,
        )

    def _posterior_of_single_points(self, X: Tensor) -> GPyTorchPosterior | None:
        r"""Return the posterior at ``... x 1 x d`` points, or None if it is not covered."""
        if (found := self.moments_of_single_points(X)) is None:
            return None
        mean, var = found
        return GPyTorchPosterior(MultivariateNormal(mean, var.unsqueeze(-1)))

    def moments_of_single_points(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        r"""Compute posterior means and variances of single points, with analytic derivatives.

        Args:
            X: A ``... x 1 x d`` tensor.

        Returns:
            Two ``... x 1`` tensors in the units of the outcomes. None if batches, several outputs,
            other kernels than RBF and Matérn or other outcome transforms than ``Standardize`` need
            :meth:`posterior`, or if the result needs derivatives with respect to hyperparameters.
        """
        outcome = getattr(self, "outcome_transform", None)
        if (
            not isinstance(X, Tensor)
            or X.dim() < 3
            or X.shape[-2] != 1
            or self.training
            or self._num_outputs > 1
            or self._aug_batch_shape
            or not (outcome is None or (type(outcome) is Standardize and not outcome.training))
            or settings.prior_mode.on()
        ):
            return None
        check_dense("X", X)
        X = self.transform_inputs(X).to(self._train_targets.dtype)
        check_query(X, self._train_inputs[0].shape[-1], self._targets_shape()[:-1])
        if (points := self._single_points(X)) is None:
            return None
        offset, unit = (
            (0.0, 1.0) if outcome is None else (outcome.means.item(), outcome.stdvs.item())
        )
        mean, prior = self.mean_module, None
        if type(mean) is ConstantMean:
            offset += unit * mean.constant.item()
        elif type(mean) is not ZeroMean:
            prior = unit * mean(X)
        value, var = moments(points, X, offset, unit)
        value = value if prior is None else value + prior
        return value.to(X.dtype), var.to(X.dtype)

    def _single_points(self, X: Tensor) -> SinglePoints | PreparedPoints | None:
        r"""Return the moments of single points, prepared if they were often asked for."""
        if torch.is_grad_enabled() and not X.requires_grad:
            return None
        belief, kernel, uses, prepared = self._singles
        if belief is not self._belief_now() or kernel is not self.covar_module:
            belief, kernel, uses, prepared = self._belief_now(), self.covar_module, 0, None
        if prepared is not None:
            return prepared
        points = belief.single_points(kernel, X)
        if uses <= ENOUGH_USES:
            if uses == ENOUGH_USES and points is not None:
                prepared = PreparedPoints.of(points)
            self.__dict__["_singles"] = belief, kernel, uses + 1, prepared
        return points

    def __getstate__(self) -> dict[str, Any]:
        r"""Return the state for ``pickle`` and ``deepcopy``."""
        return {k: v for k, v in super().__getstate__().items() if k != "_singles"}
