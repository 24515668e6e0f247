r"""Picks that are random: Thompson sampling and epsilon-greedy."""

from __future__ import annotations

import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb import EpsilonGreedy
from tests.optimizers.support import Problem, make, play, warm


@pytest.fixture
def problem():
    return Problem()


class TestThompson:
    def test_draws_have_the_moments_of_the_posterior(self, problem):
        optimizer = warm(problem, acquisition="thompson")
        table = optimizer.table
        generator = torch.Generator().manual_seed(0)
        theta = table.draw(20_000, generator)
        z = table.coordinates(slice(None))
        samples = z @ theta
        expected = z @ table.inverse_information @ z.mT
        error = (samples @ samples.mT / 20_000 - expected).abs()
        # A sample covariance of 20,000 draws deviates by some sqrt(2 / 20,000) of the variance.
        assert (error < 0.05 * expected.diagonal().max()).all()

    def test_it_finds_the_best_arm(self, problem):
        optimizer = make(problem, acquisition="thompson")
        for _ in play(optimizer, problem, 400):
            pass
        assert problem.f.max() - problem.f[optimizer.best().index] < 0.1


class TestEpsilonGreedy:
    def test_probability_one_is_uniform_and_zero_is_greedy(self, problem):
        greedy = warm(problem, EpsilonGreedy, probability=0.0)
        assert set(greedy.ask().indices.tolist()) == {greedy.best().index}
        uniform = warm(problem, EpsilonGreedy, probability=1.0, batch_threshold=50.0)
        assert uniform.ask().indices.unique().numel() > 10

    @pytest.mark.parametrize("probability", [-0.1, 1.5, float("nan")])
    def test_what_is_no_probability_is_refused(self, problem, probability):
        with pytest.raises(InputDataError, match="probability"):
            make(problem, EpsilonGreedy, probability=probability)
