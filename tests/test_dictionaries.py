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
from botorch_bkb.confidence import bbkb_oversampling, bkb_oversampling
from botorch_bkb.dictionaries import (
    Candidates,
    ObservedInputs,
    as_rule,
    data_leverage,
    first_occurrences,
    threshold_of,
)
from botorch_bkb.dictionaries.scores import smallest_coins
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
        X, k = inputs(2000), kernel(0.1)
        lam = noise(X, 0.1)
        K = rbf(X, X, 0.1)
        d_eff = torch.trace(torch.linalg.solve(K + 0.1 * torch.eye(2000).double(), K))
        chosen = RidgeLeverageSampling(4.0).select(X, k, lam, generator=generator(0))
        # Expected size 4 d_eff where the scores are exact; Theorem 1 (b) allows 3 times that.
        assert d_eff < len(chosen) < 12 * d_eff

    def test_never_builds_an_n_by_n_matrix(self):
        sizes = []

        class Watched(RBFKernel):
            def forward(self, *args, **kwargs):
                out = super().forward(*args, **kwargs)
                sizes.append(out.numel())
                return out

        X, watched = inputs(6000), Watched().double().requires_grad_(False)
        RidgeLeverageSampling(2.0).select(X, watched, noise(X), generator=generator(0))
        assert 256 * 256 <= max(sizes) <= 4096 * 512

    def test_cap_thins_the_draw_by_its_coins_with_one_warning(self):
        X = inputs(100)
        scores = torch.linspace(0.5, 1, 100, dtype=torch.float64)  # all certain to be drawn
        with pytest.warns(BotorchWarning, match="drawn and 10 of them kept") as caught:
            chosen = RidgeLeverageSampling(2.0, max_size=10).select(
                X, kernel(), noise(X), scores=scores, generator=generator(0)
            )
        coins = smallest_coins(torch.ones(100), generator(0))
        assert len(caught) == 1 and chosen.tolist() == coins.argsort()[:10].sort().values.tolist()
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

    @pytest.mark.parametrize("oversampling", [0, -1, float("nan"), float("inf"), "much"])
    def test_refuses_oversampling_that_is_not_positive_and_finite(self, oversampling):
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


def observed(scores=(0.1, 0.4, 0.05, 0.3), **changes) -> ObservedInputs:
    r"""Four of six inputs, as an optimizer has observed them."""
    table = inputs(6)
    values = {
        "table": table,
        "rows": torch.tensor([0, 2, 3, 5]),
        "kernel": kernel(),
        "noise": noise(table[:4]),
        "counts": torch.tensor([1.0, 2.0, 1.0, 4.0]).double(),
        "scores": torch.tensor(scores, dtype=torch.float64),
        "coins": torch.tensor([0.15, 0.9, 0.01, 0.31], dtype=torch.float64),
        "newest": 2,
        "informative": torch.tensor([1, 2]),
    }
    return ObservedInputs(**{**values, **changes})


