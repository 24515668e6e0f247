r"""``CompressedGP``: a GP that keeps only informative observations.

Reference:
    Bedi, Peddireddy, Aggarwal, Sadler, Koppel: Regret and belief complexity trade-off in Gaussian
    process bandits via information thresholding. 2020.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils import fantasize as fantasize_flag
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch import settings
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.module import Module
from torch import Tensor

from botorch_bkb.belief import Belief, chunks
from botorch_bkb.dictionaries import InformationThreshold, first_occurrences
from botorch_bkb.dictionaries.threshold import BLOCK
from botorch_bkb.features import FeatureKernel
from botorch_bkb.linalg import map_tensors, scan_informative
from botorch_bkb.models.appendable import Observations, detached
from botorch_bkb.models.dtc import DTCGP, moved


class CompressedGP(DTCGP):
    r"""A GP that keeps only the observations that were informative when they arrived.

    Data are processed in order. An observation at ``x`` is kept if its entropy, given those kept
    so far (``D``), exceeds that of pure noise by more than ``epsilon`` nats:

    .. code-block:: text

        1/2 log(2 pi e (lambda + var_D(x))) > 1/2 log(2 pi e lambda) + epsilon
        <=>   tau_D(x) = var_D(x) / lambda > e^{2 epsilon} - 1

    The belief is the exact GP on the kept observations,

    .. code-block:: text

        mean(x)   = mu(x) + k_D(x)' (K_DD + Lam)^{-1} (y_D - mu(D))
        cov(x,x') = k(x,x') - k_D(x)' (K_DD + Lam)^{-1} k_D(x')

    The belief stops growing by itself. The test needs no outcome, so an uninformative evaluation
    can be skipped before it is paid for (:meth:`is_informative`). All data stay in
    ``train_inputs``. With ``epsilon=0`` the model is ``SingleTaskGP``.

    With ``discard=False`` the other observations inform the mean too. The belief is then DTC with
    the kept points as dictionary and all data observed. The same observations are kept. This costs
    ``O(n M^2)`` once, instead of ``O(M^3)``, and no observation is lost. Noise is averaged over
    all observations. With ``epsilon=1e-4``, repetitions of an input are discarded only after some
    five thousand of them, so the gain is small. With ``epsilon=0.1``, they are discarded after
    four or five, and the gain is large.

    Two properties are proved for given hyperparameters. The model order is
    ``O((e^{2 epsilon} - 1)^{-d})`` for any number of observations (Theorem 3.1). The variance at
    an observation that was not kept is at most ``(e^{2 epsilon} - 1) lambda``. Fitted
    hyperparameters are heuristics. When they change, all data are tested again.

    The marginal likelihood is that of *all* data with the kept points as dictionary (DTC). So the
    hyperparameters are fitted to all data. It is exact as long as every input was kept. In batch
    mode, and with several outputs, an observation that is kept for one is kept for all. Fantasies
    are always kept. This gives look-ahead acquisition functions their gradients, and the value of
    a candidate does not depend on the other candidates.

    Args:
        train_X: A ``batch_shape x n x d`` tensor of training features.
        train_Y: A ``batch_shape x n x m`` tensor of training observations.
        train_Yvar: An optional ``batch_shape x n x m`` tensor of observed measurement noise.
        likelihood: A Gaussian likelihood; BoTorch's default if omitted.
        covar_module: The kernel; BoTorch's default if omitted.
        mean_module: The mean; a ``ConstantMean`` if omitted.
        outcome_transform: As in ``SingleTaskGP``: ``Standardize`` by default, None for none.
        input_transform: As in ``SingleTaskGP``.
        epsilon: The threshold in nats; :func:`~botorch_bkb.dictionaries.epsilon_for_horizon` has
            the theorem's schedule.
        discard: Whether the belief ignores observations that fail the test.

    Example:
        >>> import torch
        >>> from botorch_bkb import CompressedGP
        >>> _ = torch.manual_seed(0)
        >>> train_X = torch.rand(1000, 1, dtype=torch.float64)
        >>> train_Y = torch.sin(6 * train_X) + 0.1 * torch.randn_like(train_X)
        >>> model = CompressedGP(train_X, train_Y, epsilon=0.05)
        >>> model.model_order < 200
        True
        >>> model.is_informative(torch.tensor([[0.5], [3.0]], dtype=torch.float64))
        tensor([False,  True])
    """

    _kept: Tensor | None  # rows of the observations that passed the test
    _gate: Belief | None  # the exact GP on them, if the belief differs from it
    _discard: bool

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        likelihood: Likelihood | None = None,
        covar_module: Module | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        epsilon: float = 1e-4,
        discard: bool = True,
    ) -> None:
        if isinstance(covar_module, FeatureKernel):
            raise UnsupportedError(
                "A CompressedGP chooses points by its kernel, got one with features, which needs "
                "no points: pass covar_module.base_kernel, or use DTCGP."
            )
        self.__dict__.update(_kept=None, _gate=None, _discard=discard)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=likelihood,
            covar_module=covar_module,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            dictionary=InformationThreshold(epsilon),
        )

    @classmethod
    def construct_inputs(  # type: ignore[override]  # the threshold is its dictionary
        cls,
        training_data: SupervisedDataset,
        *,
        epsilon: float = 1e-4,
        discard: bool = True,
    ) -> dict[str, Any]:
        r"""Return constructor arguments for a dataset and the model's options, as Ax needs them."""
        inputs = super(DTCGP, cls).construct_inputs(training_data=training_data)
        return {**inputs, "epsilon": epsilon, "discard": discard}

    # ------------------------------------------------------------------ what is kept

    @property
    def threshold(self) -> InformationThreshold:
        r"""The rule by which observations are kept."""
        assert isinstance(self._rule, InformationThreshold)
        return self._rule

    @property
    def epsilon(self) -> float:
        r"""The threshold in nats."""
        return self.threshold.epsilon

    @property
    def discard(self) -> bool:
        r"""Whether the belief ignores observations that fail the test."""
        return self._discard

    @property
    def kept_indices(self) -> Tensor:
        r"""Rows of the training data that passed the test, a sorted LongTensor."""
        if self._belief is None or self._kept is None:
            _ = self.dictionary_indices  # choose them now, if not done for this belief
        assert self._kept is not None
        return self._kept

    @property
    def model_order(self) -> int:
        r"""The number ``M`` of observations kept."""
        return len(self.kept_indices)

    def is_informative(self, X: Tensor, noise: Tensor | None = None) -> Tensor:
        r"""Return whether an observation at each point would be kept; no outcome is needed.

        Each point is tested separately, given the observations kept so far.

        Args:
            X: A ``batch_shape x q x d`` tensor.
            noise: Noise variances, ``batch_shape x q x m``, in outcome-transformed space. By
                default those of the likelihood, or the mean of the observed ones if there are any.

        Returns:
            A ``batch_shape x q`` tensor of booleans.
        """
        model = copy(self)
        model.__dict__["_belief"] = self.eval()._gate_now()
        scores = model.leverage_scores(X, noise)
        return (scores > self.threshold.score_threshold).any(-1) | (self.epsilon == 0)

    def _choose_dictionary(self, X: Tensor) -> Tensor:
        r"""Return the rows of distinct kept inputs, at least one, for the marginal likelihood."""
        kept = self.threshold.kept(X, self.covar_module, self._noise(X))
        self.__dict__["_kept"] = kept
        if len(kept) == 0:
            return torch.zeros(1, dtype=torch.long, device=X.device)
        return kept[first_occurrences(X[..., kept, :])]

    def _is_exact(self, X: Tensor) -> bool:
        self._dictionary(X)
        return self._kept is not None and len(self._kept) == X.shape[-2]

    def resparsify(self, generator: torch.Generator | None = None) -> Self:
        r"""Test all data again under the current hyperparameters, in place.

        Args:
            generator: Ignored, because the rule is not random.

        Returns:
            The model itself.
        """
        self.eval()
        self._forget_dictionary()
        self._forget_belief()
        return self

    def with_dictionary(self, indices: Tensor) -> Self:
        r"""Raise, because the threshold chooses the dictionary; ``DTCGP`` accepts a given one."""
        raise UnsupportedError(
            "The threshold of a CompressedGP chooses its dictionary, got dictionary indices: use "
            "DTCGP(..., dictionary=indices) to set the dictionary."
        )

    # ------------------------------------------------------------------ the belief

    def _build_belief(self, X: Tensor, targets: Tensor, noise: Tensor) -> Belief:
        self._dictionary(X)
        assert self._kept is not None
        kept, prior = self._kept, Belief.prior(X)
        exact = prior.condition(
            self.covar_module,
            self.mean_module,
            X[..., kept, :],
            targets[..., kept],
            noise[..., kept],
        )
        if self._discard:
            return exact
        self.__dict__["_gate"] = exact
        return super()._build_belief(X, targets, noise) if len(kept) else prior

    def _gate_now(self) -> Belief:
        r"""Return the exact GP on the kept observations, by which new ones are tested."""
        belief = self._belief_now()
        return belief if self._gate is None else self._gate

    def _condition(self, new: Observations, noise: Tensor | None) -> Self:
        r"""Apply the rule to new observations in order, in ``O(M^2)`` per observation."""
        new = Observations(*(t.to(self._train_targets.dtype) for t in new))
        floor = settings.min_fixed_noise.value(new.X.dtype)
        variances = self._noise_of_new(new.X, noise).clamp_min(floor)
        belief, gate = self._belief_now(), self._gate_now()
        q, joined = new.X.shape[-2], []
        for rows in chunks(q, BLOCK):
            part = Observations(new.X_original, new.X[..., rows, :], new.targets[..., rows])
            joins = self._joining(gate, part, variances[..., rows])
            joined.append(rows.start + joins)
            belief, gate = self._absorbed(belief, gate, part, variances[..., rows], joins)
        joins = torch.cat(joined)
        indices = torch.cat([self.dictionary_indices, self.num_data + self._unseen(new.X, joins)])
        kept = torch.cat([self.kept_indices, self.num_data + joins])
        model = self._with_observations(new, noise)
        model.__dict__.update(_belief=belief, _kept=kept, _indices=indices)
        model.__dict__["_gate"] = None if self._discard else gate
        return model

    def _joining(self, gate: Belief, new: Observations, variances: Tensor) -> Tensor:
        r"""Return the positions of the new observations that are kept."""
        if self.epsilon == 0 or fantasize_flag.on():
            return torch.arange(new.X.shape[-2], device=new.X.device)
        with torch.no_grad():
            covariance, lam = gate.covariance(self.covar_module, new.X), variances.double()
            batch = torch.broadcast_shapes(covariance.shape[:-2], lam.shape[:-1])
            covariance = covariance.expand(*batch, *covariance.shape[-2:])
            lam = lam.expand(*batch, lam.shape[-1])
            return scan_informative(covariance, lam, self.threshold.score_threshold)[0]

    def _absorbed(
        self, belief: Belief, gate: Belief, new: Observations, variances: Tensor, joins: Tensor
    ) -> tuple[Belief, Belief]:
        kernel, mean = self.covar_module, self.mean_module
        points, targets = new.X[..., joins, :], new.targets[..., joins]
        extended = gate.condition(kernel, mean, points, targets, variances[..., joins])
        if self._discard:
            return extended, extended
        return belief.absorb(kernel, mean, new.X, new.targets, variances, joins), extended

    def _unseen(self, X: Tensor, joins: Tensor) -> Tensor:
        r"""Return the positions in ``joins`` whose inputs are not in the dictionary yet."""
        known, points = self._gate_now().extra_points, X[..., joins, :].detach()
        if known is not None and known.shape[-2] and len(joins):
            equal = (points.unsqueeze(-2) == known.unsqueeze(-3)).all(-1)
            seen = equal.reshape(-1, *equal.shape[-2:]).all(0).any(-1)
            joins, points = joins[~seen], points[..., ~seen, :]
        return joins[first_occurrences(points)] if len(joins) else joins

    # ------------------------------------------------------------------ state

    def _forget_belief(self) -> None:
        super()._forget_belief()
        self.__dict__["_gate"] = None

    def _forget_dictionary(self) -> None:
        super()._forget_dictionary()
        self.__dict__["_kept"] = None

    def _dictionary_state(self) -> dict[str, Any]:
        return {**super()._dictionary_state(), "_kept": self._kept}

    def _move_belief(self, like: Tensor) -> None:
        if self._kept is not None:
            self.__dict__["_kept"] = self._kept.to(like.device)
        if self._gate is not None:
            self.__dict__["_gate"] = moved(self._gate, like)
        super()._move_belief(like)

    def __getstate__(self) -> dict[str, Any]:
        r"""Return the state for ``pickle`` and ``deepcopy``, without autograd graphs."""
        return {**super().__getstate__(), "_gate": map_tensors(self._gate, detached)}
