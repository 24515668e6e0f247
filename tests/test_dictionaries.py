from __future__ import annotations

import warnings

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import BotorchWarning
from botorch.models import SingleTaskVariationalGP
from botorch.models.utils.inducing_point_allocators import (
    GreedyVarianceReduction,
    InducingPointAllocator,
)
from gpytorch.kernels import RBFKernel
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import (
    AllPoints,
    Automatic,
    FromAllocator,
    InformationThreshold,
    RidgeLeverageSampling,
)
from botorch_bkb.dictionaries import as_rule, data_leverage, first_occurrences
from tests import naive
from tests.problems import rbf


def kernel(lengthscale: float = 0.4, batch: tuple[int, ...] = ()) -> RBFKernel:
    k = RBFKernel(batch_shape=torch.Size(batch)).double()
    k.lengthscale = lengthscale
    return k.requires_grad_(False)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(n: int, d: int = 1, batch: tuple[int, ...] = ()) -> torch.Tensor:
    return torch.rand(*batch, n, d, dtype=torch.float64)


def noise(X: torch.Tensor, value: float = 0.1) -> torch.Tensor:
    return torch.full(X.shape[:-1], value, dtype=torch.float64)


class TestAllPoints:
    def test_takes_each_distinct_row_once(self):
        X = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
        assert AllPoints().select(X, kernel(), noise(X)).tolist() == [0, 1, 3]

    def test_rows_equal_in_one_batch_only_are_distinct(self):
        X = inputs(4, batch=(2,))
        X[0, 1] = X[0, 0]
        assert AllPoints().select(X, kernel(), noise(X)).tolist() == [0, 1, 2, 3]
        X[1, 1] = X[1, 0]
        assert AllPoints().select(X, kernel(), noise(X)).tolist() == [0, 2, 3]


class TestDataLeverage:
    def test_equals_the_dense_formula_with_counts_and_noise_levels(self):
        X, counts = inputs(9), torch.tensor([1, 2, 1, 1, 3, 1, 1, 4, 1])
        lam = 0.05 + torch.rand(9, dtype=torch.float64)
        S = X[:4]
        rows = torch.repeat_interleave(torch.arange(9), counts)
        _, cov = naive.dtc(
            rbf(S, S),
            rbf(X[rows], S),
            rbf(X, S),
            rbf(X, X),
            torch.zeros(len(rows)).double(),
            lam[rows],
        )
        expected = cov.diagonal() / lam
        torch.testing.assert_close(data_leverage(kernel(), S, X, lam, counts), expected)

    def test_is_the_same_in_one_chunk_or_many(self, monkeypatch):
        X = inputs(50)
        whole = data_leverage(kernel(), X[:5], X, noise(X))
        from botorch_bkb import belief

        monkeypatch.setattr(belief.chunks, "__defaults__", (7,))
        torch.testing.assert_close(data_leverage(kernel(), X[:5], X, noise(X)), whole)