class TestDrawsOfOptimizers:
    def test_observed_inputs_are_rows_of_the_table(self):
        seen = observed()
        assert torch.equal(seen.X, seen.table[[0, 2, 3, 5]])

    def test_all_points(self):
        assert AllPoints().draw(observed(), generator()).positions.tolist() == [0, 1, 2, 3]
        positions, num_drawn = AllPoints(max_size=2).draw(observed(), generator())
        assert positions.tolist() == [0, 2] and num_drawn == 4  # those of smallest coins
        arms = AllPoints(max_size=2).draw(observed(recur=True), generator())
        assert arms.positions.tolist() == [1, 3] and arms.is_capped  # those of highest score

    @pytest.mark.parametrize(("discard", "expected"), [(True, [0, 1, 2, 3]), (False, [1, 2])])
    def test_informative_inputs(self, discard, expected):
        rule = InformationThreshold(0.1, discard=discard)
        assert rule.draw(observed(), generator()).positions.tolist() == expected

    def test_the_newest_input_where_none_is_informative(self):
        rule = InformationThreshold(0.1, discard=False)
        nothing = observed(informative=torch.empty(0, dtype=torch.long))
        assert rule.draw(nothing, generator()).positions.tolist() == [2]

    def test_coupled_draws_compare_scores_with_the_coins_that_were_kept(self):
        rule = RidgeLeverageSampling(1.0)
        assert rule.draw(observed(), generator()).positions.tolist() == [2]
        assert RidgeLeverageSampling(2.0).draw(observed(), generator()).positions.tolist() == [
            0, 2, 3,
        ]  # fmt: skip
        higher = RidgeLeverageSampling(3.0).draw(observed(), generator())
        assert higher.positions.tolist() == [0, 1, 2, 3]
        nothing = rule.draw(observed(scores=(0.0,) * 4, newest=1), generator())
        assert nothing.positions.tolist() == [1]

    def test_fresh_coins_follow_the_generator_and_the_counts(self):
        rule, seen = RidgeLeverageSampling(1.0, coupled=False), observed(scores=(0.3,) * 4)
        draws = [rule.draw(seen, generator(seed)).positions.tolist() for seed in range(40)]
        assert draws == [rule.draw(seen, generator(seed)).positions.tolist() for seed in range(40)]
        coins = smallest_coins(seen.counts, generator(0))
        assert draws[0] == (torch.nonzero(coins < 0.3).flatten().tolist() or [2])
        assert len({tuple(draw) for draw in draws}) > 5

    def test_a_cap_says_how_many_were_drawn(self):
        rule = RidgeLeverageSampling(3.0, max_size=2)
        positions, num_drawn = rule.draw(observed(), generator())  # coins over 0.3, 1, 0.15, 0.9
        assert positions.tolist() == [2, 3] and num_drawn == 4
        assert rule.draw(observed(recur=True), generator()).positions.tolist() == [1, 3]

    def test_without_scores_a_draw_is_from_scratch(self):
        seen = observed(scores=(0.1,) * 4)
        seen = ObservedInputs(**{**vars(seen), "scores": None})
        for q in (0.5, 4.0):
            rule = RidgeLeverageSampling(q)
            candidates = Candidates(seen.X, seen.kernel, seen.noise, None, seen.counts)
            scores = RidgeLeverageSampling(4.0).scores_by_doubling(candidates, generator(1))
            expected = rule.drawn(scores, seen.coins, seen.newest)  # by the coins of the optimizer
            assert torch.equal(rule.draw(seen, generator(1)).positions, expected)

    def test_other_rules_select_among_the_observed(self):
        rule = FromAllocator(GreedyVarianceReduction(), 2)
        seen = observed()
        expected = rule.select(seen.X, seen.kernel, seen.noise)
        assert torch.equal(rule.draw(seen, generator()).positions, expected)
        assert len(expected) == 2

    @pytest.mark.parametrize(
        ("rule", "joins", "keeps"),
        [
            (AllPoints(), True, True),
            (InformationThreshold(0.1), True, True),
            (RidgeLeverageSampling(2.0), False, True),
            (RidgeLeverageSampling(2.0, coupled=False), False, False),
            (Automatic(), False, True),
        ],
    )
    def test_what_joins_at_once_and_who_keeps_coins(self, rule, joins, keeps):
        assert (rule.joins_at_once, rule.keeps_coins) == (joins, keeps)

    def test_which_results_are_believed(self):
        rule = InformationThreshold(0.1)
        assert threshold_of(rule) is rule
        everything = threshold_of(RidgeLeverageSampling(2.0))
        assert everything.least_score is None and not everything.ends_batch
        assert rule.least_score == pytest.approx(0.221403, abs=1e-6)  # e^0.2 - 1

    def test_impossible_thresholds_are_refused(self):
        with pytest.raises(InputDataError, match="on_uninformative"):
            InformationThreshold(on_uninformative="ignore")
        with pytest.raises(InputDataError, match="discard"):
            InformationThreshold(discard="yes")


class TestOversamplingOfTheTheorems:
    def test_needs_a_horizon(self):
        with pytest.raises(InputDataError, match="horizon"):
            RidgeLeverageSampling("theory")

    def test_depends_on_delta_and_delay(self):
        rule = RidgeLeverageSampling("theory", horizon=100)
        assert rule.at_theory(0.1, 2.0, 0.5).rate == pytest.approx(bbkb_oversampling(100, 0.1, 2.0))
        finer = rule.at_theory(0.1, 2.0, 0.2)
        assert finer.rate == pytest.approx(2 * bkb_oversampling(100, 0.1, accuracy=0.2))
        given = RidgeLeverageSampling(3.0, horizon=100)
        assert given.at_theory(0.1, 2.0, 0.5) is given

    def test_a_model_cannot_know_it(self):
        X = inputs(5)
        with pytest.raises(InputDataError, match="pass a number"):
            RidgeLeverageSampling("theory", horizon=100).select(X, kernel(), noise(X))

    def test_is_raised_when_a_run_outlasts_its_horizon(self):
        rule = RidgeLeverageSampling("theory", horizon=100).at_theory(0.1, 2.0, 0.5)
        assert rule.outlasting(100, 0.1) is rule
        for num, horizon in ((101, 200), (200, 200), (201, 400), (799, 800)):
            longer = rule.outlasting(num, 0.1)
            assert longer.horizon == horizon
            assert longer.rate == pytest.approx(bbkb_oversampling(horizon, 0.1, 2.0))
        endless = RidgeLeverageSampling(3.0)
        assert endless.outlasting(10**6, 0.1) is endless


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
    with pytest.warns(BotorchWarning, match="dictionary points were drawn and 1000"):
        indices = Automatic().select(more, narrow, noise(more))
    assert len(indices) == 1000


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_first_occurrences(values):
    X = torch.tensor(values, dtype=torch.float64).unsqueeze(-1)
    expected = [i for i, v in enumerate(values) if v not in values[:i]]
    assert first_occurrences(X).tolist() == expected
