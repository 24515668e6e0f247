r"""Closed-form values and derivatives of the common kernels, without autograd.

The kernels are RBF, Matérn and linear, with length-scales or variances per dimension, and with any
number of scales. Let ``a = (x - c) / l`` and ``b = (x' - c) / l`` be inputs in units of the
length-scales, ``r = |a - b|``, and ``k = s phi(r)``. With ``psi = -s phi'(r) / r`` a change of the
inputs and hyperparameters changes the kernel by

.. code-block:: text

    dk = k ds/s + psi sum_i (a_i - b_i)^2 dl_i/l_i - psi sum_i (a_i - b_i) (dx_i - dx'_i)/l_i

    RBF          phi = exp(-r^2/2)                            psi = s phi
    Matern 1/2   phi = exp(-r)                                psi = s exp(-r) / r
    Matern 3/2   phi = (1 + q) exp(-q),  q = sqrt(3) r        psi = 3 s exp(-q)
    Matern 5/2   phi = (1 + q + q^2/3) exp(-q),  q = sqrt(5) r   psi = 5/3 s (1 + q) exp(-q)
    linear       k = s sum_i v_i x_i x'_i

So the gradient of ``<G, K>`` needs one product of ``G o psi`` with the inputs. All values are
float64.

Reference:
    Rasmussen, Williams: Gaussian processes for machine learning. MIT Press 2006. (Sections 4.2 and
    5.4.1.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bkb.validation import check_dimensionality

LINEAR, RBF = "linear", "rbf"
#: Number of differences of coordinates up to which distances are computed from them.
FEW = 2**16


class ClosedForm(NamedTuple):
    r"""A kernel whose values and derivatives are known in closed form."""

    profile: str | float  #: ``"rbf"``, ``"linear"``, or ``nu`` of a Matérn kernel
    dims: Tensor | None  #: the dimensions that the kernel reads
    weights: Tensor  #: ``batch x 1 x d`` or ``batch x 1 x 1`` length-scales, or linear variances
    scales: tuple[Tensor, ...]  #: ``batch`` output scales
    columns: int | None = None  #: the number of dimensions read, if the kernel was told it

    @property
    def hyperparameters(self) -> tuple[Tensor, ...]:
        r"""The tensors that the kernel depends on besides its inputs."""
        return self.weights, *self.scales

    def read(self, X: Tensor) -> Tensor:
        r"""Return the dimensions of ``X`` that the kernel reads, in float64."""
        return read_columns(X, self.dims, self.columns)


def read_columns(X: Tensor, dims: Tensor | None, columns: int | None) -> Tensor:
    r"""Return the dimensions of ``X`` that a kernel reads, in float64.

    Args:
        X: ``batch x n x d`` inputs.
        dims: The dimensions; None for all.
        columns: The number of dimensions that the kernel expects; None for any.

    Raises:
        DimensionalityError: There are not as many. Length-scales would broadcast.
    """
    X = X if dims is None else X.index_select(-1, dims)
    check_dimensionality(columns, X.shape[-1])
    return X.double()


def closed_form(kernel: Kernel) -> ClosedForm | None:
    r"""Return the closed form of a kernel, or None if it has none here.

    Subclasses of gpytorch's kernels have none, since they may be other functions.

    Example:
        >>> from gpytorch.kernels import CosineKernel, MaternKernel, ScaleKernel
        >>> closed_form(ScaleKernel(MaternKernel(nu=1.5))).profile
        1.5
        >>> closed_form(CosineKernel()) is None
        True
    """
    dims, scales = kernel.active_dims, []
    while type(kernel) is ScaleKernel:
        scales.append(kernel.outputscale)
        kernel = kernel.base_kernel
    kind = type(kernel)
    if kind is RBFKernel:
        return ClosedForm(RBF, dims, kernel.lengthscale, tuple(scales), kernel.ard_num_dims)
    if kind is MaternKernel:
        return ClosedForm(kernel.nu, dims, kernel.lengthscale, tuple(scales), kernel.ard_num_dims)
    if kind is LinearKernel:
        return ClosedForm(LINEAR, dims, kernel.variance, tuple(scales), kernel.ard_num_dims)
    return None


def closed_matrix(form: ClosedForm, X1: Tensor, X2: Tensor) -> Tensor:
    r"""Compute ``k(X1, X2)``, ``batch x n x m`` in float64, with analytic derivatives.

    Args:
        form: The kernel.
        X1: ``batch x n x d`` inputs.
        X2: ``batch x m x d`` inputs.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> X = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> closed_matrix(closed_form(RBFKernel().double()), X, X).diagonal()
        tensor([1., 1.], dtype=torch.float64, grad_fn=<DiagonalBackward0>)
    """
    X1, X2, values = form.read(X1), form.read(X2), form.hyperparameters
    if torch.is_grad_enabled() and any(t.requires_grad for t in (X1, X2, *values)):
        return _Matrix.apply(form.profile, X1, X2, *values)
    return Evaluation.of(form.profile, X1, X2, values).matrix


def closed_diagonal(form: ClosedForm, X: Tensor) -> Tensor:
    r"""Compute ``k(x, x)``, ``batch x n`` in float64."""
    X, weights = form.read(X), form.weights.double()
    if form.profile == LINEAR:
        value = (X.square() * weights).sum(-1)
    else:
        batch = torch.broadcast_shapes(X.shape[:-2], weights.shape[:-2])
        value = X.new_ones(*batch, X.shape[-2])
    for scale in form.scales:
        value = value * scale.double().unsqueeze(-1)
    return value


class Evaluation(NamedTuple):
    r"""The values of a kernel at two sets of inputs, and what their derivatives need."""

    profile: str | float
    a: Tensor  #: ``batch x n x d`` inputs in units of the length-scales
    b: Tensor  #: ``batch x m x d``, the other inputs
    psi: Tensor  #: ``batch x n x m``; see the module's docstring
    matrix: Tensor  #: ``batch x n x m``, the kernel
    values: tuple[Tensor, ...]  #: the hyperparameters

    @classmethod
    def of(
        cls, profile: str | float, X1: Tensor, X2: Tensor, values: tuple[Tensor, ...]
    ) -> Evaluation:
        r"""Evaluate the kernel; the arguments are float64."""
        weights, scale = values[0].double(), _product(values[1:])
        if profile == LINEAR:
            K = (X1 * weights) @ X2.mT
            K = K if scale is None else K * scale
            return cls(profile, X1, X2, K, K, values)
        centre = X2.detach().mean(-2, keepdim=True)
        a = (X1 - centre) / weights
        b = a if X2 is X1 else (X2 - centre) / weights
        phi, psi = correlation(profile, a, b)
        if scale is not None:
            # The RBF kernel has only one matrix.
            phi, psi = (phi * scale,) * 2 if psi is phi else (phi * scale, psi * scale)
        return cls(profile, a, b, psi, phi, values)

    def pull_inputs(self, G: Tensor) -> Tensor:
        r"""Return the gradient of ``<G, K>`` with respect to the first inputs."""
        weights = self.values[0].double()
        if self.profile == LINEAR:
            scale = _product(self.values[1:])
            return ((G if scale is None else G * scale) @ self.b) * weights
        H = G * self.psi
        return (H @ self.b - self.a * H.sum(-1, keepdim=True)) / weights

    def pull_others(self, G: Tensor) -> Tensor:
        r"""Return the gradient of ``<G, K>`` with respect to the second inputs."""
        return self._replace(a=self.b, b=self.a, psi=self.psi.mT).pull_inputs(G.mT)

    def pull_hyperparameters(self, G: Tensor, overwrite: bool = False) -> tuple[Tensor, ...]:
        r"""Return the gradients of ``<G, K>`` with respect to the hyperparameters.

        Args:
            G: ``batch x n x m``.
            overwrite: Whether ``G`` may be overwritten, which saves memory.
        """
        weights, *scales = self.values
        # Not a dot product of two flat tensors: batches stay apart.
        total = torch.linalg.vecdot(G.flatten(-2), self.matrix.flatten(-2)) if scales else None
        if self.profile == LINEAR:
            scale = _product(self.values[1:])
            outer = (self.a * ((G if scale is None else G * scale) @ self.b)).sum(-2, keepdim=True)
        else:
            H = G.mul_(self.psi) if overwrite else G * self.psi
            outer = self._squares(H) / weights.double()
        first = outer.sum_to_size(weights.shape).to(weights.dtype)
        if total is None:
            return (first,)
        return first, *((total / s.double()).sum_to_size(s.shape).to(s.dtype) for s in scales)

    def _squares(self, H: Tensor) -> Tensor:
        r"""Compute ``sum_ij H_ij (a_ik - b_jk)^2`` for each ``k``, ``batch x 1 x d``."""
        a, b, d = self.a, self.b, self.b.shape[-1]
        powers = torch.cat([b, b.square(), torch.ones_like(b[..., :1])], -1)
        products = H @ powers  # one pass over ``H``
        first, second, rows = products[..., :d], products[..., d:-1], products[..., -1:]
        return (a * (a * rows - 2 * first) + second).sum(-2, keepdim=True)


class _Matrix(torch.autograd.Function):
    r"""The kernel matrix, with analytic derivatives. Second derivatives use autograd."""

    @staticmethod
    def forward(ctx: Any, profile: str | float, X1: Tensor, X2: Tensor, *values: Tensor) -> Tensor:
        evaluation = Evaluation.of(profile, X1, X2, values)
        ctx.profile, ctx.same = profile, X2 is X1
        ctx.save_for_backward(X1, X2, evaluation.a, evaluation.b, evaluation.psi,
                              evaluation.matrix, *values)  # fmt: skip
        return evaluation.matrix

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        X1, X2, a, b, psi, matrix, *values = ctx.saved_tensors
        needed = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # second derivatives are wanted
            return None, *_differentiable(ctx.profile, X1, X2, values, needed, G)
        e = Evaluation(ctx.profile, a, b, psi, matrix, tuple(values))
        first = e.pull_inputs(G).sum_to_size(X1.shape) if needed[0] else None
        other = e.pull_others(G).sum_to_size(X2.shape) if needed[1] else None
        rest = e.pull_hyperparameters(G) if any(needed[2:]) else (None,) * len(values)
        return None, first, other, *rest


def _differentiable(
    profile: str | float, X1: Tensor, X2: Tensor, values: list[Tensor], needed: Any, G: Tensor
) -> tuple[Tensor | None, ...]:
    r"""Return the gradients of ``<G, K>`` with a graph of their own."""
    inputs = (X1, X2, *values)
    K = Evaluation.of(profile, X1, X2, tuple(values)).matrix
    wanted = [t for t, need in zip(inputs, needed, strict=True) if need]
    found = iter(torch.autograd.grad(K, wanted, G, create_graph=True))
    return tuple(next(found) if need else None for need in needed)


def _product(scales: tuple[Tensor, ...]) -> Tensor | None:
    r"""Return the product of output scales, ``batch x 1 x 1``, or None if there are none."""
    if not scales:
        return None
    total = scales[0].double()
    for scale in scales[1:]:
        total = total * scale.double()
    return total[..., None, None]


def _distances(a: Tensor, b: Tensor) -> Tensor:
    r"""Compute ``|a_i - b_j|`` from differences, ``batch x n x m``."""
    if a.requires_grad or b.requires_grad:  # for second derivatives, which ``cdist`` lacks
        squares = (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1)
        apart = squares > 0  # a root has no slope at zero, and the masked one has none there
        return torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _minus_half_squares(a: Tensor, b: Tensor) -> Tensor:
    r"""Compute ``-|a_i - b_j|^2 / 2``, ``batch x n x m``, up to rounding.

    One product is fastest, and differences are if there are few. (They have no second derivatives.)
    """
    few = a.shape[-2] * b.shape[-2] * a.shape[-1] <= FEW
    if few and not (a.requires_grad or b.requires_grad):
        return _distances(a, b).square_().mul_(-0.5)
    left, right = (-0.5 * torch.linalg.vecdot(t, t).unsqueeze(-1) for t in (a, b))
    ones = torch.ones_like(a[..., :1]), torch.ones_like(b[..., :1])
    # The squares are two more columns of one product: passes over all pairs take longer.
    return torch.cat([a, left, ones[0]], -1) @ torch.cat([b, ones[1], right], -1).mT


def correlation(profile: str | float, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute ``phi`` and ``psi`` of a stationary kernel without its scale, ``batch x n x m``.

    Args:
        profile: The profile of a :class:`ClosedForm`.
        a: ``batch x n x d`` inputs in units of the length-scales, float64.
        b: ``batch x m x d`` inputs in units of the length-scales, float64.
    """
    return _exponential(a, b) if profile == 0.5 else _smooth(profile, a, b)


def _exponential(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return ``phi`` and ``psi`` of the Matérn kernel with ``nu = 1/2``, without the scale.

    The kernel has a kink at zero, so that distances must be exact.
    """
    r = _distances(a, b)
    decay = (-r).exp()
    return decay, torch.where(r > 0, decay / r, 0.0)


def _smooth(profile: str | float, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return ``phi`` and ``psi`` of the other stationary kernels, without the scale."""
    half = _minus_half_squares(a, b)
    if profile == RBF:
        value = half.exp_()  # rounding may make it slightly larger than one
        return value, value
    assert isinstance(profile, float)
    q = half.mul_(-4 * profile).clamp_min_(1e-30).sqrt_()  # the slope of a root at 0 is infinite
    decay = q.neg().exp_()
    slope = (1 + q).mul_(decay)
    if profile == 1.5:
        return slope, 3 * decay
    return torch.addcmul(slope, q.square(), decay, value=1 / 3), slope * (5 / 3)
