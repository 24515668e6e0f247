r"""Dictionaries of limited size: what is kept, and what the user is told."""

from __future__ import annotations

import warnings

import pytest
import torch
from botorch.exceptions.warnings import BotorchWarning
from gpytorch.kernels import RBFKernel
from hypothesis import given
from hypothesis import strategies as st

from botorch_bkb import BKB, DTCGP, AllPoints, Automatic, RidgeLeverageSampling
from botorch_bkb.dictionaries import Candidates, ObservedInputs, thinned, unexplained
from botorch_bkb.dictionaries.scores import smallest_coins
from tests.problems import rbf

CAPPED = "dictionary points were drawn"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def observed(n: int, seed: int, most_pulls: int = 5, **changes) -> ObservedInputs:
    r"""Inputs on a line with scores up to 1, and several pulls of each."""
    g = generator(seed)
    X = torch.rand(n, 1, generator=g, dtype=torch.float64)
    counts = torch.randint(1, most_pulls + 1, (n,), generator=g).double()
    values = {
        "table": X,
        "rows": torch.arange(n),
        "kernel": RBFKernel().double().requires_grad_(False),
        "noise": torch.ones(n, dtype=torch.float64),
        "counts": counts,
        "scores": torch.rand(n, generator=g, dtype=torch.float64),
        "coins": smallest_coins(counts, g),
        "newest": n - 1,
        "informative": torch.arange(n),
    }
    return ObservedInputs(**{**values, **changes})


def draw(inputs: ObservedInputs, oversampling: float, max_size: int | None = None) -> list[int]:
    rule = RidgeLeverageSampling(oversampling, max_size)
    return rule.draw(inputs, generator()).positions.tolist()


class TestThinning:
    @given(st.integers(0, 10_000), st.integers(1, 30), st.floats(0.1, 50.0), st.integers(1, 30))
    def test_lowers_all_probabilities_by_one_factor(self, seed, n, oversampling, max_size):
        seen = observed(n, seed)
        kept = draw(seen, oversampling, max_size)
        whole = draw(seen, oversampling)
        assert len(kept) == min(len(whole), max_size)
        if len(whole) > max_size:
            p = (oversampling * seen.scores).clamp(max=1.0)
            ratios = (seen.coins / p).tolist()
            factor = sorted(ratios)[max_size]
            assert factor < 1 and kept == [i for i in range(n) if ratios[i] < factor]

    @given(st.integers(0, 10_000), st.integers(1, 30), st.floats(0.01, 1.0), st.integers(1, 30))
    def test_is_a_draw_at_a_smaller_oversampling(self, seed, n, oversampling, max_size):
        r"""With scores and oversampling of at most 1 no probability is cut off at 1."""
        seen = observed(n, seed)
        kept, whole = draw(seen, oversampling, max_size), draw(seen, oversampling)
        if len(whole) > max_size:
            ratios = sorted((seen.coins / seen.scores)[whole].tolist())
            smaller = (ratios[max_size - 1] + ratios[max_size]) / 2
            assert smaller < oversampling and kept == draw(seen, smaller)

    @given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 15))
    def test_a_smaller_cap_keeps_a_subset(self, seed, n, max_size):
        seen = observed(n, seed)
        assert set(draw(seen, 4.0, max_size)) <= set(draw(seen, 4.0, max_size + 3))

    def test_single_pulls_are_kept_with_equal_probability(self):
        r"""Chi-square of 3,000 draws of 2 of 5 certain inputs, whatever their scores.

        Frequencies of a sample without replacement vary less than binomial ones, and 4 degrees of
        freedom exceed 23.5 with probability 1e-4. The seed is fixed.
        """
        scores, g = torch.tensor([0.5, 0.6, 0.9, 5.0, 100.0]).double(), generator(1)
        p, hits = (2 * scores).clamp(max=1.0), torch.zeros(5)
        for _ in range(3_000):
            coins = smallest_coins(torch.ones(5), g)
            hits[thinned(torch.arange(5), coins, 2, p).positions] += 1
        assert ((hits - 1_200) ** 2 / 1_200).sum() < 23.5

    def test_equal_rows_count_once(self):
        X = torch.rand(3, 1, generator=generator(), dtype=torch.float64).repeat(40, 1)
        inputs = Candidates(X, RBFKernel().double(), torch.ones(120).double())
        chosen = RidgeLeverageSampling(1e6, max_size=2).choose(inputs, generator())
        assert chosen.num_drawn == 3 and len(X[chosen.positions].unique()) == 2

    def test_kept_coins_change_few_points_from_one_draw_to_the_next(self):
        first = observed(200, 0)
        later = {**vars(first), "scores": 0.95 * first.scores}
        kept, then = (set(draw(ObservedInputs(**v), 4.0, 30)) for v in (vars(first), later))
        fresh = {**later, "coins": smallest_coins(first.counts, generator(9))}
        assert len(kept - then) <= 2 < 15 < len(kept - set(draw(ObservedInputs(**fresh), 4.0, 30)))


