r"""``DTCGP``: the sparse posterior of BKB as a BoTorch model.

References:
    Calandriello, Carratino, Lazaric, Valko, Rosasco: Gaussian process optimization with
    adaptive sketching: scalable and no regret. COLT 2019. (BKB.)

    Quiñonero-Candela, Rasmussen: A unifying view of sparse approximate Gaussian process
    regression. JMLR 2005. (DTC.)
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.models.gp_regression import SingleTaskGP
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
from gpytorch.mlls import InducingPointKernelAddedLossTerm
from gpytorch.models import ExactGP
from gpytorch.module import Module
from linear_operator.operators import DiagLinearOperator, LowRankRootLinearOperator
from torch import Tensor

from botorch_bkb.belief import Belief
from botorch_bkb.dictionaries import (
    DictionaryRule,
    as_rule,
    first_occurrences,
    given_dictionary,
)
from botorch_bkb.linalg import map_tensors
from botorch_bkb.models.prior import NystromPrior, embed_with_gradient
from botorch_bkb.validation import check_finite, check_indices, check_training_data


class _Appended(NamedTuple):
    r"""Observations conditioned on: inputs as given and as transformed, and targets."""

    X_original: Tensor
    X: Tensor
    targets: Tensor


class DTCGP(SingleTaskGP):
    r"""A sparse GP that drops in wherever ``SingleTaskGP`` stands.

    The posterior is the deterministic training conditional on a dictionary ``S`` of ``m`` of
    the training inputs (:mod:`botorch_bkb.linalg` has the algebra). With ``K_SS = LL'``,
    ``z(x) = L^{-1} k_S(x)`` and ``V = Z'Z + lambda I``:

    .. code-block:: text

        mean(x)   = mu(x) + z(x)' V^{-1} Z' (y - mu(X))
        cov(x,x') = k(x,x') - z(x)'z(x') + lambda z(x)' V^{-1} z(x')

    Building costs ``O(n m^2)``; a posterior, its gradient or conditioning on new points
    costs the same after 100,000 observations as after 1,000. With all points in the
    dictionary, the default up to 500 of them, it is the exact GP.

    What is proved: with the dictionary drawn by :class:`RidgeLeverageSampling` at the
    theorem's oversampling, all variances are within a constant factor of the exact ones (BKB,
    Theorem 1). The default oversampling is smaller than that, and the hyperparameters are
    fitted: both are heuristics.

    The dictionary is drawn when it is first needed, stays fixed while the hyperparameters
    are fitted, and is drawn anew when they have changed and the model is next evaluated.
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
            allocator, a LongTensor of row indices of ``train_X``, or None: all points up to
            500, beyond that ridge leverage sampling capped at 1,000.
        trace_term: Add Titsias' trace term ``-1/2 sum_i (k(x_i,x_i) - |z(x_i)|^2) / lambda_i``
            to the marginal likelihood, which makes it a lower bound of the exact one.

    Example:
        >>> import torch
        >>> from botorch.fit import fit_gpytorch_mll
        >>> from gpytorch.mlls import ExactMarginalLogLikelihood
        >>> from botorch_bkb import DTCGP
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
        indices = None
        if isinstance(dictionary, Tensor):
            indices, dictionary = given_dictionary(dictionary, train_X), None
        rule = as_rule(dictionary)
        # Plain attributes, so that nothing of this becomes a parameter or a buffer.
        self.__dict__.update(
            _train_inputs=None,
            _train_targets=None,
            _appended=(),
            _belief=None,
            _rule=rule,
            _indices=indices,
            _indices_are_given=indices is not None,
            _drawn_under=None,
            _trace_term=trace_term,
        )
        super().__init__(
            train_X=train_X,
            train_Y=train_Y,
            train_Yvar=train_Yvar,
            likelihood=likelihood,
            covar_module=covar_module,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )
        if trace_term:
            self.register_added_loss_term("trace_term")

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        *,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        trace_term: bool = False,
    ) -> dict[str, Any]:
        r"""Constructor arguments from a dataset and the model's own options (as Ax does)."""
        inputs = super().construct_inputs(training_data=training_data)
        return {**inputs, "dictionary": dictionary, "trace_term": trace_term}

    # ------------------------------------------------------------------ the dictionary

    @property
    def dictionary_indices(self) -> Tensor:
        r"""Rows of the training data that form the dictionary, a sorted LongTensor."""
        if not self.training:
            self._ensure_dictionary(self.train_inputs[0])
        else:
            with torch.no_grad():
                self._ensure_dictionary(self.transform_inputs(self.train_inputs[0]))
        return self._indices

    def _ensure_dictionary(self, X: Tensor) -> None:
        r"""Draw the dictionary if there is none, or if the hyperparameters moved since.

        While training an existing one stays, so that the objective of a fit stands still.
        """
        if self._indices is not None and (self.training or self._indices_are_given):
            return
        now = self._hyperparameters()
        if self._indices is not None and self._drawn_under is None:
            self.__dict__["_drawn_under"] = now  # loaded together with its hyperparameters
        if self._indices is not None and torch.equal(self._drawn_under, now):
            return
        with torch.no_grad():
            indices = self._rule.select(X, self.covar_module, self._noise(X))
        self.__dict__.update(_indices=indices, _drawn_under=now)

    def _hyperparameters(self) -> Tensor:
        parameters = [p.detach().flatten().double() for p in self.parameters()]
        return torch.cat(parameters) if parameters else self.train_targets.new_empty(0).double()

    def _covers_data(self, X: Tensor) -> bool:
        r"""Whether every input is in the dictionary, so that there is nothing sparse."""
        n, m = X.shape[-2], len(self._indices)
        return m == n or (2 * m > n and len(first_occurrences(X)) == m)

    def with_dictionary(self, indices: Tensor) -> DTCGP:
        r"""A copy of this model with the given dictionary.

        Args:
            indices: A LongTensor of row indices of the training data.
        """
        indices = given_dictionary(indices, self.train_inputs[0])
        model = deepcopy(self)
        model.__dict__.update(_indices=indices, _indices_are_given=True, _belief=None)
        return model

    def resparsify(self, generator: torch.Generator | None = None) -> DTCGP:
        r"""Draw a new dictionary from the current leverage scores, in place.

        Points conditioned on become ordinary training data. A dictionary given as indices
        is replaced by one drawn by the default rule.

        Args:
            generator: Source of randomness; torch's global one by default.

        Returns:
            The model itself.
        """
        self.eval()
        X = self.train_inputs[0]
        noise = self._noise(X)
        scores = self._belief_now().variance(self.covar_module, X) / noise.double()
        indices = self._rule.select(
            X, self.covar_module, noise, scores=scores, generator=generator
        )
        self.__dict__.update(
            _indices=indices,
            _indices_are_given=False,
            _drawn_under=self._hyperparameters(),
            _belief=None,
        )
        return self

    def leverage_scores(self, X: Tensor) -> Tensor:
        r"""``tau(x) = var(x) / lambda``, the papers' ``sigma~^2``.

        With observed noise levels ``lambda`` is their mean.

        Args:
            X: A ``batch_shape x q x d`` tensor.

        Returns:
            A ``batch_shape x q x m`` tensor.
        """
        self.eval()
        with torch.no_grad():
            X = self.transform_inputs(X).to(self.train_inputs[0])
            if self._num_outputs > 1:
                X = X.unsqueeze(-3)
            variance = self._belief_now().variance(self.covar_module, X)
            noise = self._noise(self.train_inputs[0]).double().mean(-1, keepdim=True)
            scores = variance / noise
        return scores.mT if self._num_outputs > 1 else scores.unsqueeze(-1)

    @property
    def effective_dimension(self) -> Tensor:
        r"""``d_eff = sum_i tau(x_i)`` over the training data, one for each batch and output."""
        self.eval()
        X = self.train_inputs[0]
        return (self._belief_now().variance(self.covar_module, X) / self._noise(X)).sum(-1)

    # ------------------------------------------------------------------ prior and posterior

    def forward(self, x: Tensor) -> MultivariateNormal:
        r"""The prior: exact in evaluation mode, of rank ``m`` on the training data."""
        if not self.training:
            return super().forward(x)
        X = self.transform_inputs(x)
        self._ensure_dictionary(X.detach())
        if self._covers_data(X.detach()) and not self._trace_term:
            return super().forward(x)
        Z = embed_with_gradient(self.covar_module, X[..., self._indices, :], X)
        mean = self.mean_module(X)
        prior = NystromPrior(mean, LowRankRootLinearOperator(Z))
        if self._trace_term:
            exact = MultivariateNormal(
                mean, DiagLinearOperator(self.covar_module(X, diag=True).expand(Z.shape[:-1]))
            )
            term = InducingPointKernelAddedLossTerm(exact, prior, self.likelihood)
            self.update_added_loss_term("trace_term", term)
        return prior

    def __call__(self, *args: Tensor, **kwargs: Any) -> MultivariateNormal:
        r"""The posterior in evaluation mode, the prior otherwise; see gpytorch's ``ExactGP``."""
        if self.training or settings.prior_mode.on():
            return super().__call__(*args, **kwargs)
        X = args[0].unsqueeze(-1) if args[0].dim() == 1 else args[0]
        X = X.to(self._train_inputs[0])
        belief = self._belief_now()
        mean, covar = belief.moments(self.covar_module, self.mean_module, X)
        batch = torch.broadcast_shapes(mean.shape[:-1], covar.shape[:-2])
        mean = mean.to(X.dtype).expand(*batch, mean.shape[-1])
        return MultivariateNormal(mean, covar.expand(*batch, *covar.shape[-2:]))

    def _belief_now(self) -> Belief:
        if self._belief is None:
            X = self.train_inputs[0]
            self._ensure_dictionary(X)
            with torch.no_grad():
                residual = self.train_targets - self.mean_module(X)
                noise = self._noise(X)
            points = X[..., self._indices, :]
            belief = Belief.build(self.covar_module, points, X, residual, noise)
            self.__dict__["_belief"] = belief
        return self._belief

    def _noise(self, X: Tensor) -> Tensor:
        r"""Noise variances of the training data, ``batch x n``."""
        with torch.no_grad():
            shape = torch.broadcast_shapes(X.shape[:-1], self.train_targets.shape)
            noise = self.likelihood._shaped_noise_covar(shape, X)
            return noise.diagonal(dim1=-2, dim2=-1).expand(shape).detach()

    # ------------------------------------------------------------------ conditioning

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> DTCGP:
        r"""Condition the DTC process exactly on new observations, in ``O(m^2 q + q^3)``.

        The new points join the dictionary; the old data are not embedded again. Fitting the
        returned model, or ``resparsify``, makes them ordinary training data.

        Args:
            X: A ``batch_shape x q x d`` tensor.
            Y: A ``batch_shape' x q x m`` tensor, with the same batch shape as ``X`` or further
                dimensions in front (one outcome each for the same points).
            noise: As ``Y``, noise variances in outcome-transformed space; required where the
                training data have observed noise.
            kwargs: Ignored.

        Returns:
            A model of the same type with ``n + q`` training points.
        """
        self.eval()
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y, X=X)  # ``noise`` is transformed already
        if fantasize_flag.off():
            self._validate_tensor_args(X=X, Y=Y, Yvar=noise, strict=False)
        check_finite("X", X)
        check_finite("Y", Y)
        X_original, targets = X, Y
        if self._num_outputs > 1:
            X_original, targets, noise = multioutput_to_batch_mode_transform(
                X, Y, self._num_outputs, noise
            )
        else:
            targets = Y.squeeze(-1)
            noise = None if noise is None else noise.squeeze(-1)
        X = self.transform_inputs(X_original)
        if X.shape[-2] != targets.shape[-1]:
            raise BotorchTensorDimensionError(
                f"X and Y must have the same number of rows, got {X.shape[-2]} and "
                f"{targets.shape[-1]}."
            )
        return self.get_fantasy_model(X, targets, noise=noise, X_original=X_original)

    def get_fantasy_model(
        self,
        inputs: Tensor,
        targets: Tensor,
        noise: Tensor | None = None,
        X_original: Tensor | None = None,
        **kwargs: Any,
    ) -> DTCGP:
        r"""gpytorch's name for conditioning, on transformed inputs and targets.

        Args:
            inputs: A ``batch x q x d`` tensor.
            targets: A ``batch' x q`` tensor.
            noise: A ``batch' x q`` tensor of noise variances.
            X_original: ``inputs`` before the input transform, where there is one.
            kwargs: Ignored.
        """
        inputs = inputs[0] if isinstance(inputs, list | tuple) else inputs
        inputs = inputs.to(self._train_inputs[0])
        likelihood, new_noise = self._conditioned_likelihood(inputs, noise)
        belief = self._belief_now().condition(
            self.covar_module, self.mean_module, inputs, targets, new_noise
        )
        batch = torch.broadcast_shapes(
            self._targets_shape()[:-1], inputs.shape[:-2], targets.shape[:-1]
        )
        n, q = self._targets_shape()[-1], inputs.shape[-2]
        extra = torch.arange(n, n + q, device=inputs.device)
        appended = _Appended(inputs if X_original is None else X_original, inputs, targets)
        model = self._copy_sharing_data()
        model.likelihood = likelihood
        model.__dict__.update(
            _belief=belief,
            _appended=(*self._appended, appended),
            _indices=torch.cat([self._indices, extra]),
            _drawn_under=self._drawn_under,
        )
        model._aug_batch_shape = batch
        model._input_batch_shape = batch if self._num_outputs == 1 else batch[:-1]
        return model

    def _conditioned_likelihood(
        self, X: Tensor, noise: Tensor | None
    ) -> tuple[Likelihood, Tensor]:
        r"""The likelihood of the conditioned model, and the noise of the new points."""
        if not isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            if noise is None:
                shape = torch.broadcast_shapes(X.shape[:-1], (*self._aug_batch_shape, 1))
                noise = self.likelihood._shaped_noise_covar(shape, X)
                noise = noise.diagonal(dim1=-2, dim2=-1)
            return self.likelihood, noise
        if noise is None:
            raise InputDataError(
                "A model with observed noise levels needs those of the new observations: pass "
                "`noise`, the variances in outcome-transformed space, shaped like Y."
            )
        old = self.likelihood.noise_covar.noise
        new = noise
        while new.dim() > old.dim():  # kept free of fantasy batches, or n is multiplied by them
            new = new.mean(0)
        likelihood = deepcopy(self.likelihood)
        likelihood.noise_covar.noise = torch.cat([old, new.expand(*old.shape[:-1], -1)], -1)
        return likelihood, noise + self.likelihood.second_noise

    def _copy_sharing_data(self) -> DTCGP:
        r"""A deep copy of the modules that shares the data and the belief."""
        shared = [self._train_inputs, self._train_targets, self._belief, self._indices]
        shared += [self._appended, self._original_train_inputs, self._drawn_under, self.likelihood]
        return deepcopy(self, {id(value): value for value in shared})

    # ------------------------------------------------------------------ data and state

    def _targets_shape(self) -> torch.Size:
        r"""Shape of the training targets, found without putting them together."""
        shape = self._train_targets.shape
        for block in self._appended:
            batch = torch.broadcast_shapes(
                shape[:-1], block.X.shape[:-2], block.targets.shape[:-1]
            )
            shape = torch.Size([*batch, shape[-1] + block.X.shape[-2]])
        return shape

    def _merge_appended(self) -> None:
        r"""Put conditioned observations among the training data.

        Done only when somebody looks: a model with 64 x 20 fantasies of 50,000 points would
        otherwise copy all of them 1,280 times.
        """
        if not self._appended:
            return
        shape = self._targets_shape()
        blocks, self.__dict__["_appended"] = self._appended, ()

        def joined(parts: list[Tensor], tail: int) -> Tensor:
            dim = -2 if tail == 2 else -1
            parts = [p.expand(*shape[:-1], *p.shape[-tail:]) for p in parts]
            return torch.cat(parts, dim).detach()

        inputs = joined([self._train_inputs[0], *(b.X for b in blocks)], 2)
        targets = joined([self._train_targets, *(b.targets for b in blocks)], 1)
        self.__dict__.update(_train_inputs=(inputs,), _train_targets=targets)
        if self._original_train_inputs is not None:
            originals = [self._original_train_inputs, *(b.X_original for b in blocks)]
            self._original_train_inputs = joined(originals, 2)

    @property
    def train_inputs(self) -> tuple[Tensor, ...] | None:
        r"""The training inputs, transformed in evaluation mode, those conditioned on included."""
        self._merge_appended()
        return self._train_inputs

    @train_inputs.setter
    def train_inputs(self, value: tuple[Tensor, ...] | None) -> None:
        self._merge_appended()
        old = self._train_inputs
        self.__dict__.update(
            _train_inputs=None if value is None else tuple(value), _belief=None
        )
        if old is None or value is None or old[0].shape[-2] == value[0].shape[-2]:
            return
        if self._indices_are_given:
            check_indices(self._indices, value[0].shape[-2])
        else:
            self.__dict__["_indices"] = None

    @property
    def train_targets(self) -> Tensor | None:
        r"""The training targets, those conditioned on included."""
        self._merge_appended()
        return self._train_targets

    @train_targets.setter
    def train_targets(self, value: Tensor | None) -> None:
        self._merge_appended()
        self.__dict__.update(_train_targets=value, _belief=None)

    def train(self, mode: bool = True) -> DTCGP:
        r"""Switch mode. Training may move the hyperparameters, so it forgets the belief."""
        if mode:
            self._merge_appended()
            self.__dict__["_belief"] = None
        elif self._trace_term:
            self._added_loss_terms["trace_term"] = None  # it holds a graph of n x m
        return super().train(mode)

    def _clear_cache(self) -> None:
        self.__dict__["_belief"] = None
        super()._clear_cache()

    def _apply(self, fn, recurse: bool = True):
        r"""Move data and belief along; analytic acquisition functions do this at every call.

        The belief's ``m x m`` algebra stays in float64 whatever the model's dtype.
        """
        belief, inputs = self._belief, tuple(map(fn, self._train_inputs))
        targets, appended = fn(self._train_targets), map_tensors(self._appended, fn)
        if belief is not None:
            to = inputs[0]
            if belief.points.device != to.device:
                belief = map_tensors(belief, lambda t: t.to(to.device))
            if belief.points.dtype != to.dtype:
                belief = belief.with_points_as(to.dtype)
        if self._original_train_inputs is not None:
            self._original_train_inputs = fn(self._original_train_inputs)
        indices = None if self._indices is None else self._indices.to(inputs[0].device)
        self.__dict__.update(
            _belief=belief,
            _train_inputs=inputs,
            _train_targets=targets,
            _appended=appended,
            _indices=indices,
        )
        return super(ExactGP, self)._apply(fn, recurse)

    def __getstate__(self) -> dict[str, Any]:
        r"""State for ``pickle`` and ``deepcopy``: caches without an autograd graph."""

        def detached(t: Tensor) -> Tensor:
            return t.detach() if t.requires_grad else t

        state = dict(self.__dict__)
        state.update({k: map_tensors(state[k], detached) for k in ("_belief", "_appended")})
        state["_added_loss_terms"] = dict.fromkeys(state["_added_loss_terms"])
        return state

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._indices is not None:
            mask = torch.zeros(
                self._targets_shape()[-1], dtype=torch.bool, device=self._indices.device
            )
            destination[prefix + "dictionary"] = mask.index_fill(0, self._indices, True)

    def _load_from_state_dict(self, state_dict, prefix, *args):
        r"""Adopt a saved dictionary if it is of data of the same size; else keep our own rule."""
        mask = state_dict.pop(prefix + "dictionary", None)
        self.__dict__["_belief"] = None
        if mask is not None and len(mask) == self._targets_shape()[-1]:
            indices = torch.nonzero(mask).squeeze(-1).to(self._train_targets.device)
            self.__dict__.update(_indices=indices, _drawn_under=None)
        super()._load_from_state_dict(state_dict, prefix, *args)