class TestRidgeLeverageSampling:
    @pytest.mark.parametrize("counts", [None, torch.tensor([1, 2, 3, 1, 8, 1])])
    def test_sampling_law(self, counts):
        r"""Chi-square of 4000 draws against ``1 - (1 - p)^c``, each input on its own.

        The sum over 6 inputs of squared standardised frequencies is chi-square with 6
        degrees of freedom: above 27.9 with probability 1e-4, and the seed is fixed.
        """
        X = inputs(6)
        scores = torch.tensor([0.9, 0.05, 0.1, 0.3, 0.02, 0.2], dtype=torch.float64)
        rule, g, draws = RidgeLeverageSampling(oversampling=1.5), generator(1), 4000
        hits = torch.zeros(6)
        for _ in range(draws):
            chosen = rule.select(X, kernel(), noise(X), scores=scores, counts=counts, generator=g)
            hits[chosen] += 1
        p = (1.5 * scores).clamp(max=1)
        p = 1 - (1 - p) ** (1 if counts is None else counts)
        certain = p == 1
        assert (hits[certain] == draws).all()
        # An empty draw is replaced by the newest input; its probability is added there.
        p[-1] += (1 - p).prod()
        z2 = (hits - draws * p) ** 2 / (draws * p * (1 - p))
        assert z2[~certain].sum() < 27.9

    def test_inputs_never_pulled_are_never_drawn(self):
        scores, counts = torch.tensor([1.0, 0.01]), torch.tensor([0, 1])
        p = RidgeLeverageSampling(4.0).inclusion_probability(scores, counts)
        torch.testing.assert_close(p, torch.tensor([0.0, 0.04]))

    def test_coins_are_independent(self):
        X, g = inputs(2), generator(2)
        scores = torch.tensor([0.5, 0.5], dtype=torch.float64)
        rule = RidgeLeverageSampling(1.0)
        both = sum(
            len(rule.select(X, kernel(), noise(X), scores=scores, generator=g)) == 2
            for _ in range(2000)
        )
        # Binomial(2000, 1/4): sd 19.4, so five of them.
        assert abs(both - 500) < 97

    def test_a_generator_makes_it_repeatable(self):
        X = inputs(3000)
        rule = RidgeLeverageSampling(2.0)
        a, b, c = (
            rule.select(X, kernel(0.1), noise(X), generator=generator(seed)) for seed in (3, 3, 4)
        )
        assert torch.equal(a, b) and not torch.equal(a, c)
        own = RidgeLeverageSampling(2.0, generator=generator(3))
        assert torch.equal(own.select(X, kernel(0.1), noise(X)), a)

    def test_from_scratch_keeps_variances_within_a_factor(self):
        r"""BKB Theorem 1 (a) in practice: at 8-fold oversampling the factor is below 1.5."""
        X, T = inputs(1500, d=2), inputs(200, d=2)
        k, lam = kernel(0.3), noise(X, 0.2)
        chosen = RidgeLeverageSampling(8.0).select(X, k, lam, generator=generator(0))
        exact = naive.exact(
            rbf(X, X, 0.3), rbf(T, X, 0.3), rbf(T, T, 0.3), torch.zeros(1500).double(), lam
        )[1].diagonal()
        S = X[chosen]
        sparse = naive.dtc(
            rbf(S, S, 0.3),
            rbf(X, S, 0.3),
            rbf(T, S, 0.3),
            rbf(T, T, 0.3),
            torch.zeros(1500).double(),
            lam,
        )[1].diagonal()
        assert len(chosen) < 600
        ratio = sparse / exact
        assert ratio.min() > 1 / 1.5 and ratio.max() < 1.5

    def test_dictionary_size_follows_the_effective_dimension(self):
        X, k = inputs(4000), kernel(0.1)
        lam = noise(X, 0.1)
        K = rbf(X, X, 0.1)
        d_eff = torch.trace(torch.linalg.solve(K + 0.1 * torch.eye(4000).double(), K))
        chosen = RidgeLeverageSampling(4.0).select(X, k, lam, generator=generator(0))
        # Expected size 4 d_eff where the scores are exact; Theorem 1 (b) allows 3 times that.
        assert d_eff < len(chosen) < 12 * d_eff

    def test_never_builds_an_n_by_n_matrix(self, monkeypatch):
        largest = 0
        from botorch_bkb import belief
        from botorch_bkb.dictionaries import leverage

        plain = belief.kernel_matrix

        def watched(k, X1, X2=None):
            nonlocal largest
            out = plain(k, X1, X2)
            largest = max(largest, out.numel())
            return out

        monkeypatch.setattr(leverage, "kernel_matrix", watched)
        monkeypatch.setattr(belief, "kernel_matrix", watched)
        X = inputs(6000)
        RidgeLeverageSampling(2.0).select(X, kernel(), noise(X), generator=generator(0))
        assert 0 < largest <= 4096 * 512

    def test_cap_keeps_the_highest_scores_with_one_warning(self):
        X = inputs(100)
        scores = torch.linspace(0.5, 1, 100, dtype=torch.float64)  # all certain to be drawn
        with pytest.warns(BotorchWarning, match="10 of highest score") as caught:
            chosen = RidgeLeverageSampling(2.0, max_size=10).select(
                X, kernel(), noise(X), scores=scores, generator=generator(0)
            )
        assert len(caught) == 1 and chosen.tolist() == list(range(90, 100))
        with pytest.warns(BotorchWarning) as caught:
            RidgeLeverageSampling(2.0, max_size=10).select(
                inputs(3000), kernel(0.01), noise(inputs(3000), 1e-4), generator=generator(0)
            )
        assert len(caught) == 1

    def test_empty_draw_keeps_the_newest_input(self):
        X = inputs(5)
        scores = torch.full((5,), 1e-300, dtype=torch.float64)
        chosen = RidgeLeverageSampling(1.0).select(X, kernel(), noise(X), scores=scores)
        assert chosen.tolist() == [4]

    def test_duplicates_enter_once(self):
        X = inputs(3).repeat(50, 1)
        chosen = RidgeLeverageSampling(1e6).select(X, kernel(), noise(X))
        assert len(X[chosen].unique()) == len(chosen) == 3

    def test_batches_share_a_dictionary_that_serves_each(self):
        X = inputs(700, batch=(2,))
        k = kernel(0.1, batch=(2,))
        k.lengthscale = torch.tensor([[[0.05]], [[1.0]]])
        chosen = RidgeLeverageSampling(4.0).select(X, k, noise(X), generator=generator(0))
        alone = RidgeLeverageSampling(4.0).select(
            X[0], kernel(0.05), noise(X[0]), generator=generator(0)
        )
        assert len(chosen) >= 0.8 * len(alone)

    @pytest.mark.parametrize("oversampling", [0, -1, float("nan")])
    def test_refuses_oversampling_that_is_not_positive(self, oversampling):
        with pytest.raises(InputDataError, match="oversampling must be positive"):
            RidgeLeverageSampling(oversampling)

    @pytest.mark.parametrize("n", [1, 2, 511, 512, 513, 1025])
    def test_any_number_of_inputs(self, n):
        X = inputs(n)
        chosen = RidgeLeverageSampling(2.0).select(X, kernel(), noise(X))
        assert 1 <= len(chosen) <= n and chosen.max() < n


