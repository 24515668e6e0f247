r"""Sample paths from the DTC posterior, for BoTorch's pathwise samplers.

BoTorch's handler for exact GPs would sample from the exact posterior instead, in ``O(n^3)``. DTC
keeps its information at the dictionary ``S``, so Matheron's rule is applied there. With a prior
path ``f`` and ``u`` drawn from the posterior of the values at ``S``,

.. code-block:: text

    path(x) = f(x) + k_S(x)' K_SS^{-1} (u - f(S)),     u = mu(S) + L R^{-T} (c + eps)

After conditioning on ``(X_q, y_q)``, the rule is applied again, with the DTC covariance:

.. code-block:: text

    path(x) + cov(x, X_q) M^{-1} (y_q + noise - path(X_q))

Both corrections are combinations of kernel functions at ``S`` and ``X_q``. With features in place
of a dictionary a path is ``mu(x) + phi(x)'theta``, with ``theta`` drawn from its posterior.

Reference:
    Wilson, Borovitskiy, Terenin, Mostowsky, Deisenroth: Efficiently sampling functions from
    Gaussian process posteriors. ICML 2020.
"""

from __future__ import annotations

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.features import KernelEvaluationMap
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from botorch.sampling.pathwise.features.maps import FeatureMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath, SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths, MatheronPath
from botorch.sampling.pathwise.prior_samplers import TPathwisePriorSampler
from botorch.sampling.pathwise.update_strategies import TPathwiseUpdate
from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
from botorch.utils.context_managers import delattr_ctx
from torch import Size, Tensor

from botorch_bkb.belief import Belief
from botorch_bkb.features import FeatureKernel
from botorch_bkb.linalg import Conditional, solve_vector
from botorch_bkb.models.dtc import DTCGP


@DrawMatheronPaths.register(DTCGP)
def _draw_matheron_paths_DTCGP(
    model: DTCGP,
    *,
    sample_shape: Size,
    prior_sampler: TPathwisePriorSampler,
    update_strategy: TPathwiseUpdate,
) -> SamplePath:
    model.eval()
    belief = model._belief_now()
    if model._aug_batch_shape != model.covar_module.batch_shape:
        raise UnsupportedError(
            f"Sample paths need a kernel for each batch, got a kernel with batch shape "
            f"{tuple(model.covar_module.batch_shape)} in a model with "
            f"{tuple(model._aug_batch_shape)} (for example batches of fantasies): draw from the "
            "model as it was before conditioning in batches."
        )
    if isinstance(model.covar_module, FeatureKernel):
        return _feature_paths(model, model.covar_module, belief, sample_shape)
    with delattr_ctx(model, "outcome_transform"):
        prior_paths = prior_sampler(model, sample_shape)
    with torch.no_grad():
        points, weight = _update_weights(model, belief, prior_paths)
    feature_map = KernelEvaluationMap(
        kernel=model.covar_module, points=points, input_transform=get_input_transform(model)
    )
    return MatheronPath(
        prior_paths=prior_paths,
        update_paths=GeneralizedLinearPath(feature_map=feature_map, weight=weight.to(points)),
        output_transform=get_output_transform(model),
    )


class FourierMap(FeatureMap):
    r"""The features of a :class:`FeatureKernel` as a BoTorch feature map.

    Args:
        kernel: The kernel.
    """

    def __init__(self, kernel: FeatureKernel) -> None:
        super().__init__()
        self.kernel, self.num_outputs = kernel, kernel.num_features
        self.batch_shape = kernel.batch_shape
        self.input_transform = self.output_transform = None

    def forward(self, x: Tensor) -> Tensor:
        r"""Return the features of ``batch x n x d`` inputs, in their dtype."""
        return self.kernel.features(x).to(x)


@GenKernelFeatures.register(FeatureKernel)
def _gen_kernel_features(kernel: FeatureKernel, *, num_inputs: int, num_outputs: int) -> FourierMap:
    return FourierMap(kernel)


