r"""A base class of GPs with a dictionary of training inputs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Self

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.utils.inducing_point_allocators import InducingPointAllocator
from botorch.sampling.pathwise.utils import get_train_inputs
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from botorch_bkb.dictionaries import (
    Candidates,
    DictionaryRule,
    Draw,
    as_rule,
    given_dictionary,
    warn_capped,
)
from botorch_bkb.features import has_features
from botorch_bkb.models.appendable import AppendableGP
from botorch_bkb.models.fit_errors import fit_with_reasons
from botorch_bkb.models.noise import noise_variances
from botorch_bkb.validation import check_indices, check_squares

#: State dict keys of the dictionary: its rows, their inputs, the hyperparameters at the draw.
SAVED = ("dictionary.indices", "dictionary.points", "dictionary.hyperparameters")


class SparseGP(AppendableGP):
    r"""A base class that draws the dictionary when needed and again when it is out of date.

    The dictionary stays fixed while the hyperparameters are fitted. If they have changed, it is
    drawn again at the next evaluation of the model. It is saved with the state. A dictionary given
    by the user is never replaced by evaluation or fitting.
    """

    # Plain attributes, written through ``__dict__``: neither parameters nor buffers.
    _rule: DictionaryRule
    _given: Tensor | None  # indices given by the user
    _indices: Tensor | None  # current dictionary, including points conditioned on
    _drawn_under: Tensor | None  # hyperparameters when it was drawn
    _num_drawn: int = 0  # points drawn for the current dictionary, before a cap on its size
    _warned: bool = False  # whether the user knows that the dictionary is capped

    def __init__(
        self,
        train_X: Tensor,
        *args: Any,
        dictionary: DictionaryRule | InducingPointAllocator | Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        self._take_dictionary(dictionary, train_X)
        super().__init__(train_X, *args, **kwargs)
        with torch.no_grad():
            check_squares("train_X as the kernel sees it", self.transform_inputs(train_X))

    def _take_dictionary(
        self, dictionary: DictionaryRule | InducingPointAllocator | Tensor | None, train_X: Tensor
    ) -> None:
        r"""Set the rule of the dictionary, or its indices."""
        given = None
        if isinstance(dictionary, Tensor):
            given, dictionary = given_dictionary(dictionary, train_X), None
        rule = as_rule(dictionary)
        self.__dict__.update(_rule=rule, _given=given, _indices=given, _drawn_under=None)

    def custom_fit(self, mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
        r"""Fit the hyperparameters; ``fit_gpytorch_mll`` calls it.

        Args:
            mll: The marginal log likelihood of this model.
            kwargs: Further arguments of ``fit_gpytorch_mll``.
        """
        return fit_with_reasons(mll, **kwargs)

    def _has_belief(self) -> bool:
        r"""Return whether a belief is cached for the current dictionary."""
        return False

    @property
    def dictionary_indices(self) -> Tensor:
        r"""Rows of the training data that form the dictionary, as a sorted LongTensor.

        There are none if features take the place of a dictionary.
        """
        if self._has_belief() and self._indices is not None:
            return self._indices
        X = self.train_inputs[0]
        if self.training:
            with torch.no_grad():
                X = self.transform_inputs(X)
        return self._dictionary(X)

    def _dictionary(self, X: Tensor) -> Tensor:
        r"""Draw the dictionary if there is none, or if the hyperparameters have changed.

        In training mode an existing dictionary stays, so that the objective of a fit is fixed.
        """
        now = self._hyperparameters()
        indices = self._indices
        if indices is None or not (
            self.training
            or self._given is not None
            or (self._drawn_under is not None and torch.equal(self._drawn_under, now))
        ):
            with torch.no_grad():
                indices = self._choose_dictionary(X)
            self.__dict__.update(_indices=indices, _drawn_under=now)
        if not self.training:  # the dictionary of a fit is not that of the predictions
            self._warn_once(X)
        return indices

    @property
    def _has_features(self) -> bool:
        r"""Whether features take the place of a dictionary."""
        return has_features(self.covar_module)

    def _choose_dictionary(self, X: Tensor) -> Tensor:
        if self._has_features:
            return torch.empty(0, dtype=torch.long, device=X.device)
        chosen = self._rule.choose(Candidates(X, self.covar_module, self._noise(X)))
        self.__dict__["_num_drawn"] = chosen.num_drawn
        return chosen.positions

    def _warn_once(self, X: Tensor) -> None:
        r"""Warn at the first dictionary for predictions that was capped; say what that costs."""
        if self._warned or self._indices is None or self._given is not None:
            return
        draw = Draw(self._indices, self._num_drawn)
        if draw.is_capped:
            self.__dict__["_warned"] = True
            warn_capped(draw, X, self.covar_module, "max_size")

    def _hyperparameters(self) -> Tensor:
        parameters = [p.detach().flatten().double() for p in self.parameters()]
        return torch.cat(parameters) if parameters else self.train_targets.new_empty(0).double()

    def with_dictionary(self, indices: Tensor) -> Self:
        r"""Return a copy of this model with the given dictionary.

        Args:
            indices: A LongTensor of row indices of the training data.
        """
        if self._has_features:
            raise UnsupportedError(
                "A model with features has no dictionary, got dictionary indices: construct it "
                "with dictionary=indices instead of features."
            )
        indices = given_dictionary(indices, self.train_inputs[0])
        model = deepcopy(self)
        model.__dict__.update(_given=indices, _indices=indices)
        model._forget_belief()
        return model

    def _noise(self, X: Tensor) -> Tensor:
        r"""Return the noise variances of the training data, ``batch x n``."""
        with torch.no_grad():
            shape = torch.broadcast_shapes(X.shape[:-1], self.train_targets.shape)
            return noise_variances(self.likelihood, shape, X).detach()

    def _forget_dictionary(self) -> None:
        self.__dict__.update(_indices=self._given, _drawn_under=None, _num_drawn=0)

    def _dictionary_state(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("_indices", "_drawn_under")}

    def _check_new_inputs(self, n: int) -> None:
        if self._given is not None:
            check_indices(self._given, n)

    def subset_output(self, idcs: list[int]) -> Self:
        r"""Return the model of some of the outputs, with the same dictionary; see BoTorch."""
        _ = self.dictionary_indices  # of all outputs: draw it now if not done yet
        model = super().subset_output(idcs)
        assert isinstance(model, type(self))
        model.__dict__.update(self._dictionary_state(), _drawn_under=model._hyperparameters())
        return model

    def _raw_dictionary_points(self, indices: Tensor) -> Tensor:
        r"""Return the dictionary's inputs before the input transform.

        They tell apart data sets of the same size.
        """
        (X,) = get_train_inputs(self, transformed=False)
        return X[..., indices, :]

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._indices is None or self._drawn_under is None:
            return
        saved = (self._indices, self._raw_dictionary_points(self._indices), self._drawn_under)
        destination.update(zip((prefix + key for key in SAVED), saved, strict=True))

    def _load_from_state_dict(self, state_dict, prefix, *args):
        r"""Load a saved dictionary if it is from the same data and the rule is random."""
        indices, points, drawn_under = (state_dict.pop(prefix + key, None) for key in SAVED)
        self._forget_belief()
        if (
            indices is not None
            and self._given is None
            and self._rule.is_random(self.num_data)
            and int(indices.max()) < self.num_data
        ):
            like = self._train_inputs[0]
            indices = indices.to(like.device)
            if torch.equal(self._raw_dictionary_points(indices), points.to(like)):
                drawn_under = drawn_under.to(like.device)
                self.__dict__.update(_indices=indices, _drawn_under=drawn_under)
        super()._load_from_state_dict(state_dict, prefix, *args)
