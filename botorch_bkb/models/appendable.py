r"""A ``SingleTaskGP`` whose training data grow without being copied.

Conditioning on fantasies gives one model with many sets of training data. With 64 fantasies at 20
points, these are 1,280 sets that share all but the last rows. gpytorch stores a full copy of each.
Here the new rows are stored separately until ``train_inputs`` or ``train_targets`` is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple, Self

import torch
from botorch.models.gp_regression import SingleTaskGP
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor

from botorch_bkb.linalg import map_tensors


class Observations(NamedTuple):
    r"""Rows to append to the training data, in the model's internal batch shape."""

    X_original: Tensor  #: inputs before the input transform, ``batch x q x d``
    X: Tensor  #: inputs after the input transform
    targets: Tensor  #: ``batch' x q``, where ``batch'`` may have more leading dimensions


class AppendableGP(SingleTaskGP):
    r"""A base class with lazily appended training data and hooks for a cached belief."""

    # Plain attributes, written through ``__dict__``: neither parameters nor buffers.
    _train_inputs: tuple[Tensor, ...]
    _train_targets: Tensor
    _appended: tuple[Observations, ...]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(_train_inputs=None, _train_targets=None, _appended=())
        super().__init__(*args, **kwargs)

    def _forget_belief(self) -> None:
        r"""Drop the cached belief, because data or hyperparameters may have changed."""

    def _forget_dictionary(self) -> None:
        r"""Drop the dictionary, because the training inputs were replaced."""

    def _check_new_inputs(self, n: int) -> None:
        r"""Raise if the model does not allow ``n`` training points, before anything changes."""

    def _move_belief(self, like: Tensor) -> None:
        r"""Move the cached belief to the device and dtype of ``like``, as the model was."""

    @property
    def num_data(self) -> int:
        r"""The number ``n`` of training points."""
        return self._targets_shape()[-1]

    def _targets_shape(self) -> torch.Size:
        shape = self._train_targets.shape
        for block in self._appended:
            batch = torch.broadcast_shapes(shape[:-1], block.X.shape[:-2], block.targets.shape[:-1])
            shape = torch.Size([*batch, shape[-1] + block.X.shape[-2]])
        return shape

    def _with_observations(self, new: Observations, noise: Tensor | None) -> Self:
        r"""Return a copy of the model with more observations.

        Modules are copied. Earlier data are shared.

        Args:
            new: The observations to append.
            noise: The observed noise variances of ``new``, ``batch' x q``, if there are any.
        """
        shared = [self._train_inputs, self._train_targets, self._original_train_inputs]
        model = deepcopy(self, {id(value): value for value in shared})
        model.__dict__["_appended"] = (*self._appended, new)
        if noise is not None and isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
            old = model.likelihood.noise_covar.noise
            # A fantasy dimension would multiply n. Noise that is the same in each needs none.
            while noise.dim() > old.dim() and torch.equal(noise, noise[:1].expand_as(noise)):
                noise = noise[0]
            lead = torch.broadcast_shapes(old.shape[:-1], noise.shape[:-1])
            parts = [t.expand(*lead, t.shape[-1]) for t in (old, noise)]
            model.likelihood.noise_covar.noise = torch.cat(parts, -1).detach()
        batch = model._targets_shape()[:-1]
        model._aug_batch_shape = batch
        model._input_batch_shape = batch if self._num_outputs == 1 else batch[:-1]
        return model

    def _merge_appended(self) -> None:
        if not self._appended:
            return
        batch = self._targets_shape()[:-1]
        blocks, self.__dict__["_appended"] = self._appended, ()

        def joined(parts: list[Tensor], dim: int) -> Tensor:
            parts = [p.expand(*batch, *p.shape[dim:]) for p in parts]
            return torch.cat(parts, dim).detach()

        inputs = joined([self._train_inputs[0], *(b.X for b in blocks)], -2)
        targets = joined([self._train_targets, *(b.targets for b in blocks)], -1)
        self.__dict__.update(_train_inputs=(inputs,), _train_targets=targets)
        if self._original_train_inputs is not None:
            originals = [self._original_train_inputs, *(b.X_original for b in blocks)]
            self._original_train_inputs = joined(originals, -2)

    @property  # type: ignore[override]
    def train_inputs(self) -> tuple[Tensor, ...]:
        r"""The training inputs, including appended ones; transformed in evaluation mode."""
        self._merge_appended()
        return self._train_inputs

    @train_inputs.setter
    def train_inputs(self, value: tuple[Tensor, ...] | None) -> None:
        self._merge_appended()
        self.__dict__["_train_inputs"] = None if value is None else tuple(value)
        self._forget_belief()

    def set_train_data(
        self, inputs: Any = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        r"""Replace training data; see gpytorch's ``ExactGP``.

        New inputs need a new dictionary.
        """
        if inputs is None:
            super().set_train_data(targets=targets, strict=strict)
            return
        first = inputs if isinstance(inputs, Tensor) else inputs[0]
        self._check_new_inputs(first.shape[-2] if first.dim() > 1 else len(first))
        super().set_train_data(inputs, targets, strict)
        self._forget_dictionary()

    def _set_transformed_inputs(self) -> None:
        with self._same_points():
            super()._set_transformed_inputs()

    def _revert_to_original_inputs(self) -> None:
        with self._same_points():
            super()._revert_to_original_inputs()

    @contextmanager
    def _same_points(self) -> Iterator[None]:
        r"""Keep the dictionary while BoTorch transforms the inputs or reverts them.

        BoTorch does this by setting the inputs, but the points stay the same.
        """
        keep = self._dictionary_state()
        yield
        self.__dict__.update(keep)

    def _dictionary_state(self) -> dict[str, Any]:
        r"""Return the attributes that :meth:`_forget_dictionary` resets."""
        return {}

    @property  # type: ignore[override]
    def train_targets(self) -> Tensor:
        r"""The transformed training targets, including appended ones."""
        self._merge_appended()
        return self._train_targets

    @train_targets.setter
    def train_targets(self, value: Tensor | None) -> None:
        self._merge_appended()
        self.__dict__["_train_targets"] = value
        self._forget_belief()

    def train(self, mode: bool = True) -> Self:
        r"""Set training or evaluation mode.

        Training may change the hyperparameters, so training mode drops the belief.
        """
        if mode:
            self._merge_appended()
            self._forget_belief()
        return super().train(mode)

    def _clear_cache(self) -> None:
        self._forget_belief()
        super()._clear_cache()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        r"""Move data and belief.

        Analytic acquisition functions do this at every call.
        """
        self.__dict__.update(
            _train_inputs=tuple(map(fn, self._train_inputs)),
            _train_targets=fn(self._train_targets),
            _appended=map_tensors(self._appended, fn),
        )
        if self._original_train_inputs is not None:
            self._original_train_inputs = fn(self._original_train_inputs)
        # ``ExactGP`` would read ``train_inputs``, which merges the appended rows.
        super(ExactGP, self)._apply(fn, recurse)
        self._move_belief(self._train_inputs[0])
        return self

    def __getstate__(self) -> dict[str, Any]:
        r"""Return the state for ``pickle`` and ``deepcopy``, without autograd graphs."""
        return {**self.__dict__, "_appended": map_tensors(self._appended, detached)}


def detached(t: Tensor) -> Tensor:
    r"""Return ``t`` without its autograd graph, or ``t`` itself if it has none."""
    return t.detach() if t.requires_grad else t
