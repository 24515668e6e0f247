r"""The log evidence of a sparse prior, with analytic derivatives in blocks of rows.

The derivatives of the evidence with respect to the kernel's values are known in closed form
(:mod:`botorch_bkb.linalg.evidence`). So autograd is used only through the kernel, a block of rows
at a time, and not at all for the kernels of :mod:`botorch_bkb.closed_form`. Blocks are kept between
value and derivatives while there are few rows, and evaluated again otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.belief import chunks, kernel_matrix
from botorch_bkb.closed_form import Evaluation, closed_form, read_columns
from botorch_bkb.features import FeatureKernel
from botorch_bkb.linalg import RowGradients, SparseEvidence, embed, safe_cholesky

#: Number of kernel values in a block of rows, so that a block stays in the processor's cache.
BLOCK = 2**18
#: Number of rows in a block at least: each block adds an ``m x m`` matrix to a sum.
LEAST_ROWS = 1024
#: Largest number of kernel values that are kept from value to derivatives (256 MiB).
KEPT_KERNEL = 2**25
#: Largest number of coordinates that are kept from value to derivatives (2 GiB).
KEPT = 2**28

Gradients = tuple[Tensor | None, Tensor | None, Sequence[Tensor | None]]


class Block(NamedTuple):
    r"""Kernel values, and the map from their gradient to those of inputs and hyperparameters."""

    K: Tensor
    pull: Callable[[Tensor], Gradients]  #: may overwrite its argument


class KernelBlocks(NamedTuple):
    r"""A kernel as a function of inputs and of the tensors that it depends on."""

    kernel: Kernel
    tensors: tuple[Tensor, ...]  #: hyperparameters, or parameters without a closed form
    profile: str | float | None  #: of the closed form; None without one
    dims: Tensor | None = None  #: the dimensions that a closed form reads
    columns: int | None = None  #: their number, if the kernel was told it

    @classmethod
    def of(cls, kernel: Kernel) -> KernelBlocks:
        r"""Return the closed form of a kernel, or gpytorch's general one."""
        form = closed_form(kernel)
        if form is None:
            return cls(kernel, tuple(p for p in kernel.parameters() if p.requires_grad), None)
        return cls(kernel, form.hyperparameters, form.profile, form.dims, form.columns)

    def evaluate(self, X: Tensor, points: Tensor, tensors: Sequence[Tensor], inputs: bool) -> Block:
        r"""Evaluate the kernel at two sets of inputs, or its features at the first.

        Args:
            X: ``batch x n x d``.
            points: ``batch x m x d``.
            tensors: Values of ``tensors``.
            inputs: Whether the gradient with respect to the inputs is needed.
        """
        if self.profile is None:
            return self._by_autograd(X, points, inputs)
        x, s = (read_columns(t, self.dims, self.columns) for t in (X, points))
        e = Evaluation.of(self.profile, x, s, tuple(tensors))

        def pull(G: Tensor) -> Gradients:
            if not inputs:
                return None, None, e.pull_hyperparameters(G, overwrite=True)
            both = (self._widened(e.pull_inputs(G), X), self._widened(e.pull_others(G), points))
            return *both, e.pull_hyperparameters(G)

        return Block(e.matrix, pull)

    def _widened(self, gradient: Tensor, like: Tensor) -> Tensor:
        r"""Return a gradient of the dimensions read as one of all dimensions."""
        if self.dims is not None:
            full = gradient.new_zeros(*gradient.shape[:-1], like.shape[-1])
            gradient = full.index_add(-1, self.dims, gradient)
        return gradient.sum_to_size(like.shape).to(like.dtype)

    def _by_autograd(self, X: Tensor, points: Tensor, inputs: bool) -> Block:
        with torch.enable_grad():
            x, s = (t.detach().requires_grad_(inputs) for t in (X, points))
            kernel, has_features = self.kernel, isinstance(self.kernel, FeatureKernel)
            K = kernel.features(x) if has_features else kernel_matrix(kernel, x, s)
        wanted = [x, *([] if has_features else [s])] if inputs else []

        def pull(G: Tensor) -> Gradients:
            sources = [*wanted, *self.tensors]
            if not sources or not K.requires_grad:
                return None, None, [None] * len(self.tensors)
            found = list(torch.autograd.grad(K, sources, G.sum_to_size(K.shape), allow_unused=True))
            first, other = ([*found[: len(wanted)], None, None])[:2]
            return first, other, found[len(wanted) :]

        return Block(K.detach(), pull)