class TestOverArms:
    def test_the_highest_scores_are_kept(self):
        seen = observed(20, 0, recur=True)
        highest = seen.scores.topk(6).indices.sort().values.tolist()
        assert draw(seen, 1e9, 6) == highest
        chosen = AllPoints(max_size=6).draw(seen, generator())
        assert chosen.positions.tolist() == highest and chosen.num_drawn == 20

    @pytest.mark.filterwarnings("ignore:.*dictionary points")
    def test_an_optimizer_over_arms_keeps_them_and_one_over_a_box_does_not(self):
        r"""All scores are at least 0.1, so all inputs are drawn."""
        X = torch.rand(20, 1, generator=generator(), dtype=torch.float64)
        corners = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        rule, seen = Watched(100.0, 5), []
        for domain in ({"arms": X}, {"bounds": corners}):
            optimizer = BKB(**domain, dictionary=rule, noise_var=0.1, covar_module=RBFKernel())
            rule.seen.clear()
            optimizer.tell(X, X.sin())
            seen.append(rule.seen[-1].recur)
            assert len(optimizer.dictionary) == 5
        assert seen == [True, False]


class Watched(RidgeLeverageSampling):
    seen: list[ObservedInputs] = []  # noqa: RUF012

    def draw(self, inputs, generator):
        self.seen.append(inputs)
        return super().draw(inputs, generator)


class TestUnexplained:
    def test_is_the_relative_trace_of_the_schur_complement(self):
        X = torch.rand(3, 30, 2, generator=generator(), dtype=torch.float64)
        K, S = rbf(X, X, 0.3), X[:, :4]
        Q = rbf(X, S, 0.3) @ torch.linalg.inv(rbf(S, S, 0.3)) @ rbf(S, X, 0.3)
        kernel = RBFKernel().double()
        kernel.lengthscale = torch.tensor(0.3, dtype=torch.float64)
        expected = (K - Q).diagonal(dim1=-2, dim2=-1).sum() / 90
        assert unexplained(kernel, S, X) == pytest.approx(float(expected), rel=1e-8)
        counts = torch.arange(30)
        weighted = ((K - Q).diagonal(dim1=-2, dim2=-1) * counts).sum() / (3 * counts.sum())
        assert unexplained(kernel, S, X, counts) == pytest.approx(float(weighted), rel=1e-8)

    def test_is_nothing_with_all_points(self):
        X = torch.rand(8, 1, generator=generator(), dtype=torch.float64)
        assert unexplained(RBFKernel().double(), X, X) < 1e-9


def narrow() -> RBFKernel:
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.002
    return kernel


class TestWarning:
    def test_appears_once_per_model_and_says_what_is_lost(self):
        X = torch.rand(600, 1, generator=generator(), dtype=torch.float64)
        model = DTCGP(
            X, X.sin(), torch.full_like(X, 0.01), covar_module=narrow(), outcome_transform=None,
            dictionary=RidgeLeverageSampling(4.0, 20),
        )  # fmt: skip
        with pytest.warns(BotorchWarning, match=CAPPED) as caught:
            rows = model.eval().dictionary_indices
        share = unexplained(model.covar_module, X[rows], X)
        assert len(caught) == 1 and f"{100 * share:.2g} % of the prior" in str(caught[0].message)
        assert "max_size" in str(caught[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error", BotorchWarning)
            model.covar_module.lengthscale = 0.003
            assert not torch.equal(model.eval().dictionary_indices, rows)
            model.resparsify(generator())

    def test_every_selection_without_a_model_warns(self):
        X = torch.rand(2100, 6, generator=generator(), dtype=torch.float64)
        for _ in range(2):
            with pytest.warns(BotorchWarning, match=CAPPED) as caught:
                Automatic().select(X, narrow(), torch.full((2100,), 0.01).double())
            assert len(caught) == 1

    def test_points_to_the_users_code(self):
        X = torch.rand(100, 1, generator=generator(), dtype=torch.float64)
        with pytest.warns(BotorchWarning, match=CAPPED) as caught:
            RidgeLeverageSampling(4.0, 5).select(X, narrow(), torch.ones(100).double())
        assert caught[0].filename == __file__

    def test_of_an_optimizer_appears_once_also_for_draws_from_scratch(self):
        X = torch.rand(1300, 1, generator=generator(), dtype=torch.float64)
        optimizer = BKB(X, max_dictionary=20, covar_module=narrow(), noise_var=0.01, seed=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.tell(range(600), X[:600].sin())  # more than can be scored by the old belief
            optimizer.tell(range(600, 1300), X[600:].sin())
        (warning,) = [w for w in caught if CAPPED in str(w.message)]
        for word in ("max_dictionary", "% of the prior variance"):
            assert word in str(warning.message)
        assert warning.filename == __file__
