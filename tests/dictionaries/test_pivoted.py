r"""Randomly pivoted Cholesky: its law, its limits, and its use in models and optimizers."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.models import SingleTaskVariationalGP
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel

from botorch_bkb import BBKB, BKB, DTCGP, RandomlyPivotedCholesky, RidgeLeverageSampling
from botorch_bkb.dictionaries import ObservedInputs, race, unexplained
from botorch_bkb.dictionaries.scores import smallest_coins
from tests import naive
from tests.problems import rbf

#: Chi-square with 5 degrees of freedom exceeds this with probability 1e-4.
UNLIKELY, DRAWS = 25.7, 1_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kernel(lengthscale: float = 0.4, batch: tuple[int, ...] = ()) -> RBFKernel:
    k = RBFKernel(batch_shape=torch.Size(batch)).double()
    k.lengthscale = lengthscale
    return k.requires_grad_(False)


def inputs(n: int, d: int = 1, batch: tuple[int, ...] = ()) -> torch.Tensor:
    return torch.rand(*batch, n, d, generator=generator(), dtype=torch.float64)


def noise(X: torch.Tensor) -> torch.Tensor:
    return torch.full(X.shape[:-1], 0.1, dtype=torch.float64)


def chi_square(found: Counter, law: dict[tuple[int, ...], float]) -> float:
    draws = sum(found.values())
    return sum((found[key] - draws * p) ** 2 / (draws * p) for key, p in law.items())


class TestLaw:
    r"""Frequencies of pairs of four inputs, against all probabilities. The seed is fixed."""

    X = torch.tensor([[0.0], [0.1], [0.5], [1.5]], dtype=torch.float64)

    def law(self, weights: list[float]) -> dict[tuple[int, ...], float]:
        K = rbf(self.X, self.X, 0.4)
        return naive.pivoted_cholesky_law(K, torch.tensor(weights).double(), 2)

    @pytest.mark.parametrize("block", [1, 2, 128])
    def test_equals_that_of_one_draw_after_another(self, block, monkeypatch):
        monkeypatch.setattr(race, "BLOCK", block)
        rule, g, found = RandomlyPivotedCholesky(2), generator(1), Counter()
        for _ in range(DRAWS):
            chosen = rule.select(self.X, kernel(), noise(self.X), generator=g)
            found[tuple(chosen.tolist())] += 1
        assert chi_square(found, self.law([1.0] * 4)) < UNLIKELY

    def test_weights_are_counts_over_noise(self):
        lam, counts = torch.tensor([0.1, 0.2, 0.1, 0.4]), torch.tensor([1, 2, 5, 1])
        rule, g, found = RandomlyPivotedCholesky(2), generator(2), Counter()
        for _ in range(DRAWS):
            chosen = rule.select(self.X, kernel(), lam.double(), counts=counts, generator=g)
            found[tuple(chosen.tolist())] += 1
        assert chi_square(found, self.law((counts / lam).tolist())) < UNLIKELY

    def test_equal_rows_have_the_weight_of_all(self):
        X = torch.cat([self.X, self.X[2:3], self.X[2:3]])
        rule, g, found = RandomlyPivotedCholesky(2), generator(3), Counter()
        for _ in range(DRAWS):
            found[tuple(rule.select(X, kernel(), noise(X), generator=g).tolist())] += 1
        assert chi_square(found, self.law([1.0, 1.0, 3.0, 1.0])) < UNLIKELY

    def test_coins_of_pulls_give_the_same_law_to_an_optimizer(self):
        counts, g, found = torch.tensor([1.0, 2.0, 5.0, 1.0]), generator(4), Counter()
        for _ in range(DRAWS):
            seen = observed(self.X, counts, smallest_coins(counts, g))
            drawn = RandomlyPivotedCholesky(2).draw(seen, generator())
            found[tuple(drawn.positions.tolist())] += 1
        assert chi_square(found, self.law(counts.tolist())) < UNLIKELY


def observed(X: torch.Tensor, counts: torch.Tensor, coins: torch.Tensor) -> ObservedInputs:
    return ObservedInputs(
        table=X, rows=torch.arange(len(X)), kernel=kernel(), noise=noise(X), counts=counts,
        scores=None, coins=coins, newest=0, informative=torch.arange(len(X)),
    )  # fmt: skip


class TestSelection:
    @pytest.mark.parametrize("block", [1, 7, 64])
    def test_blocks_do_not_show(self, block, monkeypatch):
        X, rule = inputs(300, d=2), RandomlyPivotedCholesky(40)
        whole = rule.select(X, kernel(0.2), noise(X), generator=generator(5))
        monkeypatch.setattr(race, "BLOCK", block)
        again = rule.select(X, kernel(0.2), noise(X), generator=generator(5))
        assert len(whole) == 40 and torch.equal(whole, again)

    @pytest.mark.parametrize("k", [RBFKernel(), MaternKernel(nu=0.5)])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_equal_rows_enter_once(self, k, dtype):
        X = inputs(5, d=3).to(dtype).repeat(30, 1)
        rule = RandomlyPivotedCholesky(20)
        chosen = rule.select(X, k.to(dtype), noise(X).to(dtype), generator=generator())
        assert len(chosen) == 5 == len(X[chosen].unique(dim=0))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_stops_where_nothing_is_left_to_explain(self, dtype):
        X, k = inputs(200, d=3).to(dtype), LinearKernel().to(dtype)  # a matrix of rank three
        chosen = RandomlyPivotedCholesky(50).select(X, k, noise(X), generator=generator())
        assert len(chosen) == 3

    def test_one_input_and_a_kernel_of_zero(self):
        X, rule = torch.zeros(4, 1, dtype=torch.float64), RandomlyPivotedCholesky(3)
        assert rule.select(X[:1], kernel(), noise(X[:1])).tolist() == [0]
        assert rule.select(X, LinearKernel().double(), noise(X)).tolist() == [0]

    def test_batches_share_a_dictionary_that_serves_each(self):
        X = inputs(300).expand(2, 300, 1).clone()
        X[1] = X[1] ** 4
        k = kernel(batch=(2,))
        k.lengthscale = torch.tensor([[[0.05]], [[0.1]]])
        S = RandomlyPivotedCholesky(40).select(X, k, noise(X), generator=generator())
        assert len(S) == 40
        for x, lengthscale in zip(X, (0.05, 0.1), strict=True):
            assert unexplained(kernel(lengthscale), x[S], x) < 0.01

    def test_never_builds_an_n_by_n_matrix(self):
        sizes = []

        class Watched(RBFKernel):
            def forward(self, *args, **kwargs):
                out = super().forward(*args, **kwargs)
                sizes.append(out.numel())
                return out

        X, watched = inputs(6_000, d=3), Watched().double()
        watched.lengthscale = 0.1
        RandomlyPivotedCholesky(200).select(X, watched, noise(X), generator=generator())
        assert max(sizes) <= 4096 * 128

    def test_a_generator_makes_it_repeatable(self):
        X, rule = inputs(500), RandomlyPivotedCholesky(10)
        a, b, c = (
            rule.select(X, kernel(0.05), noise(X), generator=generator(seed)) for seed in (3, 3, 4)
        )
        assert torch.equal(a, b) and not torch.equal(a, c) and rule.is_random(500)
        own = RandomlyPivotedCholesky(10, generator=generator(3))
        assert torch.equal(own.select(X, kernel(0.05), noise(X)), a)

    @pytest.mark.parametrize("size", [0, -1, 2.5, True])
    def test_refuses_a_size_that_is_not_a_positive_integer(self, size):
        with pytest.raises(InputDataError, match="size must be a positive integer"):
            RandomlyPivotedCholesky(size)


def points(optimizer: BKB) -> set[tuple[float, ...]]:
    return set(map(tuple, optimizer.dictionary.tolist()))


class TestUse:
    def test_in_a_model(self):
        X = inputs(700, d=2)
        model = DTCGP(X, X.sin(), dictionary=RandomlyPivotedCholesky(30))
        assert len(model.dictionary_indices) == 30
        assert model.posterior(X[:3]).mean.shape == (3, 2)

    def test_as_a_botorch_allocator(self):
        X = inputs(100, d=2)
        model = SingleTaskVariationalGP(
            X, X[:, :1], inducing_points=20, inducing_point_allocator=RandomlyPivotedCholesky(50),
            learn_inducing_points=False,
        )  # fmt: skip
        assert model.model.variational_strategy.inducing_points.shape == (20, 2)

    @pytest.mark.parametrize("domain", ["arms", "bounds"])
    def test_in_optimizers(self, domain):
        corners = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        where = {"arms": inputs(60, d=2), "bounds": corners}[domain]
        optimizer = BBKB(**{domain: where}, dictionary=RandomlyPivotedCholesky(6), seed=0)
        while optimizer.num_observations < 25:
            suggestion = optimizer.ask(at_most=4)
            optimizer.tell(suggestion, suggestion.X.sum(-1))
        assert len(optimizer.dictionary) == 6

    def test_kept_coins_change_few_points_from_one_result_to_the_next(self):
        r"""Fresh draws of 30 of 200 points have about 30 (1 - 30 / 200) new ones."""
        X = inputs(210, d=2)
        given = {"covar_module": kernel(0.05), "noise_var": 0.1, "seed": 0}
        optimizer = BKB(X, dictionary=RandomlyPivotedCholesky(30), **given)
        optimizer.tell(range(200), X[:200].sum(-1))
        changes = []
        for row in range(200, 210):
            before = points(optimizer)
            optimizer.tell([row], X[row : row + 1].sum(-1))
            changes.append(len(before - points(optimizer)))
        assert sum(changes) <= 20

    def test_leaves_less_unexplained_than_a_sample_of_equal_size(self):
        X = inputs(600, d=2)
        S = RidgeLeverageSampling(2.0).select(X, kernel(0.2), noise(X), generator=generator())
        P = RandomlyPivotedCholesky(len(S)).select(X, kernel(0.2), noise(X), generator=generator())
        assert unexplained(kernel(0.2), X[P], X) < unexplained(kernel(0.2), X[S], X)