def _feature_paths(
    model: DTCGP, kernel: FeatureKernel, belief: Belief, sample_shape: Size
) -> GeneralizedLinearPath:
    r"""Draw ``theta = R^{-T} (c + eps)`` and condition it on further observations."""
    factor, conditional = belief.factor, belief.conditional
    eps = torch.randn(
        *sample_shape, *factor.coef.shape, dtype=torch.float64, device=factor.coef.device
    )
    theta = _solve_transposed(factor.info_root, factor.coef + eps)
    if conditional is not None:
        (z, w), mean = conditional.embedding, factor.mean(conditional.embedding)
        path = (z @ theta.unsqueeze(-1)).squeeze(-1)
        a = _innovation_weights(conditional, mean, w @ w.mT, path)
        # cov(x, X_q) = w(x)'w_q = phi(x)' R^{-T} w_q
        correction = (w.mT @ a.unsqueeze(-1)).squeeze(-1)
        theta = theta + _solve_transposed(factor.info_root, correction)
    return GeneralizedLinearPath(
        feature_map=FourierMap(kernel),
        weight=theta.to(model.train_targets.dtype),
        bias_module=model.mean_module,
        input_transform=get_input_transform(model),
        output_transform=get_output_transform(model),
    )


def _update_weights(model: DTCGP, belief: Belief, prior_paths) -> tuple[Tensor, Tensor]:
    r"""Return the kernel centres and their weights, ``samples x batch x m``."""
    factor = belief.factor
    # The points are transformed already, and ``forward`` bypasses the input transform.
    prior_values = prior_paths.forward(belief.points).double()
    theta = factor.coef + torch.randn_like(prior_values)
    theta = _solve_transposed(factor.info_root, theta)  # R^{-T} (c + eps)
    excess = prior_values - model.mean_module(belief.points).double()
    # K_SS^{-1} (u - f(S)) = L^{-T} (theta - L^{-1} (f(S) - mu(S)))
    theta = theta - solve_vector(factor.root, excess)
    weight = _solve_transposed(factor.root, theta)
    if belief.conditional is None:
        return belief.points, weight
    return _add_conditional(model, belief, prior_paths, weight, theta)


def _add_conditional(model, belief, prior_paths, weight, theta) -> tuple[Tensor, Tensor]:
    conditional, extra = belief.conditional, belief.extra_points
    z, w = conditional.embedding
    path = prior_paths.forward(extra).double() + (z @ theta.unsqueeze(-1)).squeeze(-1)
    mean = model.mean_module(extra).double() + belief.factor.mean(conditional.embedding)
    covariance = conditional.embedding.covariance(model.covar_module(extra).to_dense().double())
    a = _innovation_weights(conditional, mean, covariance, path)
    # cov(x, X_q) = k(x, X_q) + k_S(x)' L^{-T} (R^{-T} w_q - z_q)
    correction = _solve_transposed(belief.factor.info_root, (w.mT @ a.unsqueeze(-1)).squeeze(-1))
    correction = correction - (z.mT @ a.unsqueeze(-1)).squeeze(-1)
    weight = weight + _solve_transposed(belief.factor.root, correction)
    batch = torch.broadcast_shapes(belief.points.shape[:-2], extra.shape[:-2])
    points = [p.expand(*batch, *p.shape[-2:]) for p in (belief.points, extra)]
    lead = torch.broadcast_shapes(weight.shape[:-1], a.shape[:-1])
    weights = [t.expand(*lead, t.shape[-1]) for t in (weight, a)]
    return torch.cat(points, -2), torch.cat(weights, -1)


def _innovation_weights(
    conditional: Conditional, mean: Tensor, covariance: Tensor, path: Tensor
) -> Tensor:
    r"""Return ``M^{-1} (y_q + noise - path(X_q))`` with ``M = cov(X_q, X_q) + noise``.

    Args:
        conditional: The conditional of the DTC process on ``X_q``.
        mean: The means at ``X_q`` before conditioning.
        covariance: The covariance of ``X_q`` before conditioning.
        path: The values of the path at ``X_q``.
    """
    # y - mean(X_q) = T coef, so the innovation does not need the observations.
    observed = mean + (conditional.root @ conditional.coef.unsqueeze(-1)).squeeze(-1)
    noise = conditional.root @ conditional.root.mT - covariance
    noise = noise.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    innovation = observed + noise.sqrt() * torch.randn_like(path) - path
    return _solve_transposed(conditional.root, solve_vector(conditional.root, innovation))


def _solve_transposed(root: Tensor, vector: Tensor) -> Tensor:
    if root.dim() == 2 and len(root):  # all samples at once, without a copy of the root for each
        rows = vector.reshape(-1, vector.shape[-1])
        solved = torch.linalg.solve_triangular(root, rows, upper=False, left=False)
        return solved.reshape(vector.shape)
    return torch.linalg.solve_triangular(root.mT, vector.unsqueeze(-1), upper=True).squeeze(-1)