class SparseLogEvidence:
    r"""The log density of ``residual ~ N(0, Z Z' + Lam)``, and then its derivatives.

    Args:
        blocks: The kernel.
        tensors: The tensors that the kernel depends on.
        X: ``batch x n x d`` inputs.
        points: ``batch x m x d`` inputs of the dictionary.
        residual: ``batch x n`` targets minus the prior mean.
        noise: ``batch x n`` noise variances.
        trace_term: Whether to add the part of Titsias' trace term that depends on ``Z``.
        inputs: Whether derivatives with respect to the inputs are needed.
    """

    def __init__(
        self,
        blocks: KernelBlocks,
        tensors: Sequence[Tensor],
        X: Tensor,
        points: Tensor,
        residual: Tensor,
        noise: Tensor,
        trace_term: bool = False,
        inputs: bool = False,
    ) -> None:
        self.blocks, self.tensors, self.X, self.points = blocks, tensors, X, points
        self.residual, self.noise, self.inputs = residual.double(), noise.double(), inputs
        self._square: Block | None = None
        self._root: Tensor | None = None
        if not isinstance(blocks.kernel, FeatureKernel):
            self._square = self._evaluate(points)
            self._root = safe_cholesky(self._square.K, precision=points.dtype)
        self._evidence = SparseEvidence(self._root, trace_term)
        self._blocks: list[Block] = []
        self._coordinates: list[Tensor] = []

    def _evaluate(self, X: Tensor) -> Block:
        return self.blocks.evaluate(X, self.points, self.tensors, self.inputs)

    def _slices(self) -> list[slice]:
        width = self.residual[..., 0].numel() * max(1, self._width())
        return list(chunks(self.X.shape[-2], max(LEAST_ROWS, BLOCK // width)))

    def _width(self) -> int:
        kernel = self.blocks.kernel
        return kernel.num_features if isinstance(kernel, FeatureKernel) else self.points.shape[-2]

    def value(self) -> Tensor:
        r"""Return the log evidence, ``batch``, in float64."""
        size = self.residual.numel() * self._width()
        for rows in self._slices():
            block = self._evaluate(self.X[..., rows, :])
            Z = embed(self._root, block.K)
            self._evidence.add(Z, self.residual[..., rows], self.noise[..., rows])
            if size <= KEPT:
                self._coordinates.append(Z)
            if size <= KEPT_KERNEL:
                self._blocks.append(block)
        return self._evidence.value()

    def _kept(self) -> Iterator[tuple[slice, Block, Tensor]]:
        r"""Yield slices of the rows with their kernel values and coordinates once more."""
        for i, rows in enumerate(self._slices()):
            block = self._blocks[i] if self._blocks else self._evaluate(self.X[..., rows, :])
            Z = self._coordinates[i] if self._coordinates else embed(self._root, block.K)
            yield rows, block, Z

    def gradients(self, weight: Tensor | None = None) -> tuple[Any, ...]:
        r"""Return the derivatives of the weighted evidence, after :meth:`value`.

        Args:
            weight: ``batch`` weights; 1 by default.

        Returns:
            The derivatives with respect to ``X``, ``points``, ``residual``, ``noise`` and each of
            ``tensors``. Those of inputs are None unless they are needed.
        """
        self._evidence.prepare()
        outer, total = None if weight is None else weight.unsqueeze(-1), _Total(len(self.tensors))
        inputs, residual, noise = [], [], []
        for rows, block, Z in self._kept():
            g = self._evidence.rows(Z, block.K, self.residual[..., rows], self.noise[..., rows])
            if outer is not None:
                g = RowGradients(g.kernel * outer.unsqueeze(-1), g.targets * outer, g.noise * outer)
            inputs.append(total.add(block.pull(g.kernel)))
            residual.append(g.targets)
            noise.append(g.noise)
        if self._square is not None:
            by_square = self._evidence.dictionary()
            if outer is not None:
                by_square = by_square * outer.unsqueeze(-1)
            first = total.add(self._square.pull(by_square))
            total.points = _sum(total.points, first)
        X = torch.cat([t for t in inputs if t is not None], -2) if self.inputs else None
        return X, total.points, torch.cat(residual, -1), torch.cat(noise, -1), *total.tensors


class _Total:
    r"""Sums of derivatives over the blocks."""

    def __init__(self, num_tensors: int) -> None:
        self.points: Tensor | None = None
        self.tensors: list[Tensor | None] = [None] * num_tensors

    def add(self, gradients: Gradients) -> Tensor | None:
        r"""Add the derivatives of a block, and return that of its rows."""
        rows, points, tensors = gradients
        self.points = _sum(self.points, points)
        self.tensors = [_sum(a, b) for a, b in zip(self.tensors, tensors, strict=True)]
        return rows


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


class LogEvidence(torch.autograd.Function):
    r"""The value of :class:`SparseLogEvidence` as a function of tensors, for autograd.

    Second derivatives are not available.
    """

    @staticmethod
    def forward(
        ctx: Any,
        blocks: KernelBlocks,
        trace_term: bool,
        X: Tensor,
        points: Tensor,
        residual: Tensor,
        noise: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        r"""Return the value, ``batch``."""
        inputs = X.requires_grad or points.requires_grad
        ctx.evidence = SparseLogEvidence(
            blocks, tensors, X, points, residual, noise, trace_term, inputs
        )
        return ctx.evidence.value()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        r"""Return the derivatives."""
        return None, None, *ctx.evidence.gradients(weight)
