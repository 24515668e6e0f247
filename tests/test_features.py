r"""Kernels with features, and the rules that make them."""

from __future__ import annotations

import math
import pickle
import warnings
from copy import deepcopy

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import LinearKernel, MaternKernel, ProductKernel, RBFKernel, ScaleKernel

from botorch_bkb import QuadratureFeatures, RandomFeatures
from botorch_bkb.belief import kernel_diagonal, kernel_matrix
from botorch_bkb.dictionaries import features as rules
from botorch_bkb.features import FeatureKernel, approximated, gauss_hermite, stretched
from tests import naive

X = 2 * torch.rand(25, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def with_hyperparameters(kernel, lengthscale=0.8, variance=None):
    kernel = kernel.double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    if variance is None:
        return kernel
    scaled = ScaleKernel(kernel).double()
    scaled.outputscale = torch.tensor(variance, dtype=torch.float64)
    return scaled


KERNELS = {
    "rbf": with_hyperparameters(RBFKernel()),
    "ard": with_hyperparameters(RBFKernel(ard_num_dims=2), [0.7, 1.4]),
    "scaled": with_hyperparameters(RBFKernel(ard_num_dims=2), [0.7, 1.4], 3.0),
    "twice scaled": ScaleKernel(with_hyperparameters(RBFKernel(), 0.9, 2.0)).double(),
    "one dimension": with_hyperparameters(RBFKernel(active_dims=[1]), 0.6, 2.0),
}


def dense(kernel, A=X, B=X):
    with torch.no_grad():
        return kernel(A, B).to_dense()


@pytest.mark.parametrize("num_nodes", [1, 2, 5, 12, 40])
def test_gauss_hermite_integrates_polynomials_exactly(num_nodes):
    nodes, weights = gauss_hermite(num_nodes)
    assert torch.equal(nodes, -nodes.flip(0)) and torch.equal(weights, weights.flip(0))
    for degree in range(0, min(2 * num_nodes, 12), 2):
        moment = math.prod(range(1, degree, 2))  # of a standard normal
        assert float(weights @ nodes**degree) == pytest.approx(moment, rel=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_quadrature_approximates_the_kernel(name):
    kernel = KERNELS[name]
    features = QuadratureFeatures(30).belief_kernel(kernel, X)
    torch.testing.assert_close(dense(features), dense(kernel), atol=1e-12, rtol=0)


@pytest.mark.parametrize("m", [3, 6])
def test_half_of_the_grid_gives_the_kernel_of_the_papers_features(m):
    features = QuadratureFeatures(m).belief_kernel(KERNELS["scaled"], X)
    variance, scaled = stretched(KERNELS["scaled"], X)
    phi = variance.sqrt() * naive.quadrature_features(scaled, m)
    torch.testing.assert_close(dense(features), (phi @ phi.mT).detach(), atol=1e-13, rtol=0)
    assert features.num_features == m**2 + m % 2


def test_the_quadrature_error_falls_faster_than_exponentially():
    errors = []
    for m in (4, 8, 16, 32):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            features = QuadratureFeatures(m).belief_kernel(KERNELS["rbf"], X)
        errors.append(float((dense(features) - dense(KERNELS["rbf"])).abs().max()))
    assert errors[1] < errors[0] / 10 and errors[2] < errors[1] ** 2 and errors[3] < 1e-12


@pytest.mark.parametrize("nu", [None, 0.5, 1.5, 2.5])
def test_random_features_have_the_right_expectation(nu):
    base = RBFKernel(ard_num_dims=2) if nu is None else MaternKernel(nu=nu, ard_num_dims=2)
    kernel = with_hyperparameters(base, [0.7, 1.4], 2.0)
    seeds, exact = 400, dense(kernel)
    drawn = [dense(RandomFeatures(100, seed).belief_kernel(kernel, X)) for seed in range(seeds)]
    error = torch.stack(drawn) - exact
    # Each frequency has a cosine in [-1, 1] times the variance 2, and there are 50 of them. Five
    # standard deviations of the mean over all draws.
    assert error.mean(0).abs().max() < 5 * 2 / math.sqrt(50 * seeds)
    assert error.std() < 2 / math.sqrt(50)
    more = dense(RandomFeatures(10_000).belief_kernel(kernel, X)) - exact
    assert more.std() < error.std() / 5


@pytest.mark.parametrize("rule", [QuadratureFeatures(9), RandomFeatures(40)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_is_the_product_of_its_features(rule, name):
    kernel = rule.belief_kernel(KERNELS[name], X)
    Z = kernel.features(X).detach()
    assert Z.shape == (25, kernel.num_features)
    torch.testing.assert_close(dense(kernel), Z @ Z.mT)
    torch.testing.assert_close(kernel_matrix(kernel, X, X[:3]).detach(), Z @ Z[:3].mT)
    torch.testing.assert_close(kernel(X, diag=True).detach(), Z.square().sum(-1))
    torch.testing.assert_close(kernel_diagonal(kernel, X).detach(), Z.square().sum(-1))
    prior = dense(KERNELS[name]).diagonal()
    torch.testing.assert_close(kernel_diagonal(kernel, X).detach(), prior, atol=1e-12, rtol=0)


def test_features_follow_the_hyperparameters():
    kernel = RandomFeatures(60).belief_kernel(deepcopy(KERNELS["scaled"]), X)
    before = kernel.features(X).detach()
    kernel.base_kernel.outputscale *= 4
    torch.testing.assert_close(kernel.features(X).detach(), 2 * before)
    kernel.base_kernel.base_kernel.lengthscale *= 3
    torch.testing.assert_close(kernel.features(3 * X).detach(), 2 * before)
    value = kernel.features(X).square()[:, :7].sum()
    names = {name for name, _ in kernel.named_parameters()}
    assert names == {"base_kernel.raw_outputscale", "base_kernel.base_kernel.raw_lengthscale"}
    assert all(g.abs().max() > 0 for g in torch.autograd.grad(value, list(kernel.parameters())))


def test_frequencies_are_not_saved_nor_rounded():
    kernel = RandomFeatures(60).belief_kernel(KERNELS["rbf"], X)
    assert list(kernel.state_dict()) == ["base_kernel.raw_lengthscale"] + [
        f"base_kernel.raw_lengthscale_constraint.{end}" for end in ("lower_bound", "upper_bound")
    ]
    before = dense(kernel)
    copies = [deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), deepcopy(kernel).float()]
    assert all(torch.equal(c.frequencies, kernel.frequencies) for c in copies)
    assert torch.equal(dense(copies[1]), before)
    assert copies[2].base_kernel.lengthscale.dtype == torch.float32
    assert dense(copies[2], X.float(), X.float()).dtype == torch.float32
    assert approximated(kernel) is kernel.base_kernel
    assert approximated(kernel.base_kernel) is kernel.base_kernel


def test_a_seed_makes_the_draw():
    first, same, other = (
        RandomFeatures(20, seed).belief_kernel(KERNELS["rbf"], X) for seed in (0, 0, 1)
    )
    assert torch.equal(first.frequencies, same.frequencies)
    assert not torch.equal(first.frequencies, other.frequencies)
    state = torch.random.get_rng_state()
    RandomFeatures(20).belief_kernel(KERNELS["rbf"], X)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_weights_lost_to_rounding_are_left_out():
    kernel = QuadratureFeatures(100).belief_kernel(KERNELS["one dimension"], X)
    assert kernel.num_features < 60
    torch.testing.assert_close(dense(kernel), dense(KERNELS["one dimension"]), atol=1e-12, rtol=0)


def test_too_few_nodes_warn_and_the_number_named_is_enough():
    wide = 10 * X
    with pytest.warns(InputDataWarning, match="Use at least") as caught:
        QuadratureFeatures(12).belief_kernel(KERNELS["rbf"], wide)
    enough = int(str(caught[0].message).split("Use at least ")[1].split()[0])
    monkey = rules.MOST_FEATURES
    try:
        rules.MOST_FEATURES = 10**6
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kernel = QuadratureFeatures(enough).belief_kernel(KERNELS["rbf"], wide)
    finally:
        rules.MOST_FEATURES = monkey
    assert (dense(kernel, wide, wide) - dense(KERNELS["rbf"], wide, wide)).abs().max() < 0.05


def test_no_inputs_are_chosen():
    noise = torch.ones(25, dtype=torch.float64)
    for rule in (QuadratureFeatures(3), RandomFeatures(4)):
        assert rule.select(X, KERNELS["rbf"], noise).shape == (0,)
        assert not rule.keeps_coins and not rule.joins_at_once and not rule.is_random(100)
        with pytest.raises(UnsupportedError, match="chooses no inducing points"):
            rule.allocate_inducing_points(X, KERNELS["rbf"], 5, torch.Size())


class Own(RBFKernel):
    r"""A kernel of the user's own, which may be no RBF kernel any more."""


@pytest.mark.parametrize(
    "kernel",
    [LinearKernel(), Own(), ScaleKernel(LinearKernel()), ProductKernel(RBFKernel(), RBFKernel())],
    ids=lambda kernel: type(kernel).__name__,
)
def test_other_kernels_are_refused(kernel):
    for rule in (QuadratureFeatures(3), RandomFeatures(4)):
        with pytest.raises(UnsupportedError, match="RidgeLeverageSampling"):
            rule.belief_kernel(kernel.double(), X)


def test_quadrature_refuses_matern_and_many_dimensions():
    with pytest.raises(UnsupportedError, match=r"got MaternKernel: use RandomFeatures"):
        QuadratureFeatures().belief_kernel(MaternKernel().double(), X)
    wide = torch.rand(4, 6, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match=r"12\^6 = 2,985,984 .* nodes_per_dim <= 4"):
        QuadratureFeatures(12).belief_kernel(RBFKernel().double(), wide)
    QuadratureFeatures(4).belief_kernel(RBFKernel(active_dims=[0, 1]).double(), wide)


@pytest.mark.parametrize("value", [0, -2, 3, 10_002, 2.0, True, None, "many"])
def test_bad_numbers_of_random_features(value):
    with pytest.raises(InputDataError, match="num_features must be an even number"):
        RandomFeatures(value)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, 10**6])
def test_bad_numbers_of_nodes(value):
    with pytest.raises(InputDataError, match="nodes_per_dim must be"):
        QuadratureFeatures(value)


def test_bad_seeds():
    for seed in (0.5, None, True):
        with pytest.raises(InputDataError, match="seed must be a whole number"):
            RandomFeatures(4, seed)


def test_batches_of_kernels():
    kernel = ScaleKernel(RBFKernel(batch_shape=[3]), batch_shape=[3]).double()
    kernel.base_kernel.lengthscale = torch.tensor([0.5, 1.0, 2.0]).reshape(3, 1, 1)
    kernel.outputscale = torch.tensor([1.0, 2.0, 3.0])
    features = FeatureKernel(kernel, *QuadratureFeatures(25)._spectrum(RBFKernel(), 0.5 * X))
    assert features.batch_shape == torch.Size([3])
    torch.testing.assert_close(dense(features), dense(kernel), atol=1e-8, rtol=0)
    assert kernel_diagonal(features, X).shape == (3, 25)