class TestInformationThreshold:
    @given(st.integers(0, 1000), st.sampled_from([1e-4, 1e-2, 0.3]))
    def test_equals_the_entropies_of_the_paper(self, seed, epsilon):
        g = generator(seed)
        X = torch.rand(25, 2, generator=g, dtype=torch.float64)
        lam = 0.05 + torch.rand(25, generator=g, dtype=torch.float64)
        chosen = InformationThreshold(epsilon).select(X, kernel(), lam)
        assert chosen.tolist() == naive.information_threshold(rbf(X, X), lam, epsilon)

    def test_blocks_do_not_show(self, monkeypatch):
        X = inputs(60, d=2)
        rule = InformationThreshold(1e-2)
        whole = rule.select(X, kernel(), noise(X))
        from botorch_bkb.dictionaries import threshold

        plain = threshold.chunks
        monkeypatch.setattr(threshold, "chunks", lambda n, size: plain(n, 7))
        assert torch.equal(rule.select(X, kernel(), noise(X)), whole)

    def test_stops_growing_by_itself(self):
        X = inputs(3000)
        rule = InformationThreshold(1e-2)
        first = len(rule.select(X[:1000], kernel(), noise(X[:1000])))
        assert len(rule.select(X, kernel(), noise(X))) < 1.1 * first

    def test_a_threshold_of_zero_keeps_everything(self):
        X = inputs(12)
        assert len(InformationThreshold(0.0).select(X, kernel(0.05), noise(X))) == 12

    def test_cap_warns_once(self):
        X = inputs(300)
        with pytest.warns(BotorchWarning, match="max_size = 7") as caught:
            chosen = InformationThreshold(0.0, max_size=7).select(X, kernel(0.01), noise(X))
        assert len(chosen) == 7 and len(caught) == 1

    def test_batches(self):
        X = inputs(40, batch=(3,))
        chosen = InformationThreshold(1e-2).select(X, kernel(batch=(3,)), noise(X))
        alone = [InformationThreshold(1e-2).select(x, kernel(), noise(x)) for x in X]
        assert len(chosen) >= max(map(len, alone))

    def test_refuses_a_negative_threshold(self):
        with pytest.raises(InputDataError, match="epsilon"):
            InformationThreshold(-1.0)


class TestAllocators:
    @pytest.mark.parametrize(
        "rule", [AllPoints(), RidgeLeverageSampling(2.0), InformationThreshold(1e-3), Automatic()]
    )
    def test_rules_are_botorch_allocators(self, rule):
        assert isinstance(rule, InducingPointAllocator)
        X = inputs(600, d=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BotorchWarning)
            model = SingleTaskVariationalGP(
                X, X[:, :1], inducing_points=20, inducing_point_allocator=rule
            )
        Z = model.model.variational_strategy.inducing_points
        assert 1 <= Z.shape[-2] <= 20
        assert model.posterior(X[:3]).mean.shape == (3, 1)

    def test_botorch_allocators_are_rules(self):
        X = inputs(30)
        chosen = as_rule(GreedyVarianceReduction()).select(X, kernel(), noise(X))
        points = GreedyVarianceReduction().allocate_inducing_points(X, kernel(), 30, torch.Size())
        assert sorted(X[chosen].squeeze(-1).tolist()) == sorted(points.squeeze(-1).tolist())

    def test_an_allocator_that_invents_points_is_refused(self):
        class Inventor(GreedyVarianceReduction):
            def allocate_inducing_points(self, inputs, *args, **kwargs):
                return inputs[:2] + 0.5

        X = inputs(5)
        with pytest.raises(InputDataError, match="among the inputs"):
            FromAllocator(Inventor(), 2).select(X, kernel(), noise(X))

    def test_what_is_neither_is_refused(self):
        with pytest.raises(InputDataError, match="dictionary must be"):
            as_rule("all")


def test_automatic_is_exact_up_to_500_and_sampled_beyond():
    X = inputs(501)
    assert len(Automatic().select(X[:500], kernel(), noise(X[:500]))) == 500
    assert len(Automatic().select(X, kernel(), noise(X))) < 100


@pytest.mark.parametrize("n", [600, 1500])  # the cap of 1,000 binds for the second
def test_where_most_points_would_be_sampled_all_are(n):
    X = torch.rand(n, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    narrow = RBFKernel().double()
    narrow.lengthscale = 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Automatic().select(X, narrow, noise(X))) == n
    more = torch.cat([X, X + 1, X + 2, X + 3])[:2100]
    with pytest.warns(BotorchWarning, match="dictionary points were drawn and the 1000"):
        indices = Automatic().select(more, narrow, noise(more))
    assert len(indices) == 1000


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_first_occurrences(values):
    X = torch.tensor(values, dtype=torch.float64).unsqueeze(-1)
    expected = [i for i, v in enumerate(values) if v not in values[:i]]
    assert first_occurrences(X).tolist() == expected
