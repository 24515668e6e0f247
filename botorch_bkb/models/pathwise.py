r"""Sample paths from the DTC posterior, for BoTorch's pathwise samplers.

BoTorch's handler for exact GPs would sample from the exact posterior instead, in ``O(n^3)``. DTC
keeps its information at the dictionary ``S``, so Matheron's rule is applied there. With a prior
path ``f`` and ``u`` drawn from the posterior of the values at ``S``,

.. code-block:: text

    path(x) = f(x) + k_S(x)' K_SS^{-1} (u - f(S)),     u = mu(S) + L R^{-T} (c + eps)

After conditioning on ``(X_q, y_q)``, the rule is applied again, with the DTC covariance:

.. code-block:: text

    path(x) + cov(x, X_q) M^{-1} (y_q + noise - path(X_q))

Both corrections are combinations of kernel functions at ``S`` and ``X_q``.

Reference:
    Wilson, Borovitskiy, Terenin, Mostowsky, Deisenroth: Efficiently sampling functions from
    Gaussian process posteriors. ICML 2020.
"""

from __future__ import annotations

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.features import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths, MatheronPath
from botorch.sampling.pathwise.prior_samplers import TPathwisePriorSampler
from botorch.sampling.pathwise.update_strategies import TPathwiseUpdate
from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
from botorch.utils.context_managers import delattr_ctx
from torch import Size, Tensor

from botorch_bkb.belief import Belief
from botorch_bkb.linalg import solve_vector
from botorch_bkb.models.dtc import DTCGP


@DrawMatheronPaths.register(DTCGP)
def _draw_matheron_paths_DTCGP(
    model: DTCGP,
    *,
    sample_shape: Size,
    prior_sampler: TPathwisePriorSampler,
    update_strategy: TPathwiseUpdate,
) -> MatheronPath:
    model.eval()
    belief = model._belief_now()
    if model._aug_batch_shape != model.covar_module.batch_shape:
        raise UnsupportedError(
            f"Sample paths need a kernel for each batch, got a kernel with batch shape "
            f"{tuple(model.covar_module.batch_shape)} in a model with "
            f"{tuple(model._aug_batch_shape)} (for example batches of fantasies): draw from the "
            "model as it was before conditioning in batches."
        )
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
    # y - mean(X_q) = T coef, so the innovation does not need the observations.
    mean = model.mean_module(extra).double() + belief.factor.mean(conditional.embedding)
    observed = mean + (conditional.root @ conditional.coef.unsqueeze(-1)).squeeze(-1)
    noise = conditional.root @ conditional.root.mT - conditional.embedding.covariance(
        model.covar_module(extra).to_dense().double()
    )
    noise = noise.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    innovation = observed + noise.sqrt() * torch.randn_like(path) - path
    a = _solve_transposed(conditional.root, solve_vector(conditional.root, innovation))
    # cov(x, X_q) = k(x, X_q) + k_S(x)' L^{-T} (R^{-T} w_q - z_q)
    correction = _solve_transposed(belief.factor.info_root, (w.mT @ a.unsqueeze(-1)).squeeze(-1))
    correction = correction - (z.mT @ a.unsqueeze(-1)).squeeze(-1)
    weight = weight + _solve_transposed(belief.factor.root, correction)
    batch = torch.broadcast_shapes(belief.points.shape[:-2], extra.shape[:-2])
    points = [p.expand(*batch, *p.shape[-2:]) for p in (belief.points, extra)]
    lead = torch.broadcast_shapes(weight.shape[:-1], a.shape[:-1])
    weights = [t.expand(*lead, t.shape[-1]) for t in (weight, a)]
    return torch.cat(points, -2), torch.cat(weights, -1)


def _solve_transposed(root: Tensor, vector: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(root.mT, vector.unsqueeze(-1), upper=True).squeeze(-1)
