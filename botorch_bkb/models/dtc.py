r"""``DTCGP``: the sparse posterior of BKB as a BoTorch model.

References:
    Calandriello, Carratino, Lazaric, Valko, Rosasco: Gaussian process optimization with
    adaptive sketching: scalable and no regret. COLT 2019. (BKB.)

    Quiñonero-Candela, Rasmussen: A unifying view of sparse approximate Gaussian process
    regression. JMLR 2005. (DTC.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils import fantasize as fantasize_flag
from botorch.models.utils import multioutput_to_batch_mode_transform
from botorch.models.utils.inducing_point_allocators import InducingPointAllocator
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import Mean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.module import Module
from linear_operator.operators import LowRankRootLinearOperator
from torch import Tensor

from botorch_bkb.belief import Belief
from botorch_bkb.dictionaries import Candidates, DictionaryRule, FourierFeatures, covers
from botorch_bkb.linalg import map_tensors
from botorch_bkb.models.appendable import Observations, detached
from botorch_bkb.models.loss import Loss, fit
from botorch_bkb.models.noise import noise_variances
from botorch_bkb.models.prior import EmbeddedRows, NystromPrior
from botorch_bkb.models.single import SinglePointGP
from botorch_bkb.validation import (
    check_broadcast,
    check_dense,
    check_finite,
    check_kernel,
    check_query,
    check_training_data,
    check_variances,
)


class DTCGP(SinglePointGP):
    r"""A sparse GP that is a drop-in replacement for ``SingleTaskGP``.

    The posterior is the deterministic training conditional (DTC) on a dictionary ``S`` of ``m``
    training inputs. :mod:`botorch_bkb.linalg` has the algebra. With ``K_SS = LL'``,
    ``z(x) = L^{-1} k_S(x)`` and ``V = Z'Z + lambda I``:

    .. code-block:: text

        mean(x)   = mu(x) + z(x)' V^{-1} Z' (y - mu(X))
        cov(x,x') = k(x,x') - z(x)'z(x') + lambda z(x)' V^{-1} z(x')

    Building costs ``O(n m^2)``. A posterior, its gradient or conditioning on new points costs the
    same after 100,000 observations as after 1,000. With all points in the dictionary, the model is
    the exact GP. This is the default for up to 500 points.

    One property is proved. If :class:`RidgeLeverageSampling` draws the dictionary at the theorem's
    oversampling, all variances are within a constant factor of the exact ones (BKB, Theorem 1).
    The default oversampling is smaller, and the hyperparameters are fitted. Both are heuristics.

    The dictionary is drawn when it is first needed and stays fixed while the hyperparameters are
    fitted. If they have changed, it is drawn again at the next evaluation of the model.
    ``fit_gpytorch_mll(mll, optimizer_kwargs=fit_progress())`` shows the progress of a fit.
    ``condition_on_observations`` and ``fantasize`` treat the DTC process as the prior and
    condition it exactly on the new points.

    Args:
        train_X: A ``batch_shape x n x d`` tensor of training features.
        train_Y: A ``batch_shape x n x m`` tensor of training observations.
        train_Yvar: An optional ``batch_shape x n x m`` tensor of observed measurement noise.
        likelihood: A Gaussian likelihood; BoTorch's default if omitted.
        covar_module: The kernel; BoTorch's default if omitted.
        mean_module: The mean; a ``ConstantMean`` if omitted.
        outcome_transform: As in ``SingleTaskGP``: ``Standardize`` by default, None for none.
        input_transform: As in ``SingleTaskGP``.
        dictionary: A rule (:mod:`botorch_bkb.dictionaries`), a BoTorch inducing point
            allocator, a LongTensor of row indices of ``train_X``, or None. None means ridge
            leverage sampling with at most 1,000 points (:class:`Automatic`). It takes all points
            if there are at most 500, or if more than half would be sampled. With
            :class:`RandomFeatures` or :class:`QuadratureFeatures` the model is the exact GP of
            their kernel, to which it is also fitted.
        trace_term: Whether to add Titsias' trace term
            ``-1/2 sum_i (k(x_i,x_i) - |z(x_i)|^2) / lambda_i`` to the marginal likelihood, which
            makes it a lower bound of the exact one.

    Example:
        >>> import torch
        >>> from botorch.fit import fit_gpytorch_mll
        >>> from gpytorch.mlls import ExactMarginalLogLikelihood
        >>> from botorch_bkb import DTCGP
        >>> _ = torch.manual_seed(0)
        >>> train_X = torch.rand(2000, 2, dtype=torch.float64)
        >>> train_Y = torch.sin(5 * train_X).sum(-1, keepdim=True)
        >>> train_Y = train_Y + 0.1 * torch.randn_like(train_Y)
        >>> model = DTCGP(train_X, train_Y)
        >>> mll = fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> model.posterior(torch.rand(7, 3, 2, dtype=torch.float64)).mean.shape
        torch.Size([7, 3, 1])
        >>> len(model.dictionary_indices) < 500
        True
    """

    # Plain attributes, written through ``__dict__``: neither parameters nor buffers.
    _belief: Belief | None
    _trace_term: bool

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
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
    ) -> None:
        check_training_data(train_X, train_Y, train_Yvar)
        check_kernel(covar_module)
        self.__dict__.update(_belief=None, _trace_term=trace_term)
        super().__init__(
            train_X=train_X,
            train_Y=train_Y,
            train_Yvar=train_Yvar,
            likelihood=likelihood,
            covar_module=covar_module,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            dictionary=dictionary,
        )
        if isinstance(self._rule, FourierFeatures):
            self._use_features(train_X, is_default=covar_module is None)

    def _make_sparse(
        self,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None,
        trace_term: bool,
        train_X: Tensor,
    ) -> None:
        r"""Set the options of sparsity, where BoTorch's constructor has set all others."""
        self._take_dictionary(dictionary, train_X)
        self.__dict__["_trace_term"] = trace_term
        if isinstance(self._rule, FourierFeatures):
            self._use_features(train_X, is_default=False)

    def _use_features(self, train_X: Tensor, is_default: bool) -> None:
        r"""Replace the kernel by that of the features."""
        with torch.no_grad():
            X = self.transform_inputs(train_X)
        self.covar_module = self._rule.belief_kernel(self.covar_module, X)
        if is_default:  # for ``subset_output``
            places = self._subset_batch_dict
            places["covar_module.base_kernel.raw_lengthscale"] = places.pop(
                "covar_module.raw_lengthscale"
            )

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        *,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
    ) -> dict[str, Any]:
        r"""Return constructor arguments for a dataset and the model's options, as Ax needs them."""
        inputs = super().construct_inputs(training_data=training_data)
        return {**inputs, "dictionary": dictionary, "trace_term": trace_term}

    # ------------------------------------------------------------------ the dictionary

    def resparsify(self, generator: torch.Generator | None = None) -> Self:
        r"""Draw a new dictionary from the current leverage scores, in place.

        Points that the model was conditioned on become ordinary training data. The default rule
        draws a replacement for a dictionary given as indices.

        Args:
            generator: Source of randomness; torch's global generator by default.

        Returns:
            The model itself.
        """
        self.eval()
        X = self.train_inputs[0]
        noise = self._noise(X)
        scores = self._belief_now().variance(self.covar_module, X) / noise.double()
        with torch.no_grad():
            chosen = self._rule.choose(Candidates(X, self.covar_module, noise, scores), generator)
        self.__dict__.update(
            _given=None,
            _indices=chosen.positions,
            _num_drawn=chosen.num_drawn,
            _drawn_under=self._hyperparameters(),
            _belief=None,
        )
        self._warn_once(X)
        return self

    def leverage_scores(self, X: Tensor, noise: Tensor | None = None) -> Tensor:
        r"""Compute leverage scores ``tau(x) = var(x) / lambda``, the papers' ``sigma~^2``.

        Args:
            X: A ``batch_shape x q x d`` tensor.
            noise: ``lambda``, a ``batch_shape x q x m`` tensor in outcome-transformed space. By
                default that of the likelihood, or the mean of the observed ones if there are any.

        Returns:
            A ``batch_shape x q x m`` tensor.
        """
        self.eval()
        check_finite("X", X)
        if noise is not None:
            check_variances("noise", noise)
        with torch.no_grad():
            X = self.transform_inputs(X).to(self._train_targets.dtype)
            if self._num_outputs > 1:
                X = X.unsqueeze(-3)
            variance = self._belief_now().variance(self.covar_module, X)
            usual = self._noise(self.train_inputs[0]).double().mean(-1, keepdim=True)
            if noise is not None:
                usual = noise.mT if self._num_outputs > 1 else noise.squeeze(-1)
            scores = variance / usual
        return scores.mT if self._num_outputs > 1 else scores.unsqueeze(-1)

    @property
    def effective_dimension(self) -> Tensor:
        r"""The effective dimension ``sum_i tau(x_i)`` of the data, per batch and output.

        What rounding leaves unexplained (:func:`~botorch_bkb.linalg.negligible`) counts as zero. So
        with all points in the dictionary it is at most their number, for any noise.
        """
        self.eval()
        X = self.train_inputs[0]
        variance = self._belief_now().variance(self.covar_module, X, round_off=True)
        return (variance / self._noise(X)).sum(-1)

    # ------------------------------------------------------------------ prior and posterior

    def forward(self, x: Tensor) -> MultivariateNormal:
        r"""Return the prior at ``x``.

        It is exact in evaluation mode, and of rank ``m`` on the training data in training mode.
        """
        if not self.training:
            if x is self._train_inputs[0] and not self._is_exact(x):
                raise UnsupportedError(
                    "The prior must not be evaluated at the training data in evaluation mode. The "
                    "leave-one-out formulas of the exact GP do so, but they do not hold for a "
                    "sparse GP. Use batch_cross_validation, or folds (Ax does so by itself)."
                )
            return super().forward(x)
        data = self._train_inputs[0]
        if x is not data and not torch.equal(x, data):
            return super().forward(x)  # the dictionary is one of the training data
        X = self.transform_inputs(x)
        indices = self._dictionary(X.detach())
        if self._is_exact_at(indices, X.detach()) and not self._trace_term:
            return MultivariateNormal(self.mean_module(X), self.covar_module(X))
        rows = EmbeddedRows(X, X[..., indices, :], self.covar_module, self._trace_term)
        return NystromPrior(self.mean_module(X), LowRankRootLinearOperator(rows))

    def _is_exact(self, X: Tensor) -> bool:
        r"""Return whether the belief is the exact GP on all data."""
        return self._has_features or covers(self._dictionary(X), X)

    def _is_exact_at(self, indices: Tensor, X: Tensor) -> bool:
        r"""Return whether a dictionary contains all inputs, so that the prior is exact."""
        return not self._has_features and covers(indices, X)

    def parts_of_likelihood(self) -> tuple[Any, ...]:
        r"""Return data and modules that the marginal likelihood depends on, to tell changes."""
        modules = (self.covar_module, self.mean_module, self.likelihood)
        return *self.train_inputs, self.train_targets, self._indices, *modules

    @property
    def compute_custom_loss(self) -> Callable[..., Tensor]:
        r"""The negative marginal log-likelihood as a function of ``mll``.

        BoTorch looks it up here. It is what ``ExactMarginalLogLikelihood`` computes. Its
        derivatives are analytic for the common kernels, means, likelihoods and priors.
        """
        return Loss()

    def custom_fit(self, mll: ExactMarginalLogLikelihood, **kwargs: Any) -> Any:
        r"""Fit the hyperparameters; ``fit_gpytorch_mll`` calls this method.

        Args:
            mll: The marginal log-likelihood of the model.
            kwargs: The arguments of ``fit_gpytorch_mll``.
        """
        return fit(mll, **kwargs)

    def __call__(self, *args: Tensor, **kwargs: Any) -> MultivariateNormal:
        r"""Return the posterior in evaluation mode, and the prior in training mode.

        See gpytorch's ``ExactGP``.
        """
        if self.training or settings.prior_mode.on():
            return super().__call__(*args, **kwargs)
        check_dense("X", args[0])
        X = args[0].unsqueeze(-1) if args[0].dim() == 1 else args[0]
        X = X.to(self._train_targets.dtype)
        check_query(X, self._train_inputs[0].shape[-1], self._targets_shape()[:-1])
        belief = self._belief_now()
        mean, covar = belief.moments(self.covar_module, self.mean_module, X)
        batch = torch.broadcast_shapes(mean.shape[:-1], covar.shape[:-2])
        mean = mean.to(X.dtype).expand(*batch, mean.shape[-1])
        return MultivariateNormal(mean, covar.expand(*batch, *covar.shape[-2:]))

    def marginals(self, X: Tensor) -> tuple[Tensor, Tensor]:
        r"""Compute posterior means and variances of single points, in transformed outcome space.

        Args:
            X: A ``... x q x d`` tensor.

        Returns:
            Two ``... x q`` tensors in float64.
        """
        if self.training:
            self.eval()
        X = self.transform_inputs(X).to(self._train_targets.dtype)
        return self._belief_now().marginals(self.covar_module, self.mean_module, X)

    def with_belief(self, belief: Belief | None) -> Self:
        r"""Set the posterior in place, if it is known already, and return the model.

        Args:
            belief: The posterior given the training data, in the model's transformed inputs and
                outcomes. It may use more points than the dictionary. None changes nothing.
        """
        if belief is not None:
            _ = self.dictionary_indices  # choose them first: the belief does not
            self.__dict__["_belief"] = moved(belief, self._train_targets)
        return self

    @property
    def belief(self) -> Belief:
        r"""The posterior given the training data, in transformed inputs and outcomes."""
        return self._belief_now()

    def _belief_now(self) -> Belief:
        if self._belief is not None:
            return self._belief
        # Not in inference mode, because gradients may be needed of the cached belief later.
        with torch.inference_mode(False), torch.no_grad():
            X = self.train_inputs[0]
            belief = self._build_belief(X, self.train_targets, self._noise(X))
        self.__dict__["_belief"] = belief
        return belief

    def _build_belief(self, X: Tensor, targets: Tensor, noise: Tensor) -> Belief:
        points = X[..., self._dictionary(X), :]
        residual = targets - self.mean_module(X)
        return Belief.build(self.covar_module, points, X, residual, noise)

    # ------------------------------------------------------------------ conditioning

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> Self:
        r"""Condition the DTC process exactly on new observations, in ``O(m^2 q + q^3)``.

        The new points join the dictionary. The old data are not embedded again. Some operations
        rebuild the belief: fitting, ``resparsify``, ``subset_output``, loading a state and setting
        data. The new points then become ordinary training data with a place in the dictionary.

        Args:
            X: A ``batch_shape x q x d`` tensor.
            Y: A ``batch_shape' x q x m`` tensor, with the batch shape of ``X`` or more leading
                dimensions (several sets of outcomes at the same points).
            noise: Noise variances in outcome-transformed space, shaped like ``Y``. Required if
                the training data have observed noise.
            kwargs: Ignored.

        Returns:
            A model of the same type with ``n + q`` training points.
        """
        self.eval()
        check_broadcast("X", X.shape[:-2], "the model", self.batch_shape)
        check_broadcast("Y", Y.shape[:-2], "X", X.shape[:-2])
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y, X=X)  # ``noise`` is transformed already
        if fantasize_flag.off():
            self._validate_tensor_args(X=X, Y=Y, Yvar=noise, strict=False)
        check_finite("X", X)
        check_finite("Y", Y)
        if noise is not None:
            check_variances("noise", noise)
        if self._num_outputs > 1:
            X, targets, noise = multioutput_to_batch_mode_transform(X, Y, self._num_outputs, noise)
        else:
            targets = Y.squeeze(-1)
            noise = None if noise is None else noise.squeeze(-1)
        if X.shape[-2] != targets.shape[-1]:
            raise BotorchTensorDimensionError(
                f"X and Y must have the same number of rows, got {X.shape[-2]} and "
                f"{targets.shape[-1]}."
            )
        return self._condition(Observations(X, self.transform_inputs(X), targets), noise)

    def get_fantasy_model(
        self, inputs: Tensor | list[Tensor], targets: Tensor, noise: Tensor | None = None
    ) -> Self:
        r"""Condition the DTC process on transformed data; the name is gpytorch's.

        Args:
            inputs: A ``batch x q x d`` tensor of transformed inputs.
            targets: A ``batch' x q`` tensor of transformed outcomes.
            noise: A ``batch' x q`` tensor of noise variances.
        """
        X = inputs if isinstance(inputs, Tensor) else inputs[0]
        X_original = self.input_transform.untransform(X) if self._has_transformed_inputs else X
        return self._condition(Observations(X_original, X, targets), noise)

    def _condition(self, new: Observations, noise: Tensor | None) -> Self:
        new = Observations(*(t.to(self._train_targets.dtype) for t in new))
        check_query(new.X, self._train_inputs[0].shape[-1], self._targets_shape()[:-1])
        belief = self._belief_now().condition(
            self.covar_module,
            self.mean_module,
            new.X,
            new.targets,
            self._noise_of_new(new.X, noise),
        )
        assert self._indices is not None  # the belief needed them
        n, q = self.num_data, new.X.shape[-2]
        extra = torch.arange(n, n if self._has_features else n + q, device=new.X.device)
        model = self._with_observations(new, noise)
        model.__dict__.update(_belief=belief, _indices=torch.cat([self._indices, extra]))
        return model

    def _noise_of_new(self, X: Tensor, noise: Tensor | None) -> Tensor:
        r"""Return noise variances of observations at ``X``, ``batch x q``."""
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            if noise is None:
                raise InputDataError(
                    "A model with observed noise levels needs those of the new observations: "
                    "pass `noise`, the variances in outcome-transformed space, shaped like Y."
                )
            return noise + self.likelihood.second_noise
        if noise is not None:
            return noise
        shape = torch.broadcast_shapes(X.shape[:-1], (*self._aug_batch_shape, 1))
        return noise_variances(self.likelihood, shape, X)

    # ------------------------------------------------------------------ state

    def _has_belief(self) -> bool:
        return self._belief is not None

    def _forget_belief(self) -> None:
        self.__dict__["_belief"] = None

    def _move_belief(self, like: Tensor) -> None:
        r"""Move the dictionary and the belief to the device and dtype of ``like``.

        The belief's ``m x m`` algebra stays in float64 for any dtype of the model.
        """
        for name in ("_given", "_indices", "_drawn_under"):
            if (value := self.__dict__[name]) is not None:
                self.__dict__[name] = value.to(like.device)
        belief = self._belief
        if belief is None:
            return
        if belief.points.dtype != like.dtype:
            self.__dict__["_drawn_under"] = self._hyperparameters()  # rounded, but not changed
        self.__dict__["_belief"] = moved(belief, like)

    def __getstate__(self) -> dict[str, Any]:
        r"""Return the state for ``pickle`` and ``deepcopy``, without autograd graphs."""
        return {
            **super().__getstate__(),
            "_belief": map_tensors(self._belief, detached),
        }


def moved(belief: Belief, like: Tensor) -> Belief:
    r"""Return the belief for a model with the device and dtype of ``like``."""
    if belief.points.device != like.device:
        belief = map_tensors(belief, lambda t: t.to(like.device))
    return belief if belief.points.dtype == like.dtype else belief.with_points_as(like.dtype)
